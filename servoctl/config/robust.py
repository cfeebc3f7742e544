"""Grammar of `law.robust`, `law.adaptive` and `law.uncertainty`: what the law knows about the errors of its model."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator

from servoctl.config.document import in_words
from servoctl.config.fields import LIST, SCALAR, NotNegative, NumberField, Positive, ScalarOr, Section, fault, shape

RelativeEnd = Annotated[float, NumberField("a relative error above -1 (0.3 is 30 % more than the model)", above=-1)]


def _width(ends: tuple[float, ...]) -> tuple[float, ...]:
    if len(ends) != 2 or not ends[0] <= 0.0 <= ends[1]:
        raise fault(f"expected [lower, upper] with lower <= 0 <= upper, got {in_words(list(ends))}")
    return ends


def _auto(value: Any) -> Any:
    return None if isinstance(value, str) and value == "auto" else value


def _list_or_number(value: Any) -> str:
    return LIST if shape(value) == LIST else SCALAR


RelativeRange = Annotated[
    Annotated[
        float, NumberField("a relative error from 0 to below 1, or [lower, upper]", least=0, below=1), Tag(SCALAR)
    ]
    | Annotated[tuple[RelativeEnd, ...], AfterValidator(_width), Tag(LIST)],
    Discriminator(_list_or_number),
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
        description="row -> size by which its violation is divided before norms [unit of the row]; 1 where left out; "
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
