"""The temperatures, voltages and loads in the frames of drives, described once for the drivers and the tick in C."""

from collections.abc import Callable
from struct import Struct

from hil.codecs.field import Field
from hil.drives.quantities import FIRST_GAUGE
from hil.drives.wire import Operation, Reads


class GaugeReads:
    """The gauges in one kind of frame.

    Args:
        reads: Where they are, and from the number there to the gauge's unit: `TIMES`, `OVER`, `PLUS`.
    """

    def __init__(self, *reads: Reads) -> None:
        self.reads = reads  # the same, for `Drive.wire`
        self._parts = [(each.quantity - FIRST_GAUGE, _reader(each.field), each.chain) for each in reads]

    def take(self, data: bytes, gauges: list[float]) -> None:
        """Writes the gauges of a payload into `Drive.gauges`."""
        for place, number, chain in self._parts:
            value = float(number(data))
            for operation, constant in chain:
                if operation is Operation.TIMES:
                    value = value * constant
                elif operation is Operation.OVER:
                    value = value / constant
                else:
                    value = value + constant
            gauges[place] = value


def _reader(field: Field) -> Callable[[bytes], float]:
    """Reads a field: some bits as an unsigned integer, or whole bytes of any kind."""
    if field.kind == "unsigned":
        return field.reader()
    form, first = Struct((">" if field.big else "<") + field.code), field.first
    return lambda data: form.unpack_from(data, first)[0]
