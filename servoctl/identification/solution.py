"""Least squares of rows that are linear in the unknowns, weighted by what it leaves, with physical inertias.

Source: rows far off count less as in Huber 1964; physical inertias as in `inertias`.
"""

from dataclasses import dataclass

import numpy as np

from servoctl.identification.base import Base, base
from servoctl.identification.inertias import is_physical, physical_fit
from servoctl.identification.rows import FitRows
from servoctl.identification.unknowns import MOMENTS, Unknowns
from servoctl.types import Array

ROUNDS = 4  # rounds of least squares, each with weights by what the one before leaves

FAR = 2.5
"""Rows further off than this count less [standard deviations]: a joint that creeps has friction that no log shows."""


@dataclass(frozen=True)
class Fit:
    """Result of a fit."""

    unknowns: Unknowns  # what was estimated
    x: Array  # values, shape (unknowns,)
    covariance: Array  # of the values, shape (unknowns, unknowns)
    delays: Array  # [s] delay of the torques of each log
    base: Base  # which unknowns the rows tell apart
    rows: FitRows  # the rows, linearised at `at`
    at: Array  # values at which `rows` were evaluated
    constrained: bool  # whether plain least squares gave inertias that no body has, so that they were kept physical
    determined: int  # number of combinations that the rows determine
    condition: float  # condition number of the base regressor, columns of unit length
    bandwidth: float  # [Hz] cut-off frequency of the rows

    @property
    def sigma(self) -> Array:
        """Standard deviations, shape (unknowns,)."""
        sigma: Array = np.sqrt(np.maximum(np.diag(self.covariance), 0.0))
        return sigma

    def residual(self, x: Array) -> Array:
        """P r at values of the unknowns, linearised, shape (times, n)."""
        found: Array = self.rows.residual + self.rows.regressor @ (x - self.at)
        return found


class Solved:
    """The least-squares solution of rows that are linear in the unknowns.

    Attributes:
        x, sigma: Values and standard deviations.
        moved: How far a coarser filter of the positions moves the values: what the filter itself may cost.
        shift: Change of each log's delay [s].
        rows, at: As given.
    """

    def __init__(self, unknowns: Unknowns, rows: FitRows, at: Array, size: Array, free: Array) -> None:
        self.unknowns, self.rows, self.at = unknowns, rows, at
        fitted, n = rows.fitted, rows.residual.shape[1]
        used = np.flatnonzero(free)
        late = np.zeros((*rows.residual.shape, len(used)))
        for column, number in enumerate(used):
            late[:, :, column] = np.where((rows.log == number)[:, None], rows.late, 0.0)
        Y = np.concatenate([rows.regressor, late], axis=2)[fitted]
        lengths = np.linalg.norm(late, axis=(0, 1))
        self._size = np.concatenate([size, np.linalg.norm(rows.torque) / np.where(lengths > 0.0, lengths, 1.0)])
        before = np.concatenate([unknowns.before - at, np.zeros(len(used))])
        weight, count = np.ones((int(fitted.sum()), n)), len(at)
        for _ in range(ROUNDS):
            W = (Y * weight[:, :, None]).reshape(weight.size, count + len(used))
            y = -(rows.residual[fitted] * weight).ravel()
            change, self._covariance, determined, noise = _solve(W, y, self._size, before, rows.freedom / n)
            self._weight = weight.max(axis=0)
            left = rows.residual[fitted] + Y @ change
            weight = _weights(left, alike=rows.freedom < n)
        self.x, self.shift = at + change[:count], np.zeros(len(free))
        self.shift[used] = change[count:]
        self.sigma = np.sqrt(np.maximum(np.diag(self._covariance)[:count], 0.0))
        self.moved = np.zeros(count)
        self._W, self._noise, self._determined, self._change = W, noise, determined, change
        self._y, self._before = y, before

    def result(self, delays: Array, bandwidth: float) -> Fit:
        """The fit, with physical inertias; arguments as of `Fit`."""
        x, constrained = self.x, False
        W = self._W[:, : len(self.at)]
        found = base(W, self._size[: len(self.at)])
        silent = [group[0] for group in found.groups if len(group) == 1]
        x[silent] = self.unknowns.before[silent]  # before the inertias are made physical, or these would be wrong again
        links = [len(self.unknowns.single) + len(MOMENTS) * i for i in range(len(self.unknowns.links))]
        rotors = self.unknowns.rotors
        if any(x[rotors] < 0.0) or not all(is_physical(x[first : first + 10]) for first in links):
            constrained = True
            stacked = np.vstack([self._W, max(self._noise, 1e-12) * np.diag(1.0 / self._size)])
            aim = np.concatenate([self._y, max(self._noise, 1e-12) * self._before / self._size])
            count = len(self.at)
            Q, R = np.linalg.qr(stacked[:, :count])
            z = Q.T @ (aim - stacked[:, count:] @ self._change[count:]) + R @ self.at
            friction = range(len(self.unknowns.single) + len(MOMENTS) * len(links), count)
            x = physical_fit(R, z, self.unknowns.before, links, [*rotors, *friction])
        independent = W[:, list(found.independent)]
        lengths = np.linalg.norm(independent, axis=0)
        condition = float(np.linalg.cond(independent / lengths)) if len(lengths) else np.inf
        covariance = self._covariance[: len(self.at), : len(self.at)] * self._surprise(x)
        covariance = covariance + np.outer(self.moved, self.moved)
        return Fit(
            self.unknowns, x, covariance, delays, found, self.rows, self.at, constrained, self._determined, condition,
            bandwidth,
        )  # fmt: skip

    def _surprise(self, x: Array) -> float:
        """Factor on the covariance: how much more the rows that were not used leave unexplained; at least 1.

        The bandwidth was chosen for small standard deviations, so those of the fit alone are too small.
        """
        rows = self.rows
        left = (rows.residual + rows.regressor @ (x - self.at)) * self._weight
        share = rows.freedom / left.shape[1]
        mean = float(np.mean(_spread(left[~rows.fitted]) ** 2)) / share if (~rows.fitted).any() else 0.0
        return max(1.0, mean / max(self._noise**2, 1e-300))


