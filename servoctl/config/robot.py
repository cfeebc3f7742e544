"""Grammar and rules of robots from files: `plant.robot`, `plant.robots`, bodies, frames and loops between them.

Design: a robot's parts are named here and looked up in `assembly`, which reads the file and knows its links and joints.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainValidator, StrictBool, WithJsonSchema

from servoctl.mechanics.spatial.description import Base
from servoctl.mechanics.spatial.loops import LOOP_ROWS
from servoctl.mechanics.spatial.placement import Placement
from servoctl.tree.fields import (
    LIST,
    Equation,
    EquationText,
    FileName,
    NumberField,
    PerName,
    Positive,
    Real,
    ScalarOr,
    exactly,
    only,
    shape,
)
from servoctl.tree.rules import Broken, FieldPath, OneKind, OneOf, Section, outer_rule, rule

AXES = ("x", "y", "z")


def _frame_and(read: Callable[[Any], Any], expected: str) -> PlainValidator:
    """A list of a frame and something else."""
    pair = only(lambda values: shape(values) == LIST and len(values) == 2 and isinstance(values[0], str), expected)
    return PlainValidator(lambda values: (pair(values)[0], read(values[1])))


def _three(values: Any, expected: str) -> tuple[Any, ...]:
    return tuple(only(lambda values: shape(values) == LIST and len(values) == 3, expected)(values))


def _axis(value: Any) -> Any:
    if isinstance(value, str) and value.removeprefix("-") in AXES:
        return value
    numbers = _three(value, "x, y, z, -x, -y, -z or three numbers in the frame's axes")
    return only(any, "a direction")(tuple(NumberField("a number").read(number) for number in numbers))


def _frame_or_point(value: Any) -> Any:
    if isinstance(value, str):
        return value
    return tuple(Equation().read(each) for each in _three(value, "a frame or a point [x, y, z]"))


_LIST_OF_TWO = WithJsonSchema({"type": "array", "minItems": 2, "maxItems": 2})

Xyz = Annotated[tuple[Real, ...], exactly(3, "[x, y, z], three numbers")]
Rpy = Annotated[tuple[Real, ...], exactly(3, "[roll, pitch, yaw], three numbers")]
Size = Annotated[tuple[Positive, ...], exactly(3, "three lengths along x, y, z")]
InertiaEntries = Annotated[tuple[Real, ...], exactly(6, "[ixx, iyy, izz, ixy, ixz, iyz], six numbers")]
XyzEquations = Annotated[tuple[EquationText, ...], exactly(3, "[x, y, z], three numbers or equations")]
RpyEquations = Annotated[tuple[EquationText, ...], exactly(3, "[roll, pitch, yaw], three numbers or equations")]
FrameAxis = Annotated[Any, _frame_and(_axis, "[frame, x], or y, z or three numbers for x"), _LIST_OF_TWO]
FramePair = Annotated[Any, _frame_and(_frame_or_point, "[frame, frame] or [frame, [x, y, z]]"), _LIST_OF_TWO]
TwoFrames = Annotated[tuple[str, ...], exactly(2, "two frames [first, second]")]

ORIGIN = (0.0, 0.0, 0.0)


def _all_or_names(value: Any) -> bool:
    return value == "all" or (isinstance(value, list | tuple) and all(isinstance(name, str) for name in value))


AllOrNames = Annotated[
    Literal["all"] | tuple[str, ...], BeforeValidator(only(_all_or_names, "all or a list of joints"))
]


class PlacementConfig(Section):
    """Where a frame is in another one."""

    xyz: Xyz = Field(default=ORIGIN, description="position [m]")
    rpy: Rpy = Field(default=ORIGIN, description="roll, pitch, yaw: turns about fixed x, y, z in this order [rad]")

    @property
    def placement(self) -> Placement:
        """The placement itself."""
        return Placement.at(self.xyz, self.rpy)


class RobotConfig(OneKind):
    """A robot from a file: exactly one of urdf, mjcf."""

    one_of = OneOf({"urdf": (), "mjcf": ()}, "a robot has exactly one file", "file")

    urdf: FileName | None = Field(default=None, description="URDF file, relative to the config's folder")
    mjcf: FileName | None = Field(default=None, description="MJCF file, relative to the config's folder; needs mujoco")
    at: PlacementConfig = Field(default=PlacementConfig(), description="its root in the world")
    base: Base | None = Field(
        default=None,
        description="fixed to the world, or free: coordinates base_x, base_y, base_z [m] and the quaternion base_qw, "
        "base_qx, base_qy, base_qz, which no motor drives; left out: fixed, or as an MJCF file says",
    )
    motors: AllOrNames = Field(
        default="all", description="joints that have an actuator of the same name: all, or names as in the file"
    )


class BodyConfig(Section):
    """A rigid body on a link or frame, such as a payload; without size and inertia it is a point mass."""

    m: Positive = Field(description="mass [kg]")
    size: Size | None = Field(
        default=None, description="lengths of a uniform box along x, y, z [m]; its inertia scales with the mass"
    )
    com: Xyz | None = Field(default=None, description="centre of mass in the body's axes [m]; left out: its origin")
    inertia: InertiaEntries | None = Field(
        default=None,
        description="inertia about the centre of mass, [ixx, iyy, izz, ixy, ixz, iyz] in the body's axes [kg m^2]",
    )
    on: str = Field(description="link or frame that carries the body")
    at: PlacementConfig = Field(default=PlacementConfig(), description="the body's frame in that link or frame")

    @rule
    def _box_or_inertia(self) -> Broken:
        for word in () if self.size is None else self.given(("com", "inertia")):
            yield (word,), "cannot be used with size (a uniform box has its own centre and inertia)"


class FrameConfig(Section):
    """A named frame on a link, body or frame."""

    on: str = Field(description="link, body or frame that carries the frame")
    at: PlacementConfig = Field(default=PlacementConfig(), description="the frame in that link, body or frame")


class LoopConfig(OneKind):
    """A passive constraint between two frames: exactly one of weld, hinge, slide, point."""

    one_of = OneOf(dict.fromkeys(LOOP_ROWS, ()), "a loop has exactly one kind", "kind")

    weld: TwoFrames | None = Field(default=None, description="[first, second]: fixed to each other, 6 rows")
    hinge: TwoFrames | None = Field(default=None, description="[first, second]: turn about z of the first, 5 rows")
    slide: TwoFrames | None = Field(default=None, description="[first, second]: slide along z of the first, 5 rows")
    point: TwoFrames | None = Field(default=None, description="[first, second]: origins coincide, 3 rows")

    @rule
    def _two_frames(self) -> Broken:
        for kind in self.given(LOOP_ROWS):
            first, second = getattr(self, kind)
            if first == second:
                yield (kind,), f"has the frame {first!r} twice (give two frames)"


class Fixed(Section):
    """Coordinates that a projection does not change."""

    fix: tuple[str, ...] = Field(description="names of the coordinates that keep their value")


class PoseConfig(Section):
    """Where a frame is at the start, in the world; a part that is left out is free."""

    xyz: Xyz | None = Field(default=None, description="position of its origin [m]")
    rpy: Rpy | None = Field(default=None, description="roll, pitch, yaw of its axes [rad]")

    @rule
    def _some_part(self) -> Broken:
        if self.xyz is None and self.rpy is None and not self.misspelt:
            yield (), "no pose (give xyz, rpy or both)"


class Initial(Section):
    """Initial state of a run."""

    q: PerName[Real] = Field(
        default={},
        description="coordinates [units of the plant]: mapping by name, list in the plant's order, or one for all; a "
        "class needs every coordinate; those of a robot may be left out: 0 inside the joint's limits, and qw = 1",
    )
    v: PerName[Real] = Field(default=0.0, description="velocities [units of the plant per s], written as q is")
    project: ScalarOr[StrictBool, Fixed] = Field(
        default=False,
        description="whether to move to the nearest state that satisfies the constraints; or {fix: names}",
    )
    max_violation: Positive = Field(
        default=1.0, description="a start with a larger holonomic task error is refused [units of the row]"
    )
    solve: dict[str, PoseConfig] | None = Field(
        default=None,
        description="robots: frame -> pose; q becomes the nearest solution that closes the loops and keeps the joints "
        "inside their limits",
    )

    @outer_rule
    def _only_of_robots(self, config: Any, at: FieldPath) -> Broken:
        """What only robots may leave out, or have."""
        if config.plant.is_robot:
            return
        if "q" not in self.model_fields_set:
            yield (*at, "q"), f"missing ({type(self).model_fields['q'].description})"
        if self.solve is not None:
            yield (*at, "solve"), f"{NEEDS_ROBOT} (for a class, give q and initial.project: true)"


NEEDS_ROBOT = "needs plant.robot or plant.robots"
