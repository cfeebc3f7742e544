"""How q and v follow from the measured displacements y, their rates y' and the passive constraints phi = 0.

    q: minimise |W (h(q) - y)| subject to phi(q, t) = 0     v: minimise |W (H v - y')| subject to Ahat v = c

by Gauss-Newton steps, `d = -Ahat^+ phi`, `q <- q + d + (W H N)^+ W (y - h - H d)` with `N = I - Ahat^+ Ahat`.

Design: passive rows hold exactly, measured rows in least squares. Large weights on the passive rows would not do both:
through round-off a dependent passive row would get the weight of an encoder. So each of the two has a rank tolerance of
its own. Two steps from `q + v elapsed` leave the passive rows below round-off if the period is short (tested). A
direction that no channel measures keeps its speed; `rank` shows it.

Source: Gauss-Newton with equality constraints by the null-space method (Bjoerck, Numerical Methods for Least Squares
Problems, 5.1); its use for drives is ours.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from hil.sensing.channels import Displacements
from servoctl.engine.ccode import BoundCall
from servoctl.engine.decomposition import Decomposition, decompose, frobenius
from servoctl.engine.kernel import BufferedCall, Kernel, inputs, run_fast
from servoctl.engine.parameters import parameter_values, with_parameters
from servoctl.engine.trace import trace
from servoctl.errors import ConfigError, PlantError, TraceError
from servoctl.mechanics.initial import nearest
from servoctl.mechanics.model import Model
from servoctl.mechanics.plant import Plant
from servoctl.types import Array, State

STEPS = 2  # Gauss-Newton steps

MEASURED_TOLERANCE = 1e-6
"""A direction counts as measured when its pivot exceeds this times |W H|_F: below it errors grow a million times."""


class CoordinateEstimate(NamedTuple):
    """State of the machine, and how well the samples determine it."""

    q: Array  # coordinates, shape (n,)
    v: Array  # velocities, shape (n,)
    residual: Array  # y - h(q) of each channel, shape (m,) [joint unit]; zero without redundant measurements
    bound: Array  # [joint unit] largest residual while every sample is within its error, shape (m,)
    # share of a channel's error that remains in its own residual, shape (m,); 0: no other channel checks it
    redundancy: Array
    rank: int  # number of directions that passive constraints and channels determine; n if all


class Decompositions(NamedTuple):
    """Decompositions of the passive and the measured rows at one q."""

    passive: Decomposition  # decomposition of Ahat
    measured: Decomposition  # decomposition of W H N
    G: Array  # W H, shape (m, n)

    def change(self, violation: Array, missing: Array) -> Array:
        """The smallest change of q or v that cancels the violations of the passive rows, then fits the measurements.

        `missing`: weighted measurement minus prediction of each channel, shape (m,).
        """
        d = -self.passive.solve(violation) if len(violation) else np.zeros(self.G.shape[1])
        return d + self.measured.solve(missing - self.G @ d)


def decompose_rows(A: Array, H: Array, weights: Array, rank_tolerance: Any) -> Decompositions:
    """Decomposes the passive rows A, and the weighted measured rows H in the null space of A."""
    passive = decompose(A, rank_tolerance)
    G = weights.reshape(-1, 1) * H
    Z = passive.row_basis
    projected = G - (G @ Z.T) @ Z if len(Z) else G
    # relative to |W H|_F of the unprojected rows: round-off of the projection must not count as rank
    return Decompositions(passive, decompose(projected, MEASURED_TOLERANCE, frobenius(G)), G)


class Coordinates:
    """Computes q and v at every tick; compiled.

    Args:
        displacements: What is measured.
        rank_tolerance: A passive direction counts when its pivot exceeds this times |Ahat|_F.
        engine: `auto`, `c`, `vm` or `numpy`; a plant whose code cannot be traced always runs on `numpy`.
    """

    def __init__(
        self, model: Model, displacements: Displacements, rank_tolerance: float = 1e-6, engine: str = "auto"
    ) -> None:
        self._model, self._h, self._tolerance = model, displacements, rank_tolerance
        self._n, self._m = model.n, len(displacements.channels)
        holonomic = [row.kind == "holonomic" for row in model.passive_rows]
        self._holonomic = np.flatnonzero(holonomic)
        self._nonholonomic = len(holonomic) > len(self._holonomic)
        self._constants = np.concatenate([displacements.weights, displacements.errors, model.parameters])
        # engine: `c`, `vm` or `numpy`
        # call: the function on its buffers
        self.engine, self.call = "numpy", self._in_numpy()
        if engine != "numpy":
            with suppress(TraceError, PlantError):  # the plant runs in NumPy
                kernel = self._compile()
                self.engine, _ = run_fast(kernel, engine)
                self.call = BufferedCall(kernel).bound
        (self._input, constants), (self._output,) = self.call.arguments, self.call.results
        constants[:] = self._constants

    def __call__(
        self,
        t: float,
        elapsed: float,
        q: Array,
        v: Array,
        y: Sequence[float],
        rates: Sequence[float],
        slack: Sequence[float],
    ) -> CoordinateEstimate:
        """State of the machine now.

        Args:
            t: Time [s].
            elapsed: Time since q and v [s].
            q: Last coordinates, shape (n,).
            v: Last velocities, shape (n,).
            y: Displacement of each channel, all at the same instant [joint unit].
            rates: Rate of each displacement [joint unit/s].
            slack: Further error of each displacement, in addition to that at standstill [joint unit].
        """
        self._input[:] = [t, elapsed, *q.tolist(), *v.tolist(), *y, *rates, *slack]
        self.call.evaluate()
        return self.estimate

    @property
    def estimate(self) -> CoordinateEstimate:
        """The estimate of the last call."""
        n, m, x = self._n, self._m, self._output.copy()
        residual, bound, redundancy, rank = 2 * n, 2 * n + m, 2 * n + 2 * m, 2 * n + 3 * m
        return CoordinateEstimate(
            x[:n],
            x[n:residual],
            x[residual:bound],
            x[bound:redundancy],
            x[redundancy:rank],
            int(np.nan_to_num(x[rank])),
        )

    def decompositions(self, t: float, q: Array) -> Decompositions:
        """The decompositions at a pose, on numbers."""
        rows = self._model.rows(State(t, q, np.zeros(self._n)))[0]
        H = np.asarray(self._h.jacobian(self._model.plant, q, t), dtype=float)
        return decompose_rows(rows.A[self._holonomic], H, self._h.weights, self._tolerance)

    def inverse(self, t: float, q: Array) -> Array:
        """How q and v react to a change of each displacement or rate at a pose, `(W H N)^+ W`, shape (n, m)."""
        inverse: Array = self.decompositions(t, q).measured.pseudoinverse() * self._h.weights
        return inverse

    def accuracy(self, t: float, q: Array) -> Array:
        """Largest error of each coordinate while every sample is within its error at standstill, shape (n,)."""
        accuracy: Array = np.abs(self.inverse(t, q)) @ self._h.errors
        return accuracy

    def _step(self, t: Any, q: Array, y: Array, c: Array, H: Array, plant: Plant) -> Array:
        """q after one Gauss-Newton step."""
        weights, p = c[: self._m], c[2 * self._m :]
        rows = self._model.rows(State(t, q, np.zeros(self._n)), p)[0]
        A, phi = rows.A[self._holonomic], rows.violation[self._holonomic]
        decompositions = decompose_rows(A, H, weights, self._tolerance)
        return q + decompositions.change(phi, weights * (y - self._h(plant, q)))

    def _finish(self, t: Any, q: Array, v: Array, measured: Array, c: Array, H: Array, plant: Plant) -> Array:
        """q, v and the evidence in one vector, in the order of `CoordinateEstimate`."""
        m = self._m
        y, rates, slack = measured[:m], measured[m : 2 * m], measured[2 * m :]
        weights, errors, p = c[:m], c[m : 2 * m], c[2 * m :]
        rows = self._model.rows(State(t, q, v), p)[0]
        # a nonholonomic row constrains v itself: its violation is already a rate
        velocity_rows = np.array([row.kind != "holonomic" for row in self._model.passive_rows], dtype=bool)
        rate = rows.violation_rate
        if self._nonholonomic:
            rate = np.where(velocity_rows, rows.violation, rate)
        for_q = decompose_rows(rows.A[self._holonomic], H, weights, self._tolerance)
        for_v = decompose_rows(rows.A, H, weights, self._tolerance) if self._nonholonomic else for_q
        v = v + for_v.change(rate, weights * (rates - H @ v))
        # what least squares cannot fit: the projector on the complement of the columns of W H N
        U = for_q.measured.column_basis
        residual_projector = np.eye(m) - U @ U.T if U.shape[1] else np.eye(m)
        bound = (np.abs(residual_projector) @ (weights * (errors + slack))) / weights
        rank = [for_q.passive.rank + for_q.measured.rank]
        return np.concatenate([q, v, y - self._h(plant, q), bound, np.diag(residual_projector), rank])

    def _on_numbers(self, x: Array) -> Array:
        plant, c, n = self._model.plant, self._constants, self._n
        t, v, measured = float(x[0]), x[2 + n : 2 + 2 * n], x[2 + 2 * n :]

        def H(q: Array) -> Array:
            return np.asarray(self._h.jacobian(plant, q, t), dtype=float)

        q = x[2 : 2 + n] + x[1] * v
        for _ in range(STEPS):
            q = self._step(t, q, measured[: self._m], c, H(q), plant)
        return self._finish(t, q, v, measured, c, H(q), plant)

    def _in_numpy(self) -> BoundCall:
        """The function on the plant's NumPy code."""
        x, estimate = np.zeros(2 + 2 * self._n + 3 * self._m), np.zeros(2 * self._n + 3 * self._m + 1)

        def evaluate() -> None:
            estimate[:] = self._on_numbers(x)

        return BoundCall(evaluate, [x, self._constants], [estimate])

    def _compile(self) -> Kernel:
        n, m, count = self._n, self._m, len(self._constants)
        symbols = inputs({"t": (1,), "q": (n,), "v": (n,), "measured": (3 * m,), "c": (count,)})
        t, q, v, measured, c = symbols.values()
        p = c[2 * m :]
        plant = with_parameters(self._model.plant, p[: len(parameter_values(self._model.plant))])
        H = trace(self._h.jacobian, plant, q, t[0])
        step = trace(self._step, t[0], q, measured[:m], c, H, plant)
        finish = trace(self._finish, t[0], q, v, measured, c, H, plant)
        # both are called, not inlined: the C source has each decomposition once
        without_v = {name: symbols[name] for name in ("t", "q", "measured", "c")}
        step_q = Kernel.compile("step_q", without_v, {"new_q": step}).called()
        finish_q = Kernel.compile("finish_q", symbols, {"estimate": finish}).called()
        size, constants = 2 + 2 * n + 3 * m, ca.SX.sym("c", count)
        x = ca.SX.sym("x", size)
        last_v, samples = x[2 + n : 2 + 2 * n], x[2 + 2 * n :]
        new_q = x[2 : 2 + n] + x[1] * last_v
        for _ in range(STEPS):
            new_q = step_q(x[0], new_q, samples, constants)
        estimate = finish_q(x[0], new_q, last_v, samples, constants)
        function = ca.Function("sense", [x, constants], [estimate])
        return Kernel(function, {"x": (size,), "c": (count,)}, {"estimate": (2 * n + 3 * m + 1,)})


