"""Bit rates of a bus, and how long the bits of a frame take at them."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class PhaseBits(NamedTuple):
    """Bits of a frame by the bit rate that they are sent at."""

    nominal: int  # bits at the nominal bit rate: all of a classic frame, the beginning and the end of an FD frame
    data: int = 0  # bits at the data bit rate: from the FD frame's ESI bit to its CRC, if it switches the bit rate


class BusRates(NamedTuple):
    """Bit rates of a bus."""

    nominal: int  # [bit/s] nominal bit rate
    data: int  # data bit rate [bit/s]; the nominal one if the bus has no other
    fd: bool = False  # whether the bus carries FD frames

    @classmethod
    def classic(cls, bitrate: int) -> "BusRates":
        """Those of a bus without FD [bit/s]."""
        return cls(bitrate, bitrate)

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
