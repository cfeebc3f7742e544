"""How frames get through a bus that python-can has opened: by its own messages, or straight through its socket.

Design: python-can opens and closes the bus. Reading and writing the socket of SocketCAN is several times faster than
python-can's messages; the bytes are the same.

Source: Linux, include/uapi/linux/can.h.
"""

import select
import socket
import struct
from abc import ABC, abstractmethod
from typing import Any

import can

from hil.frame import Frame
from hil.loop.clock import SECOND

_SO_TIMESTAMPNS = 35  # Linux, asm-generic/socket.h
_STAMP = struct.Struct("@ll")
_SPACE = socket.CMSG_SPACE(_STAMP.size) if hasattr(socket, "CMSG_SPACE") else 0
_CAN_FRAME = struct.Struct("=IB3x8s")
_CANFD_FRAME = struct.Struct("=IBB2x64s")
_EXTENDED, _REMOTE, _ERROR = 0x80000000, 0x40000000, 0x20000000
_BRS, _FDF = 0x01, 0x04


class UnreadableError(ValueError):
    """What came in is not a frame."""


class FrameChannel(ABC):
    """Moves frames to and from an open bus."""

    @abstractmethod
    def send(self, frame: Frame) -> None:
        """Sends a frame without waiting.

        Raises:
            OSError, CanError: The interface refuses it.
        """

    @abstractmethod
    def receive(self, timeout: float) -> Frame | None:
        """The next frame, not yet checked. Where nothing has come in yet, it waits for at most `timeout` [s].

        Returns:
            The frame, with the system time of its arrival [ns] and its length as the wire says it; or None. None may
            come before the time is over: a later call then has the frame.

        Raises:
            OSError, CanError: The interface is down.
            UnreadableError: What came in is not a frame.
        """

    @abstractmethod
    def close(self) -> None:
        """Closes what the channel itself has opened; the bus stays open."""


class PythonCanChannel(FrameChannel):
    """Frames as messages of python-can, for any interface.

    Design: where the bus has a file descriptor, that is waited on: the waiting of python-can follows the system time,
    which may be set meanwhile. A frame that comes while we wait is left for the next call, so that its caller knows
    that the queue was empty before.

    Args:
        bus: An open bus.
        descriptor: File descriptor to wait on; None: the bus has none.
    """

    def __init__(self, bus: can.BusABC, descriptor: int | None) -> None:
        self._bus, self._descriptor = bus, descriptor
        self._arrived: can.Message | None = None

    def send(self, frame: Frame) -> None:
        message = can.Message(
            arbitration_id=frame.id,
            is_extended_id=frame.extended,
            is_remote_frame=frame.remote,
            is_error_frame=frame.error,
            dlc=frame.length if frame.remote else len(frame.data),
            data=frame.data,
            is_fd=frame.fd,
            bitrate_switch=frame.brs,
        )
        self._bus.send(message, timeout=0.0)

    def receive(self, timeout: float) -> Frame | None:
        message: Any = self._arrived
        self._arrived = None
        if message is None:
            message = self._message(0.0)
        if message is not None:
            # An interface may give 0 and 1 for the flags.
            return Frame(
                message.arbitration_id,
                bytes(message.data),
                bool(message.is_extended_id),
                bool(message.is_remote_frame),
                bool(message.is_error_frame),
                message.dlc,  # for python-can the number of bytes, in FD frames too
                round(message.timestamp * SECOND),
                bool(message.is_fd),
                bool(message.bitrate_switch),
            )
        if timeout > 0.0:
            self._wait(timeout)
        return None

    def _wait(self, timeout: float) -> None:
        if self._descriptor is None:
            self._arrived = self._message(timeout)
            return
        try:
            select.select([self._descriptor], [], [], timeout)
        except ValueError as error:  # the descriptor was closed
            raise OSError(str(error)) from error

    def _message(self, timeout: float) -> can.Message | None:
        try:
            return self._bus.recv(timeout)
        except can.CanOperationError as error:
            # python-can raises this for bytes that are not a frame, with the decoder's error as its cause, and for a
            # bus that is down, with an OSError or nothing as its cause.
            if error.__cause__ is None or isinstance(error.__cause__, OSError):
                raise
            raise UnreadableError(str(error)) from error

    def close(self) -> None:
        pass


class SocketCanChannel(FrameChannel):
    """Frames as bytes on a SocketCAN socket.

    Args:
        opened: The socket.
    """

    def __init__(self, opened: socket.socket) -> None:
        opened.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._socket, self._sender = opened, opened.dup()
        self._waiting = select.poll()
        self._waiting.register(opened, select.POLLIN | select.POLLERR)
        for each in (opened, self._sender):
            each.setblocking(False)

    def close(self) -> None:
        self._sender.close()

    def receive(self, timeout: float) -> Frame | None:
        # A last look mostly finds nothing, and an exception costs more than a poll. Other looks mostly find a frame,
        # so they read first and wait only if nothing is there.
        if timeout <= 0.0 and not self._waiting.poll(0):
            return None
        while True:
            try:
                record, extra, _, _ = self._socket.recvmsg(_CANFD_FRAME.size, _SPACE)
                break
            except BlockingIOError:
                if timeout <= 0.0 or not select.select([self._socket], [], [], timeout)[0]:
                    return None
            timeout = 0.0
        seconds, rest = _STAMP.unpack(extra[0][2])
        return self._read(record, seconds * SECOND + rest)

    def send(self, frame: Frame) -> None:
        flags = frame.extended * _EXTENDED | frame.remote * _REMOTE | frame.error * _ERROR
        length = frame.length if frame.remote else len(frame.data)
        if frame.fd:
            kind = _FDF | frame.brs * _BRS
            self._sender.send(_CANFD_FRAME.pack(frame.id | flags, length, kind, frame.data))
        else:
            self._sender.send(_CAN_FRAME.pack(frame.id | flags, length, frame.data))

    def _read(self, record: bytes, stamp: int) -> Frame:
        if fd := len(record) == _CANFD_FRAME.size:
            word, length, kind, data = _CANFD_FRAME.unpack(record)
        else:
            kind = 0
            word, length, data = _CAN_FRAME.unpack_from(record)
        extended, remote, error = bool(word & _EXTENDED), bool(word & _REMOTE), bool(word & _ERROR)
        identity = word & (0x1FFFFFFF if extended or error else 0x7FF)
        payload = b"" if remote else data[:length]
        return Frame(identity, payload, extended, remote, error, length, stamp, fd, bool(kind & _BRS))
