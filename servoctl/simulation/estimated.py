"""The estimator in the loop: the law gets its state and disturbance instead of the measured state.

The memory of the loop is that of the law, then that of the estimator, then what an executor may replace before each
tick: the command that was really sent at the last one, and the time since then.

Design: the plant at an estimated state is a function that is called, so that generated C holds it once.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from servoctl.engine.kernel import Kernel, inputs
from servoctl.engine.symbol import where
from servoctl.engine.trace import trace
from servoctl.estimation.attached import AttachedEstimator, PlantFunctions
from servoctl.estimation.outliers import OutlierBursts
from servoctl.mechanics.rows import Rows
from servoctl.mechanics.terms import Matrices, Terms
from servoctl.run_folder.trajectory import Trajectory
from servoctl.simulation.system import System
from servoctl.types import Array, State

LawAt = Callable[[State, Array, Array], Array]
"""(state, disturbance, memory of the law) -> the law's part of a row: the command, and the rate of its memory."""

SENT, ELAPSED = "sent", "elapsed"
"""Names, in the loop's memory, of what an executor may replace: `estimation.sent.<actuator>`, `estimation.elapsed`."""


def loop_memory(system: System) -> dict[str, float]:
    """Name -> initial value of everything that a loop keeps between evaluations."""
    memory = {} if system.law is None else dict(system.law.memory)
    estimator = system.estimator
    if estimator is None:
        return memory
    names = [*estimator.memory, *(f"{SENT}.{actuator}" for actuator in estimator.timing.actuators), ELAPSED]
    start = [*estimator.memory.values(), *(0.0 for _ in estimator.timing.actuators), estimator.timing.h]
    return memory | {f"estimation.{name}": value for name, value in zip(names, start, strict=True)}


def shown_parts(estimator: AttachedEstimator | None) -> dict[str, int]:
    """Part of a row -> its length, in order."""
    return {} if estimator is None else {f"estimate.{name}": size for name, size in estimator.shown.items()}


def estimate_unit(part: str, unit: str) -> str:
    """Unit of a coordinate's column of such a part."""
    name = part.removeprefix("estimate.")
    order = {"q": 0, "v": 1, "disturbance": 2, "sigma": 2}.get(name)
    if order is None:
        return "1"  # in standard deviations
    return unit if order == 0 else f"{unit or '1'}/s" + ("" if order == 1 else "^2")


def disturbed(terms: Terms, d: Array) -> Terms:
    """The terms with the acceleration d added to that of the plant; d fits the passive constraints."""
    return dataclasses.replace(terms, free_acceleration=terms.free_acceleration + terms.L.T @ d)


def control(t: Any, x: Array, system: System, plant: PlantFunctions, law: LawAt) -> Array:
    """The command part of a row.

    Args:
        x: Measured q, measured v, and the memory of the loop. A q that is not finite is no reading.
        system: Law and estimator.
        law: The law at the estimated state.
    """
    estimator, n, m = system.estimator, system.model.n, system.model.m
    assert estimator is not None and system.law is not None
    count, h = len(system.law.memory), estimator.timing.h
    own, sent, elapsed = x[2 * n + count : -m - 1], x[-m - 1 : -1], x[-1]
    valid = np.array([where(abs(value) < np.inf, 1.0, 0.0) for value in x[:n]])
    found = estimator.update(State(t, x[:n], x[n : 2 * n]), valid, sent, own, elapsed, plant)
    row = law(found.state, found.disturbance, x[2 * n : 2 * n + count])
    asked = estimator.timing.limited(row[:m])
    asked = np.array([where(abs(new) < np.inf, new, old) for new, old in zip(asked, sent, strict=True)])
    change = np.concatenate([found.memory - own, asked - sent, [h - elapsed]])
    end = len(row) - count
    return np.concatenate([row[:end], *(found.shown[name] for name in estimator.shown), row[end:], change / h])


