"""Inertias that a rigid body can have, by ten numbers without bounds.

    Sigma = tr(I)/2 1 - I,   P = [[Sigma, h], [h^T, m]] > 0    pseudo-inertia, positive definite for every rigid body
    P = U U^T,   U upper triangular with diagonal exp(eta)

Design: every eta gives a body, and every body has one eta, so an ordinary least-squares solver finds the best body.

Source: Wensing, Kim, Slotine 2017; Rucker, Wensing 2022 (log-Cholesky).
"""

import numpy as np
from scipy.optimize import least_squares

from servoctl.types import Array

FLOOR = 1e-9  # smallest eigenvalue of a start, relative to the largest: point masses and rods lie on the boundary

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
    """The ten numbers of a link, from P."""
    trace = P[0, 0] + P[1, 1] + P[2, 2]
    diagonal = trace - np.diag(P)[:3]
    return np.array([P[3, 3], *P[:3, 3], *diagonal, -P[0, 1], -P[0, 2], -P[1, 2]])


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
    """The ten numbers of a body from its free numbers, and their derivative, shape (10, 10)."""
    U, dU = np.zeros((4, 4)), np.zeros((10, 4, 4))
    U[_DIAGONAL, _DIAGONAL], U[_UPPER] = np.exp(eta[:4]), eta[4:]
    dU[_DIAGONAL, _DIAGONAL, _DIAGONAL] = U[_DIAGONAL, _DIAGONAL]
    dU[np.arange(4, 10), _UPPER[0], _UPPER[1]] = 1.0
    slopes = [moments_of_pseudo_inertia(one @ U.T + U @ one.T) for one in dU]
    return moments_of_pseudo_inertia(U @ U.T), np.array(slopes).T


def physical_fit(R: Array, z: Array, start: Array, links: list[int], positive: list[int]) -> Array:
    """The x of least |R x - z| whose links are rigid bodies.

    Args:
        R: Shape (rows, unknowns), of full column rank.
        z: Shape (rows,).
        start: Where the search begins, shape (unknowns,).
        links: Index of the first of the ten numbers of each link.
        positive: Indices of unknowns that may not be negative.
    """
    inside = {i for first in links for i in range(first, first + 10)}
    single = [i for i in range(len(start)) if i not in inside]

    def unpacked(y: Array) -> tuple[Array, Array]:
        x, by = np.zeros(len(start)), np.zeros((len(start), len(y)))
        x[single], by[single, np.arange(len(single))] = y[: len(single)], 1.0
        for number, first in enumerate(links):
            at = slice(len(single) + 10 * number, len(single) + 10 * number + 10)
            x[first : first + 10], by[first : first + 10, at] = _moments(y[at])
        return x, by

    lower = [0.0 if i in positive else -np.inf for i in single] + [-np.inf] * (10 * len(links))
    y = np.concatenate([start[single], *(_eta(start[first : first + 10]) for first in links)])
    y[: len(single)] = np.maximum(y[: len(single)], lower[: len(single)])

    def error(y: Array) -> Array:
        return R @ unpacked(y)[0] - z

    def slope(y: Array) -> Array:
        return R @ unpacked(y)[1]

    with np.errstate(all="ignore"):  # a step too far overflows, and is taken back
        done = least_squares(
            error, y, slope, bounds=(lower, np.inf), x_scale="jac", xtol=1e-14, ftol=1e-14, gtol=1e-12, max_nfev=500
        )
    return unpacked(done.x)[0]
