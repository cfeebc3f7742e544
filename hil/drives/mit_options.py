"""Which options an MIT drive has, and the tables of ranges that they name."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, PlainValidator

from hil.codecs.mit import Ranges
from hil.drives.options import MaybeFlag, Word
from servoctl.config.document import in_words
from servoctl.config.fields import NumberField, Section, fault
from servoctl.expression.suggest import remedy

FILE = Path(__file__).with_name("mit_ranges.yaml")
NAMES = Ranges._fields
EXPECTED = f"ranges {{{', '.join(f'{name}: ...' for name in NAMES)}}}"
_POSITIVE = NumberField("a number above 0", above=0.0)


def read_ranges(value: Any) -> Ranges:
    """Reads ranges from a mapping in a config.

    Raises:
        PydanticCustomError: A range is missing, unknown, or not a number above 0; the text names all of them.
    """
    if not isinstance(value, Mapping):
        raise fault(f"expected {EXPECTED}, got {in_words(value)}")
    wrong = [f"no {name!r} is known ({remedy(str(name), NAMES)})" for name in value if name not in NAMES]
    ranges = {}
    for name in NAMES:
        if name not in value:
            wrong.append(f"{name} is missing")
            continue
        try:
            ranges[name] = float(_POSITIVE.read(value[name]))
        except ValueError as error:
            wrong.append(f"{name}: {error}")
    if wrong:
        raise fault(f"{'; '.join(wrong)} (expected {EXPECTED})")
    return Ranges(**ranges)


@cache
def tables() -> Mapping[str, Ranges]:
    """Motor and firmware -> ranges."""
    return {name: read_ranges(table) for name, table in yaml.safe_load(FILE.read_text()).items()}


class RangeOptions(Section):
    """Options of a drive whose numbers are linear over ranges."""

    # name of the motor in the table of ranges; None if `ranges` are given
    motor: Annotated[str | None, Word("a motor of the table", tuple(tables()))] = None
    # ranges of position, velocity, torque and gains in the frames of this motor; None: those of `motor`
    ranges: Annotated[Ranges | None, PlainValidator(read_ranges), Field(description=EXPECTED)] = None

    @property
    def table(self) -> Ranges:
        """The ranges to use."""
        if self.ranges is not None:
            return self.ranges
        assert self.motor is not None
        return tables()[self.motor]


class MitOptions(RangeOptions):
    """Options of a drive."""

    # id of its replies, as it is set in the motor; on one bus each motor needs another
    host: Annotated[int, NumberField("an id from 0 to 2047", least=0, below=2048, whole=True)] = 0
    # kind of status in a reply: `cubemars`, `damiao` or `none`
    status: Annotated[str, Word("cubemars, damiao or none", ("cubemars", "damiao", "none"))] = "none"
    # whether the drive stops by itself when commands stop; None: unknown, which is refused on a real bus
    drive_watchdog: MaybeFlag = None
