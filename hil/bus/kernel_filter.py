"""Has the kernel drop what a socket need not hear.

Design: this stays Python. What the kernel is given the address of must live until it has read it, and compiled code
lets go of a name behind its last use.

Source: Linux, include/uapi/linux/filter.h.
"""

import ctypes
import ipaddress
import socket
import struct
from contextlib import suppress

_SO_ATTACH_FILTER = 26  # Linux, asm-generic/socket.h
_NETWORK_HEADER = 0xFFF00000  # SKF_NET_OFF of linux/filter.h


def drop(opened: socket.socket, address: str, port: int) -> bool:
    """Has the kernel drop what comes from one address and port; returns whether it does.

    A classic filter sees a datagram from its UDP header on.
    """
    program = (
        (0x28, 0, 0, 0),  # load the source port
        (0x15, 0, 3, port),  # another: let in
        (0x20, 0, 0, _NETWORK_HEADER + 12),  # load the source address
        (0x15, 0, 1, int(ipaddress.IPv4Address(address))),  # another: let in
        (0x06, 0, 0, 0),
        (0x06, 0, 0, 0xFFFFFFFF),
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *instruction) for instruction in program))
    where = struct.pack("@HL", len(program), ctypes.addressof(code))
    with suppress(OSError):  # `Raw.receive` drops them as well
        opened.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, where)
        return True
    return False
