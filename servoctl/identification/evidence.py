"""How well a log fits a plant whose values may be wrong by about half: one number, to compare hypotheses about the log.

    nats = N sum_i log sqrt(e_i^2 / f_i^2 + SURE^2) + |d / D|^2 / 2

N: times of the rows; e_i: rms of what the equations leave in coordinate i on rows that the fit of d did not use; f_i:
rms of the torque there; d: change of the unknowns; D: half the value of a body, generous for loads, rotors and
friction, which are not negative. This is the negative logarithm of a Gaussian likelihood with unknown noise in each
coordinate, and of the prior of d: each joint counts by what its own torque and its own noise say.

Design: every row is predicted by a fit without its quarter of the log. Without the second term negative masses would
explain torques of the wrong sign, and masses a thousand times too large times in the wrong unit. A load that the file
does not have is part of the model without any change, so it is no finding. The sizes D are ours;
`tests/identification/test_findings.py` counts what they find.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from servoctl.identification.log import Log
from servoctl.identification.rows import FEWEST, Equations, Motion, filtered_motion, highest_of, low_pass, too_short
from servoctl.identification.unknowns import MOMENTS, Unknowns, sizes
from servoctl.mechanics.spatial.plant import Robot
from servoctl.types import Array

ROW_BAND = 0.5  # bandwidth of the rows, relative to that of the positions
PER_PERIOD = 10  # rows that are evaluated, per period of that bandwidth
BLOCKS = 4  # parts of a log; each is predicted by a fit of the others
SHORTEST = 40  # rows of a block
SURE = 0.003  # share of the torque of a coordinate below which no model is better than another
TINY = 1e-4  # smallest torque of a coordinate that errors are compared with, relative to the largest of its unit
ROUNDS = 2  # fits, each weighted by what the one before leaves in each coordinate
ROUNDING = 1e-12  # of sums of squares: times in a wrong unit make them as large as that
LEAST = 0.1  # smallest mass, relative to that in the file
LOAD = 0.15  # largest likely load, relative to the mass of a robot, and its distance, relative to the robot's length


@dataclass(frozen=True)
class Score:
    """How well a log fits."""

    nats: float  # less is better
    shares: Array  # share of the torque that stays unexplained, by coordinate, shape (n,)
    far: float  # part of `nats` that says how far the values are from those of the plant

    @property
    def share(self) -> float:
        """Share of the torque that stays unexplained, all coordinates alike [-]."""
        return float(np.sqrt(np.mean(np.minimum(self.shares, 1.0) ** 2)))


class Evidence:
    """The equations along some rows of logs; `score` judges them for torques as logged, or changed."""

    def __init__(self, equations: Equations, logs: Sequence[Log], cutoff: float, rows: int) -> None:
        """Evaluates the equations.

        Args:
            equations: The plant, with all that may be wrong unknown.
            logs: The logs.
            cutoff: Cut-off frequency of the positions [Hz].
            rows: Number of rows to evaluate, about.

        Raises:
            ConfigError: A log is too short for this frequency.
        """
        self._unknowns, self._logs = equations.unknowns, logs
        self._cutoffs = [min(cutoff, highest_of(log.h)) for log in logs]
        self._at: list[tuple[Array, int]] = []  # of each log: rows, shape (size, BLOCKS), and their spacing in its rows
        motions = []
        for log, cutoff in zip(logs, self._cutoffs, strict=True):
            motion = filtered_motion(log, cutoff)
            before = (len(log.q) - len(motion)) // 2
            step = max(1, int(1.0 / (PER_PERIOD * ROW_BAND * cutoff * log.h)))
            picks = np.arange(0, len(motion), step)
            size = min(len(picks) // BLOCKS, max(SHORTEST, rows // (BLOCKS * len(logs))))
            if size < FEWEST:
                raise too_short(log, cutoff, (BLOCKS * FEWEST * step + 2 * before) * log.h)
            at = picks[np.arange(BLOCKS) * (len(picks) - size) // (BLOCKS - 1) + np.arange(size)[:, None]]
            self._at.append((before + at, step))
            motions.append(motion.at(at.ravel()))
        found = [equations.along(motion, self._unknowns.before) for motion in motions]
        self._actuation = [one.actuation for one in found]
        self._torques = [low_pass(log.u, cutoff, log.h) for log, cutoff in zip(logs, self._cutoffs, strict=True)]
        logged = [u[at.ravel()] for u, (at, _) in zip(self._torques, self._at, strict=True)]
        self._residual = self._kept([one.residual for one in found])
        self._regressor = self._kept([one.regressor for one in found])
        # force on coordinate i by the torque of column l at actuator j, shape (rows, BLOCKS, n, m, m)
        mixed = [np.einsum("kij,kl->kijl", B, u) for B, u in zip(self._actuation, logged, strict=True)]
        self._mixed, self._logged = self._kept(mixed), np.concatenate(logged)
        self._grams = np.einsum("kbip,kbiq->bipq", self._regressor, self._regressor, optimize=True)
        speeds = [np.einsum("kij,ki->kj", one.actuation, motion.v) for one, motion in zip(found, motions, strict=True)]
        self._speed, self._inertia = _rms(np.concatenate(speeds)), self._typical_inertia(motions, found[0].actuation[0])
        residual, regressor = (x.reshape(-1, *x.shape[2:]) for x in (self._residual, self._regressor))
        self._spread = 0.5 * sizes(self._unknowns, residual - regressor @ self._unknowns.before, regressor)
        self._lowest = self._prior()

    @property
    def times(self) -> int:
        """Number of the rows in time."""
        return int(self._residual.shape[0] * BLOCKS)

    def _kept(self, arrays: Sequence[Array]) -> Array:
        """The rows of all logs, filtered and thinned, shape (rows, BLOCKS, ...)."""
        parts = []
        for x, log, cutoff, (at, step) in zip(arrays, self._logs, self._cutoffs, self._at, strict=True):
            h, width = step * log.h, ROW_BAND * cutoff
            stride = max(1, round(0.5 / (width * h)))
            parts.append(low_pass(x.reshape(*at.shape, *x.shape[1:]), width, h)[stride // 2 :: stride])
        return np.concatenate(parts)

    def _typical_inertia(self, motions: Sequence[Motion], B: Array) -> Array:
        """Mean inertia at each actuator by the file, at least 5 % of the largest of its unit, shape (m,)."""
        plant = self._unknowns.plant
        matrices = [np.asarray(plant.mass_matrix(one.q[0], float(one.t[0])), dtype=float) for one in motions]
        mean = np.einsum("ij,ik,kj->j", B, np.mean(matrices, axis=0), B)
        mean /= np.maximum(np.sum(B**2, axis=0) ** 2, 1e-300)
        units = np.array(list(plant.actuators.values()))
        inertia: Array = np.maximum(mean, [0.05 * mean[units == unit].max() for unit in units])
        return inertia

    def score(self, mix: Array | None = None, delays: Array | None = None, held_out: bool = True) -> Score:
        """How well the log fits.

        Args:
            mix: Changed torques as sums of those logged, shape (m, m); None: as logged.
            delays: How much later each torque acts [s], shape (m,); None: 0.
            held_out: Whether each block is predicted by the others; else one fit explains all, which is quicker.
        """
        force = self._force(mix, delays)
        size = _rms(force.reshape(-1, force.shape[2]))
        size = np.where(size > 0.0, size, size.max())
        units = np.array(list(self._unknowns.plant.coordinates.values()))
        size = np.maximum(size, [TINY * size[units == unit].max() for unit in units])
        spread = self._with_friction(_rms(self._logged if mix is None else self._logged @ mix.T))
        y, noise = self._residual - force, 0.1 * size
        slopes = np.einsum("kbip,kbi->bip", self._regressor, y, optimize=True)
        for _ in range(ROUNDS):
            change = _solved(self._grams, slopes, noise, spread, self._lowest)
            errors = y + self._regressor @ change
            noise = np.hypot(_rms(errors.reshape(-1, len(size))), SURE * size)
        for block in range(BLOCKS if held_out else 0):
            others = np.arange(BLOCKS) != block
            own = _solved(self._grams[others], slopes[others], noise, spread, self._lowest)
            errors[:, block] = y[:, block] + self._regressor[:, block] @ own
        shares = _rms(errors.reshape(-1, len(size))) / size
        far = 0.5 * float(np.sum((change / spread) ** 2))
        nats = 0.5 * self.times * float(np.sum(np.log(shares**2 + SURE**2))) + far
        return Score(nats if np.isfinite(nats) else np.inf, shares, far)

    def _force(self, mix: Array | None, delays: Array | None) -> Array:
        """Force of the torques on the kept rows, shape (rows, BLOCKS, n)."""
        if delays is None:
            count = self._mixed.shape[-1]
            force: Array = np.einsum("kbijl,jl->kbi", self._mixed, np.eye(count) if mix is None else mix, optimize=True)
            return force
        forces = []
        for u, log, B, (at, _) in zip(self._torques, self._logs, self._actuation, self._at, strict=True):
            index = np.arange(len(u), dtype=float)
            shifted = [np.interp(at.ravel() - d / log.h, index, x) for d, x in zip(delays, u.T, strict=True)]
            forces.append(np.einsum("kij,jk->ki", B, np.array(shifted)))
        return self._kept(forces)

    def _prior(self) -> Array:
        """Widens D for rotors and loads; returns the lowest change of each unknown, shape (unknowns,)."""
        unknowns = self._unknowns
        positive = np.arange(len(self._spread)) >= unknowns.bodies
        for k, j in zip(unknowns.rotors, unknowns.turning, strict=True):
            self._spread[k], positive[k] = 2.0 * self._inertia[j], True
        for ten in unknowns.moments.values():
            positive[ten][[0, 4, 5, 6]] = True
        for indices, load in _loads(unknowns):
            self._spread[indices] = np.hypot(self._spread[indices], load)
        lowest: Array = np.where(positive, (LEAST - 1.0) * unknowns.before, -np.inf)
        return lowest

    def _with_friction(self, torque: Array) -> Array:
        """D of each unknown, that of friction by the size of the torques, shape (unknowns,)."""
        slopes = torque / np.maximum(self._speed, max(1e-3 * self._speed.max(), 1e-300))
        friction = [torque[j] if kind == "coulomb" else slopes[j] for kind, j in self._unknowns.rubbing]
        spread = self._spread.copy()
        spread[self._unknowns.bodies :] = 2.0 * np.maximum(friction, 1e-300)
        widest: Array = np.maximum(spread, 1e-9 * spread.max())
        return widest


def _loads(unknowns: Unknowns) -> Iterator[tuple[list[int], Array]]:
    """Indices of the unknowns of a robot's last links, and how much a load may change them."""
    if not isinstance(unknowns.plant, Robot):
        return
    tree, names = unknowns.plant.tree, unknowns.names
    carrying = {joint.parent for joint in tree.joints}
    m = LOAD * sum(unknowns.plant.masses.values())
    far = LOAD * sum(float(np.linalg.norm(joint.placement.xyz)) for joint in tree.joints)
    for link in tree.links:
        if link.body not in carrying:
            moments = dict(zip(MOMENTS, [m, *3 * [m * far], *6 * [m * far**2]], strict=True))
            known = [(names.index(f"{link.name}_{x}"), y) for x, y in moments.items() if f"{link.name}_{x}" in names]
            if known:
                yield [i for i, _ in known], np.array([size for _, size in known])


