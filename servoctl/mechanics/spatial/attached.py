"""Payloads and frames that are put on other frames; the names of all parts as identifiers that differ."""

import keyword
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from servoctl.expression import RESERVED
from servoctl.mechanics.spatial.description import Shape, box_gyration, inertia_note
from servoctl.mechanics.spatial.placement import IDENTITY, Inertial, Placement

PARAMETERS = ("m", "com", "I")  # parameters of a link: its mass, centre of mass and inertia, as in `link7_m`


@dataclass(frozen=True)
class Attached:
    """A link, payload or frame on a body or on another frame."""

    label: str  # what it is, for messages
    name: str  # identifier
    on: str  # name of the frame that carries it; empty for the links of a robot
    at: Placement  # its place there
    inertial: Inertial | None = None  # none: it has no mass
    gyration: tuple[float, ...] | None = None  # see `RobotLink`
    shapes: tuple[Shape, ...] = ()  # pictures


def payload(
    name: str,
    on: str,
    at: Placement,
    m: float,
    size: Sequence[float] | None = None,
    com: Sequence[float] | None = None,
    inertia: Sequence[float] | None = None,
) -> tuple[Attached | None, list[str], list[str]]:
    """A payload, None if something is wrong; the problems; and notes. See `TreeBuilder.body` for the arguments."""
    label, problems = f"bodies: {name}", []
    if not m > 0.0:
        problems.append(f"m: expected a positive mass [kg], got {m:g}")
    if size is not None and (com is not None or inertia is not None):
        problems.append("size gives centre of mass and inertia already (leave out com and inertia)")
    for key, values, count in (("size", size, 3), ("com", com, 3), ("inertia", inertia, 6)):
        if values is not None and len(values) != count:
            problems.append(f"{key}: expected {count} numbers, got {len(values)}")
    if size is not None and not all(edge > 0.0 for edge in size):
        problems.append(f"size: expected three positive lengths [m], got {list(size)}")
    if problems:
        return None, [f"{label}: {problem}" for problem in problems], []
    if size is not None:
        edges = tuple(float(edge) for edge in size)
        shapes = (Shape("box", edges, IDENTITY),)
        return Attached(label, name, on, at, Inertial(float(m)), box_gyration(*edges), shapes), [], []
    centre, moments = (tuple(map(float, values or count * (0.0,))) for values, count in ((com, 3), (inertia, 6)))
    note = inertia_note(moments)
    inertial = Inertial(float(m), centre, moments)  # type: ignore[arg-type]
    return Attached(label, name, on, at, inertial), [], [f"{label}: {note}"] if note else []


def identifier(name: str, prefix: str = "") -> str:
    """The name as an identifier, with a prefix before it if one is given.

    Characters that no identifier has become `_`. A reserved word gets `_` behind it, a leading digit before it.
    """
    word = re.sub(r"\W", "_", f"{prefix}_{name}" if prefix else name)
    if not word.isidentifier():
        word = f"_{word}"
    return f"{word}_" if word in RESERVED or keyword.iskeyword(word) else word


class NameTable:
    """Names that must differ, with what each one stands for."""

    def __init__(self, problems: list[str], owners: Mapping[str, str] = MappingProxyType({})) -> None:
        """Starts with names that are taken.

        Args:
            problems: The list to add problems to.
            owners: Name -> what it stands for.
        """
        self.problems = problems  # a sentence for each name that is taken twice
        self._owners = dict(owners)

    def add(self, name: str, owner: str) -> bool:
        """Adds a name; if it is taken, adds a problem with both owners and returns False.

        Args:
            name: An identifier.
            owner: What it stands for, such as `left: joint 'a-b'`.
        """
        if name in self._owners:
            self.problems.append(
                f"{owner}: its name '{name}' is also that of {self._owners[name]} (rename one of them)"
            )
            return False
        self._owners[name] = owner
        return True
