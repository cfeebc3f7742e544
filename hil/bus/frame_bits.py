"""How many bits a classic CAN frame takes on the wire: without stuff bits, with the most there can be, and counted.

A stuff bit follows five equal bits from the start of frame to the end of the CRC, and counts itself for the next five.
All lengths include the interframe space.

Source: Bosch 1991, CAN Specification 2.0, part B, 3.1.1 (fields, CRC) and 5 (bit stuffing); Davis, Burns, Bril, Lukkien
2007, Controller Area Network (CAN) schedulability analysis, (1) for the worst case.
"""

from typing import Any

from hil.frame import CLASSIC_SIZE, Frame

POLYNOMIAL = 0x4599
"""x^15 + x^14 + x^10 + x^8 + x^7 + x^4 + x^3 + 1, without the highest term."""

HEADER, EXTENDED_HEADER = 19, 39
"""Bits from the start of frame to the end of the length code."""

CRC = 15
"""Bits of the CRC."""

UNSTUFFED_TAIL = 13
"""CRC delimiter, acknowledge slot and delimiter, end of frame (7) and interframe space (3)."""


def least_bits(size: int, extended: bool = False) -> int:
    """Bits of a frame without any stuff bit.

    Args:
        size: Bytes of payload, 0 to 8.
        extended: Whether the id has 29 bits.
    """
    return (EXTENDED_HEADER if extended else HEADER) + 8 * size + CRC + UNSTUFFED_TAIL


def worst_bits(size: int, extended: bool = False) -> int:
    """Bits of a frame with the most stuff bits there can be: one after the first five bits, then one in four.

    Args:
        size: Bytes of payload, 0 to 8.
        extended: Whether the id has 29 bits.
    """
    bits = least_bits(size, extended)
    return bits + (bits - UNSTUFFED_TAIL - 1) // 4


def stuff(state: int, bits: int, count: int) -> tuple[int, int]:
    """The state after some more bits, and the number of stuff bits among and right after them.

    Args:
        state: 4 * last bit + length of its run of equal bits - 1.
        bits: The bits, the highest first.
        count: Number of bits.
    """
    last, run, stuffed = state >> 2, (state & 3) + 1, 0
    for position in range(count - 1, -1, -1):
        bit = bits >> position & 1
        last, run = (bit, run + 1) if bit == last else (bit, 1)
        if run == 5:  # the stuff bit is the opposite of these five, and the first of the next run
            last, run, stuffed = 1 - bit, 1, stuffed + 1
    return 4 * last + run - 1, stuffed


def _crc(register: int, bits: int, count: int) -> int:
    for position in range(count - 1, -1, -1):
        high = register >> 14 ^ bits >> position & 1
        register = register << 1 & 0x7FFF
        if high & 1:
            register ^= POLYNOMIAL
    return register


SEVEN, LAST = 256, 256 + 128
"""Places in one of the `ROWS` where the stuff bits among seven bits, and right after a byte, begin."""


def _rows() -> list[list[Any]]:
    """State -> at each byte its stuff bits and the row after it; then the numbers at `SEVEN` and at `LAST`."""
    rows: list[list[Any]] = [[] for _ in range(8)]
    steps = [[stuff(state, byte, 8) for byte in range(256)] for state in range(8)]
    shared = {(after, stuffed): (stuffed, rows[after]) for each in steps for after, stuffed in each}
    for state, row in enumerate(rows):
        row += [shared[step] for step in steps[state]]
        row += [stuff(state, bits, 7)[1] for bits in range(128)]
        row += [stuff(stuff(state, byte >> 1, 7)[0], byte & 1, 1)[1] for byte in range(256)]
    return rows


ROWS = _rows()
"""Rows by the state as in `stuff`, to go through bytes."""

_CRC_BYTE = [_crc(0, byte, 8) for byte in range(256)]


def _crc_tables() -> list[list[int]]:
    """Bytes that follow -> byte -> its share of the CRC, which is the exclusive or of all shares."""
    tables = [_CRC_BYTE]
    for _ in range(CLASSIC_SIZE - 1):
        tables.append([_crc_byte_later(crc) for crc in tables[-1]])
    return tables


def _crc_byte_later(crc: int) -> int:
    return (crc << 8 & 0x7FFF) ^ _CRC_BYTE[crc >> 7]


_CRC_TABLES = _crc_tables()


Header = tuple[int, list[Any], int, list[list[int]]]
"""After the length code of a frame: its length without further stuff bits, the row for its data, and its CRC.

The CRC is that at the end of the data if all of it is zero; the tables give what each byte adds.
"""

_headers: dict[tuple[int, bool, bool, int], Header] = {}

MOST_HEADERS = 4096
"""Headers that are kept: ids may hold data, so there may be any number of them."""


def _header(identity: int, extended: bool, remote: bool, length: int) -> Header:
    if extended:
        bits = identity >> 18 << 27 | 0b11 << 25 | (identity & 0x3FFFF) << 7 | remote << 6 | length
    else:
        bits = identity << 7 | remote << 6 | length
    whole, few = divmod((EXTENDED_HEADER if extended else HEADER) - 1, 8)
    first = bits >> 8 * whole
    state, stuffed = stuff(0, first, few)  # the start bit begins the first run and leaves the CRC at 0
    row, crc = ROWS[state], _crc(0, first, few)
    for byte in (bits & (1 << 8 * whole) - 1).to_bytes(whole, "big"):
        crc = _crc_byte_later(crc) ^ _CRC_BYTE[byte]
        more, row = row[byte]
        stuffed += more
    size = 0 if remote else length
    for _ in range(size):
        crc = _crc_byte_later(crc)
    if len(_headers) >= MOST_HEADERS:
        _headers.clear()
    header = _headers[identity, extended, remote, length] = (
        least_bits(size, extended) + stuffed, row, crc, _CRC_TABLES[:size][::-1]
    )  # fmt: skip
    return header


def frame_bits(frame: Frame) -> int:
    """Bits of a frame, its stuff bits counted."""
    data = frame.data
    key = frame.id, frame.extended, frame.remote, frame.length if frame.remote else len(data)
    bits, row, crc, tables = _headers.get(key) or _header(*key)
    if len(data) == CLASSIC_SIZE:  # the usual size, in half the time of the loop
        a, b, c, d, e, f, g, h = data
        ta, tb, tc, td, te, tf, tg, th = tables
        crc ^= ta[a] ^ tb[b] ^ tc[c] ^ td[d] ^ te[e] ^ tf[f] ^ tg[g] ^ th[h]
        a, row = row[a]
        b, row = row[b]
        c, row = row[c]
        d, row = row[d]
        e, row = row[e]
        f, row = row[f]
        g, row = row[g]
        h, row = row[h]
        bits += a + b + c + d + e + f + g + h
    else:
        for byte, table in zip(data, tables):  # noqa: B905 - without the check, which costs as much as a byte
            crc ^= table[byte]
            stuffed, row = row[byte]
            bits += stuffed
    stuffed, row = row[crc >> 7]
    return int(bits + stuffed + row[SEVEN + (crc & 0x7F)])
