"""The temperatures, voltages and loads in the frames of drives, described once for the drivers and the tick in C."""

from struct import Struct

from hil.drives.quantities import FIRST_GAUGE
from hil.drives.wire import Operation, Reads


class GaugeReads:
    """The gauges in one kind of frame.

    Args:
        reads: Where they are, as whole bytes, and from the number there to the gauge's unit: `TIMES`, `OVER`, `PLUS`.

    Attributes:
        reads: The same, for `Drive.wire`.
    """

    def __init__(self, *reads: Reads) -> None:
        self.reads = reads
        self._parts = [
            (each.quantity - FIRST_GAUGE, Struct((">" if each.field.big else "<") + each.field.code), each)
            for each in reads
        ]

    def take(self, data: bytes, gauges: list[float]) -> None:
        """Writes the gauges of a payload into `Drive.gauges`."""
        for place, number, (field, _, chain) in self._parts:
            (value,) = number.unpack_from(data, field.first)
            value = float(value)
            for operation, constant in chain:
                if operation is Operation.TIMES:
                    value = value * constant
                elif operation is Operation.OVER:
                    value = value / constant
                else:
                    value = value + constant
            gauges[place] = value
