"""Least squares of rows that are linear in the unknowns, weighted by what it leaves, with physical inertias.

Source: rows far off count less as in Huber 1964.

Base parameters are the combinations that the rows contain:

    W Pi = Q [R1 R2; 0 0],   beta = R1^-1 R2:   the columns W2 = W1 beta
    pi = x1 + beta x2        the base parameters: all that the rows contain

Source: Gautier 1991; Khalil, Dombre 2002, section 9.4.

Physical inertias are those with a positive definite pseudo-inertia P:

    Sigma = tr(I)/2 1 - I,   P = [[Sigma, h], [h^T, m]] > 0    pseudo-inertia, positive definite for every rigid body
    P = U U^T,   U upper triangular with diagonal exp(eta)

Design: every eta gives a body, and every body has one eta, so an ordinary least-squares solver finds the best body.

Source: Wensing, Kim, Slotine 2017; Rucker, Wensing 2022 (log-Cholesky).
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import qr, solve_triangular
from scipy.optimize import least_squares
from scipy.sparse.csgraph import connected_components

from servoctl.identification.rows import FitRows
from servoctl.identification.unknowns import Unknowns
from servoctl.types import Array

FLOOR = 1e-9  # smallest eigenvalue of a start, relative to the largest: point masses and rods lie on the boundary

RESTARTS, EVALUATIONS = 20, 100
"""Most searches of a body, each from inside again: close to the boundary the steps become shorter and shorter."""

_DIAGONAL = np.arange(4)
_UPPER = np.triu_indices(4, 1)


def pseudo_inertia(moments: Array) -> Array:
    """P of the ten numbers of a link, shape (4, 4)."""
    m, x, y, z, xx, yy, zz, xy, xz, yz = moments
    half = 0.5 * (xx + yy + zz)
    return np.array([
        [half - xx, -xy, -xz, x], [-xy, half - yy, -yz, y], [-xz, -yz, half - zz, z], [x, y, z, m],
    ])  # fmt: skip


def moments_of_pseudo_inertia(P: Array) -> Array:
    """The ten numbers of links from P, shape (..., 10) of shape (..., 4, 4)."""
    xx, yy, zz = (P[..., i, i] for i in range(3))
    off = [-P[..., i, j] for i, j in ((0, 1), (0, 2), (1, 2))]
    return np.stack([P[..., 3, 3], *(P[..., i, 3] for i in range(3)), yy + zz, xx + zz, xx + yy, *off], axis=-1)


def is_physical(moments: Array, tolerance: float = 0.0) -> bool:
    """Whether a rigid body has these ten numbers.

    Args:
        moments: The ten numbers.
        tolerance: How far outside they may be, relative to the largest eigenvalue of P.
    """
    values = np.linalg.eigvalsh(pseudo_inertia(moments))
    return bool(values[0] > -tolerance * values[-1])


def _eta(moments: Array) -> Array:
    """The free numbers of a body; a body on the boundary is moved inside."""
    values, vectors = np.linalg.eigh(pseudo_inertia(moments))
    P = (vectors * np.maximum(values, FLOOR * values[-1])) @ vectors.T
    flipped = np.linalg.cholesky(P[::-1, ::-1])[::-1, ::-1]  # P = U U^T with U upper triangular
    return np.concatenate([np.log(np.diag(flipped)), flipped[_UPPER]])


def _moments(eta: Array) -> tuple[Array, Array]:
    """The ten numbers of bodies from their free numbers, shape (..., 10), and their derivative, shape (..., 10, 10)."""
    U, dU = np.zeros((*eta.shape[:-1], 4, 4)), np.zeros((*eta.shape[:-1], 10, 4, 4))
    U[..., _DIAGONAL, _DIAGONAL], U[..., *_UPPER] = np.exp(eta[..., :4]), eta[..., 4:]
    dU[..., _DIAGONAL, _DIAGONAL, _DIAGONAL] = U[..., _DIAGONAL, _DIAGONAL]
    dU[..., np.arange(4, 10), *_UPPER] = 1.0
    half = dU @ U[..., None, :, :].swapaxes(-1, -2)
    slopes = moments_of_pseudo_inertia(half + half.swapaxes(-1, -2))
    return moments_of_pseudo_inertia(U @ U.swapaxes(-1, -2)), slopes.swapaxes(-1, -2)


def physical_fit(R: Array, z: Array, start: Array, links: list[slice], positive: list[int]) -> Array:
    """The x of least |R x - z| whose links are rigid bodies.

    Args:
        R: Shape (rows, unknowns), of full column rank.
        z: Shape (rows,).
        start: Where the search begins, shape (unknowns,).
        links: Where the ten numbers of each link are.
        positive: Indices of unknowns that may not be negative.
    """
    bodies = np.array([np.arange(len(start))[ten] for ten in links], dtype=int).reshape(-1, 10)
    single = np.setdiff1d(np.arange(len(start)), bodies)
    count = len(single)
    columns = count + np.arange(bodies.size).reshape(bodies.shape)

    def unpacked(y: Array) -> tuple[Array, Array]:
        x, by = np.zeros(len(start)), np.zeros((len(start), len(y)))
        x[single], by[single, np.arange(count)] = y[:count], 1.0
        x[bodies], by[bodies[:, :, None], columns[:, None, :]] = _moments(y[columns])
        return x, by

    lower = np.full(len(start), -np.inf)
    lower[:count][np.isin(single, positive)] = 0.0

    def error(y: Array) -> Array:
        return R @ unpacked(y)[0] - z

    def slope(y: Array) -> Array:
        return R @ unpacked(y)[1]

    def packed(x: Array) -> Array:
        """The free numbers, with every body inside the limit of those that exist."""
        y: Array = np.maximum(np.concatenate([x[single], *(_eta(x[ten]) for ten in links)]), lower)
        return y

    y, cost = packed(start), np.inf
    for _ in range(RESTARTS):
        with np.errstate(all="ignore"):  # a step too far overflows, and is taken back
            done = least_squares(
                error, y, slope, bounds=(lower, np.inf), x_scale="jac", xtol=1e-14, ftol=1e-14, gtol=1e-12,
                max_nfev=EVALUATIONS,
            )  # fmt: skip
        y = packed(unpacked(done.x)[0])
        if done.cost >= 0.99 * cost:
            break
        cost = done.cost
    return unpacked(y)[0]


RANK_TOLERANCE = 1e-9  # smallest pivot of an independent column, relative to the largest; columns have unit length
COEFFICIENT = 1e-6  # smaller coefficients of a combination are rounding


@dataclass(frozen=True)
class Base:
    """The base parameters of a regressor."""

    independent: tuple[int, ...]  # indices of the columns that the others are combinations of
    sums: Array  # the base parameters by the unknowns: 1 at the independent one, beta; shape (independent, unknowns)
    # lists of indices of unknowns that only act together; a list of one acts on no row
    groups: tuple[tuple[int, ...], ...]
    condition: float  # condition number of the independent columns, of unit length each

    def named(self, names: list[str]) -> list[str]:
        """Each base parameter as a sum, such as `m1x + 0.7 m2`."""
        texts = []
        for i, row in zip(self.independent, self.sums, strict=True):
            text = names[i]
            for j in np.flatnonzero(row):
                if j != i:
                    size = "" if abs(abs(row[j]) - 1.0) < COEFFICIENT else f"{abs(row[j]):.6g} "
                    text += f" {'-' if row[j] < 0 else '+'} {size}{names[j]}"
            texts.append(text)
        return texts


def base(W: Array, scale: Array | None = None) -> Base:
    """The base parameters of a regressor whose columns are exact functions of the motion.

    Args:
        W: Stacked rows, shape (rows, unknowns).
        scale: Size of each unknown, shape (unknowns,), by which it acts on the rows or not. None: all alike.
    """
    count = W.shape[1]
    length = np.linalg.norm(W, axis=0)
    size = length * (np.ones(count) if scale is None else scale)
    acting = [i for i in range(count) if size[i] > RANK_TOLERANCE * size.max(initial=0.0)]
    silent = [i for i in range(count) if i not in acting]
    if not acting:
        return Base((), np.zeros((0, count)), tuple((i,) for i in silent), np.inf)
    R, order = qr(W[:, acting] / length[acting], mode="r", pivoting=True)[:2]
    R = R[: len(acting)]
    pivots = np.abs(np.diag(R))
    rank = int(np.sum(pivots > RANK_TOLERANCE * pivots[0]))
    first, rest = [acting[i] for i in order[:rank]], [acting[i] for i in order[rank:]]
    beta = solve_triangular(R[:rank, :rank], R[:rank, rank:]) * length[rest] / length[first][:, None]
    # compared in columns of unit length, so that units do not matter
    small = np.abs(beta * length[first][:, None] / length[rest]) < COEFFICIENT
    sums = np.zeros((rank, count))
    sums[np.arange(rank), first], sums[:, rest] = 1.0, np.where(small, 0.0, beta)
    labels = connected_components(sums.T @ sums != 0.0, directed=False)[1]
    groups = [tuple(np.flatnonzero(labels == label).tolist()) for label in dict.fromkeys(labels[sorted(rest)].tolist())]
    groups += [(i,) for i in silent]
    rows = np.argsort(first)  # columns of unit length are pivots in an order that rounding decides
    condition = float(np.linalg.cond(W[:, first] / length[first]))
    return Base(tuple(sorted(first)), sums[rows], tuple(groups), condition)


ROUNDS = 4  # rounds of least squares, each with weights by what the one before leaves

KNOWN = 1e-9  # a coordinate is driven if what is known of its forces is more than this share of all

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
    rows: FitRows  # the rows, linearised at values near these
    constrained: bool  # whether plain least squares gave inertias that no body has, so that they were kept physical
    bandwidth: float  # [Hz] cut-off frequency of the rows

    @property
    def sigma(self) -> Array:
        """Standard deviations, shape (unknowns,)."""
        sigma: Array = np.sqrt(np.maximum(np.diag(self.covariance), 0.0))
        return sigma


class Solved:
    """The least-squares solution of rows that are linear in the unknowns.

    Attributes:
        x, sigma: Values and standard deviations.
        moved: How far a coarser filter of the positions moves the values: what the filter itself may cost.
        shift: Change of each log's delay [s].
        rows: As given.
    """

    def __init__(self, unknowns: Unknowns, rows: FitRows, size: Array, free: Array) -> None:
        self.unknowns, self.rows, self._used = unknowns, rows, np.flatnonzero(free)
        fitted, n, used = rows.fitted, rows.known.shape[1], self._used
        late = np.zeros((*rows.known.shape, len(used)))
        for column, number in enumerate(used):
            late[:, :, column] = np.where((rows.log == number)[:, None], rows.late, 0.0)
        Y = np.concatenate([rows.regressor, late], axis=2)[fitted]
        lengths = np.linalg.norm(late, axis=(0, 1))
        self._size = np.concatenate([size, np.linalg.norm(rows.torque) / np.where(lengths > 0.0, lengths, 1.0)])
        before = np.concatenate([unknowns.before, np.zeros(len(used))])
        count, known, regressor = len(size), rows.known[fitted], rows.regressor[fitted]
        alike = rows.freedom < n
        size_before = forces(known, regressor, unknowns.before)
        driven = np.sqrt(np.mean(known**2, axis=0)) > KNOWN * size_before
        if alike or not driven.any():
            driven = np.ones(n, dtype=bool)
        # unknowns that are all 0 meet the rows of the others: these count from the second round on, as shares
        weight, Z, left = np.ones(known.shape) * driven, Y, known
        for _ in range(ROUNDS):
            W = (Z * weight[:, :, None]).reshape(weight.size, count + len(used))
            y = -(left * weight).ravel()
            values, self._covariance, noise = _solve(W, y, self._size, before, rows.freedom / n, rows.log[fitted])
            self._weight = weight.max(axis=0)
            x, left, Z = values[:count], known + Y @ values, Y.copy()
            force = np.maximum(forces(known, regressor, x), 1e-300)
            weight = _weights(left * (size_before / force), alike)
            slope = np.mean(regressor**2, axis=0) * x / force[:, None] ** 2  # of the logarithm of the force
            Z[:, ~driven, :count] -= left[:, ~driven, None] * slope[~driven]
            left = left - Z @ values
        self.x, self.shift = values[:count], np.zeros(len(free))
        self.shift[used] = values[count:]
        self.sigma = np.sqrt(np.maximum(np.diag(self._covariance)[:count], 0.0))
        self.moved = np.zeros(count)
        self._W, self._noise, self._y, self._before = W, noise, y, before

    def result(self, delays: Array, bandwidth: float) -> Fit:
        """The fit, with physical inertias; arguments as of `Fit`."""
        x, constrained, count = self.x, False, len(self.x)
        found = base(self._W[:, :count], self._size[:count])
        silent = [group[0] for group in found.groups if len(group) == 1]
        x[silent] = self.unknowns.before[silent]  # before the inertias are made physical, or these would be wrong again
        links = list(self.unknowns.moments.values())
        rotors = self.unknowns.rotors
        if any(x[rotors] < 0.0) or not all(is_physical(x[ten]) for ten in links):
            constrained = True
            stacked = np.vstack([self._W, max(self._noise, 1e-12) * np.diag(1.0 / self._size)])
            aim = np.concatenate([self._y, max(self._noise, 1e-12) * self._before / self._size])
            Q, R = np.linalg.qr(stacked[:, :count])
            z = Q.T @ (aim - stacked[:, count:] @ self.shift[self._used])
            friction = range(self.unknowns.bodies, count)
            x = physical_fit(R, z, self.unknowns.before, links, [*rotors, *friction])
        covariance = self._covariance[:count, :count] * self._surprise(x) + np.outer(self.moved, self.moved)
        return Fit(self.unknowns, x, covariance, delays, found, self.rows, constrained, bandwidth)

    def _surprise(self, x: Array) -> float:
        """Factor on the covariance: how much more the rows that were not used leave unexplained; at least 1.

        The bandwidth was chosen for small standard deviations, so those of the fit alone are too small.
        """
        rows = self.rows
        left = rows.residual(x) * self._weight
        share = rows.freedom / left.shape[1]
        mean = float(np.mean(_spread(left[~rows.fitted]) ** 2)) / share if (~rows.fitted).any() else 0.0
        return max(1.0, mean / max(self._noise**2, 1e-300))


def forces(known: Array, regressor: Array, x: Array) -> Array:
    """Size of what acts on each coordinate at values of the unknowns, shape (n,)."""
    size: Array = np.sqrt(np.mean(known**2 + np.sum((regressor * x) ** 2, axis=2), axis=0))
    return size


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


def _repeated(left: Array, directions: Array, log: Array) -> Array:
    """Factors on variances because what is left of a row resembles what is left of those before it; at least 1.

        var(U^T e) = s^2 (1 + 2 sum_l rho_l sum_k U_k U_k+l),   rho_l: correlation of what is left at a lag of l rows

    Noise of torques that is slower than the rows, as of a motor that gets warm or a cable, tells less than its rows are
    many. Lags count up to the first one whose correlation chance explains.

    Args:
        left: What is left, shape (times, n).
        directions: U, columns of unit length, shape (times, n, directions).
        log: Number of the log of each time, shape (times,).
    """
    factors, chance = np.ones(directions.shape[2]), 2.0 / np.sqrt(len(left))
    for e, U in zip(left.T, directions.swapaxes(0, 1), strict=True):
        power = max(float(e @ e), 1e-300)
        for lag in range(1, len(e)):
            same = log[lag:] == log[:-lag]
            correlation = float((e[lag:] * e[:-lag]) @ same) / power
            if correlation < chance:
                break
            factors += 2.0 * correlation * np.einsum("ki,ki,k->i", U[lag:], U[:-lag], same)
    return np.maximum(factors, 1.0)


def _solve(W: Array, y: Array, size: Array, before: Array, share: float, log: Array) -> tuple[Array, Array, float]:
    """The unknowns, their covariance, and the noise of the rows.

    Args:
        W: Shape (rows, unknowns).
        y: Shape (rows,).
        size: Standard deviations of the prior, shape (unknowns,).
        before: Mean of the prior, shape (unknowns,).
        share: Share of the rows that are independent.
        log: Number of the log of each time, shape (times,); the rows of one time stand together.
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
    times = len(log), len(y) // len(log)
    spread = np.minimum((1.0 - gain) * _repeated(left.reshape(times), U.reshape(*times, len(S)), log), 1.0)
    full = np.eye(len(size)) - V.T @ V + (V.T * spread) @ V
    return size * weights, size[:, None] * full * size, noise
