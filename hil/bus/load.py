"""How much of a bus a config uses in the worst case, and which loop rate still fits."""

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from hil.bus.frame_bits import frame_bits
from hil.bus.rates import BusRates, PhaseBits

ROUNDING = 1e-12  # share by which rounding may put a load above what is allowed, at the very period that is proposed


class FrameTraffic(NamedTuple):
    """Frames of one kind on a bus."""

    size: int  # bytes of payload
    rate: float  # [1/s] frames per second
    extended: bool = False  # whether the id has 29 bits
    fd: bool = False  # whether they are FD frames
    brs: bool = False  # whether FD frames carry their data at the data bit rate

    @property
    def worst_bits(self) -> PhaseBits:
        """Bits of one frame in the worst case."""
        return frame_bits(self.size, self.extended, self.fd, self.brs)


def worst_load(traffic: Iterable[FrameTraffic], rates: BusRates) -> float:
    """Fraction of a bus with these bit rates that the traffic uses in the worst case."""
    return sum(each.rate * rates.seconds(each.worst_bits) for each in traffic)


class BusLoad(NamedTuple):
    """Load of a bus, against what is allowed."""

    load: float  # worst-case fraction of the bus that is used
    frames: float  # [1/s] frames per second
    allowed: float  # largest fraction that may be used
    # highest loop rate that still fits [Hz]; 0 if the traffic that does not depend on it is too much
    highest_rate: float
    sentence: str  # the load in words, with the remedies if it does not fit

    @property
    def fits(self) -> bool:
        return self.load <= self.allowed * (1 + ROUNDING)


def describe_load(
    traffic: Callable[[float], Iterable[FrameTraffic]], period: float, rates: BusRates, max_bus_load: float
) -> BusLoad:
    """Worst-case load of a bus by a loop, and the remedies if it is too much.

    Args:
        traffic: Gives all frames on the bus, in both directions, for a period of the loop [s].
        period: Period of the loop [s].
        rates: Bit rates of the bus.
        max_bus_load: Largest fraction of the bus that may be used.
    """

    def load(rate: float) -> float:
        return worst_load(traffic(1.0 / rate), rates)

    rate = 1.0 / period
    used, highest = load(rate), _highest(load, rate, max_bus_load)
    frames = sum(each.rate for each in traffic(period))
    start = f"{used:.1%} of {rates} at worst, at {rate:.6g} Hz, where max_bus_load allows {max_bus_load:.1%}"
    if used <= max_bus_load * (1 + ROUNDING):
        return BusLoad(used, frames, max_bus_load, highest, f"{start}: {math.floor(highest)} Hz would still fit")
    remedies = ["spread the drives over more buses"]
    if highest >= 1:
        remedies.insert(0, f"hil.period of {_rounded_up(1.0 / highest):.6g} s or more")
    if rates.nominal < 1_000_000:
        remedies.append("a higher bit rate")
    elif rates.fd and rates.data < 5_000_000:
        remedies.append("a higher data_bitrate")
    most = f"at most {math.floor(highest)} Hz fit" if highest >= 1 else "no rate fits"
    return BusLoad(used, frames, max_bus_load, highest, f"{start}: {most} ({', or '.join(remedies)})")


def _highest(load: Callable[[float], float], rate: float, allowed: float) -> float:
    """Highest rate [Hz] with load(rate) <= allowed; `load` must not fall with the rate."""
    low, high = 1.0, max(rate, 1.0)
    if load(low) > allowed:
        return 0.0
    while load(high) <= allowed and high < 1e6:
        low, high = high, 2 * high
    for _ in range(60):  # bisection to rounding: 2^-60 of the interval
        middle = (low + high) / 2
        low, high = (middle, high) if load(middle) <= allowed else (low, middle)
    return low


def _rounded_up(period: float) -> float:
    """A period [s], rounded up to 10 us."""
    return math.ceil(period * 1e5 - 1e-9) / 1e5
