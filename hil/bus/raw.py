"""Frames straight through a bus's socket, for the two interfaces of python-can that are one.

python-can opens the bus and closes it; the bytes are those that it puts on the same socket, and takes from it.

Source: Linux, include/uapi/linux/can.h; python-can, interfaces/udp_multicast/utils.py.
"""

import socket
import struct
from abc import ABC, abstractmethod
from typing import NamedTuple

from hil.frame import Frame
from servoctl.loop.clock import SECOND

_SO_TIMESTAMPNS = 35  # Linux, asm-generic/socket.h
_STAMP = struct.Struct("@ll")
_SPACE = socket.CMSG_SPACE(_STAMP.size) if hasattr(socket, "CMSG_SPACE") else 0
_CAN_FRAME = struct.Struct("=IB3x8s")
_EXTENDED, _REMOTE, _ERROR = 0x80000000, 0x40000000, 0x20000000
_FD_SIZE = 72
_LARGEST_BLOB = 4096
_BOOLEAN = (False, True)


class Taken(NamedTuple):
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

    id: int
    data: bytes
    extended: bool
    remote: bool
    error: bool
    dlc: int
    fd: bool
    stamp: int


class UnreadableError(ValueError):
    """What came in is no frame."""


class Raw(ABC):
    """The socket of a bus that is open."""

    def __init__(self, opened: socket.socket, length: int) -> None:
        """Takes the socket, and the length of the longest record on it [byte]."""
        opened.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._socket, self._length = opened, length

    @abstractmethod
    def send(self, frame: Frame) -> None:
        """Sends a frame without waiting.

        Raises:
            OSError: It is not taken.
        """

    @abstractmethod
    def _read(self, record: bytes, stamp: int) -> Taken:
        """Makes sense of a record."""

    def receive(self) -> Taken | None:
        """What is there; None where nothing is.

        Raises:
            OSError: The interface is down.
            UnreadableError: It is no frame.
        """
        try:
            record, extra, _, _ = self._socket.recvmsg(self._length, _SPACE, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
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
        self._socket.send(_CAN_FRAME.pack(frame.id | flags, length, frame.data), socket.MSG_DONTWAIT)

    def _read(self, record: bytes, stamp: int) -> Taken:
        word, length, data = _CAN_FRAME.unpack_from(record)
        extended, remote, error = bool(word & _EXTENDED), bool(word & _REMOTE), bool(word & _ERROR)
        identity = word & (0x1FFFFFFF if extended or error else 0x7FF)
        payload = b"" if remote else data[:length]
        return Taken(identity, payload, extended, remote, error, length, len(record) == _FD_SIZE, stamp)


class RawMulticast(Raw):
    """A socket of `udp_multicast`, whose frames are maps in MessagePack."""

    def __init__(self, opened: socket.socket, group: str, port: int) -> None:
        """Takes the socket and where it sends."""
        import msgpack  # of the extra `hil`

        super().__init__(opened, _LARGEST_BLOB)
        self._to, self._pack, self._unpack = (group, port), msgpack.Packer(use_bin_type=True).pack, msgpack.unpackb

    def send(self, frame: Frame) -> None:
        blob = self._pack(
            {
                "timestamp": 0.0,
                "arbitration_id": frame.id,
                "is_extended_id": frame.extended,
                "is_remote_frame": frame.remote,
                "is_error_frame": frame.error,
                "channel": None,
                "dlc": frame.length if frame.remote else len(frame.data),
                "data": frame.data,
                "is_fd": False,
                "bitrate_switch": False,
                "error_state_indicator": False,
            }
        )
        self._socket.sendto(blob, socket.MSG_DONTWAIT, self._to)

    def _read(self, record: bytes, stamp: int) -> Taken:
        try:
            said = self._unpack(record)
            identity, data, dlc = said["arbitration_id"], said["data"] or b"", said["dlc"]
            extended, remote, error = said["is_extended_id"], said["is_remote_frame"], said["is_error_frame"]
            fd = said["is_fd"]
        except Exception as problem:  # of MessagePack: all kinds
            raise UnreadableError(str(problem)) from problem
        if (
            type(identity) is not int
            or identity < 0
            or type(dlc) is not int
            or type(data) is not bytes
            or extended not in _BOOLEAN
            or remote not in _BOOLEAN
            or error not in _BOOLEAN
            or (remote and data)
        ):
            raise UnreadableError("no frame")
        return Taken(identity, data, extended, remote, error, dlc, fd, stamp)
