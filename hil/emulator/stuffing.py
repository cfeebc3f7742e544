"""Number of bits of a frame on the wire, stuff bits included.

A stuff bit follows five equal bits, from the start of frame to the end of the CRC; it counts for the next five itself.

Source: Bosch 1991, CAN Specification 2.0, part B, 3.1.1 (fields, CRC) and 5 (bit stuffing).
"""

from functools import lru_cache

from hil.frame import Frame

POLYNOMIAL = 0x4599
"""x^15 + x^14 + x^10 + x^8 + x^7 + x^4 + x^3 + 1, the highest term left out."""

UNSTUFFED_TAIL = 13
"""CRC delimiter, acknowledge slot and delimiter, end of frame (7) and interframe space (3)."""


def _feed(state: int, bits: int, count: int) -> tuple[int, int]:
    """State after more bits, and the number of stuff bits among them.

    Args:
        state: 4 * last bit + length of its run - 1.
        bits: The bits, the highest first.
        count: Number of bits.
    """
    last, run, stuffed = state >> 2, (state & 3) + 1, 0
    for place in range(count - 1, -1, -1):
        bit = bits >> place & 1
        last, run = (bit, run + 1) if bit == last else (bit, 1)
        if run == 5:
            last, run, stuffed = 1 - bit, 1, stuffed + 1
    return 4 * last + run - 1, stuffed


def _crc(register: int, bits: int, count: int) -> int:
    for place in range(count - 1, -1, -1):
        high = register >> 14 ^ bits >> place & 1
        register = register << 1 & 0x7FFF
        if high & 1:
            register ^= POLYNOMIAL
    return register


_BYTE = [[_feed(state, byte, 8) for byte in range(256)] for state in range(8)]
_CRC_BYTE = [_crc(0, byte, 8) for byte in range(256)]


_STEPS = bytes(8 * stuffed + state for row in _BYTE for state, stuffed in row)
"""8 * stuff bits + state after a byte, at `state << 8 | byte`."""

_SEVEN = bytes(_feed(state, bits, 7)[1] for state in range(8) for bits in range(128))
"""Stuff bits among seven bits, at `state << 7 | bits`."""


@lru_cache(maxsize=4096)
def _header(identity: int, extended: bool, remote: bool, length: int) -> tuple[int, int, int]:
    """For the bits up to the length code: bits of the frame except later stuff bits, then state and CRC there."""
    if extended:
        bits = identity >> 18 << 27 | 0b11 << 25 | (identity & 0x3FFFF) << 7 | remote << 6 | length
    else:
        bits = identity << 7 | remote << 6 | length
    count = 39 if extended else 19
    # the start bit is the first of its run, and leaves the CRC at zero
    state, stuffed = _feed(0, bits, count - 1)
    data = 0 if remote else 8 * length
    return count + stuffed + data + 15 + UNSTUFFED_TAIL, state, _crc(0, bits, count - 1)


def crc15(frame: Frame) -> int:
    """The CRC of a frame."""
    crc = _header(frame.id, frame.extended, frame.remote, _length(frame))[2]
    for byte in frame.data:
        crc = (crc << 8 & 0x7FFF) ^ _CRC_BYTE[crc >> 7 ^ byte]
    return crc


def frame_bits(frame: Frame) -> int:
    """Bits of a frame, stuff bits and interframe space included."""
    bits, state, crc = _header(frame.id, frame.extended, frame.remote, _length(frame))
    for byte in frame.data:
        crc = (crc << 8 & 0x7FFF) ^ _CRC_BYTE[crc >> 7 ^ byte]
        step = _STEPS[state << 8 | byte]
        state = step & 7
        bits += step >> 3
    step = _STEPS[state << 8 | crc >> 7]
    return bits + (step >> 3) + _SEVEN[(step & 7) << 7 | crc & 0x7F]


def _length(frame: Frame) -> int:
    return frame.length if frame.remote else len(frame.data)
