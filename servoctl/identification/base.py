"""Which unknowns the rows can tell apart, by a rank-revealing QR decomposition.

    W Pi = Q [R1 R2; 0 0],   beta = R1^-1 R2:   the columns W2 = W1 beta
    pi = x1 + beta x2        the base parameters: all that the rows contain

Source: Gautier 1991; Khalil, Dombre 2002, section 9.4.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import qr, solve_triangular
from scipy.sparse.csgraph import connected_components

from servoctl.types import Array

RANK_TOLERANCE = 1e-9  # smallest pivot of an independent column, relative to the largest; columns have unit length
COEFFICIENT = 1e-6  # smaller coefficients of a combination are rounding


@dataclass(frozen=True)
class Base:
    """The base parameters of a regressor."""

    independent: tuple[int, ...]  # indices of the columns that the others are combinations of
    dependent: tuple[int, ...]  # indices of the others; those that act on no row come last
    beta: Array  # columns of the dependent ones in terms of the independent ones, shape (independent, dependent)
    # lists of indices of unknowns that only act together; a list of one acts on no row
    groups: tuple[tuple[int, ...], ...]

    def named(self, names: list[str]) -> list[str]:
        """Each base parameter as a sum, such as `m1x + 0.7 m2`."""
        sums = []
        for i, row in zip(self.independent, self.beta, strict=True):
            text = names[i]
            for j, factor in zip(self.dependent, row, strict=True):
                if factor:
                    size = "" if abs(abs(factor) - 1.0) < COEFFICIENT else f"{abs(factor):.6g} "
                    text += f" {'-' if factor < 0 else '+'} {size}{names[j]}"
            sums.append(text)
        return sums

    def values(self, x: Array) -> Array:
        """The base parameters of all unknowns, shape (independent,)."""
        found: Array = x[list(self.independent)] + self.beta @ x[list(self.dependent)]
        return found


def base(W: Array, scale: Array | None = None) -> Base:
    """The base parameters of a regressor whose columns are exact functions of the motion.

    Args:
        W: Stacked rows, shape (rows, unknowns).
        scale: Size of each unknown, shape (unknowns,); larger ones are rather taken as independent. None: all alike.
    """
    count = W.shape[1]
    length = np.linalg.norm(W, axis=0)
    size = length * (np.ones(count) if scale is None else scale)
    acting = [i for i in range(count) if size[i] > RANK_TOLERANCE * size.max(initial=0.0)]
    silent = [i for i in range(count) if i not in acting]
    if not acting:
        return Base((), tuple(silent), np.zeros((0, count)), tuple((i,) for i in silent))
    R, order = qr(W[:, acting] / length[acting], mode="r", pivoting=True)[:2]
    R = R[: len(acting)]
    pivots = np.abs(np.diag(R))
    rank = int(np.sum(pivots > RANK_TOLERANCE * pivots[0]))
    first, rest = [acting[i] for i in order[:rank]], [acting[i] for i in order[rank:]]
    beta = solve_triangular(R[:rank, :rank], R[:rank, rank:]) * length[rest] / length[first][:, None]
    # compared in columns of unit length, so that units do not matter
    small = np.abs(beta * length[first][:, None] / length[rest]) < COEFFICIENT
    beta = np.where(small, 0.0, beta)
    links = np.zeros((count, count), dtype=bool)
    for j, column in zip(rest, beta.T, strict=True):
        links[np.ix_([first[i] for i in np.flatnonzero(column)], [j])] = True
    labels = connected_components(links, directed=False)[1]
    groups = [tuple(np.flatnonzero(labels == label).tolist()) for label in dict.fromkeys(labels[sorted(rest)].tolist())]
    groups += [(i,) for i in silent]
    everything = np.hstack([beta, np.zeros((rank, len(silent)))])
    return Base(tuple(first), (*rest, *silent), everything, tuple(groups))
