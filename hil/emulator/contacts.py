"""Friction and closed brakes at the joints of the simulated machine, as impulses at the end of each step.

    M (v - v+) = B (h C w+ + p) + A' s,    w+ = B' v+,    A v+ = A v,    |p| <= h limit

C is viscous friction. p is dry friction and the brakes: the impulse that stops a joint where its limit allows that,
else the limit, against the motion. A joint that a brake stops is also taken back to where the brake closed.

Design: viscous friction is implicit and dry friction is a set-valued law, so both are stable on any joint, however
light. Which joints slide is found by an active set: first none does; a joint that needs more than its limit slides, and
one that would then turn round stands again. The formulation is our own arrangement of the usual time stepping for
rigid bodies with dry friction.

What drives that brake by themselves demand (`Loads`): on a real machine rotors and gears keep axes apart, and each
drive is tuned to its own. Models often leave them out, so here the drives that brake share one inverse model: each
joint then has the acceleration that its drive wants, while the other joints move freely under the torques that they
have.
"""

from collections.abc import Callable
from math import inf

import numpy as np

from servoctl.errors import PlantError
from servoctl.mechanics.motors import constant_actuation, motor_positions
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.plant_values import dense_actuation
from servoctl.types import Array

RANK_TOLERANCE = 1e-9  # relative singular value below which constraints count as dependent
ROUNDING = 1e-12  # relative size of rounding errors
FRESH = 1_000_000  # [ns] age up to which drives that brake share the terms of the machine: the period of their control

Matrices = Callable[[Array, Array, float], tuple[Array, Array, Array]]
"""q, v, t -> mass matrix, rows of all motors (B transposed), rows of the passive constraints."""


class TrueDisplacements:
    """Displacements and rates of the motors, from the coordinates; where B is constant, it is not evaluated again."""

    def __init__(self, plant: Plant) -> None:
        self._plant = plant
        try:
            self._constant: Array | None = np.ascontiguousarray(constant_actuation(plant).T)  # B^T, shape (m, n)
        except PlantError:
            self._constant = None
        self._linear = self._constant if type(plant).motor_positions is Plant.motor_positions else None

    def motors(self, q: Array) -> Array:
        """Displacement conjugate to each actuator, shape (m,): its rate is `B^T v`."""
        if self._linear is None:
            return np.asarray(motor_positions(self._plant, q), dtype=float)
        displacement: Array = self._linear.dot(q)  # half the time of @
        return displacement

    def rates(self, q: Array, v: Array, t: float) -> Array:
        """Rates of these displacements, B^T v, shape (m,)."""
        B = dense_actuation(self._plant, q, t).T if self._constant is None else self._constant
        rates: Array = B.dot(v)
        return rates