SHOWN = 0.1  # a coordinate is named when its share of an unmeasured direction exceeds this part of the largest
STEP = 0.1  # [coordinate units] distance at which another pose is tried


def require_observability(model: Model, coordinates: Coordinates, start: State) -> None:
    """Refuses a machine with a motion that no channel measures: the ConfigError names the directions and the remedy."""
    unmeasured = unmeasured_directions(coordinates, start)
    if not len(unmeasured):
        return
    plant, names = type(model.plant).__name__, list(model.plant.coordinates)
    freedoms = model.n - coordinates.decompositions(start.t, start.q).passive.rank
    directions = [_direction(row, names) for row in unmeasured]
    remedy = "add an encoder node under hil.sensors"
    if _measured_nearby(model, coordinates, start):
        remedy = f"only at this pose, which is singular: start at another pose, or {remedy}"
    raise ConfigError(
        f"hil.drives: {plant}: {freedoms - len(unmeasured)} of {freedoms} degrees of freedom are measured; "
        f"not measured: {', '.join(directions)} ({remedy} for {', '.join(_best_encoders(unmeasured, names))})"
    )


def unmeasured_directions(coordinates: Coordinates, state: State) -> Array:
    """Orthonormal directions of q that neither passive constraints nor channels determine, shape (directions, n)."""
    decompositions = coordinates.decompositions(state.t, state.q)
    known = np.concatenate([decompositions.passive.row_basis, decompositions.measured.row_basis])
    if not len(known):
        return np.eye(len(state.q))
    _, _, Vt = np.linalg.svd(known)
    directions: Array = Vt[len(known) :]
    return directions


