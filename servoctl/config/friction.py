"""Grammar of `friction`, of the plant and of `realism`."""

from pydantic import Field

from servoctl.config.fields import NotNegative, PerName, Positive, Section


class FrictionConfig(Section):
    """Friction at each actuator: coulomb tanh(s / speed) + viscous s, where s is its speed B^T v."""

    coulomb: PerName[NotNegative] = Field(
        default=0.0, description="dry friction [actuator units]: one for all, list in the plant's order, or by name"
    )
    viscous: PerName[NotNegative] = Field(
        default=0.0, description="friction per speed [actuator units per its speed], written as coulomb is"
    )
    speed: PerName[Positive] = Field(
        default=0.01, description="speed at which dry friction reaches 76 % (tanh 1), written as coulomb is"
    )
