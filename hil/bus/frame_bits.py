"""How many bits a frame takes on the wire with the most stuff bits there can be, the interframe space included.

A stuff bit follows five equal bits, and counts itself for the next five: at most one after the first five bits, then
one in four. The CRC of an FD frame has stuff bits at fixed places instead: one before its stuff count, which also
stands for a stuff bit that would follow the last bit of data, and one after each four bits. An FD frame may switch to
the data bit rate between the bit rate switch and the CRC delimiter.

Source: Bosch 1991, CAN Specification 2.0, part B, 3.1.1 and 5; Davis, Burns, Bril, Lukkien 2007, Controller Area
Network (CAN) schedulability analysis, (1); ISO 11898-1:2015, 10.4 and 10.5; Linux, include/linux/can/length.h.
"""

from functools import cache

from hil.bus.rates import PhaseBits

HEADER, EXTENDED_HEADER = 19, 39  # bits of a classic frame from the start of frame to the end of the length code
CRC = 15  # bits of the CRC of a classic frame
FD_HEADER, FD_EXTENDED_HEADER = 17, 36  # bits of an FD frame from the start of frame to the bit rate switch
FD_CONTROL = 5  # bits between the bit rate switch and the data: error state indicator and data length code
FD_STUFF_COUNT = 4  # bits of the stuff count before the CRC of an FD frame
LARGEST_WITH_SHORT_CRC = 16  # largest payload of an FD frame with a CRC of 17 bits; longer ones have 21 [byte]
TAIL = 13  # CRC delimiter, acknowledge slot and delimiter, end of frame (7) and interframe space (3): never stuffed


@cache
def frame_bits(size: int, extended: bool = False, fd: bool = False, switched: bool = False) -> PhaseBits:
    """Bits of a frame in the worst case.

    Args:
        size: Bytes of payload: 0 to 8, or one of `FD_SIZES`.
        extended: Whether the id has 29 bits.
        fd: Whether it is an FD frame.
        switched: Whether an FD frame switches its bit rate.
    """
    if not fd:
        bits = (EXTENDED_HEADER if extended else HEADER) + 8 * size + CRC
        return PhaseBits(bits + _stuff_bits(bits) + TAIL)
    header, body = FD_EXTENDED_HEADER if extended else FD_HEADER, FD_CONTROL + 8 * size
    end = FD_STUFF_COUNT + (17 if size <= LARGEST_WITH_SHORT_CRC else 21)
    nominal = header + _stuff_bits(header) + TAIL
    data = body + _stuff_bits(header + body) - _stuff_bits(header) + end + 1 + end // 4
    return PhaseBits(nominal, data) if switched else PhaseBits(nominal + data)


def _stuff_bits(bits: int) -> int:
    return (bits - 1) // 4
