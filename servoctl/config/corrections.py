"""Grammar of `correction`: the feedback that drives a constraint violation back to zero."""

from typing import Annotated

from pydantic import Field

from servoctl.config.fields import NumberField, PerName, PoleSet, Section
from servoctl.config.robust import AutoPositive

Rate = Annotated[float, NumberField("a number >= 0 [1/s]", least=0)]
_PER_ROW = "; a number, a list (one per row, in order) or a mapping by task name"


class BaumgarteConfig(Section):
    """`phi'' + 2 alpha phi' + beta^2 phi = 0`."""

    alpha: PerName[Rate] = Field(description=f"damping of the violation [1/s]{_PER_ROW}")
    beta: PerName[Rate] = Field(description=f"natural frequency of the violation [rad/s]{_PER_ROW}")


class SecondOrderConfig(Section):
    """`phi'' + damping phi' + stiffness phi = 0`."""

    damping: PerName[Rate] = Field(description=f"gain on the violation's rate [1/s]{_PER_ROW}")
    stiffness: PerName[Annotated[float, NumberField("a number >= 0 [1/s^2]", least=0)]] = Field(
        description=f"gain on the violation [1/s^2]{_PER_ROW}"
    )


class PFeedbackConfig(Section):
    """`P beta' + beta = 0`; beta is the violation of a nonholonomic row, `phi' + rate phi` of a holonomic one."""

    P: PerName[Annotated[float, NumberField("a positive time [s]", above=0)]] = Field(
        description=f"time constant [s]{_PER_ROW}"
    )
    rate: PerName[Rate] = Field(
        default=0.0,
        description=f"decay of a holonomic violation [1/s]; 0 corrects its rate alone{_PER_ROW}",
    )


_WIDTH = Annotated[float, NumberField("a positive half-width", above=0)]


class FunnelConfig(Section):
    """`beta' = -F(beta)`, where F grows towards the edge of a corridor |beta| < rho(t) that narrows with time.

    beta is the violation of a nonholonomic row, `phi' + rate phi` of a holonomic one, and
    `rho(t) = (start - end) exp(-shrink t) + end`.
    """

    P: PerName[Annotated[float, NumberField("a positive time [s]", above=0)]] = Field(
        description=f"time constant in the middle of the funnel [s]{_PER_ROW}"
    )
    start: PerName[_WIDTH] = Field(description=f"half-width at t = 0 [unit of beta]{_PER_ROW}")
    end: PerName[_WIDTH] = Field(description=f"half-width that remains, at most start [unit of beta]{_PER_ROW}")
    shrink: PerName[Rate] = Field(default=0.0, description=f"rate from start to end [1/s]{_PER_ROW}")
    rate: PerName[Rate] = Field(
        default=0.0, description=f"decay of a holonomic violation [1/s]; 0 corrects its rate alone{_PER_ROW}"
    )
    slope: AutoPositive = Field(
        default=None,
        description="largest gain, at the edge [1/s]; auto, or left out: half of what the timing allows",
    )


class CorrectionConfig(Section):
    """One correction; exactly one of its kinds is given."""

    baumgarte: BaumgarteConfig | None = Field(default=None, description="phi'' + 2 alpha phi' + beta^2 phi = 0")
    second_order: SecondOrderConfig | None = Field(default=None, description="phi'' + damping phi' + stiffness phi = 0")
    p_feedback: PFeedbackConfig | None = Field(default=None, description="P beta' + beta = 0")
    funnel: FunnelConfig | None = Field(
        default=None, description="beta' = -F(beta): p_feedback whose gain grows towards the edge of a corridor"
    )
    poles: PerName[PoleSet] | None = Field(
        default=None,
        description="law input_output: poles of the violation [1/s], one number or as many as the row's relative degree"
        f"{_PER_ROW}",
    )
