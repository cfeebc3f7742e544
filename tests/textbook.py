"""Law and motion in plain NumPy, by singular values and the root of M as the papers print them: an oracle.

    N = I - (Ahat M^-1/2)^+ Ahat M^-1/2,   a_c = M^-1/2 (N M^-1/2 (Q + c) + (Ahat M^-1/2)^+ bhat)
    T = A M^-1/2 N M^-1/2 B,   u = T^+ (b - A a_c + feedback) + (I - T^+ T) s
    lambda = D^T (M^1/2 q'' - M^-1/2 (Q + c + B u)),   D = (Ahat M^-1/2)^+         reactions of the passive rows
    robust: -g = -rho beta min(1 / |beta|, rho / eps)

Nothing here comes from `servoctl.engine`, `laws` or `mechanics.terms`; the plant is its own NumPy code.

Source: Udwadia, Kalaba 2001; Liu et al. 2015, (32)-(35), with the reaction of the passive constraints to u included.
"""

from collections.abc import Mapping

import numpy as np

from servoctl.laws.bounds_term import BoundsTerm
from servoctl.laws.constraint_following import AttachedConstraintFollowing
from servoctl.laws.corrections import CorrectionTerm
from servoctl.laws.preload import PreloadTerm
from servoctl.laws.robust import RobustTerm
from servoctl.laws.secondary import SecondaryTerm
from servoctl.mechanics.constraint import equation_value
from servoctl.simulation.system import System
from servoctl.types import Array, State


def truncated(A: Array, limit: float) -> tuple[Array, int]:
    """A^+ of the singular values above a limit, and their number."""
    U, values, Vt = np.linalg.svd(A, full_matrices=False)
    rank = int(np.sum(values > limit))
    return (Vt[:rank].T / values[:rank]) @ U[:, :rank].T, rank


