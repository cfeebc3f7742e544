"""Grammar of robots from files: `plant.robot`, `plant.robots`, bodies, frames and loops between them.

Design: a robot's parts are named here and looked up in `assembly`, which reads the file and knows its links and joints.
"""

from typing import Annotated, Any, Literal, cast

from pydantic import BeforeValidator, Field

from servoctl.config.document import in_words
from servoctl.config.fields import Positive, Section, fault
from servoctl.config.vectors import InertiaEntries, Rpy, Size, TwoFrames, Xyz

ORIGIN = (0.0, 0.0, 0.0)

LoopKind = Literal["weld", "hinge", "slide", "point"]

LOOP_KINDS = {
    "weld": ("x", "y", "z", "rx", "ry", "rz"),
    "hinge": ("x", "y", "z", "rx", "ry"),
    "slide": ("x", "y", "rx", "ry", "rz"),
    "point": ("x", "y", "z"),
}
"""Kind of a loop -> components of the reaction that it can have, in axes of the first frame."""


def _all_or_names(value: Any) -> Any:
    if value == "all" or (isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)):
        return value
    raise fault(f"expected all or a list of joints, got {in_words(value)}")


AllOrNames = Annotated[Literal["all"] | tuple[str, ...], BeforeValidator(_all_or_names)]


class PlacementConfig(Section):
    """Where a frame is in another one."""

    xyz: Xyz = Field(default=ORIGIN, description="position [m]")
    rpy: Rpy = Field(default=ORIGIN, description="roll, pitch, yaw: turns about fixed x, y, z in this order [rad]")


class RobotConfig(Section):
    """A robot from a file: exactly one of urdf, mjcf."""

    urdf: str | None = Field(default=None, description="URDF file, relative to the config's folder")
    mjcf: str | None = Field(default=None, description="MJCF file, relative to the config's folder; needs mujoco")
    at: PlacementConfig = Field(default=PlacementConfig(), description="its root in the world")
    base: Literal["fixed", "free"] | None = Field(
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


class FrameConfig(Section):
    """A named frame on a link, body or frame."""

    on: str = Field(description="link, body or frame that carries the frame")
    at: PlacementConfig = Field(default=PlacementConfig(), description="the frame in that link, body or frame")


class LoopConfig(Section):
    """A passive constraint between two frames: exactly one of weld, hinge, slide, point."""

    weld: TwoFrames | None = Field(default=None, description="[first, second]: fixed to each other, 6 rows")
    hinge: TwoFrames | None = Field(default=None, description="[first, second]: turn about z of the first, 5 rows")
    slide: TwoFrames | None = Field(default=None, description="[first, second]: slide along z of the first, 5 rows")
    point: TwoFrames | None = Field(default=None, description="[first, second]: origins coincide, 3 rows")

    @property
    def kind(self) -> LoopKind:
        """Its kind."""
        return cast(LoopKind, next(kind for kind in LOOP_KINDS if getattr(self, kind) is not None))

    @property
    def pair(self) -> tuple[str, str]:
        """First and second frame."""
        first, second = getattr(self, self.kind)
        return first, second
