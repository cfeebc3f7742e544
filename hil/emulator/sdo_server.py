"""The answers of an emulated node to SDO requests: expedited transfers of objects of up to four bytes.

Source: CiA 301, from python-canopen.
"""

import struct
from collections.abc import Callable, Mapping

from hil.emulator.objects import NO_OBJECT, NO_SUBINDEX, UNKNOWN_COMMAND, WRONG_LENGTH, Key, ObjectEntry

UPLOAD, DOWNLOAD = 2, 1


def answer(
    request: bytes,
    entries: Mapping[Key, ObjectEntry],
    aborts: Mapping[int | None, int],
    read: Callable[[Key], int],
    write: Callable[[Key, int], int],
) -> bytes:
    """The node's answer to a request, 8 bytes.

    Args:
        request: 8 bytes.
        entries: The object dictionary.
        aborts: Index of an object, or None for all -> abort code of every access to it.
        read: Returns the present value of an object.
        write: Writes an object; returns 0, or an abort code.
    """
    index, sub = struct.unpack_from("<HB", request, 1)
    key, command = (index, sub), request[0] >> 5
    code, entry = aborts.get(index, aborts.get(None, 0)), entries.get(key)
    if not code and entry is None:
        code = NO_SUBINDEX if (index, 0) in entries else NO_OBJECT
    elif not code and entry is not None and command == UPLOAD:
        data = entry.form.pack(read(key))
        return (bytes([0x43 | 4 - len(data) << 2]) + request[1:4] + data).ljust(8, b"\0")
    elif not code and entry is not None and command == DOWNLOAD and request[0] & 2:
        size = 4 - (request[0] >> 2 & 3) if request[0] & 1 else entry.form.size
        code = write(key, int(entry.form.unpack_from(request, 4)[0])) if size == entry.form.size else WRONG_LENGTH
    elif not code:
        code = UNKNOWN_COMMAND
    return (b"\x80" if code else b"\x60") + request[1:4] + struct.pack("<I", code)