def _direction(row: Array, names: list[str]) -> str:
    """`x2`, or `0.71 link1 + 0.71 link2` where a direction mixes coordinates."""
    row = row / row[int(np.argmax(np.abs(row)))]
    order = [i for i in np.argsort(-np.abs(row), kind="stable") if abs(row[i]) > SHOWN]
    if len(order) == 1:
        return str(names[order[0]])
    factors = [f"{abs(row[i]):.2g} ".removeprefix("1 ") for i in order[:4]]
    terms = [f"{'-' if row[i] < 0 else '+'} {factor}{names[i]}" for i, factor in zip(order, factors, strict=False)]
    return " ".join(terms).removeprefix("+ ") + (" ..." if len(order) > 4 else "")


def _best_encoders(unmeasured: Array, names: list[str]) -> list[str]:
    """Coordinates on which encoders would measure these directions best, one per direction.

    Each choice takes the coordinate with the largest share, then removes what its encoder would measure.
    """
    rest, chosen = unmeasured.copy(), []
    for _ in range(len(unmeasured)):
        best = int(np.argmax(np.einsum("ij,ij->j", rest, rest)))
        chosen.append(names[best])
        column = rest[:, best] / np.linalg.norm(rest[:, best])
        rest = rest - np.outer(column, column @ rest)
    return chosen


