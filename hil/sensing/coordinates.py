"""From measured displacements and passive constraints to q and v.

    q: minimise |W (h(q) - y)| subject to phi(q, t) = 0     v: minimise |W (H v - y')| subject to Ahat v = c

by Gauss-Newton steps, `d = -Ahat^+ phi`, `q <- q + d + (W H N)^+ W (y - h - H d)` with `N = I - Ahat^+ Ahat`.

Design: passive rows are met exactly, measured ones in least squares. Heavy weights on the passive rows would not do
both: a dependent row among them, seen through round-off, would weigh as much as an encoder (the rank of each is decided
with a tolerance of its own here). Two steps from `q + v elapsed` leave less than round-off of the passive rows wherever
a step of the loop is short (tested). What nobody sees keeps its speed: `rank` tells.

Source: Gauss-Newton with equality constraints by the null-space method (Bjoerck, Numerical Methods for Least Squares
Problems, 5.1); its use for drives is ours.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from hil.sensing.channels import Displacements
from servoctl.engine.kernel import BufferedCall, Kernel, inputs
from servoctl.engine.linalg import Decomposition, decompose, frobenius
from servoctl.engine.parameters import parameter_values, with_parameters
from servoctl.engine.select_engine import run_fast
from servoctl.engine.symbol import largest
from servoctl.engine.trace import trace
from servoctl.errors import PlantError, TraceError
from servoctl.mechanics.constraint import Rows
from servoctl.mechanics.model import Model
from servoctl.mechanics.plant import Plant
from servoctl.types import Array

STEPS = 2
"""Gauss-Newton steps."""

SEEN = 1e-6
"""A direction counts as seen when its pivot exceeds this times |W H|_F: below it errors grow a millionfold."""


class Estimate(NamedTuple):
    """Where the machine is, with its evidence.

    Attributes:
        q: Coordinates, shape (n,).
        v: Velocities, shape (n,).
        residual: y - h(q) of each channel, shape (m,) [joint unit]: zero where nothing is measured twice.
        bound: What the residual can be while every sample is within its error, shape (m,) [joint unit].
        redundancy: How much of an error of a channel stays in its own residual, shape (m,): 0 where no other channel
            checks it.
        rank: Directions that passive constraints and channels determine; n where all are.
        closure: Largest violation of a passive constraint.
    """

    q: Array
    v: Array
    residual: Array
    bound: Array
    redundancy: Array
    rank: int
    closure: float


class Decompositions(NamedTuple):
    """The two decompositions at one q.

    Attributes:
        passive: Of Ahat.
        seen: Of W H N.
        G: W H, shape (m, n).
    """

    passive: Decomposition
    seen: Decomposition
    G: Array

    def change(self, violation: Array, missing: Array) -> Array:
        """The smallest change of q or v that cancels the violations, then meets what is measured.

        Args:
            violation: Of the passive rows.
            missing: Weighted, of the channels, shape (m,).
        """
        d = -self.passive.solve(violation) if len(violation) else np.zeros(self.G.shape[1])
        return d + self.seen.solve(missing - self.G @ d)


def view(A: Array, H: Array, weights: Array, rank_tolerance: Any) -> Decompositions:
    """Takes passive and measured rows apart."""
    passive = decompose(A, rank_tolerance)
    G = weights.reshape(-1, 1) * H
    Z = passive.row_basis
    projected = G - (G @ Z.T) @ Z if len(Z) else G
    return Decompositions(passive, decompose(projected, SEEN, frobenius(G)), G)


class Coordinates:
    """Finds q and v, tick by tick.

    Attributes:
        engine: `c`, `vm` or `numpy`.
        note: Why it is not the engine that was asked for; empty where it is.
    """

    def __init__(
        self,
        model: Model,
        displacements: Displacements,
        rank_tolerance: float = 1e-6,
        engine: str = "auto",
    ) -> None:
        """Compiles.

        Args:
            model: The plant; its task does not matter.
            displacements: What is measured.
            rank_tolerance: A passive direction counts when its pivot exceeds this times |Ahat|_F.
            engine: `auto`, `c`, `vm` or `numpy`, which is also what a plant gets whose code cannot be traced.
        """
        self._model, self._h, self._tolerance = model, displacements, rank_tolerance
        self._n, self._m = model.n, len(displacements.channels)
        holonomic = [row.kind == "holonomic" for row in model.passive_rows]
        self._holonomic = np.flatnonzero(holonomic)
        self._nonholonomic = len(holonomic) > len(self._holonomic)
        self._constants = np.concatenate([displacements.weights, displacements.errors, model.parameters])
        self._tick: BufferedCall | None = None
        self.engine, self.note = "numpy", ""
        if engine == "numpy":
            return
        try:
            kernel = self._compile()
        except (TraceError, PlantError) as error:
            self.note = f"the plant runs in NumPy: {error}"
            return
        self.engine, self.note = run_fast(kernel, engine)
        self._tick = BufferedCall(kernel)
        self._tick.inputs["c"][:] = self._constants
        self._given, self._found = self._tick.inputs["x"], self._tick.outputs["found"]

    def __call__(
        self,
        t: float,
        elapsed: float,
        q: Array,
        v: Array,
        y: Sequence[float],
        rates: Sequence[float],
        slack: Sequence[float],
    ) -> Estimate:
        """Where the machine is now.

        Args:
            t: Time [s].
            elapsed: Since q and v [s].
            q: The last coordinates, shape (n,).
            v: The last velocities, shape (n,).
            y: Displacements, all of the same instant, one per channel.
            rates: Theirs.
            slack: By how much each may be wrong beside its error at standstill [joint unit].
        """
        n, m = self._n, self._m
        given: list[float] = [t, elapsed, *q.tolist(), *v.tolist(), *y, *rates, *slack]
        if self._tick is None:
            found = self._numbers(np.array(given))
        else:
            self._given[:] = given
            self._tick()
            found = self._found.copy()
        residual, bound, redundancy, rank = 2 * n, 2 * n + m, 2 * n + 2 * m, 2 * n + 3 * m
        return Estimate(
            found[:n],
            found[n:residual],
            found[residual:bound],
            found[bound:redundancy],
            found[redundancy:rank],
            int(found[rank]),
            float(found[rank + 1]),
        )

    def view(self, t: float, q: Array) -> Decompositions:
        """The decompositions at a pose, on numbers."""
        rows = self._rows(t, q, np.zeros(self._n), self._model.parameters)
        H = np.asarray(self._h.jacobian(self._model.plant, q, t), dtype=float)
        return view(rows.A[self._holonomic], H, self._h.weights, self._tolerance)

    def accuracy(self, t: float, q: Array) -> Array:
        """Largest error of each coordinate while every sample is within its error at standstill, shape (n,)."""
        seen = self.view(t, q).seen.pseudoinverse() * self._h.weights
        reach: Array = np.abs(seen) @ self._h.errors
        return reach

    def _rows(self, t: Any, q: Array, v: Array, p: Array) -> Rows:
        return Rows(*self._model.rows_kernel(t, q, v, p)[:5])

    def _step(self, t: Any, q: Array, y: Array, c: Array, H: Array, plant: Plant) -> Array:
        """q after one Gauss-Newton step."""
        weights, p = c[: self._m], c[2 * self._m :]
        rows = self._rows(t, q, np.zeros(self._n), p)
        A, phi = rows.A[self._holonomic], rows.violation[self._holonomic]
        change = view(A, H, weights, self._tolerance).change(phi, weights * (y - self._h(plant, q)))
        return q + change

    def _finish(self, t: Any, q: Array, v: Array, measured: Array, c: Array, H: Array, plant: Plant) -> Array:
        """v at q, and the evidence, in one vector."""
        m = self._m
        y, rates, slack = measured[:m], measured[m : 2 * m], measured[2 * m :]
        weights, errors, p = c[:m], c[m : 2 * m], c[2 * m :]
        rows = self._rows(t, q, v, p)
        # of a nonholonomic row the violation is the rate
        slow = np.array([row.kind != "holonomic" for row in self._model.passive_rows], dtype=bool)
        rate = np.where(slow, rows.violation, rows.violation_rate) if self._nonholonomic else rows.violation_rate
        at = view(rows.A[self._holonomic], H, weights, self._tolerance)
        moving = view(rows.A, H, weights, self._tolerance) if self._nonholonomic else at
        v = v + moving.change(rate, weights * (rates - H @ v))
        U = at.seen.column_basis
        unseen = np.eye(m) - U @ U.T if U.shape[1] else np.eye(m)
        bound = (np.abs(unseen) @ (weights * (errors + slack))) / weights
        closure = largest(rows.violation[self._holonomic])
        evidence = [at.passive.rank + at.seen.rank, closure]
        return np.concatenate([q, v, y - self._h(plant, q), bound, np.diag(unseen), evidence])

    def _numbers(self, x: Array) -> Array:
        plant, c, n = self._model.plant, self._constants, self._n
        t, v, measured = float(x[0]), x[2 + n : 2 + 2 * n], x[2 + 2 * n :]

        def H(q: Array) -> Array:
            return np.asarray(self._h.jacobian(plant, q, t), dtype=float)

        q = x[2 : 2 + n] + x[1] * v
        for _ in range(STEPS):
            q = self._step(t, q, measured[: self._m], c, H(q), plant)
        return self._finish(t, q, v, measured, c, H(q), plant)

    def _compile(self) -> Kernel:
        n, m, count = self._n, self._m, len(self._constants)
        given = inputs({"t": (1,), "q": (n,), "v": (n,), "measured": (3 * m,), "c": (count,)})
        t, q, v, measured, c = given.values()
        p = c[2 * m :]
        plant = with_parameters(self._model.plant, p[: len(parameter_values(self._model.plant))])
        H = trace(self._h.jacobian, plant, q, t[0])
        step = trace(self._step, t[0], q, measured[:m], c, H, plant)
        finish = trace(self._finish, t[0], q, v, measured, c, H, plant)
        stepping = Kernel.compile(
            "step_q", {k: given[k] for k in ("t", "q", "measured", "c")}, {"place": step}
        ).called()
        finishing = Kernel.compile("finish_q", given, {"found": finish}).called()
        size, constants = 2 + 2 * n + 3 * m, ca.SX.sym("c", count)
        x = ca.SX.sym("x", size)
        place, speed, known = x[2 : 2 + n] + x[1] * x[2 + n : 2 + 2 * n], x[2 + n : 2 + 2 * n], x[2 + 2 * n :]
        for _ in range(STEPS):
            place = stepping(x[0], place, known, constants)
        found = finishing(x[0], place, speed, known, constants)
        function = ca.Function("sense", [x, constants], [found])
        return Kernel(function, {"x": (size,), "c": (count,)}, {"found": (2 * n + 3 * m + 2,)})