class Textbook:
    """The equations of a loop at one state.

    Args:
        system: Plant and law.
        state: The state.
    """

    def __init__(self, system: System, state: State) -> None:
        n, m = system.model.n, system.model.matrices(state)
        self.system, self.state, self.m = system, state, m
        Ahat, bhat = m.passive.A, m.passive.b
        # a singular M moves alike with what its constraints fix anyway
        M, Q = (m.M + Ahat.T @ Ahat, m.Q + Ahat.T @ bhat) if m.singular else (m.M, m.Q)
        values, vectors = np.linalg.eigh(M)
        self.root = (vectors / np.sqrt(values)) @ vectors.T
        rows, clearance = Ahat @ self.root, np.sqrt(np.array(system.passive.clearance))
        wide = np.hstack([rows, np.diag(clearance)]) if len(clearance) else rows
        self.D = truncated(wide, system.passive.rank_tolerance * float(np.linalg.norm(rows)))[0][:n]
        self.N = np.eye(n) - self.D @ rows
        self.inputs, self.rows = self.root @ m.B, m.task.A @ self.root
        self.free = self.N @ self.root @ (Q + m.c) + self.D @ bhat

    def acceleration(self, u: Array) -> Array:
        """q'' under the inputs u, with the stabilisation of the passive constraints and friction."""
        system, m = self.system, self.m
        acting = u if system.friction is None else u - system.friction.resistance(m.B.T @ self.state.v)
        w = self.free + self.N @ self.inputs @ acting + self.D @ system.passive.correction.of(m.passive)
        found: Array = self.root @ w
        return found

    def covers(self) -> bool:
        """Whether `command` has the law's terms."""
        law = self.system.law
        if not isinstance(law, AttachedConstraintFollowing) or law.opaque or self.system.estimator is not None:
            return False
        known = CorrectionTerm | SecondaryTerm | RobustTerm | PreloadTerm | BoundsTerm
        return all(isinstance(term, known) for term in law.terms) and law.on_infeasible != "damp"

    def command(self) -> tuple[Array, Array, int]:
        """u without limits and bounds, what each row of the task misses, and the rank of the task."""
        law, task = self.system.law, self.m.task
        assert isinstance(law, AttachedConstraintFollowing)
        T = self.rows @ self.N @ self.inputs
        forward = task.b - self.rows @ self.free
        back = np.zeros(len(forward))
        for i, row in enumerate(law.rows):
            damping, stiffness, _, higher = law.correction.feedback(i)
            back[i] = -stiffness * task.violation[i] if row.has_violation else 0.0
            back[i] -= damping * task.violation_rate[i] if row.has_rate else 0.0
            back[i] -= 0.0 if not higher else float(np.dot(higher, task.higher[i][: len(higher)]))
        if law.robust is not None:
            back = back - self._pushed(law.robust)
        of, secondary, preload, r = law.allocation, law.term(SecondaryTerm), law.term(PreloadTerm), len(forward)
        if preload is not None:
            more, rhs = self._reactions(preload)
            T, forward, back = np.vstack([T, more]), np.append(forward, rhs), np.append(back, np.zeros(len(rhs)))
        levels = [list(level) for level in of.levels] or [list(range(len(forward)))]
        u, free, rank = self._allocated(T, forward, of.kind, levels)
        if of.feedback_kind == of.kind:
            u, free, rank = self._allocated(T, forward + back, of.kind, levels)
        else:
            u = u + self._allocated(T, back, of.feedback_kind, levels)[0]
        if secondary is not None:
            u = u + free @ self._wanted(secondary)
        return u, (forward + back - T @ u)[:r], rank

    def _pushed(self, of: RobustTerm) -> Array:
        """g of each row, before the first tick: an adaptive estimate is still zero."""
        task, members = self.m.task, list(of.members)
        by_rate = np.array(of.by_rate)
        scale, sliding = np.array(of.scale)[members], np.array(of.sliding)[members]
        moving = np.nan_to_num(task.violation_rate[members]) + sliding * task.violation[members]
        beta = np.where(by_rate, moving, task.violation[members]) / scale
        size, rho = float(np.linalg.norm(beta)), 0.0 if of.adaptive else of.bound
        found = np.zeros(len(of.scale))
        if rho and size:
            found[members] = scale * beta * rho * min(1.0 / size, rho / of.layer)
        return found

    def _reactions(self, of: PreloadTerm) -> tuple[Array, Array]:
        """Rows and right-hand side on u of the prescribed reactions."""
        S = np.array([component.of_multipliers(self.m.passive.violation) for component in of.components])
        free = self.free - self.root @ (self.m.Q + self.m.c)
        values = np.array([component.value for component in of.components])
        return S @ self.D.T @ (self.N @ self.inputs - self.inputs), values - S @ self.D.T @ free

    def _wanted(self, of: SecondaryTerm) -> Array:
        """s: the inputs wanted in the null space of the task."""
        plant, texts = self.m.plant, of.null_space
        s = np.array(of.aim) - of.damping * (self.m.B.T @ self.state.v)
        if isinstance(texts, Mapping):
            s = s + [equation_value(texts[a], plant, self.state) if a in texts else 0.0 for a in plant.actuators]
        elif texts is not None:
            s = s + texts(np.array([self.state.t]), *self.state[1:])
        found: Array = s
        return found

    def _allocated(self, T: Array, e: Array, kind: str, levels: list[list[int]]) -> tuple[Array, Array, int]:
        """The inputs of an allocation, the projector onto the null space of the task, and its rank."""
        law, size = self.system.law, float(np.linalg.norm(self.inputs))
        assert isinstance(law, AttachedConstraintFollowing)
        u, free, rank = np.zeros(T.shape[1]), np.eye(T.shape[1]), 0
        for level in levels:
            of_task = level[0] < len(self.rows)
            rows = self.rows[level] if of_task else self.D
            part, added = truncated(T[level] @ free, law.allocation.rank_tolerance * float(np.linalg.norm(rows)) * size)
            u, free = u + part @ (e[level] - T[level] @ u), free - part @ T[level] @ free
            rank += added if of_task else 0
        if kind == "unprojected":
            W = self.rows @ self.inputs
            limit = law.allocation.rank_tolerance * float(np.linalg.norm(self.rows) * size * np.linalg.norm(W))
            return W.T @ truncated(T @ W.T, limit)[0] @ e, free, rank
        weights = np.sqrt(np.array(law.allocation.weights))
        measures = {"weighted": np.diag(weights), "constraint_force": self.inputs}
        measures["least_acceleration"] = self.root @ self.inputs
        if kind in measures:
            measure = measures[kind]
            limit = law.allocation.rank_tolerance * float(np.linalg.norm(measure))
            u = u - truncated(measure @ free, limit)[0] @ measure @ u
        return u, free, rank