def _weights(left: Array, alike: bool) -> Array:
    """Weights of rows by what a fit leaves of them, shape (times, n), at most 1 (Huber 1964).

    Args:
        left: What is left, shape (times, n).
        alike: Whether all coordinates have the same weight, as where the rows are projected.
    """
    spread = np.maximum(_spread(left), 1e-300)
    far = np.max(np.abs(left) / spread, axis=1, keepdims=True)
    own = np.ones(left.shape[1]) if alike else 1.0 / np.maximum(spread, 1e-3 * spread.max())
    weights: Array = own / own.max() * np.minimum(1.0, FAR / np.maximum(far, 1e-300))
    return weights


def _spread(left: Array) -> Array:
    """Standard deviation of each column by its median, which single rows do not change, shape (n,)."""
    spread: Array = 1.4826 * np.median(np.abs(left), axis=0)
    return np.where(spread > 0.0, spread, np.sqrt(np.mean(left**2, axis=0)))


def _solve(W: Array, y: Array, size: Array, before: Array, share: float) -> tuple[Array, Array, int, float]:
    """The change of the unknowns, its covariance, the number of determined combinations, and the noise of the rows.

    Args:
        W: Shape (rows, unknowns).
        y: Shape (rows,).
        size: Standard deviations of the prior, shape (unknowns,).
        before: Mean of the prior, shape (unknowns,).
        share: Share of the rows that are independent.
    """
    U, S, V = np.linalg.svd(W * size, full_matrices=False)
    known = S / S[0] > 1e-9 if len(S) and S[0] > 0.0 else np.zeros(len(S), dtype=bool)
    mean, along = V @ (before / size), U.T @ y
    plain = np.where(known, along / np.where(known, S, 1.0), 0.0)
    left = y - U @ (np.where(known, S, 0.0) * plain)
    freedom = max(share * len(y) - known.sum(), 1.0)
    noise = float(np.sqrt(left @ left / freedom))
    gain = np.where(known, S**2 / np.maximum(S**2 + noise**2, 1e-300), 0.0)
    weights = V.T @ (gain * plain + (1.0 - gain) * mean)
    weights += before / size - V.T @ mean  # directions outside the rows of V
    spread = 1.0 - gain
    full = np.eye(len(size)) - V.T @ V + (V.T * spread) @ V
    return size * weights, size[:, None] * full * size, int(np.sum(gain > 0.9)), noise
