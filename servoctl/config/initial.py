"""Grammar of `initial`: the state at t = 0."""

from pydantic import Field, StrictBool

from servoctl.config.fields import PerName, Positive, Real, ScalarOr, Section
from servoctl.config.vectors import Rpy, Xyz


class Fixed(Section):
    """Coordinates that a projection does not change."""

    fix: tuple[str, ...] = Field(description="names of the coordinates that keep their value")


class PoseConfig(Section):
    """Where a frame is at the start, in the world; a part that is left out is free."""

    xyz: Xyz | None = Field(default=None, description="position of its origin [m]")
    rpy: Rpy | None = Field(default=None, description="roll, pitch, yaw of its axes [rad]")


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
        default=1.0, description="a start with a larger holonomic violation is refused [units of the row]"
    )
    solve: dict[str, PoseConfig] | None = Field(
        default=None,
        description="robots: frame -> pose; q becomes the nearest solution that closes the loops and keeps the joints "
        "inside their limits",
    )
