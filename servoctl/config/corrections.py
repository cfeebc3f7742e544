"""Grammar of `correction`: the feedback that drives a constraint violation back to zero."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator

from servoctl.config.document import in_words
from servoctl.config.fields import (
    LIST,
    SCALAR,
    NotNegative,
    NumberField,
    PerName,
    PoleSet,
    Positive,
    ScalarOr,
    Section,
    fault,
    list_or_not,
)

RelativeEnd = Annotated[float, NumberField("a relative error above -1 (0.3 is 30 % more than the model)", above=-1)]


def _width(ends: tuple[float, ...]) -> tuple[float, ...]:
    if len(ends) != 2 or not ends[0] <= 0.0 <= ends[1]:
        raise fault(f"expected [lower, upper] with lower <= 0 <= upper, got {in_words(list(ends))}")
    return ends


def _auto(value: Any) -> Any:
    return None if isinstance(value, str) and value == "auto" else value


RelativeRange = Annotated[
    Annotated[
        float, NumberField("a relative error from 0 to below 1, or [lower, upper]", least=0, below=1), Tag(SCALAR)
    ]
    | Annotated[tuple[RelativeEnd, ...], AfterValidator(_width), Tag(LIST)],
    Discriminator(list_or_not),
]

Scale = dict[str, Positive]
AutoPositive = Annotated[Positive | None, BeforeValidator(_auto)]


class RobustConfig(Section):
    """A force of bounded size against disturbances of the task rows whose size is known."""

    bound: ScalarOr[Positive, dict[str, NotNegative]] = Field(
        description="rho: largest disturbance [acceleration of the row] that is cancelled, of all rows together, or "
        "row -> its own; it must be at least the disturbance divided by 1 + rho_E (`servoctl check` prints both)"
    )
    scale: Scale = Field(
        default={},
        description="row -> size by which its error is divided before norms [unit of the row]; 1 where left out; "
        "needed for rows of different units",
    )
    boundary_layer: AutoPositive = Field(
        default=None,
        description="eps [rate of the row times its acceleration, scaled]: the force is linear below |beta| = eps/rho; "
        "auto, or left out: (d + 1) h rho^2 for a period h and a delay of d periods",
    )


class AdaptiveConfig(Section):
    """A force against disturbances of unknown size, which it estimates."""

    kind: Literal["leakage", "dead_zone"] = Field(
        description="leakage: the estimate decays; dead_zone: it grows only outside of width"
    )
    rate: Positive = Field(description="growth of the estimate per |beta| [1/s^2]")
    leak: Positive | None = Field(default=None, description="decay of the estimate [1/s]; for leakage, which needs it")
    width: NotNegative | None = Field(
        default=None,
        description="|beta| below which the estimate does not grow [rate of the row, scaled]; dead_zone needs it",
    )
    gain_budget: AutoPositive = Field(
        default=None,
        description="largest gain on beta, that of the correction included [1/s]; auto, or left out: the correction's "
        "plus 1 / ((d + 1) h) for a period h and a delay of d periods",
    )
    scale: Scale = Field(default={}, description="as of law.robust")

    @model_validator(mode="after")
    def _fits(self) -> "AdaptiveConfig":
        if self.kind == "leakage" and self.leak is None:
            raise fault("missing (decay of the estimate [1/s]; leakage needs it)", "leak")
        if self.kind == "dead_zone" and self.leak is not None:
            raise fault("does not fit kind dead_zone (leave it out, or use kind: leakage)", "leak")
        if self.kind == "dead_zone" and not self.width:
            raise fault("missing (|beta| below which the estimate does not grow; dead_zone needs it)", "width")
        return self


Rate = Annotated[float, NumberField("a number >= 0 [1/s]", least=0)]
_PER_ROW = "; a number, a list (one per row, in order) or a mapping by task name"


class BaumgarteConfig(Section):
    """`phi'' + 2 alpha phi' + beta^2 phi = 0`."""

    alpha: PerName[Rate] = Field(description=f"damping of the error [1/s]{_PER_ROW}")
    beta: PerName[Rate] = Field(description=f"natural frequency of the error [rad/s]{_PER_ROW}")


class SecondOrderConfig(Section):
    """`phi'' + damping phi' + stiffness phi = 0`."""

    damping: PerName[Rate] = Field(description=f"gain on the error's rate [1/s]{_PER_ROW}")
    stiffness: PerName[Annotated[float, NumberField("a number >= 0 [1/s^2]", least=0)]] = Field(
        description=f"gain on the error [1/s^2]{_PER_ROW}"
    )


class PFeedbackConfig(Section):
    """`P beta' + beta = 0`; beta is the error of a nonholonomic row, `phi' + rate phi` of a holonomic one."""

    P: PerName[Annotated[float, NumberField("a positive time [s]", above=0)]] = Field(
        description=f"time constant [s]{_PER_ROW}"
    )
    rate: PerName[Rate] = Field(
        default=0.0,
        description=f"decay of a holonomic error [1/s]; 0 corrects its rate alone{_PER_ROW}",
    )


_WIDTH = Annotated[float, NumberField("a positive half-width", above=0)]


class FunnelConfig(Section):
    """`beta' = -F(beta)`, where F grows towards the edge of a corridor |beta| < rho(t) that narrows with time.

    beta is the error of a nonholonomic row, `phi' + rate phi` of a holonomic one, and
    `rho(t) = (start - end) exp(-shrink t) + end`.
    """

    P: PerName[Annotated[float, NumberField("a positive time [s]", above=0)]] = Field(
        description=f"time constant in the middle of the funnel [s]{_PER_ROW}"
    )
    start: PerName[_WIDTH] = Field(description=f"half-width at t = 0 [unit of beta]{_PER_ROW}")
    end: PerName[_WIDTH] = Field(description=f"half-width that remains, at most start [unit of beta]{_PER_ROW}")
    shrink: PerName[Rate] = Field(default=0.0, description=f"rate from start to end [1/s]{_PER_ROW}")
    rate: PerName[Rate] = Field(
        default=0.0, description=f"decay of a holonomic error [1/s]; 0 corrects its rate alone{_PER_ROW}"
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
        description="law input_output: poles of the task error [1/s], one number or as many as the row's "
        f"relative degree{_PER_ROW}",
    )
