"""Grammar of `correction`: the feedback that drives a constraint violation back to zero."""

from typing import Annotated

from pydantic import Field

from servoctl.config.fields import NumberField, PerName, PoleSet, Section

_PER_ROW = "; a number, a list (one per row, in order) or a mapping by task name"


class BaumgarteConfig(Section):
    """`phi'' + 2 alpha phi' + beta^2 phi = 0`."""

    alpha: PerName[Annotated[float, NumberField("a number >= 0 [1/s]", least=0)]] = Field(
        description=f"damping of the violation [1/s]{_PER_ROW}"
    )
    beta: PerName[Annotated[float, NumberField("a number >= 0 [1/s]", least=0)]] = Field(
        description=f"natural frequency of the violation [rad/s]{_PER_ROW}"
    )


class SecondOrderConfig(Section):
    """`phi'' + damping phi' + stiffness phi = 0`."""

    damping: PerName[Annotated[float, NumberField("a number >= 0 [1/s]", least=0)]] = Field(
        description=f"gain on the violation's rate [1/s]{_PER_ROW}"
    )
    stiffness: PerName[Annotated[float, NumberField("a number >= 0 [1/s^2]", least=0)]] = Field(
        description=f"gain on the violation [1/s^2]{_PER_ROW}"
    )


class PFeedbackConfig(Section):
    """`P beta' + beta = 0`; beta is the violation of a nonholonomic row, `phi' + rate phi` of a holonomic one."""

    P: PerName[Annotated[float, NumberField("a positive time [s]", above=0)]] = Field(
        description=f"time constant [s]{_PER_ROW}"
    )
    rate: PerName[Annotated[float, NumberField("a number >= 0 [1/s]", least=0)]] = Field(
        default=0.0,
        description=f"decay of a holonomic violation [1/s]; 0 corrects its rate alone{_PER_ROW}",
    )


class CorrectionConfig(Section):
    """One correction; exactly one of its kinds is given."""

    baumgarte: BaumgarteConfig | None = Field(default=None, description="phi'' + 2 alpha phi' + beta^2 phi = 0")
    second_order: SecondOrderConfig | None = Field(default=None, description="phi'' + damping phi' + stiffness phi = 0")
    p_feedback: PFeedbackConfig | None = Field(default=None, description="P beta' + beta = 0")
    poles: PerName[PoleSet] | None = Field(
        default=None,
        description="law input_output: poles of the violation [1/s], one number or as many as the row's relative degree"
        f"{_PER_ROW}",
    )
