"""Payloads and frames that are put on other frames."""

from collections.abc import Sequence
from dataclasses import dataclass

from servoctl.mechanics.spatial.description import Shape
from servoctl.mechanics.spatial.inertial_values import box_gyration, inertia_note
from servoctl.mechanics.spatial.placement import IDENTITY, Inertial, Placement


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
