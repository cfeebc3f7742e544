"""Which objects of a CiA 402 drive hold its temperature, bus voltage and load, and how they are asked for over SDO."""

from collections.abc import Mapping
from math import isfinite
from typing import Any, NamedTuple

from hil.codecs import cia402 as codec
from hil.drives.quantities import GAUGES, Quantity
from hil.drives.wire import Expects, FrameReads, Message, Operation, Reads
from hil.frame import Frame
from servoctl.config.document import in_words
from servoctl.config.fields import fault
from servoctl.expression.suggest import remedy


class MonitoredObject(NamedTuple):
    """An object that holds a temperature, a voltage or a load."""

    # number, sub: its index and subindex
    number: int
    sub: int
    unit: float  # [degree C, V, or 1 for the largest lasting load] what one count of it is


DC_LINK = MonitoredObject(0x6079, 0, 0.001)  # DC link circuit voltage, by the standard in mV

KNOWN = {gauge.name: gauge.quantity for gauge in GAUGES if gauge.quantity is not Quantity.WARNING}
"""What an object may hold; the warning is in each statusword."""
MONITORED = f"{{{', '.join(KNOWN)}: [index, subindex, unit]}}"


def read_objects(value: Any) -> dict[Quantity, MonitoredObject]:
    """Reads `monitor_objects`.

    Raises:
        PydanticCustomError: A name is unknown, or an object is not three numbers in their ranges.
    """
    if not isinstance(value, Mapping):
        raise fault(f"expected {MONITORED}, got {in_words(value)}")
    objects: dict[Quantity, MonitoredObject] = {}
    for name, place in value.items():
        if name not in KNOWN:
            raise fault(f"no {name!r} is known ({remedy(str(name), KNOWN)})")
        try:
            index, sub, unit = (float(each) for each in place)
            fits = index in range(0x10000) and sub in range(0x100) and isfinite(unit) and unit != 0.0
        except (TypeError, ValueError):
            fits = False
        if not fits:
            raise fault(f"{name}: expected [index, subindex, unit], such as [0x3201, 1, 0.1], got {in_words(place)}")
        objects[KNOWN[str(name)]] = MonitoredObject(int(index), int(sub), unit)
    return objects


class MonitoredObjects:
    """The objects of one drive.

    Args:
        node: Its node id.
        objects: What each holds -> the object.
    """

    def __init__(self, node: int, objects: Mapping[Quantity, MonitoredObject]) -> None:
        self._by_head: dict[int, FrameReads] = {}
        # quantities: what each holds
        # messages: their answers; the size of an object shows only in its answer
        self.quantities, self.messages = list(objects), list[Message]()
        # frames that ask for each, in the same order
        self.questions = [
            Frame(codec.SDO_REQUEST + node, codec.request_object(each.number, each.sub)) for each in objects.values()
        ]
        for quantity, (index, sub, unit) in objects.items():
            for head, field in codec.answer_heads(index, sub).items():
                reads = FrameReads(Reads(field, quantity, ((Operation.TIMES, unit),)))
                self._by_head[head] = reads
                selects = (Expects(codec.HEAD, codec.HEAD.mask, head),)
                self.messages.append(Message(codec.SDO_ANSWER + node, 8, reads.reads, selects=selects))

    @property
    def frames(self) -> list[FrameReads]:
        """What the answers bring, by size."""
        return list(self._by_head.values())

    def take(self, data: bytes, gauges: list[float]) -> None:
        """Writes the value in an answer into `Drive.gauges`; other answers change nothing."""
        reads = self._by_head.get(int.from_bytes(data[:4], "little")) if len(data) == 8 else None
        if reads is not None:
            reads.take(data, gauges)
