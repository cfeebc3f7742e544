"""Makes the kernel drop datagrams that a socket does not need.

Design: the kernel reads the filter through its address, so the buffer must live until the system call is over.

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
    """Makes the kernel drop datagrams from one address and port.

    Returns:
        Whether the kernel does that.
    """
    # A classic filter reads a datagram from its UDP header on; the source address is in the network header before it.
    program = (
        (0x28, 0, 0, 0),  # load the source port
        (0x15, 0, 3, port),  # another port: accept
        (0x20, 0, 0, _NETWORK_HEADER + 12),  # load the source address
        (0x15, 0, 1, int(ipaddress.IPv4Address(address))),  # another address: accept
        (0x06, 0, 0, 0),  # drop
        (0x06, 0, 0, 0xFFFFFFFF),  # accept
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *instruction) for instruction in program))
    program_address = struct.pack("@HL", len(program), ctypes.addressof(code))
    with suppress(OSError):  # `SocketChannel.receive` ignores them too
        opened.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program_address)
        return True
    return False
