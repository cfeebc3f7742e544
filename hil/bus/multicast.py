"""Frames straight through the socket of `udp_multicast`: maps in MessagePack, as python-can has them.

Source: python-can, interfaces/udp_multicast/utils.py; MessagePack specification.
"""

import itertools
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress

from hil.bus.kernel_filter import drop
from hil.bus.raw import Raw, Taken, UnreadableError
from hil.frame import Frame

_IP_MULTICAST_ALL = 49  # Linux, linux/in.h
_LARGEST_BLOB = 4096
_BOOLEAN = (False, True)


def _text(key: str) -> bytes:
    return bytes([0xA0 | len(key)]) + key.encode()


def _flags(keys: Sequence[str], values: Sequence[bool]) -> bytes:
    return b"".join(_text(key) + (b"\xc3" if value else b"\xc2") for key, value in zip(keys, values, strict=True))


_BEGIN = b"\x8b" + _text("timestamp") + b"\xcb" + bytes(8) + _text("arbitration_id") + b"\xce"
_KIND = {
    kind: _flags(("is_extended_id", "is_remote_frame", "is_error_frame"), kind)
    + (_text("channel") + b"\xc0" + _text("dlc"))
    for kind in itertools.product(_BOOLEAN, repeat=3)
}
_KINDS = {flags: kind for kind, flags in _KIND.items()}
_DATA = _text("data") + b"\xc4"
_END = _flags(("is_fd", "bitrate_switch", "error_state_indicator"), (False, False, False))
_LAYOUT = struct.Struct(f">{len(_BEGIN)}sI{len(next(iter(_KINDS)))}sB{len(_DATA)}sB")


def pack(frame: Frame) -> bytes:
    """A frame as a map in MessagePack, with the keys of python-can in their order."""
    size = len(frame.data)
    kind, dlc = _KIND[frame.extended, frame.remote, frame.error], frame.length if frame.remote else size
    return _LAYOUT.pack(_BEGIN, frame.id, kind, dlc, _DATA, size) + frame.data + _END


def _by_layout(record: bytes, stamp: int) -> Taken | None:
    """A frame that `pack` may have packed; None where the map looks different."""
    if len(record) < _LAYOUT.size:
        return None
    begin, identity, flags, dlc, key, size = _LAYOUT.unpack_from(record)
    kind, end = _KINDS.get(flags), _LAYOUT.size + size
    if kind is None or begin != _BEGIN or key != _DATA or record[end:] != _END:
        return None
    extended, remote, error = kind
    if remote and size:
        return None
    return Taken(identity, record[_LAYOUT.size : end], extended, remote, error, dlc, False, stamp)


class RawMulticast(Raw):
    """A socket of `udp_multicast`.

    Design: it sends from a socket of its own, so that by their source the kernel drops the echoes of what was sent. A
    map of known shape is put together and taken apart by its layout; only other peers' maps pass through MessagePack.
    """

    def __init__(self, opened: socket.socket, group: str, port: int) -> None:
        """Takes the socket and where it sends.

        Raises:
            OSError: There is no route.
        """
        import msgpack  # of the extra `hil`

        super().__init__(opened, _LARGEST_BLOB, socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self._unpack = msgpack.unpackb
        with suppress(OSError):  # else it hears every group that any process has joined on this port
            opened.setsockopt(socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0)
        for option in (socket.IP_MULTICAST_TTL, socket.IP_MULTICAST_IF, socket.IP_MULTICAST_LOOP):
            self._sender.setsockopt(socket.IPPROTO_IP, option, opened.getsockopt(socket.IPPROTO_IP, option, 4))
        self._sender.connect((group, port))
        self.own = self._sender.getsockname()
        self._drops = drop(opened, *self.own)

    def send(self, frame: Frame) -> None:
        self._sender.send(pack(frame))
        self.dropped += self._drops

    def _read(self, record: bytes, stamp: int) -> Taken:
        return _by_layout(record, stamp) or self._by_name(record, stamp)

    def _by_name(self, record: bytes, stamp: int) -> Taken:
        try:
            said = self._unpack(record)
            identity, data, dlc = said["arbitration_id"], said["data"] or b"", said["dlc"]
            extended, remote, error = said["is_extended_id"], said["is_remote_frame"], said["is_error_frame"]
            fd = bool(said["is_fd"])
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
        # 0 and 1 may be flags, but not to compiled code
        return Taken(identity, data, bool(extended), bool(remote), bool(error), dlc, fd, stamp)
