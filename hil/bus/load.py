"""Bit rates of a bus, bits of a frame in the worst case, how much of a bus a config uses, and which rate still fits.

A frame has the most stuff bits there can be, and the interframe space is included. A stuff bit follows five equal bits,
and counts itself for the next five: at most one after the first five bits, then one in four. The CRC of an FD frame has
stuff bits at fixed places instead: one before its stuff count, which also stands for a stuff bit that would follow the
last bit of data, and one after each four bits. An FD frame may switch to the data bit rate between the bit rate switch
and the CRC delimiter.

Source: Bosch 1991, CAN Specification 2.0, part B, 3.1.1 and 5; Davis, Burns, Bril, Lukkien 2007, Controller Area
Network (CAN) schedulability analysis, (1); ISO 11898-1:2015, 10.4 and 10.5; Linux, include/linux/can/length.h.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, NamedTuple


class PhaseBits(NamedTuple):
    """Bits of a frame by the bit rate that they are sent at."""

    nominal: int  # bits at the nominal bit rate: all of a classic frame, the beginning and the end of an FD frame
    data: int = 0  # bits at the data bit rate: from the FD frame's ESI bit to its CRC, if it switches the bit rate


class BusRates(NamedTuple):
    nominal: int  # [bit/s] nominal bit rate
    data: int  # data bit rate [bit/s]; the nominal one if the bus has no other
    fd: bool = False  # whether the bus carries FD frames

    @classmethod
    def of(cls, keys: Mapping[str, Any]) -> "BusRates":
        """The bit rates in the keys of a bus, checked: `bitrate`, and where it has them `fd` and `data_bitrate`."""
        return cls(keys["bitrate"], keys.get("data_bitrate") or keys["bitrate"], bool(keys.get("fd")))

    @property
    def switches(self) -> bool:
        """Whether FD frames carry their data at another bit rate."""
        return self.data != self.nominal

    def seconds(self, bits: PhaseBits) -> float:
        """Time that these bits take [s]."""
        return bits.nominal / self.nominal + bits.data / self.data

    def __str__(self) -> str:
        return f"{self.nominal} and {self.data} bit/s" if self.switches else f"{self.nominal} bit/s"


HEADER, EXTENDED_HEADER = 19, 39  # bits of a classic frame from the start of frame to the end of the length code
CRC = 15  # bits of the CRC of a classic frame
FD_HEADER, FD_EXTENDED_HEADER = 17, 36  # bits of an FD frame from the start of frame to the bit rate switch
FD_CONTROL = 5  # bits between the bit rate switch and the data: error state indicator and data length code
FD_STUFF_COUNT = 4  # bits of the stuff count before the CRC of an FD frame
LARGEST_WITH_SHORT_CRC = 16  # largest payload of an FD frame with a CRC of 17 bits; longer ones have 21 [byte]
TAIL = 13  # CRC delimiter, acknowledge slot and delimiter, end of frame (7) and interframe space (3): never stuffed


@cache
def frame_bits(size: int, extended: bool = False, fd: bool = False, switched: bool = False) -> PhaseBits:
    """Bits of a frame in the worst case; `switched`: it is an FD frame that switches its bit rate."""
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


ROUNDING = 1e-12  # share by which rounding may put a load above what is allowed, at the very period that is proposed


class FrameTraffic(NamedTuple):
    """Frames of one kind on a bus."""

    size: int  # bytes of payload
    rate: float  # [1/s] frames per second
    extended: bool = False  # whether the id has 29 bits
    fd: bool = False  # whether they are FD frames
    brs: bool = False  # whether FD frames carry their data at the data bit rate


def worst_load(traffic: Iterable[FrameTraffic], rates: BusRates) -> float:
    """Fraction of a bus with these bit rates that the traffic uses in the worst case."""
    return sum(each.rate * rates.seconds(frame_bits(each.size, each.extended, each.fd, each.brs)) for each in traffic)


@dataclass(frozen=True)
class BusLoad:
    """Load of a bus in the worst case, against what is allowed; the rate that still fits is searched when asked for."""

    traffic: Callable[[float], Iterable[FrameTraffic]] = field(compare=False)  # period of the loop [s] -> its frames
    period: float  # [s] of the loop
    rates: BusRates
    allowed: float  # largest fraction that may be used

    def load_at(self, rate: float) -> float:
        """Fraction of the bus that is used at a rate of the loop [Hz]."""
        return worst_load(self.traffic(1.0 / rate), self.rates)

    @cached_property
    def load(self) -> float:
        """Fraction of the bus that is used."""
        return self.load_at(1.0 / self.period)

    @property
    def frames(self) -> float:
        """Frames per second [1/s]."""
        return sum(each.rate for each in self.traffic(self.period))

    @property
    def fits(self) -> bool:
        return self.load <= self.allowed * (1 + ROUNDING)

    @cached_property
    def highest_rate(self) -> float:
        """Highest loop rate that still fits [Hz]; 0 if the traffic that does not depend on it is too much.

        The load does not fall with the rate.
        """
        low, high = 1.0, max(1.0 / self.period, 1.0)
        if self.load_at(low) > self.allowed:
            return 0.0
        while self.load_at(high) <= self.allowed and high < 1e6:
            low, high = high, 2 * high
        for _ in range(60):  # bisection to rounding: 2^-60 of the interval
            middle = (low + high) / 2
            low, high = (middle, high) if self.load_at(middle) <= self.allowed else (low, middle)
        return low

    @property
    def sentence(self) -> str:
        """The load in words, with the remedies if it does not fit."""
        allowed, rates, highest = f"max_bus_load allows {self.allowed:.1%}", self.rates, self.highest_rate
        start = f"{self.load:.1%} of {rates} at worst, at {1.0 / self.period:.6g} Hz, where {allowed}"
        if self.fits:
            return f"{start}: {math.floor(highest)} Hz would still fit"
        remedies = ["spread the drives over more buses"]
        if highest >= 1:
            remedies.insert(0, f"hil.period of {math.ceil(1.0 / highest * 1e5 - 1e-9) / 1e5:.6g} s or more")
        if rates.nominal < 1_000_000:
            remedies.append("a higher bit rate")
        elif rates.fd and rates.data < 5_000_000:
            remedies.append("a higher data_bitrate")
        most = f"at most {math.floor(highest)} Hz fit" if highest >= 1 else "no rate fits"
        return f"{start}: {most} ({', or '.join(remedies)})"
