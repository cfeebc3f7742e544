"""Frames straight through a bus's socket, where an interface of python-can is one: in general, and for SocketCAN.

python-can opens the bus and closes it; the bytes are those that it puts on the same socket, and takes from it.

Source: Linux, include/uapi/linux/can.h.
"""

import select
import socket
import struct
from abc import ABC, abstractmethod
from typing import Any

from hil.frame import Frame
from hil.loop.clock import SECOND

_SO_TIMESTAMPNS = 35  # Linux, asm-generic/socket.h
_STAMP = struct.Struct("@ll")
_SPACE = socket.CMSG_SPACE(_STAMP.size) if hasattr(socket, "CMSG_SPACE") else 0
_CAN_FRAME = struct.Struct("=IB3x8s")
_EXTENDED, _REMOTE, _ERROR = 0x80000000, 0x40000000, 0x20000000
_FD_SIZE = 72


class Taken:
    """What came in.

    Attributes:
        id: Arbitration id.
        data: Payload.
        extended: Whether the id has 29 bits.
        remote: Whether it asks for data.
        error: Whether it is an error frame.
        dlc: Data length code.
        fd: Whether it is a CAN FD frame.
        stamp: System time of its arrival [ns].
    """

    def __init__(
        self, id: int, data: bytes, extended: bool, remote: bool, error: bool, dlc: int, fd: bool, stamp: int
    ) -> None:
        """Takes the attributes."""
        self.id, self.data, self.dlc, self.stamp = id, data, dlc, stamp
        self.extended, self.remote, self.error, self.fd = extended, remote, error, fd


class UnreadableError(ValueError):
    """What came in is no frame."""


class Raw(ABC):
    """The socket of a bus that is open.

    Attributes:
        own: Whose datagrams are not taken in; None: everybody's are.
        dropped: Datagrams that the kernel dropped because it was told to.
    """

    own: Any = None
    dropped = 0

    def __init__(self, opened: socket.socket, length: int, sender: socket.socket | None = None) -> None:
        """Takes the socket, the length of the longest record on it [byte], and what sends; None: the same one."""
        opened.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._socket, self._length, self._sender = opened, length, sender or opened.dup()
        self._there = select.poll()
        self._there.register(opened, select.POLLIN | select.POLLERR)
        for each in (opened, self._sender):
            each.setblocking(False)

    @abstractmethod
    def send(self, frame: Frame) -> None:
        """Sends a frame without waiting.

        Raises:
            OSError: It is not taken.
        """

    @abstractmethod
    def _read(self, record: bytes, stamp: int) -> Taken:
        """Makes sense of a record."""

    def close(self) -> None:
        """Closes what sends; the socket is the bus's."""
        self._sender.close()

    def receive(self, timeout: float) -> Taken | None:
        """What is there, or comes within so long [s]; None where nothing does.

        Raises:
            OSError: The interface is down.
            UnreadableError: It is no frame.
        """
        if timeout <= 0.0 and not self._there.poll(0):  # mostly nothing is left then, and an exception costs more
            return None
        while True:
            try:
                record, extra, _, sender = self._socket.recvmsg(self._length, _SPACE)
            except BlockingIOError:  # nothing is there: mostly something is, so that waiting comes second
                if timeout <= 0.0 or not select.select([self._socket], [], [], timeout)[0]:
                    return None
            else:
                if sender != self.own:
                    break
            timeout = 0.0
        seconds, rest = _STAMP.unpack(extra[0][2])
        return self._read(record, seconds * SECOND + rest)


class RawSocketCan(Raw):
    """A SocketCAN socket."""

    def __init__(self, opened: socket.socket) -> None:
        """Takes the socket."""
        super().__init__(opened, _FD_SIZE)

    def send(self, frame: Frame) -> None:
        flags = frame.extended * _EXTENDED | frame.remote * _REMOTE | frame.error * _ERROR
        length = frame.length if frame.remote else len(frame.data)
        self._sender.send(_CAN_FRAME.pack(frame.id | flags, length, frame.data))

    def _read(self, record: bytes, stamp: int) -> Taken:
        word, length, data = _CAN_FRAME.unpack_from(record)
        extended, remote, error = bool(word & _EXTENDED), bool(word & _REMOTE), bool(word & _ERROR)
        identity = word & (0x1FFFFFFF if extended or error else 0x7FF)
        payload = b"" if remote else data[:length]
        return Taken(identity, payload, extended, remote, error, length, len(record) == _FD_SIZE, stamp)
