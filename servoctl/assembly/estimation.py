"""A config's `estimation` -> the estimator of the loop."""

import dataclasses
from typing import Any

import numpy as np

from servoctl.assembly.realism import build_realism
from servoctl.assembly.timing import estimated, timing_of
from servoctl.assembly.values import Problems, one_per_name
from servoctl.config.load import LoadedConfig
from servoctl.config.realism import EstimationConfig
from servoctl.errors import TaskError
from servoctl.estimation.estimator import ACCELERATION, CHANGE, NOISE, Estimator
from servoctl.laws.barrier import EstimateErrors
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.timing import Timing
from servoctl.simulation.realism import Realism
from servoctl.simulation.system import System
from servoctl.types import Array, State


def estimating(system: System, loaded: LoadedConfig, start: State, problems: Problems, on_drives: bool) -> System:
    """The system with the estimator of a config; unchanged without one, or if there are problems."""
    estimator = build_estimator(loaded, system.model.plant, problems, on_drives)
    if estimator is None or system.law is None:
        return system
    try:
        return with_estimator(system, estimator, start, timing_of(loaded, system.model.plant, on_drives), on_drives)
    except TaskError as error:
        problems.add(str(error).removeprefix("estimation: "), "estimation")
        return system


def with_estimator(
    system: System, estimator: Estimator, start: State, timing: Timing, on_drives: bool = False
) -> System:
    """The system with an estimator.

    Raises:
        TaskError: It does not fit.
    """
    passive = system.passive
    attached = estimator.attach(system.model, start, timing, passive.rank_tolerance, passive.clearance)
    # on drives the resolution of each encoder replaces the noise after the loop is traced: weights stay parameters
    return dataclasses.replace(system, estimator=dataclasses.replace(attached, even=attached.even and not on_drives))


def build_estimator(loaded: LoadedConfig, plant: Plant, problems: Problems, on_drives: bool) -> Estimator | None:
    """The estimator of a config; None without one, or without a period, which is noted."""
    if not estimated(loaded, on_drives):
        return None
    given = loaded.config.estimation
    values = EstimationConfig(kind="difference") if given is None else given
    if timing_of(loaded, plant, on_drives).period is None:
        problems.add("needs a sampled law (give run.period)", "estimation")
        return None

    def each(field: str, value: Any, default: float) -> tuple[float, ...]:
        numbers = one_per_name(
            default if value is None else value, plant.coordinates, "coordinate", problems, "estimation",
            *field.split("."), default=default,
        )  # fmt: skip
        return tuple(np.where(numbers > 0.0, numbers, default).tolist())  # wrong ones are noted

    measured = None if on_drives else _measured(loaded, plant)
    noise = measured if values.noise is None else values.noise.q
    return Estimator(
        values.kind,
        None if values.disturbance is None else each("disturbance", values.disturbance, CHANGE),
        each("noise.q", noise, NOISE),
        each("acceleration", values.acceleration, ACCELERATION),
        values.filter_time,
    )


def estimate_errors(loaded: LoadedConfig, plant: Plant, on_drives: bool) -> EstimateErrors | None:
    """What is known of the errors of a config's estimator; None without one that has a model."""
    if loaded.config.estimation is None:
        return None
    # its problems are noted where the estimator of the run is built
    estimator = build_estimator(loaded, plant, Problems(loaded), on_drives)
    return None if estimator is None else errors_of(estimator, plant, timing_of(loaded, plant, on_drives))


def errors_of(estimator: Estimator, plant: Plant, timing: Timing) -> EstimateErrors | None:
    """What is known of the errors of an estimator; None of one without a model."""
    if estimator.kind != "model":
        return None
    names = list(plant.coordinates)
    try:
        gains, change = estimator.gains(names, timing.h), estimator.changes(names, timing.h)
    except TaskError:
        return None
    noise = tuple(np.broadcast_to(np.asarray(estimator.noise, dtype=float), len(names)).tolist())
    return EstimateErrors(timing.h, timing.late, tuple((each.q, each.v, each.d) for each in gains), change, noise)


def _measured(loaded: LoadedConfig, plant: Plant) -> Array | None:
    """Standard deviation of the positions that `realism` measures, shape (n,); None where nothing is known."""
    values, period = loaded.config.realism, loaded.config.run.period
    if values is None or period is None:
        return None
    return measured_by(build_realism(values, plant, period, Problems(loaded)))


def measured_by(realism: Realism) -> Array | None:
    """Standard deviation of the measured positions, shape (n,); None if they are exact."""
    white, step = np.split(np.array(realism.noise), 2)[0], np.split(np.array(realism.resolution), 2)[0]
    sigma: Array = np.sqrt(white**2 + step**2 / 12.0)
    return np.where(sigma > 0.0, sigma, NOISE) if sigma.any() else None
