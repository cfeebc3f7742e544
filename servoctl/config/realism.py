"""The grammar of `realism`: what stands between the law and the machine in a simulated run."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field

from servoctl.config.document import Problem
from servoctl.config.fields import Limit, NumberField, OneOrEach, PerName, Positive, ScalarOr, Section
from servoctl.errors import ExpressionError
from servoctl.expression import constant

LONGEST_DELAY = 50
"""Periods that a command may take to arrive: more is a slip of the unit."""

NotNegative = Annotated[float, NumberField("a number >= 0", least=0)]
Time = Annotated[float, NumberField("a time >= 0 [s]", least=0)]
RelativeError = Annotated[
    float, NumberField("a relative error above -1 (0.2 is 20 % more than the law knows)", above=-1)
]


class PerCoordinate(Section):
    """One number per coordinate, of what is measured of it."""

    q: PerName[NotNegative] = Field(
        default=0.0, description="coordinates [units of the plant]: one for all, list in the plant's order, or by name"
    )
    v: PerName[NotNegative] = Field(default=0.0, description="velocities [units of the plant per s], written as q is")


class FrictionConfig(Section):
    """Resistance at each actuator: coulomb tanh(s / speed) + viscous s, where s is its speed B^T v."""

    coulomb: PerName[NotNegative] = Field(
        default=0.0, description="dry friction [actuator units]: one for all, list in the plant's order, or by name"
    )
    viscous: PerName[NotNegative] = Field(
        default=0.0, description="friction per speed [actuator units per its speed], written as coulomb is"
    )
    speed: PerName[Positive] = Field(
        default=0.01, description="speed at which dry friction is three quarters there, written as coulomb is"
    )


class RealismConfig(Section):
    """What a simulated machine has that its model has not; zero or nothing where left out."""

    noise: PerCoordinate = Field(
        default=PerCoordinate(), description="standard deviation of what the law measures, white, new at every tick"
    )
    quantisation: PerCoordinate = Field(
        default=PerCoordinate(), description="resolution of what the law measures; 0: exact"
    )
    delay: Time = Field(default=0.0, description="time from a measurement to the torque that answers it [s]")
    jitter: Time = Field(
        default=0.0, description="what chance adds to the delay of each command at most, uniform [s]; up to one period"
    )
    lag: PerName[Time] = Field(
        default=0.0,
        description="time constant of the actuators' torque [s]: one for all, list in the plant's order, or by name",
    )
    friction: FrictionConfig | None = Field(default=None, description="at the actuators; the law knows nothing of it")
    saturation: ScalarOr[Positive, dict[str, Limit]] | None = Field(
        default=None,
        description="what the actuators can give [actuator units]: one number for all, or actuator -> symmetric limit "
        "or [lower, upper]; law.limits is what the law knows of it",
    )
    parameter_error: dict[str, OneOrEach[RelativeError]] = Field(
        default={},
        description="plant parameter -> e [-]: the simulated plant has (1 + e) times what the law has; a list has one "
        "per entry of a parameter that is a list",
    )


def realism_problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """What `realism` demands of `run`."""
    realism, run = values.get("realism"), values.get("run")
    if realism is None or not isinstance(run, Mapping):
        return
    period = _time(run.get("period"))
    if run.get("period") is None:
        yield Problem(("realism",), "given without run.period (a realistic law samples: give run.period [s])")
    if period is None or period <= 0 or not isinstance(realism, Mapping):
        return
    delay, jitter = _time(realism.get("delay")), _time(realism.get("jitter"))
    if delay is not None and delay > LONGEST_DELAY * period:
        cycles = f"{delay:g} s is {delay / period:.4g} periods of {period:g} s"
        yield Problem(("realism", "delay"), f"{cycles} (expected at most {LONGEST_DELAY}; is the unit right? 5*ms)")
    if jitter is not None and jitter > period * (1 + 1e-9):
        yield Problem(
            ("realism", "jitter"),
            f"{jitter:g} s is longer than run.period, {period:g} s (commands would overtake each other)",
        )


def _time(value: Any) -> float | None:
    """A number, where it is one; its own field says what is wrong otherwise."""
    try:
        return None if value is None else float(constant(value))
    except ExpressionError:
        return None
