"""Least squares for the unknowns, with the values before as a weak prior.

    least  |W (x - x0) + r0|^2 / s^2 + |D^-1 (x - x0)|^2,      D = size of each unknown,   s: what the rows leave

Design: the prior decides only what the rows do not: of unknowns that only act together it takes the smallest relative
change, and what the motion does not excite stays as it was, with a standard deviation that says so. Rows of different
coordinates are weighted by their own residuals.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from servoctl.errors import ConfigError
from servoctl.identification.base import Base, base
from servoctl.identification.inertias import is_physical, physical_fit
from servoctl.identification.rows import Raw, Rows, thinned
from servoctl.identification.unknowns import MOMENTS, Unknowns
from servoctl.types import Array

ITERATIONS = 30
"""Most Gauss-Newton steps for parameters that enter nonlinearly."""

CONVERGED = 1e-10
"""A step this small relative to the size of the unknowns ends the iteration."""

LINEAR = 1e-9
"""Regressors this much alike, relative to their largest entry, are the same: the equations are linear."""

SIGNIFICANT = 4.0
"""Friction below this many standard deviations is taken as 0."""

ROWS = (1.0, 0.7, 0.5, 0.35, 0.25, 0.18, 0.12)
"""Bandwidths of the rows that are tried, relative to that of the positions; noise grows with frequency."""

PER_UNKNOWN = 4
"""Fewest rows per unknown."""

ROUNDS = 4
"""Rounds of least squares, each with weights by what the one before leaves."""

FAR = 2.5
"""Rows further off than this count less [standard deviations]: a joint that creeps has friction that no log shows."""

COARSER = 0.7
"""Cut-off frequency, relative to its own, at which the fit is repeated to see what the filter costs."""

STANDSTILL = 0.01
"""Changes of torque below this share of the torque are no excitation."""


@dataclass(frozen=True)
class Fit:
    """Result of a fit.

    Attributes:
        unknowns: What was estimated.
        x: Values, shape (unknowns,).
        covariance: Of the values, shape (unknowns, unknowns).
        delays: Delay of the torques of each log [s].
        base: Which unknowns the rows tell apart.
        rows: The rows, linearised at `at`.
        at: Values at which `rows` were evaluated.
        constrained: Whether plain least squares gave inertias that no body has, so that they were kept physical.
        determined: Number of combinations that the rows determine.
        condition: Condition number of the base regressor, columns of unit length.
        bandwidth: Cut-off frequency of the rows [Hz].
    """

    unknowns: Unknowns
    x: Array
    covariance: Array
    delays: Array
    base: Base
    rows: Rows
    at: Array
    constrained: bool
    determined: int
    condition: float
    bandwidth: float

    @property
    def sigma(self) -> Array:
        """Standard deviations, shape (unknowns,)."""
        sigma: Array = np.sqrt(np.maximum(np.diag(self.covariance), 0.0))
        return sigma

    def residual(self, x: Array) -> Array:
        """P r at values of the unknowns, linearised, shape (times, n)."""
        found: Array = self.rows.residual + self.rows.regressor @ (x - self.at)
        return found


def sizes(unknowns: Unknowns, rows: Rows) -> Array:
    """Size of each unknown, for the prior: its value before, and for zeros the value that would explain all torque."""
    before = np.abs(unknowns.before)
    column = np.sqrt(np.mean(rows.regressor**2, axis=(0, 1)))
    force = np.sqrt(np.mean(rows.residual**2)) + np.sqrt(
        np.mean(np.einsum("kij,j->ki", rows.regressor, unknowns.before) ** 2)
    )
    explains = np.where(column > 0.0, force / np.where(column > 0.0, column, 1.0), 1.0)
    found = np.where(before > 0.0, before, explains)
    for number in range(len(unknowns.links)):
        first = len(unknowns.single) + len(MOMENTS) * number
        m, about = before[first], before[first + 4 : first + 7].max()
        length = np.sqrt(about / m) if m > 0.0 else 0.0
        found[first : first + 10] = np.maximum(found[first : first + 10], [m, *3 * [m * length], *6 * [about]])
        found[first + 1 : first + 10] = np.minimum(
            found[first + 1 : first + 10], [*3 * [m * length + 1e-300], *6 * [about + 1e-300]]
        )
    return found


def fit(
    unknowns: Unknowns,
    evaluate: Callable[[Array, Array, float], Sequence[Raw]],
    freedom: Callable[[], int],
    cutoff: float,
    delays: Array,
    free: Array,
    pruned: bool,
) -> Fit:
    """Fits the unknowns.

    Args:
        unknowns: What is unknown.
        evaluate: Values of the unknowns, delays of the torques, cut-off frequency of the positions -> equations along
            the logs.
        freedom: Independent rows per time, after the first evaluation.
        cutoff: Cut-off frequency of the positions [Hz].
        delays: Delay of the torques of each log [s].
        free: Whether the delay of each log is estimated too.
        pruned: Whether friction that is not significant is left out; negative friction always is.

    Raises:
        ConfigError: The logs determine nothing, or are too short.
    """
    at = unknowns.before.copy()
    raw = evaluate(at, delays, cutoff)
    rows, width = _best_rows(unknowns, raw, cutoff, freedom(), free)
    size = sizes(unknowns, rows)
    for _ in range(ITERATIONS):
        solved = _Solved(unknowns, rows, at, size, free)
        step = float(np.max(np.abs(solved.x - at) / size, initial=0.0))
        delays = delays + solved.shift
        again = thinned(evaluate(solved.x, delays, cutoff), width, freedom())
        same = np.abs(again.regressor - rows.regressor).max() <= LINEAR * np.abs(rows.regressor).max()
        rows, at = again, solved.x
        if step < CONVERGED or (same and not free.any()):
            break
    # the delay is known by now; its column would only blur the standard deviations of friction
    coarse = _coarser(evaluate, at, delays, cutoff, width, freedom()) or rows
    while True:
        solved, other = (_Solved(unknowns, each, at, size, np.zeros_like(free)) for each in (rows, coarse))
        solved.moved = other.x - solved.x
        if not (out := _not_significant(unknowns, solved, SIGNIFICANT if pruned else 0.0)):
            return solved.result(delays, width)
        unknowns = unknowns.without([unknowns.names[i] for i in out])
        rows, coarse = (_without(each, out, at) for each in (rows, coarse))
        keep = np.setdiff1d(np.arange(len(at)), out)
        at, size = at[keep], size[keep]


def _coarser(
    evaluate: Callable[[Array, Array, float], Sequence[Raw]],
    at: Array, delays: Array, cutoff: float, width: float, freedom: int,
) -> Rows | None:  # fmt: skip
    """The rows with a lower cut-off frequency of the positions; None if a log is too short for it."""
    try:
        return thinned(evaluate(at, delays, COARSER * cutoff), width, freedom)
    except ConfigError:
        return None


def _without(rows: Rows, out: Sequence[int], at: Array) -> Rows:
    """The rows without some unknowns, whose effect at these values is taken out too."""
    residual = rows.residual - rows.regressor[:, :, out] @ at[out]
    return replace(rows, residual=residual, regressor=np.delete(rows.regressor, out, axis=2))


def _best_rows(unknowns: Unknowns, raw: Sequence[Raw], cutoff: float, freedom: int, free: Array) -> tuple[Rows, float]:
    """The rows at the bandwidth with the smallest standard deviations, and that bandwidth [Hz]."""
    best: tuple[float, Rows, float] | None = None
    for share in ROWS:
        try:
            rows = thinned(raw, share * cutoff, freedom)
        except ConfigError:
            if best is None:
                raise
            break
        if best is not None and rows.fitted.sum() * freedom < PER_UNKNOWN * len(unknowns.names):
            break
        size = sizes(unknowns, rows)
        if best is None:
            _require_motion(unknowns, rows)
        solved = _Solved(unknowns, rows, unknowns.before, size, free)
        score = float(np.mean(np.minimum(solved.sigma / size, 1.0) ** 2))
        if best is None or score < best[0]:
            best = score, rows, share * cutoff
    assert best is not None
    return best[1:]


def _require_motion(unknowns: Unknowns, rows: Rows) -> None:
    """Raises ConfigError if the log stands still."""
    count = len(unknowns.before) - len(unknowns.coulomb) - len(unknowns.viscous)
    moving = rows.regressor[rows.fitted][:, :, :count] * unknowns.before[:count]
    changes = np.sqrt(np.mean((moving - moving.mean(axis=0)) ** 2, axis=(0, 1)))
    force = np.sqrt(np.mean(moving.sum(axis=2) ** 2)) + np.sqrt(np.mean(rows.residual[rows.fitted] ** 2))
    if count and np.max(changes, initial=0.0) < STANDSTILL * force:
        raise ConfigError(
            "the log has no excitation: the machine hardly moves, so that torques hardly depend on its parameters "
            "(make a motion with `servoctl excite CONFIG`, run it, and identify that run)"
        )


def _not_significant(unknowns: Unknowns, solved: "_Solved", least: float) -> list[int]:
    """Indices of friction to leave out next: all below one standard deviation, or else the least significant.

    Args:
        unknowns: What is unknown.
        solved: Its values.
        least: Smallest friction that is kept [standard deviations].
    """
    first = len(unknowns.before) - len(unknowns.coulomb) - len(unknowns.viscous)
    sigma = np.hypot(solved.sigma, solved.moved)[first:]
    ratio = solved.x[first:] / np.maximum(sigma, 1e-300)
    clear = first + np.flatnonzero(ratio < min(1.0, least))
    if len(clear) or not len(ratio) or ratio.min() >= least:
        return [int(i) for i in clear]
    return [first + int(np.argmin(ratio))]


class _Solved:
    """The least-squares solution of rows that are linear in the unknowns.

    Attributes:
        x, sigma: Values and standard deviations.
        moved: How far a coarser filter of the positions moves the values: what the filter itself may cost.
        shift: Change of each log's delay [s].
        rows, at: As given.
    """

    def __init__(self, unknowns: Unknowns, rows: Rows, at: Array, size: Array, free: Array) -> None:
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
            W = (Y * weight[:, :, None]).reshape(-1, count + len(used))
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
        links = [len(self.unknowns.single) + len(MOMENTS) * i for i in range(len(self.unknowns.links))]
        if links and not all(is_physical(x[first : first + 10]) for first in links):
            constrained = True
            stacked = np.vstack([self._W, max(self._noise, 1e-12) * np.diag(1.0 / self._size)])
            aim = np.concatenate([self._y, max(self._noise, 1e-12) * self._before / self._size])
            count = len(self.at)
            Q, R = np.linalg.qr(stacked[:, :count])
            z = Q.T @ (aim - stacked[:, count:] @ self._change[count:]) + R @ self.at
            x = physical_fit(R, z, self.unknowns.before, links, list(range(links[-1] + len(MOMENTS), count)))
        W = self._W[:, : len(self.at)]
        found = base(W, self._size[: len(self.at)])
        independent = W[:, list(found.independent)]
        lengths = np.linalg.norm(independent, axis=0)
        condition = float(np.linalg.cond(independent / lengths)) if len(lengths) else np.inf
        silent = [group[0] for group in found.groups if len(group) == 1]
        x[silent] = self.unknowns.before[silent]
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
