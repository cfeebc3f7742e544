"""A config's `realism` -> what stands between law and plant, checked against the plant."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from servoctl.closed_loop import System
from servoctl.closed_loop.realism import Friction, Realism
from servoctl.config.realism import Friction as FrictionValues
from servoctl.config.realism import Realism as RealismValues
from servoctl.engine.parameters import parameter_fields
from servoctl.errors import ServoctlError, in_one_line
from servoctl.expression.suggest import remedy
from servoctl.mechanics.model import Model
from servoctl.mechanics.plant import Plant
from servoctl.runs.build import Problems
from servoctl.types import State

CYCLE = 1e-9
"""Part of a period by which a delay may miss a whole number of periods and still be one."""


def with_realism(system: System, values: RealismValues, period: float, start: State, problems: Problems) -> System:
    """The system with what a config's `realism` says; unchanged, and problems noted, where that does not fit.

    Args:
        system: Law and plant.
        values: Of the config.
        period: Of the law [s].
        start: Initial state.
        problems: Takes what is wrong.
    """
    before, plant = len(problems.found), system.model.plant
    realism = _realism(values, plant, period, problems)
    friction = None if values.friction is None else _friction(values.friction, plant, problems)
    simulated = _simulated(system.model, values.parameter_error, start, problems)
    if len(problems.found) > before:
        return system
    return dataclasses.replace(system, friction=friction, realism=realism, simulated=simulated)


def _realism(values: RealismValues, plant: Plant, period: float, problems: Problems) -> Realism:
    def measured(field: str) -> tuple[float, ...]:
        given = getattr(values, field)
        parts = [_each(getattr(given, x), plant.coordinates, "coordinate", problems, field, x) for x in ("q", "v")]
        return parts[0] + parts[1]

    noise, lag = measured("noise"), _each(values.lag, plant.actuators, "actuator", problems, "lag")
    lower, upper = _limits(values.saturation, plant, problems)
    return Realism(
        noise=noise,
        resolution=measured("quantisation"),
        lag=lag,
        lower=lower,
        upper=upper,
        delay=values.delay,
        jitter=values.jitter,
        period=period,
        earliest=math.floor(values.delay / period + CYCLE),
        latest=math.ceil((values.delay + values.jitter) / period - CYCLE),
        lagged=any(lag),
        random=any(noise) or values.jitter > 0.0,
    )


def _friction(values: FrictionValues, plant: Plant, problems: Problems) -> Friction:
    def each(field: str) -> tuple[float, ...]:
        return _each(getattr(values, field), plant.actuators, "actuator", problems, "friction", field)

    return Friction(each("coulomb"), each("viscous"), each("speed"))


def _each(given: Any, names: Mapping[str, str], kind: str, problems: Problems, *field: str) -> tuple[float, ...]:
    """One number per name, from one for all, a list in order, or a mapping, in which what is left out is zero."""
    path = ("realism", *field)
    if isinstance(given, Mapping):
        for wrong in [name for name in given if name not in names]:
            problems.add(f"there is no {kind} '{wrong}' ({remedy(wrong, names)})", *path, wrong)
        default = FrictionValues.model_fields["speed"].default if field[-1] == "speed" else 0.0
        return tuple(float(given.get(name, default)) for name in names)
    if isinstance(given, Sequence):
        if len(given) != len(names):
            problems.add(f"expected {len(names)} values ({', '.join(names)}), got {len(given)}", *path)
            return (0.0,) * len(names)
        return tuple(map(float, given))
    return (float(given),) * len(names)


def _limits(given: Any, plant: Plant, problems: Problems) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Smallest and largest torque per actuator."""
    names = list(plant.actuators)
    if not isinstance(given, Mapping):
        size = math.inf if given is None else float(given)
        return (-size,) * len(names), (size,) * len(names)
    for wrong in [name for name in given if name not in names]:
        problems.add(f"there is no actuator '{wrong}' ({remedy(wrong, names)})", "realism", "saturation", wrong)
    limits = [given.get(name, math.inf) for name in names]
    pairs = [(-x, x) if isinstance(x, (int, float)) else x for x in limits]
    return tuple(float(lower) for lower, _ in pairs), tuple(float(upper) for _, upper in pairs)


def _simulated(
    model: Model, errors: Mapping[str, float | Sequence[float]], start: State, problems: Problems
) -> Model | None:
    """The model with the simulated plant's parameters; None where they are the law's."""
    plant, before = model.plant, len(problems.found)
    fields, changed = parameter_fields(plant), {}
    for name, error in errors.items():
        path = ("realism", "parameter_error", name)
        if name not in fields:
            kind = type(plant).__name__
            problems.add(f"{kind} has no such parameter that is a number ({remedy(name, fields)})", *path)
            continue
        length, value = fields[name], getattr(plant, name)
        scale = 1.0 + np.asarray(error, dtype=float)
        if scale.ndim and len(scale) != length:
            expected = "one number" if length is None else f"one number, or {length}"
            problems.add(f"expected {expected}, got {len(scale)}", *path)
            continue
        changed[name] = float(value * scale) if length is None else tuple((np.array(value) * scale).tolist())
    if len(problems.found) > before or all(changed[name] == getattr(plant, name) for name in changed):
        return None
    try:
        other = dataclasses.replace(cast(Any, plant), **changed)
        plain = model.plain.retuned(other, model.plain.task, start)
        found = plain if plain is None or model is model.plain else model.retuned_to(plain, start)
    except ServoctlError as error:
        problems.add(f"the simulated plant: {error}", "realism", "parameter_error")
        return None
    except Exception as error:  # what the class itself says of its parameters
        problems.add(f"{type(plant).__name__} refuses them: {in_one_line(error)}", "realism", "parameter_error")
        return None
    if found is None:
        problems.add("the simulated plant is of another kind than the law's", "realism", "parameter_error")
    return found
