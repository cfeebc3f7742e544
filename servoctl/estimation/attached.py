"""Estimators: positions of a tick -> state, and the disturbance acceleration that the model does not explain.

    q- = q + h v + h^2/2 (a + d),   v- = v + h (a + d),   d- = d         a: of the model, under what really acted
    q = q- + Kq i,  v = v- + Kv i,  d = d- + Kd i,   i = y - q-          i: innovation; without a reading i = 0

`alpha_beta` and `difference` have neither a nor d; `difference` passes the reading itself on as q. On a plant with
passive constraints q, v and d are then moved onto them, `x <- x - W D^T (D W D^T)^+ error`, by weights W that are the
squared noise of the coordinates, equal for equal noise. The law gets the state that the model predicts for the moment
at which its torque acts, under the commands that are on their way.

Design: the weights must not be the mass matrix. `Phi M` is an oblique projector, through which readings that violate
the constraints leak into the free motion: 70 times the error of the level of the shipped robots. A reading further
than `OUTLIER` standard deviations from its prediction is left out, at most `PATIENCE` times in a row: then it is the
model that is wrong, and readings are trusted until `TRUST` in a row have fit. The gains are parameters, so changing
them compiles nothing.

Source: Kalman 1960; Simon, Chia 2002, for the projection. The combination is ours.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from servoctl.engine.decomposition import decompose
from servoctl.engine.symbol import maximum, minimum, where
from servoctl.mechanics.constraint import Rows
from servoctl.mechanics.timing import CommandMemory, Timing, UnderWay
from servoctl.run_folder.trajectory import OUTLIER
from servoctl.types import Array, State

PATIENCE = 3  # readings of a coordinate that are left out in a row

TRUST = 1000
"""Readings in a row that must fit before the next one can be left out, once the model has been wrong.

Without it a quarter of the readings was left out where fine encoders showed what the model of an arm lacked.
"""


class PlantFunctions(ABC):
    """What an estimator needs of the plant, on numbers or symbols."""

    @abstractmethod
    def acceleration(self, state: State, u: Array) -> Array:
        """q'' under the inputs u with the passive constraints, shape (n,)."""

    @abstractmethod
    def passive(self, state: State) -> Rows:
        """The plant's own constraints; only A, violation and violation_rate are used."""


class Estimate(NamedTuple):
    """The result of one tick."""

    state: State  # the state at which the command of this tick will act
    disturbance: Array  # acceleration that the model does not explain, shape (n,)
    torque: Array  # lagging torques at that moment, shape (m,); empty without a lag
    memory: Array  # the memory at the next tick
    # name of a part -> values: `q`, `v` now, and of kind model also `disturbance`, `sigma` (the standard deviation of
    # the disturbance) and `innovation` (in standard deviations)
    shown: dict[str, Array]


