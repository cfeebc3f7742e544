"""How many bits a classic CAN frame takes on the wire: without stuff bits, with the most there can be, and counted.

A stuff bit follows five equal bits from the start of frame to the end of the CRC, and counts itself for the next five.
All lengths include the interframe space.

Source: Bosch 1991, CAN Specification 2.0, part B, 3.1.1 (fields, CRC) and 5 (bit stuffing); Davis, Burns, Bril, Lukkien
2007, Controller Area Network (CAN) schedulability analysis, (1) for the worst case.
"""

from functools import lru_cache

from hil.frame import Frame

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


_BYTE = [[stuff(state, byte, 8) for byte in range(256)] for state in range(8)]
_CRC_BYTE = [_crc(0, byte, 8) for byte in range(256)]

STEPS = bytes(8 * stuffed + state for row in _BYTE for state, stuffed in row)
"""8 * stuff bits + state after a byte, at `state << 8 | byte`."""

_SEVEN = bytes(stuff(state, bits, 7)[1] for state in range(8) for bits in range(128))
"""Stuff bits among seven bits, at `state << 7 | bits`."""


@lru_cache(maxsize=4096)
def _header(identity: int, extended: bool, remote: bool, length: int) -> tuple[int, int, int]:
    """After the length code of a frame: its length without further stuff bits, the state for `stuff`, and the CRC."""
    if extended:
        bits = identity >> 18 << 27 | 0b11 << 25 | (identity & 0x3FFFF) << 7 | remote << 6 | length
    else:
        bits = identity << 7 | remote << 6 | length
    count = (EXTENDED_HEADER if extended else HEADER) - 1  # the start bit begins the first run and leaves the CRC at 0
    state, stuffed = stuff(0, bits, count)
    return least_bits(0 if remote else length, extended) + stuffed, state, _crc(0, bits, count)


def frame_bits(frame: Frame) -> int:
    """Bits of a frame, its stuff bits counted."""
    length = frame.length if frame.remote else len(frame.data)
    bits, state, crc = _header(frame.id, frame.extended, frame.remote, length)
    for byte in frame.data:
        crc = (crc << 8 & 0x7FFF) ^ _CRC_BYTE[crc >> 7 ^ byte]
        step = STEPS[state << 8 | byte]
        state = step & 7
        bits += step >> 3
    step = STEPS[state << 8 | crc >> 7]
    return bits + (step >> 3) + _SEVEN[(step & 7) << 7 | crc & 0x7F]