def _measured_nearby(model: Model, coordinates: Coordinates, start: State) -> bool:
    """Whether everything is measured at a pose nearby that meets the passive constraints."""
    random = np.random.default_rng(0)
    passive = coordinates.decompositions(start.t, start.q).passive.row_basis
    for _ in range(5):
        step = random.standard_normal(len(start.q))
        step = step - passive.T @ (passive @ step)
        q = start.q + STEP * step / max(float(np.abs(step).max()), 1e-12)
        # one coordinate is fixed after the step: otherwise the nearest pose is often the singular one again
        fixed = list(model.plant.coordinates)[int(np.argmax(np.abs(step)))]
        near, consistency = nearest(model, State(start.t, q, np.zeros(len(q))), fix=[fixed], among=())
        violation = consistency.violation[: len(model.passive_rows)]
        if np.abs(violation).max(initial=0.0) < 1e-6 and not len(unmeasured_directions(coordinates, near)):
            return True
    return False


NEWTON_STEPS = 20  # largest number of steps to a pose
SOLVED = 1e-13  # [coordinate unit, joint unit] Newton ends below this error
POSE_TOLERANCE = 1e-9  # relative singular value below which rows count as dependent


def pose_at(
    model: Model,
    displacements: Displacements,  # what the channels measure
    t: float,  # time of the plant [s]
    q: Array,  # pose to begin with, shape (n,)
    channels: Sequence[int],  # indices of the channels whose values are given
    values: Array,  # these values, shape (channels,) [joint unit]
) -> tuple[Array, float]:
    """The pose, shape (n,), and the largest error that remains there."""
    chosen, rest = list(channels), np.zeros(model.n)
    holonomic = np.array([row.kind == "holonomic" for row in model.passive_rows], dtype=bool)
    error = np.inf
    for _ in range(NEWTON_STEPS):
        rows = model.rows(State(t, q, rest))[0]
        H = np.asarray(displacements.jacobian(model.plant, q, t), dtype=float)[chosen]
        missing = np.concatenate([-rows.violation[holonomic], values - displacements(model.plant, q)[chosen]])
        before, error = error, float(np.abs(missing).max(initial=0.0))
        if not error > SOLVED or error > 2.0 * before:
            break
        q = q + np.linalg.lstsq(np.concatenate([rows.A[holonomic], H]), missing, POSE_TOLERANCE)[0]
    return q, error
