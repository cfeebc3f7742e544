"""How many bits an FD frame takes on the wire, in each of its two bit rates.

The beginning (to the bit rate switch) and the end (from the CRC delimiter) go at the nominal bit rate, the rest at the
data bit rate, if the frame switches. A stuff bit follows five equal bits up to the end of the data. The stuff count and
the CRC have stuff bits at fixed places: one before them, which also stands for a stuff bit that would follow the last
bit of data, and one after each four bits.

Source: ISO 11898-1:2015, 10.4 and 10.5; Linux, include/linux/can/length.h; Mutter and Hartwich 2015, CAN FD and the CRC
issue.
"""

from functools import lru_cache

from hil.bus.frame_bits import LAST, ROWS, UNSTUFFED_TAIL, stuff
from hil.bus.rates import PhaseBits
from hil.frame import FD_SIZES, Frame

HEADER, EXTENDED_HEADER = 17, 36
"""Bits from the start of frame to the bit rate switch."""

CONTROL = 5
"""Bits between the bit rate switch and the data: error state indicator and data length code."""

LARGEST_WITH_SHORT_CRC = 16
"""Largest payload with a CRC of 17 bits; longer ones have 21 [byte]."""

_CODES = {size: code for code, size in enumerate(FD_SIZES)}


def crc_field(size: int) -> int:
    """Bits of the stuff count (4), the CRC and their fixed stuff bits, after a payload of this size [byte]."""
    bits = 4 + (17 if size <= LARGEST_WITH_SHORT_CRC else 21)
    return bits + 1 + bits // 4


def _phases(nominal: int, data: int, switched: bool) -> PhaseBits:
    return PhaseBits(nominal, data) if switched else PhaseBits(nominal + data)


def least_fd_bits(size: int, extended: bool = False, switched: bool = True) -> PhaseBits:
    """Bits of a frame without stuff bits, but those at fixed places.

    Args:
        size: Bytes of payload.
        extended: Whether the id has 29 bits.
        switched: Whether the frame switches its bit rate.
    """
    header = EXTENDED_HEADER if extended else HEADER
    return _phases(header + UNSTUFFED_TAIL, CONTROL + 8 * size + crc_field(size), switched)


def worst_fd_bits(size: int, extended: bool = False, switched: bool = True) -> PhaseBits:
    """Bits of a frame with the most stuff bits there can be: one after the first five bits, then one in four.

    Arguments as for `least_fd_bits`.
    """
    header = EXTENDED_HEADER if extended else HEADER
    bits, in_header = least_fd_bits(size, extended), (header - 1) // 4
    in_all = (header + CONTROL + 8 * size - 1) // 4
    return _phases(bits.nominal + in_header, bits.data + in_all - in_header, switched)


@lru_cache(maxsize=4096)
def _begun(identity: int, extended: bool, switched: bool, size: int) -> tuple[int, int, int, bool]:
    """After the length code: bits in each phase so far, the state for `stuff`, whether a stuff bit comes next."""
    if extended:  # SRR and IDE between the parts of the id; then RRS, FDF, res, BRS
        bits = (identity >> 18 << 20 | 0b11 << 18 | identity & 0x3FFFF) << 4 | 0b0100 | switched
    else:  # RRS, IDE, FDF, res, BRS
        bits = identity << 5 | 0b00100 | switched
    header = EXTENDED_HEADER if extended else HEADER
    state, in_header = stuff(0, bits, header - 1)  # the start bit begins the first run
    state, in_control = stuff(state, _CODES[size] >> 1, CONTROL - 1)
    state, last = stuff(state, _CODES[size] & 1, 1)
    return header + in_header, CONTROL + in_control + last, state, bool(last)


def fd_bits(frame: Frame) -> PhaseBits:
    """Bits of an FD frame, its stuff bits counted."""
    size = len(frame.data)
    nominal, data, state, ends_stuffed = _begun(frame.id, frame.extended, frame.brs, size)
    row = before = ROWS[state]
    for byte in frame.data:
        before = row
        stuffed, row = row[byte]
        data += stuffed
    if size:
        ends_stuffed = before[LAST + frame.data[-1]]
    return _phases(nominal + UNSTUFFED_TAIL, data + 8 * size + crc_field(size) - ends_stuffed, frame.brs)