@dataclass(frozen=True)
class AttachedEstimator:
    """An estimator for one plant; the tuples of numbers are parameters, everything else is structure."""

    kind: str  # `model`, `alpha_beta` or `difference`
    coordinates: tuple[str, ...]  # names
    timing: Timing  # when commands act, and how the actuators follow them
    holonomic: tuple[bool, ...]  # which passive rows constrain positions
    # indices of the passive rows onto which the estimate is moved; those with a clearance are not among them
    rigid: tuple[int, ...]
    # start_q, start_v: state that the run starts from
    start_q: tuple[float, ...]
    start_v: tuple[float, ...]
    # gain_q, gain_v, gain_d: kq, Kv, Kd per coordinate
    gain_q: tuple[float, ...]
    gain_v: tuple[float, ...]
    gain_d: tuple[float, ...]
    innovation: tuple[float, ...]  # [its unit] standard deviation of each innovation
    sigma: tuple[float, ...]  # standard deviation of each disturbance
    weight: tuple[float, ...]  # standard deviation of each position, relative to the largest
    ends: float  # time at which a reference ends; the task is not evaluated after it
    rank_tolerance: float  # of the passive rows
    # whether all weights are 1; then they are left out of the projection, which saves a tenth of the estimator
    even: bool = False

    @property
    def has_model(self) -> bool:
        """Whether the motion between ticks is that of the model."""
        return self.kind == "model"

    @property
    def predicted(self) -> bool:
        """Whether the motion until the next tick is known at a tick, because all commands that act in it were sent."""
        return self.timing.late > 0 and self.timing.fresh == 0.0

    @property
    def parts(self) -> tuple[str, ...]:
        """Parts of the memory, in order; each has a number per coordinate."""
        of_model = ("disturbance", "outliers", *(["acceleration"] if self.predicted else []))
        return ("q", "v", *(of_model if self.has_model else ()))

    @property
    def memory(self) -> dict[str, float]:
        """Name -> initial value."""
        start = {"q": self.start_q, "v": self.start_v}
        rest = (0.0,) * len(self.coordinates)
        return {
            f"{part}.{name}": value
            for part in self.parts
            for name, value in zip(self.coordinates, start.get(part, rest), strict=True)
        }

    @property
    def commands(self) -> CommandMemory:
        """The memory of earlier commands that it reads."""
        return CommandMemory(self.timing, self.timing.late + 1)

    @property
    def shown(self) -> tuple[str, ...]:
        """Parts of `Estimate.shown`, in order; each has a number per coordinate."""
        return ("q", "v", *(("disturbance", "sigma", "innovation") if self.has_model else ()))

    def update(
        self,
        measurement: State,
        valid: Array,
        acted: Array,
        under_way: UnderWay,
        memory: Array,
        elapsed: Any,
        plant: PlantFunctions,
    ) -> Estimate:
        """The estimate of a tick; pure and traceable.

        Args:
            measurement: Time and positions; its velocities are not used.
            valid: Which positions are readings, shape (n,); the others may be any number, or none.
            acted: Mean torque since the last tick, shape (m,).
            under_way: The commands under way now.
            memory: As the last tick left it.
            elapsed: Time since the last tick [s].
        """
        was = self._read(memory)
        t, running = measurement.t, under_way.running > 0.5
        a = self._until_now(State(t - elapsed, was["q"], was["v"]), acted, was, plant)
        d = was.get("disturbance", np.zeros(len(a)))
        q, v = _moved(was["q"], was["v"], a + d, elapsed)
        q, v = where(running, q, where(valid, measurement.q, was["q"])), where(running, v, was["v"])
        innovation = where(valid, measurement.q - q, 0.0)
        apart = np.abs(innovation) / np.array(self.innovation)
        if self.has_model:
            counts = [outliers_in_row(x, k) for x, k in zip(apart, was["outliers"], strict=True)]
            innovation = np.array([where(is_left_out(k), 0.0, i) for k, i in zip(counts, innovation, strict=True)])
            was["outliers"] = np.array(counts)
        q, v = q + np.array(self.gain_q) * innovation, v + np.array(self.gain_v) * innovation
        d = d + np.array(self.gain_d) * innovation
        filtered = q
        if self.kind == "difference":
            q = where(valid, measurement.q, q)
        q, v, d, sigma = self._projected(State(t, q, v), d, plant)
        ahead, torque, first = self._ahead(State(t, q, v), d, under_way, plant)
        kept = {
            **was,
            "q": filtered if self.kind == "difference" else q,
            "v": v,
            "disturbance": d,
            "acceleration": first,
        }
        after = np.concatenate([kept[part] for part in self.parts])
        shown = {"q": q, "v": v, "disturbance": d, "sigma": sigma, "innovation": apart}
        return Estimate(ahead, d, torque, after, {name: shown[name] for name in self.shown})

    def _read(self, memory: Array) -> dict[str, Array]:
        return dict(zip(self.parts, memory.reshape(-1, len(self.coordinates)), strict=True))

    def _until_now(self, before: State, acted: Array, was: dict[str, Array], plant: PlantFunctions) -> Array:
        """Mean acceleration of the model since the last tick."""
        rest = np.zeros(len(self.coordinates))
        if self.predicted:
            return was.get("acceleration", rest)
        return plant.acceleration(before, acted) if self.has_model else rest

    def _ahead(self, now: State, d: Array, under_way: UnderWay, plant: PlantFunctions) -> tuple[State, Array, Array]:
        """The state and the lagging torques when this tick's command acts, and the acceleration of the first piece."""
        t, q, v = now
        first, torque, passed = np.zeros(len(q)), under_way.torque, 0.0
        for i, (time, mean, lagging) in enumerate(self.timing.on_their_way(under_way.sent, torque)):
            a = plant.acceleration(State(t + passed, q, v), mean)
            q, v = _moved(q, v, a + d, time)
            passed, torque = passed + time, lagging
            first = first if i else a
        later = minimum(t + passed, maximum(t, self.ends))
        if self.timing.on_drives:  # on drives the task stands still up to time 0
            later = where(t > 0.0, later, t)
        return State(later, q, v), torque, first

    def _projected(self, state: State, d: Array, plant: PlantFunctions) -> tuple[Array, Array, Array, Array]:
        """q, v and d on the passive constraints, and the standard deviation of d."""
        q, v, sigma = state.q, state.v, np.array(self.sigma)
        if not self.rigid:
            return q, v, d, sigma
        rows, weight = plant.passive(state), np.ones(len(q)) if self.even else np.array(self.weight)
        rigid = list(self.rigid)
        both = [i for i in rigid if self.holonomic[i]]
        split = decompose(rows.A[rigid] * weight, self.rank_tolerance)
        positions = split if both == rigid else decompose(rows.A[both] * weight, self.rank_tolerance)
        q = q - weight * positions.solve(rows.violation[both]) if both else q
        rate = np.array([rows.violation_rate[i] if self.holonomic[i] else rows.violation[i] for i in rigid])
        v = v - weight * split.solve(rate)
        if not self.has_model:
            return q, v, d, sigma
        Z = split.row_basis  # the free motions are those that W (I - Z^T Z) W^-1 leaves
        scaled = sigma / weight
        free = _less_products(np.eye(len(q)), Z)
        return q, v, d - weight * (Z.T @ (Z @ (d / weight))), weight * np.sqrt((free * free) @ (scaled * scaled))


def _less_products(start: Array, Z: Array) -> Array:
    """start - Z^T Z, shape (n, n), each pair of equal entries computed once."""
    found = np.array(start, dtype=np.asarray(Z).dtype)
    for i in range(len(start)):
        for j in range(i + 1):
            found[i, j] = found[i, j] - Z[:, i] @ Z[:, j]
            found[j, i] = found[i, j]
    return found


def outliers_in_row(apart: Any, before: Any) -> Any:
    """Outliers in a row, up to `PATIENCE`; above it, that and how many readings must still fit.

    Args:
        apart: Innovation of a reading [standard deviations].
        before: The number before this reading.
    """
    more = where(before > PATIENCE - 0.5, PATIENCE + TRUST, before + 1.0)
    return where(apart > OUTLIER, more, where(before > PATIENCE + 1.5, before - 1.0, 0.0))


def is_left_out(outliers: Any) -> Any:
    """Whether the last of so many outliers in a row is left out."""
    return (outliers > 0.5) * (outliers < PATIENCE + 0.5)


def _moved(q: Array, v: Array, a: Array, h: Any) -> tuple[Array, Array]:
    """q and v after a time [s] of constant acceleration."""
    return q + h * v + h * h / 2.0 * a, v + h * a