def _solved(grams: Array, slopes: Array, noise: Array, spread: Array, lowest: Array) -> Array:
    """The x of least sum over blocks and coordinates of |y + Y x|^2 / noise^2 + |x / spread|^2, not below `lowest`.

    Args:
        grams: Y^T Y, shape (blocks, n, unknowns, unknowns).
        slopes: Y^T y, shape (blocks, n, unknowns).
        noise: Shape (n,).
        spread, lowest: Shape (unknowns,).
    """
    weight = 1.0 / noise**2
    hessian = np.tensordot(weight, grams.sum(axis=0), 1) * np.outer(spread, spread)
    hessian[np.diag_indices(len(spread))] += 1.0 + ROUNDING * np.diag(hessian).max()
    gradient = spread * (weight @ slopes.sum(axis=0))
    if not np.isfinite(hessian).all() or not np.isfinite(gradient).all():
        return np.full(len(spread), np.nan)
    x, free, least = np.zeros(len(spread)), np.ones(len(spread), dtype=bool), lowest / spread
    for _ in range(5):
        x = np.where(free, 0.0, least)
        side = gradient + hessian @ x
        x[free] = -np.linalg.solve(hessian[np.ix_(free, free)], side[free])
        below = free & (x < least)
        if not below.any():
            break
        free &= ~below
    bounded: Array = spread * np.maximum(x, least)
    return bounded


def _rms(x: Array) -> Array:
    rms: Array = np.sqrt(np.mean(np.square(x), axis=0))
    return rms
