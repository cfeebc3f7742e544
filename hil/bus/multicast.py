"""How a frame looks on the socket of `udp_multicast`: a MessagePack map, as python-can writes it.

Source: python-can, interfaces/udp_multicast/utils.py; MessagePack specification.
"""

import itertools
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress

from hil.bus.channel import Received, SocketChannel, UnreadableError
from hil.bus.kernel_filter import drop
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
_END = {
    rates: _flags(("is_fd", "bitrate_switch", "error_state_indicator"), (*rates, False))
    for rates in itertools.product(_BOOLEAN, repeat=2)
}
_ENDS = {flags: rates for rates, flags in _END.items()}
_LAYOUT = struct.Struct(f">{len(_BEGIN)}sI{len(next(iter(_KINDS)))}sB{len(_DATA)}sB")


def pack(frame: Frame) -> bytes:
    """A frame as a MessagePack map, with the keys of python-can in their order."""
    size = len(frame.data)
    kind, dlc = _KIND[frame.extended, frame.remote, frame.error], frame.length if frame.remote else size
    return _LAYOUT.pack(_BEGIN, frame.id, kind, dlc, _DATA, size) + frame.data + _END[frame.fd, frame.brs]


def _by_layout(record: bytes, stamp: int) -> Received | None:
    """The frame of a map that is laid out as `pack` does it; None for any other map."""
    if len(record) < _LAYOUT.size:
        return None
    begin, identity, flags, dlc, key, size = _LAYOUT.unpack_from(record)
    end = _LAYOUT.size + size
    kind, rates = _KINDS.get(flags), _ENDS.get(record[end:])
    if kind is None or rates is None or begin != _BEGIN or key != _DATA:
        return None
    extended, remote, error = kind
    if remote and size:
        return None
    fd, brs = rates
    return Received(identity, record[_LAYOUT.size : end], extended, remote, error, dlc, fd, brs, stamp)


class MulticastChannel(SocketChannel):
    """Frames on a socket of `udp_multicast`.

    Design: it sends from a second socket, so that the kernel can recognise our own datagrams by their source and drop
    them. A map with the usual layout is packed and read as fixed bytes, which is fast; only maps of other layouts go
    through MessagePack.

    Args:
        opened: The socket that receives.
        group: Multicast address to send to.
        port: Port to send to.

    Raises:
        OSError: There is no route to the group.
    """

    def __init__(self, opened: socket.socket, group: str, port: int) -> None:
        import msgpack  # comes with the extra `hil`

        super().__init__(opened, _LARGEST_BLOB, socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self._unpack = msgpack.unpackb
        with suppress(OSError):  # otherwise it also receives the groups that other processes have joined on this port
            opened.setsockopt(socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0)
        for option in (socket.IP_MULTICAST_TTL, socket.IP_MULTICAST_IF, socket.IP_MULTICAST_LOOP):
            self._sender.setsockopt(socket.IPPROTO_IP, option, opened.getsockopt(socket.IPPROTO_IP, option, 4))
        self._sender.connect((group, port))
        self.own_address = self._sender.getsockname()
        self._drops = drop(opened, *self.own_address)

    def send(self, frame: Frame) -> None:
        self._sender.send(pack(frame))
        self.dropped += self._drops

    def _read(self, record: bytes, stamp: int) -> Received:
        return _by_layout(record, stamp) or self._by_name(record, stamp)

    def _by_name(self, record: bytes, stamp: int) -> Received:
        try:
            values = self._unpack(record)
            identity, data, dlc = values["arbitration_id"], values["data"] or b"", values["dlc"]
            extended, remote, error = values["is_extended_id"], values["is_remote_frame"], values["is_error_frame"]
            fd, brs = bool(values["is_fd"]), bool(values["bitrate_switch"])
        except Exception as problem:  # MessagePack raises many kinds
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
            raise UnreadableError("not a frame")
        # A peer may send 0 and 1 for the flags.
        return Received(identity, data, bool(extended), bool(remote), bool(error), dlc, fd, brs, stamp)