class TracedPlant(PlantFunctions):
    """The plant at any state.

    Args:
        system: With symbols as parameters.
        p: Those symbols.
        matrices: The matrices at t, q and v from such symbols.
    """

    def __init__(self, system: System, p: Array, matrices: Callable[[Mapping[str, Array]], Matrices]) -> None:
        n, m = system.model.n, system.model.m
        fresh = inputs({"t": (1,), "q": (n,), "v": (n,), "u": (m,)})
        state, u = State(fresh["t"][0], fresh["q"], fresh["v"]), fresh["u"]
        given = {**fresh, "p": p}
        terms = trace(system.terms, state, matrices(given))
        moved = trace(lambda u: where(terms.positive, terms.acceleration(u), np.nan), u)
        rows = terms.matrices.passive
        constraints = {"A": rows.A, "violation": rows.violation, "violation_rate": rows.violation_rate}
        self._p = p
        self._acceleration = called_kernel("acceleration", given, {"acceleration": moved})
        self._rows = called_kernel("passive", {key: given[key] for key in ("t", "q", "v", "p")}, constraints)

    def acceleration(self, state: State, u: Array) -> Array:
        return self._acceleration(np.array([state.t]), state.q, state.v, u, self._p)[0]

    def passive(self, state: State) -> Rows:
        A, violation, rate = self._rows(np.array([state.t]), state.q, state.v, self._p)
        return Rows(A, np.zeros(len(violation)), violation, rate)


def called_kernel(name: str, given: Mapping[str, Array], outputs: Mapping[str, Array]) -> Kernel:
    """A function of symbols that is called, so that generated C holds it once."""
    kernel = Kernel.compile(name, given, outputs)
    return Kernel(kernel.called(), kernel.inputs, kernel.outputs)


class TracedLaw:
    """The law at a state, as a function that is called.

    Args:
        system: With symbols as parameters.
        p: Those symbols.
        matrices: As of `TracedPlant`.
        row: (terms with the disturbance, memory of the law, disturbance) -> the law's part of a row.
    """

    def __init__(
        self,
        system: System,
        p: Array,
        matrices: Callable[[Mapping[str, Array]], Matrices],
        row: Callable[[Terms, Array, Array], Array],
    ) -> None:
        assert system.law is not None
        n = system.model.n
        given = inputs({"t": (1,), "q": (n,), "v": (n,), "d": (n,), "memory": (len(system.law.memory),)})
        state = State(given["t"][0], given["q"], given["v"])
        terms = trace(system.terms, state, matrices({**given, "p": p}))
        outputs = {"row": row(trace(disturbed, terms, given["d"]), given["memory"], given["d"])}
        self._p, self._kernel = p, called_kernel("law", {**given, "p": p}, outputs)

    def __call__(self, state: State, d: Array, memory: Array) -> Array:
        return self._kernel(np.array([state.t]), state.q, state.v, d, memory, self._p)[0]


COLUMNS = "estimate.innovation"  # [standard deviations] group of the columns that hold the innovations


def outlier_events(trajectory: Trajectory) -> list[dict[str, Any]]:
    """Each burst of outliers: `t`, `until`, `coordinate` (the worst), `text`, and `coordinates`.

    The latter is coordinate -> `sigmas` (largest innovation), `count`, and `in_row`, the most in consecutive ticks.
    """
    columns = trajectory.group(COLUMNS)
    if not columns:
        return []
    bursts, found = OutlierBursts(list(columns)), []
    innovation = np.column_stack(list(columns.values()))
    for t, row in zip(trajectory.t.tolist(), innovation, strict=True):
        found += bursts.tick(t, row)
    return [
        {
            "t": burst.first, "event": "outlier", "coordinate": burst.worst, "until": burst.last,
            "coordinates": {
                name: {"sigmas": each.sigmas, "count": each.count, "in_row": each.in_row}
                for name, each in burst.counts.items()
            },
            "text": f"{burst.worst}: the estimator left out readings far from their prediction ({burst.text})",
        }
        for burst in (*found, *bursts.close())
    ]  # fmt: skip