class Contacts:
    """Friction and brakes of all joints."""

    def __init__(self, matrices: Matrices, displacements: TrueDisplacements, coulomb: Array, viscous: Array) -> None:
        """Starts with open brakes; friction of each joint, shape (m,) [actuator unit, actuator unit per its speed]."""
        self._matrices, self._displacements = matrices, displacements
        self._coulomb, self._viscous = coulomb, viscous
        self._rubs, self._damps = bool(coulomb.any() or viscous.any()), bool(viscous.any())
        # joint -> torque or force at which each of its brakes slides [actuator unit]; infinite: never
        self.pressed: dict[int, list[float]] = {}
        self._places: dict[int, float] = {}
        self._set_limits()

    @property
    def active(self) -> bool:
        return self._rubs or bool(self.pressed)

    def brake(self, index: int, closed: bool, strength: float, q: Array) -> None:
        """Closes or opens a brake of this strength at the joint of an actuator [actuator unit]; q: the pose now."""
        if closed:
            self._places.setdefault(index, float(self._displacements.motors(q)[index]))
            self.pressed.setdefault(index, []).append(strength)
        elif strength in self.pressed.get(index, ()):
            self.pressed[index].remove(strength)
            if not self.pressed[index]:
                del self.pressed[index], self._places[index]
        self._set_limits()

    def _set_limits(self) -> None:
        limits = self._coulomb + [sum(self.pressed.get(index, ())) for index in range(len(self._coulomb))]
        self._grips = np.flatnonzero(limits)  # joints with dry friction or a closed brake
        self._limits = limits[self._grips]
        self._braked = [k for k, index in enumerate(self._grips.tolist()) if index in self.pressed]

    def __call__(self, before: Array, x: Array, t: float, h: float, keep: bool = True) -> tuple[Array, bool]:
        """The state at the end of a step of length h [s], at time t [s], and whether it is still.

        Still: nothing moves, and nothing can while torques stay as they are.

        `before`: q and v at its beginning, shape (2n,); `x`: those at its end if nothing rubbed; `keep`: the step is
        taken, and not only looked at.
        """
        n = len(x) // 2
        q, v = x[:n], x[n:]
        M, B, A = self._matrices(q, v, t)
        grips = self._grips
        bounds = h * self._limits if h else np.where(self._limits == inf, inf, 0.0)
        gripped = B[grips]
        L = _cholesky(M + h * (B.T * self._viscous) @ B if self._damps else M)
        rows = _forward(L, np.concatenate([gripped, A]).T).T
        target = np.concatenate([gripped.dot(v), np.zeros(len(A))])
        damped = np.zeros(n)
        if self._damps:
            damped = _forward(L, (h * B.T @ (self._viscous * (B @ v)))[:, None])[:, 0]
            target -= rows @ damped
        active = _ActiveSet(rows, target, bounds)
        change = _backward(L, damped + active.change)
        stuck = [k for k in self._braked if not active.sliding[k]]
        stands = active.full and not active.sliding.any()
        if stands and not before[n:].any():
            return before, True
        fastest, v = np.abs(v).max(), v - change
        if stands and np.abs(v).max() <= ROUNDING * fastest:
            v[:] = 0.0
        q = q - h / 2 * change  # the position that belongs to the mean speed of the step
        if stuck:
            pinned = [*stuck, *range(len(grips), len(rows))]
            slip = np.zeros(len(pinned))
            moved = self._displacements.motors(q)
            slip[: len(stuck)] = [moved[grips[k]] - self._places[grips[k]] for k in stuck]
            U, sizes, V = _decomposed(rows[pinned])
            q = q - _backward(L, V.T.dot(U.T.dot(slip) / sizes))
        if keep and len(stuck) < len(self._braked):
            moved = self._displacements.motors(q)
            self._places.update({int(grips[k]): float(moved[grips[k]]) for k in self._braked if active.sliding[k]})
        return np.concatenate([q, v]), False


# SciPy is imported where it is needed, since commands without an emulator start faster without it.


def _cholesky(M: Array) -> Array:
    """The lower factor L of L L' = M."""
    try:
        return np.linalg.cholesky(M)
    except np.linalg.LinAlgError as error:
        raise np.linalg.LinAlgError("the mass matrix is not positive definite") from error


def _forward(L: Array, columns: Array) -> Array:
    """L^-1 `columns`."""
    from scipy.linalg.blas import dtrsm

    return np.asarray(dtrsm(1.0, L, columns, lower=1))


def _backward(L: Array, y: Array) -> Array:
    """L'^-1 y."""
    from scipy.linalg.blas import dtrsv

    return np.asarray(dtrsv(L, y, lower=1, trans=1))


def _decomposed(rows: Array) -> tuple[Array, Array, Array]:
    """U, singular values and V' of `rows` = U diag(sizes) V', without what is zero but for rounding."""
    U, sizes, V = np.linalg.svd(rows, full_matrices=False)
    rank = int((sizes > RANK_TOLERANCE * sizes[0]).sum())
    return U[:, :rank], sizes[:rank], V[:rank]


