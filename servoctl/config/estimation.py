"""Grammar of `estimation`: what the law knows of the state, from positions."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field

from servoctl.config.document import Problem, mapping
from servoctl.config.fields import PerName, Positive, PositiveTime, Section

OF_KIND = {"disturbance": "model", "acceleration": "alpha_beta", "filter_time": "difference"}
"""Field -> the kind that uses it."""

REPLACED = {"velocity": "source of speeds", "velocity_filter": "filter of speeds", "prediction": "prediction"}
"""Fields of `hil` that an estimator replaces."""


class PositionNoise(Section):
    """Noise of the measured positions."""

    q: PerName[Positive] = Field(
        description="standard deviation [units of the plant]: one for all, list in the plant's order, or by name"
    )


class EstimationConfig(Section):
    """How state and disturbance are estimated from positions."""

    kind: Literal["model", "alpha_beta", "difference"] = Field(
        description="model: Kalman filter with a disturbance acceleration per coordinate, which the law cancels; "
        "alpha_beta: Kalman filter without a model; difference: differences with a low pass"
    )
    disturbance: PerName[Positive] | None = Field(
        default=None,
        description="of model: how fast the disturbance changes [unit/s^2 per s]: one for all, list in the plant's "
        "order, or by name; left out: the estimator's poles are at 0.35 / period, or lower, so that the disturbance "
        "changes by no more than 4 unit/s^2 in a second",
    )
    noise: PositionNoise | None = Field(
        default=None,
        description="noise of the positions; left out: from realism, or from the resolution of the drives; 1e-5 where "
        "neither is given",
    )
    acceleration: PerName[Positive] | None = Field(
        default=None,
        description="of alpha_beta: standard deviation of the acceleration [unit/s^2], written as disturbance is; left "
        "out: 10",
    )
    filter_time: PositiveTime | None = Field(
        default=None, description="of difference: time constant of the low pass [s]; left out: two periods"
    )


def estimation_problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Problems of `estimation` with itself and with `law`, `run` and `hil`."""
    given, path = values.get("estimation"), ("estimation",)
    if not isinstance(given, Mapping):
        return
    kind, law, hil = given.get("kind"), values.get("law"), mapping(values, "hil")
    for field, of in OF_KIND.items():
        if given.get(field) is not None and kind in OF_KIND.values() and kind != of:
            yield Problem((*path, field), f"belongs to kind {of}, not to {kind} (leave it out)")
    if law == "none":
        yield Problem(path, "needs a law (an open-loop run has no use for an estimate)")
    if mapping(values, "run").get("period") is None and "hil" not in values:
        yield Problem(path, "needs a sampled law (give run.period)")
    if kind == "model" and mapping(values, "law").get("observer") is not None:
        yield Problem(
            ("law", "observer"),
            "cannot be used with estimation.kind model: both would cancel the same disturbance (leave one out)",
        )
    for field, what in REPLACED.items():
        if hil.get(field) not in (None, False, "drive"):
            yield Problem(("hil", field), f"estimation replaces this {what} (leave one of the two out)")
