"""Makes reference vectors: commands of engine `numpy` at states near the start, also under other parameters."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.engine.parameters import parameter_values, with_parameters
from servoctl.errors import ServoctlError
from servoctl.export.interface import Interface
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.system import System
from servoctl.types import Array, State

COUNT = 20  # number of vectors of an export
TRIALS = 200  # most states tried to find them

AGREEMENT = 1e-10
"""Largest relative difference of engines numpy and vm; above it a state is ill-conditioned, and left out."""

SPREAD = 0.2  # standard deviation of the states about the start, in their units
VARIATION = 0.05  # largest relative change of a parameter


@dataclass(frozen=True)
class Vector:
    """One reference."""

    t: float  # [s] time
    x: Array  # q, v and memory
    parameters: Array  # all parameters of the loop
    command: Array  # of engine `numpy`, as in the command part of a row


@np.errstate(all="ignore")
def vectors(loop: Loop, start: State, border: Interface) -> tuple[list[Vector], int]:
    """The vectors, and the number of states left out because rounding decides their rank, status or digits.

    Args:
        loop: The compiled loop.
        start: State of the first vector; the others are near it.
        border: Names and values of the parameters.
    """
    reference = Loop(loop.system, in_numpy=True)
    random, n, chosen = np.random.default_rng(0), loop.system.model.n, list[Vector]()
    left_out = 0
    for trial in range(TRIALS):
        if len(chosen) == COUNT:
            break
        t, x = float(start.t), np.concatenate([start.q, start.v, loop.memory_start])
        if trial:
            t += random.random()
            x = x + SPREAD * random.standard_normal(len(x)) * np.where(np.arange(len(x)) < n, 1.0, 2.0)
            if border.period is not None:
                x = _measured(x, n, border.memory, trial)
        p = _varied(loop.system, border, random) if trial % 2 else border.values
        command = reference.control_kernel(t, x, p)[0]
        compiled = loop.control_kernel(t, x, p)[0]
        if _agree(loop, command, compiled):
            chosen.append(Vector(t, x, p, command))
        else:
            left_out += 1
    return chosen, left_out


def _measured(x: Array, n: int, memory: tuple[str, ...], trial: int) -> Array:
    """A random state as an estimator sees it: running, with readings near its prediction; every third lacks one."""
    x, at = x.copy(), {name: 2 * n + i for i, name in enumerate(memory)}
    x[at["estimation.running"]] = 1.0
    x[at["estimation.elapsed"]] = abs(x[at["estimation.elapsed"]]) * 1e-2
    for i, name in enumerate(name for name in memory if name.startswith("estimation.q.")):
        x[i] = x[at[name]] + 1e-3 * x[i]
    for name in memory:
        if name.startswith("estimation.outliers."):
            x[at[name]] = float(trial % 5)
    if trial % 3 == 0:
        x[trial % n] = np.nan
    return x


def _agree(loop: Loop, command: Array, other: Array) -> bool:
    s = loop.layout.slices
    if command[s["rank"]] != other[s["rank"]] or command[s["status"]] != other[s["status"]]:
        return False
    rates = s["memory_rate"]
    scale = np.maximum(np.abs(command[rates]), 1.0) * 1e3  # a rate is a difference over a period
    if not np.all(np.abs(command[rates] - other[rates]) <= AGREEMENT * scale) and np.isfinite(command[rates]).all():
        return False
    return relative_error(command[s["u"]], other[s["u"]]) <= AGREEMENT


def relative_error(expected: Array, actual: Array) -> float:
    """Largest difference, relative to the largest entry or to 1 where all are smaller; 0 where both are NaN."""
    if np.isnan(expected).all() and np.isnan(actual).all():
        return 0.0
    difference = np.abs(expected - actual).max() / max(1.0, np.abs(expected).max())
    return float(difference) if np.isfinite(difference) else np.inf


def _varied(system: System, border: Interface, random: np.random.Generator) -> Array:
    """Random parameters near those of the config, where plant and task accept them; tolerances stay."""
    values = border.values.copy()
    for member in border.members:
        if not member.name.endswith("tolerance"):
            for place in member.places:
                values[place] *= 1.0 + VARIATION * random.uniform(-1.0, 1.0)
    position = 0
    for thing in (system.model.plant, *system.model.task.values(), *system.model.bounds.values()):
        part = slice(position, position + len(parameter_values(thing)))
        if not _allowed(thing, values[part]):
            values[part] = border.values[part]
        position = part.stop
    return values


def _allowed(thing: Any, values: Array) -> bool:
    if not dataclasses.is_dataclass(thing) or isinstance(thing, type):
        return True
    try:
        dataclasses.replace(with_parameters(thing, values.tolist()))
    except (ServoctlError, ValueError, TypeError):
        return False
    return True
