"""A config's `estimation` -> the estimator of the loop."""

import dataclasses

import numpy as np

from servoctl.assembly.timing import estimated, timing_of
from servoctl.assembly.values import Problems
from servoctl.config.load import LoadedConfig
from servoctl.errors import TaskError
from servoctl.estimation.estimator import CHANGE, DEFAULTS, NOISE, Estimator, PositionNoise
from servoctl.laws.barrier import EstimateErrors
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.timing import Timing
from servoctl.simulation.realism import Channels
from servoctl.simulation.system import System
from servoctl.tree.per_name import one_per_name
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
    if timing_of(loaded, plant, on_drives).period is None:
        problems.add("needs a sampled law (give run.period)", "estimation")
        return None
    measured = None if on_drives else _measured(loaded, plant)
    return of_plant(loaded.config.estimation or Estimator("difference"), plant, measured, problems)


def of_plant(estimator: Estimator, plant: Plant, measured: Array | None, problems: Problems) -> Estimator:
    """The estimator with one number per coordinate wherever numbers are given; `measured` is the noise if none is."""
    numbers = ({} if measured is None else {"noise": measured}) | estimator.numbers()
    each = {}
    for field, value in numbers.items():
        path = ("noise", "q") if isinstance(getattr(estimator, field), PositionNoise) else (field,)
        default = DEFAULTS[field] or CHANGE
        values = one_per_name(value, plant.coordinates, "coordinate", problems, "estimation", *path, default=default)
        each[field] = np.where(values > 0.0, values, default).tolist()  # wrong ones are noted
    return estimator.with_numbers(each)


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
    names, h = list(plant.coordinates), timing.h
    try:
        gains = tuple((each.q, each.v, each.d) for each in estimator.gains(names, h))
    except TaskError:
        return None
    values = estimator.values(names, h)
    return EstimateErrors(h, timing.late, gains, tuple(values["disturbance"]), tuple(values["noise"]))


def _measured(loaded: LoadedConfig, plant: Plant) -> Array | None:
    """Standard deviation of the positions that `realism` measures, shape (n,); None where nothing is known."""
    values, period = loaded.config.realism, loaded.config.run.period
    if values is None or period is None:
        return None
    return measured_by(values.ready(plant, period, Problems(loaded)))


def measured_by(channels: Channels) -> Array | None:
    """Standard deviation of the measured positions, shape (n,), for an estimator; None if they are exact."""
    sigma = channels.deviation
    return np.where(sigma > 0.0, sigma, NOISE) if sigma.any() else None