class _ActiveSet:
    """Solves `R y = target` for y in the range of R', where multipliers of the first rows have bounds."""

    def __init__(self, rows: Array, target: Array, bounds: Array) -> None:
        self._rows, self._target, self._bounds = rows, target, bounds
        count = len(bounds)
        self.change: Array  # y, shape (n,)
        self.full: bool  # whether the rows that are met leave no freedom
        self.sliding = np.zeros(count, dtype=int)  # sign of the multiplier of each row at its bound; 0: the row is met
        multipliers = self._solve()
        for _ in range(4 * count + 4):
            beyond = np.abs(multipliers[:count]) > bounds * (1 + ROUNDING)
            if not (beyond.any() or self.sliding.any()):
                break
            left = target[:count] - rows[:count] @ self.change  # what remains of the motion
            turned = self.sliding * left < 0
            if not (beyond & (self.sliding == 0)).any() and not turned.any():
                break
            self.sliding[turned] = 0
            again = beyond & (self.sliding == 0) & ~turned
            self.sliding[again] = np.sign(multipliers[:count][again]).astype(int)
            multipliers = self._solve()

    def _solve(self) -> Array:
        """Computes `change` and `full`; returns the multipliers of all rows."""
        if not self.sliding.any():
            self.change, met, rank = self._met(self._rows, self._target)
            self.full = rank == self._rows.shape[1]
            return met
        count = len(self._bounds)
        free = np.concatenate([self.sliding == 0, np.ones(len(self._rows) - count, dtype=bool)])
        multipliers = np.zeros(len(self._rows))
        at_bound = np.flatnonzero(self.sliding)
        multipliers[at_bound] = self.sliding[at_bound] * self._bounds[at_bound]
        pushed = self._rows.T @ multipliers
        rows = self._rows[free]
        change, multipliers[free], rank = self._met(rows, self._target[free] - rows @ pushed)
        self.change, self.full = pushed + change, rank == rows.shape[1]
        return multipliers

    @staticmethod
    def _met(rows: Array, target: Array) -> tuple[Array, Array, int]:
        """The shortest y with `rows` y = target, its multipliers, and the rank of the rows."""
        if not len(rows):
            return np.zeros(rows.shape[1]), target, 0
        U, sizes, V = _decomposed(rows)
        parts = U.T.dot(target) / sizes
        return V.T.dot(parts), U.dot(parts / sizes), len(sizes)


class Loads:
    """Torques for wanted accelerations, by `q'' = Phi (Q + B u)`.

    `terms`: time [ns] -> mass matrix, rows of the motors, rows of the passive constraints, and force, now.
    `torques`: time [ns] -> torques at the joints now, shape (m,) [actuator units].
    """

    def __init__(self, terms: Callable[[int], tuple[Array, ...]], torques: Callable[[int], list[float]]) -> None:
        self._terms, self._torques = terms, torques
        self._wanted: dict[int, float] = {}
        self._now = -1

    def release(self, index: int) -> None:
        """Notes that a drive does not brake any more."""
        self._wanted.pop(index, None)

    def inertia(self, index: int, now: int) -> float:
        """Inertia at a joint while the others are free [actuator unit per its acceleration]; 0 if it is blocked."""
        self._update(now)
        mobilities = (self._motors**2).sum(0)
        return 1.0 / float(mobilities[index]) if mobilities[index] > RANK_TOLERANCE * mobilities.max() else 0.0

    def torque(self, index: int, acceleration: float, now: int) -> float:
        """Torque or force at a joint whose drive wants an acceleration from now on [actuator unit]."""
        self._wanted[index] = acceleration
        self._update(now)
        braking = list(self._wanted)
        others = np.array(self._torques(now))
        others[braking] = 0.0
        motors = self._motors[:, braking]
        missing = list(self._wanted.values()) - motors.T @ (self._force + self._motors @ others)
        U, sizes, V = _decomposed(motors.T @ motors)
        torques = V.T @ (U.T @ missing / sizes)
        return float(torques[braking.index(index)])

    def _update(self, now: int) -> None:
        """Takes the terms of this moment, in the metric of the mass matrix, projected onto what the constraints allow.

        All drives share them for `FRESH`: on the wall clock, terms for each of six drives in each of its periods take
        longer than the period.
        """
        if 0 <= self._now <= now < self._now + FRESH:
            return
        M, B, A, force = self._terms(now)
        L = _cholesky(M)
        free = _forward(L, np.column_stack([B.T, force]))
        if len(A):
            held, *_ = _decomposed(_forward(L, A.T))
            free -= held @ (held.T @ free)
        self._motors, self._force, self._now = free[:, :-1], free[:, -1], now
