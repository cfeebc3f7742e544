"""How well a log fits a plant whose values may be wrong by about half: one number, to compare hypotheses about the log.

    cost = mean |w (r + Y d - B u)|^2 / s^2 + |d / D|^2      least over d on the rows of the fit, mean over the others

r, Y: the equations at the values of the file and their derivative in the unknowns; d: change of the unknowns; w: one
over the size of each coordinate's force; D: half the value of a body, generous for rotors and friction, which are not
negative.

Design: without the second term negative masses would explain torques of the wrong sign, and masses a thousand times too
large would explain times in the wrong unit. The weights are ours; `tests/identification/test_findings.py` counts what
they find.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from servoctl.identification.equations import Equations, Motion
from servoctl.identification.log import Log
from servoctl.identification.rows import FEWEST, filtered_motion, low_pass, too_short
from servoctl.identification.unknowns import sizes
from servoctl.types import Array

ROW_BAND = 0.5  # bandwidth of the rows, relative to that of the positions
PER_PERIOD = 10  # rows that are evaluated, per period of that bandwidth
BLOCKS = 4  # parts of a log that are looked at; the last is not used for the fit
SHORTEST = 40  # rows of a block
ERROR = 0.02  # s: error of a row that counts as much as one value that is wrong by half
SMALL = 0.03  # forces below this share of the largest count as that large


class Evidence:
    """The equations along some rows of logs; `share` judges them for torques as logged, or changed."""

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
        self._equations, self._logs, self._cutoff = equations, logs, cutoff
        self._torques = [low_pass(log.u, cutoff, log.h) for log in logs]
        self._parts: list[tuple[int, Array, float, int]] = []  # log, rows of it, spacing [s], stride of what is kept
        found, fitted, motions = [], [], []
        for number, log in enumerate(logs):
            motion, _ = filtered_motion(log, cutoff, 0.0)
            before = (len(log.q) - len(motion)) // 2
            step = max(1, int(1.0 / (PER_PERIOD * ROW_BAND * cutoff * log.h)))
            picks = np.arange(0, len(motion), step)
            size = min(len(picks) // BLOCKS, max(SHORTEST, rows // (BLOCKS * len(logs))))
            if size < FEWEST:
                raise too_short(log, cutoff, (BLOCKS * FEWEST * step + 2 * before) * log.h)
            for block in range(BLOCKS):
                first = block * (len(picks) - size) // (BLOCKS - 1)
                at = picks[first : first + size]
                part = number, before + at, step * log.h, max(1, round(0.5 / (ROW_BAND * cutoff * step * log.h)))
                self._parts.append(part)
                motions.append(_at(motion, at))
                found.append(equations.along(motions[-1], equations.unknowns.before))
                kept = len(self._kept(found[-1].residual, part))
                fitted.append(np.full(kept, block < BLOCKS - 1))
        self._actuation = [one.actuation for one in found]
        self._largest = 0.0  # largest size of a force as logged, after the first call of `share`
        pairs = list(zip(found, self._parts, strict=True))
        self._residual = np.concatenate([self._kept(one.residual, part) for one, part in pairs])
        self._regressor = np.concatenate([self._kept(one.regressor, part) for one, part in pairs])
        self._fitted = np.concatenate(fitted)
        fit = self._regressor[self._fitted]
        self._grams = np.einsum("kip,kiq->ipq", fit, fit, optimize=True)
        self._speed = _rms(
            np.concatenate([np.einsum("kij,ki->kj", o.actuation, m.v) for o, m in zip(found, motions, strict=True)])
        )
        self._inertia = self._typical_inertia(motions, found[0].actuation[0])

    def _kept(self, x: Array, part: tuple[int, Array, float, int]) -> Array:
        _, _, h, stride = part
        return low_pass(x, ROW_BAND * self._cutoff, h)[stride // 2 :: stride]

    def _typical_inertia(self, motions: Sequence[Motion], B: Array) -> Array:
        """Mean inertia at each actuator by the file, at least 5 % of the largest of its unit, shape (m,)."""
        plant = self._equations.unknowns.plant
        matrices = [np.asarray(plant.mass_matrix(one.q[0], float(one.t[0])), dtype=float) for one in motions]
        mean = np.einsum("ij,ik,kj->j", B, np.mean(matrices, axis=0), B)
        mean /= np.maximum(np.sum(B**2, axis=0) ** 2, 1e-300)
        units = np.array(list(plant.actuators.values()))
        inertia: Array = np.maximum(mean, [0.05 * mean[units == unit].max() for unit in units])
        return inertia

    def share(self, mix: Array | None = None, delays: Array | None = None) -> float:
        """The square root of the cost times `ERROR`: the share of the force that stays unexplained, or is implausible.

        Args:
            mix: Changed torques as sums of those logged, shape (m, m); None: as logged.
            delays: How much later each torque acts [s], shape (m,); None: 0.
        """
        u = [self._torque(part, mix, delays) for part in self._parts]
        forces = zip(self._actuation, u, self._parts, strict=True)
        force = np.concatenate([self._kept(np.einsum("kij,kj->ki", B, one), part) for B, one, part in forces])
        size = _rms(force)
        self._largest = self._largest or float(size.max())
        # a factor on one torque makes the others neither large nor small; one on all does
        floor = SMALL * self._largest * (1.0 if mix is None else float(np.abs(mix).sum(axis=1).min()))
        weight = 1.0 / np.where(size > 0.0, np.hypot(size, floor), self._largest)
        unknowns, n = self._equations.unknowns, force.shape[1]
        spread, positive = self._spread(_rms(np.concatenate(u)))
        y, fit = self._residual - force, self._fitted
        scale = weight**2 / (ERROR**2 * int(fit.sum()) * n)
        gradient = spread * np.einsum("i,kip,ki->p", scale, self._regressor[fit], y[fit], optimize=True)
        hessian = np.einsum("i,ipq->pq", scale, self._grams) * np.outer(spread, spread) + np.eye(len(spread))
        if not np.isfinite(hessian).all() or not np.isfinite(gradient).all():
            return np.inf
        change = _bounded(hessian, gradient, np.where(positive, -unknowns.before / spread, -np.inf))
        left = weight * (y + self._regressor @ (spread * change))[~fit]
        return float(np.sqrt(np.mean(left**2) + ERROR**2 * np.sum(change**2)))

    def _torque(self, part: tuple[int, Array, float, int], mix: Array | None, delays: Array | None) -> Array:
        number, rows, _, _ = part
        u, h = self._torques[number], self._logs[number].h
        if delays is None:
            chosen = u[rows]
        else:
            index = np.arange(len(u), dtype=float)
            chosen = np.column_stack([np.interp(rows - d / h, index, x) for d, x in zip(delays, u.T, strict=True)])
        return chosen if mix is None else chosen @ mix.T

    def _spread(self, torque: Array) -> tuple[Array, Array]:
        """D of each unknown, and whether it may not be negative, shape (unknowns,) each."""
        unknowns = self._equations.unknowns
        spread = 0.5 * sizes(unknowns, self._residual, self._regressor)
        positive = np.zeros(len(spread), dtype=bool)
        speed, count = np.maximum(self._speed, 1e-3 * self._speed.max()), len(spread)
        friction = [*torque[list(unknowns.coulomb)], *(torque / np.maximum(speed, 1e-300))[list(unknowns.viscous)]]
        spread[count - len(friction) :] = 2.0 * np.maximum(friction, 1e-300)
        positive[count - len(friction) :] = True
        for k, j in zip(unknowns.rotors, unknowns.turning, strict=True):
            spread[k], positive[k] = 2.0 * self._inertia[j], True
        return np.maximum(spread, 1e-9 * spread.max()), positive


def _at(motion: Motion, rows: Array) -> Motion:
    """Some rows of a motion, without torques."""
    cut = {name: getattr(motion, name)[rows] for name in ("t", "q", "v", "a", "rubbing")}
    return replace(motion, **cut, u=np.zeros_like(motion.u[rows]))


def _bounded(hessian: Array, gradient: Array, lowest: Array) -> Array:
    """The x of least x^T H x / 2 + g^T x; what falls below its bound is kept there."""
    x, free = np.zeros(len(gradient)), np.ones(len(gradient), dtype=bool)
    for _ in range(5):
        x = np.where(free, 0.0, lowest)
        side = gradient + hessian @ x
        x[free] = -np.linalg.solve(hessian[np.ix_(free, free)], side[free])
        below = free & (x < lowest)
        if not below.any():
            break
        free &= ~below
    return np.maximum(x, lowest)


def _rms(x: Array) -> Array:
    rms: Array = np.sqrt(np.mean(np.square(x), axis=0))
    return rms
