"""Grammar of `realism`: effects between law and machine in a simulated run; of `estimation`: what the law knows."""

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from servoctl.config.document import Problem, mapping
from servoctl.config.plant import FrictionConfig
from servoctl.tree.fields import (
    Broken,
    FileName,
    Limit,
    NotNegative,
    NumberField,
    OneOrEach,
    PerName,
    Positive,
    Ruled,
    ScalarOr,
    Section,
    Time,
    number_or,
)

LONGEST_DELAY = 50  # longest delay [periods]; a longer one is most likely a wrong unit

RelativeError = Annotated[
    float, NumberField("a relative error above -1 (0.2 is 20 % more than the law knows)", above=-1)
]


class PerCoordinate(Section):
    """One number per coordinate and one per velocity."""

    q: PerName[NotNegative] = Field(
        default=0.0, description="coordinates [units of the plant]: one for all, list in the plant's order, or by name"
    )
    v: PerName[NotNegative] = Field(default=0.0, description="velocities [units of the plant per s], written as q is")


class MachineConfig(Ruled):
    """A scene of MuJoCo that moves in place of the plant: exactly one of mjcf, urdf."""

    mjcf: FileName | None = Field(default=None, description="MJCF file, relative to the config's folder; needs mujoco")
    urdf: FileName | None = Field(default=None, description="URDF that MuJoCo reads, relative to the config's folder")

    @classmethod
    def rules(cls, given: Mapping[str, Any]) -> Broken:
        kinds = [kind for kind in ("mjcf", "urdf") if given.get(kind) is not None]
        if len(kinds) != 1:
            yield (), f"expected exactly one of mjcf, urdf, got {' and '.join(kinds) or 'none'}"

    @property
    def file(self) -> str | None:
        """The file of the scene."""
        return self.urdf or self.mjcf


class RealismConfig(Ruled):
    """Effects of a real machine that its model does not have; an effect that is left out is zero."""

    noise: PerCoordinate = Field(
        default=PerCoordinate(), description="standard deviation of the measurement noise, white, new at every tick"
    )
    quantisation: PerCoordinate = Field(default=PerCoordinate(), description="resolution of the measurements; 0: exact")
    measured: Literal["q", "q and v"] = Field(
        default="q and v",
        description="q: the law gets positions alone, and speeds by estimation; without that section by differences",
    )
    delay: Time = Field(default=0.0, description="time from a measurement to the torque computed from it [s]")
    jitter: Time = Field(
        default=0.0,
        description="largest random delay that is added to each command, uniform [s]; at most one period",
    )
    lag: PerName[Time] = Field(
        default=0.0,
        description="time constant of the actuators' torque [s]: one for all, list in the plant's order, or by name",
    )
    friction: FrictionConfig | None = Field(
        default=None,
        description="friction at the actuators, unknown to the law; if given, it takes the place of plant.friction in "
        "the simulated plant",
    )
    saturation: ScalarOr[Positive, dict[str, Limit]] | None = Field(
        default=None,
        description="largest torques of the actuators [actuator units]: one number for all, or actuator -> symmetric "
        "limit or [lower, upper]; the law knows only law.limits",
    )
    parameter_error: dict[str, OneOrEach[RelativeError]] = Field(
        default={},
        description="plant parameter -> e [-]: the simulated plant has (1 + e) times the law's value; a list has one "
        "e per entry of a parameter that is a list",
    )
    machine: MachineConfig | None = Field(
        default=None,
        description="MuJoCo moves the machine, here and behind emulated drives: joints by the names of coordinates, "
        "motors by the joints that they drive, then by name; a scene without motors gets the torques at its joints",
    )

    @classmethod
    def rules(cls, given: Mapping[str, Any]) -> Broken:
        for field in ("friction", "parameter_error"):
            if given.get("machine") is not None and given.get(field):
                yield (field,), OWN


OWN = "the machine of realism.machine has its own (change its file)"


def realism_problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Problems of `realism` with `run`."""
    realism, run = values.get("realism"), values.get("run")
    if realism is None or not isinstance(run, Mapping):
        return
    if mapping(realism).get("machine") is not None and mapping(values, "hil", "emulation").get("parameters"):
        yield Problem(("hil", "emulation", "parameters"), OWN)
    period = number_or(math.nan, run.get("period"))
    behind_drives = (
        isinstance(realism, Mapping) and realism.get("machine") is not None and values.get("hil") is not None
    )
    if run.get("period") is None and not behind_drives:
        yield Problem(("realism",), "needs run.period (realism is for sampled laws: give run.period [s])")
    if not period > 0.0 or not isinstance(realism, Mapping):
        return
    delay, jitter = (number_or(0.0, realism.get(field)) for field in ("delay", "jitter"))
    if delay > LONGEST_DELAY * period:
        cycles = f"{delay:g} s is {delay / period:.4g} periods of {period:g} s"
        yield Problem(("realism", "delay"), f"{cycles} (expected at most {LONGEST_DELAY}; is the unit right? 5*ms)")
    if jitter > period * (1 + 1e-9):
        yield Problem(
            ("realism", "jitter"),
            f"{jitter:g} s is longer than run.period, {period:g} s (commands would overtake each other)",
        )


REPLACED = {"velocity": "source of speeds", "velocity_filter": "filter of speeds", "prediction": "prediction"}
"""Fields of `hil` that an estimator replaces."""


def estimation_problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Problems of `estimation` with itself and with `law`, `run` and `hil`."""
    given, path = values.get("estimation"), ("estimation",)
    if not isinstance(given, Mapping):
        return
    kind, law, hil = given.get("kind"), values.get("law"), mapping(values, "hil")
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
