"""Which signs of the encoders fit together: the residual of redundant displacements decides.

    y_i(k) = y_i(0) + s_i (r_i(k) - r_i(0)),  s_i = 1 or -1          minimise max_k |y(k) - h(q(k))|

Design: all signs are tried as long as there are few, because a mechanism that is mirrored as a whole fits to first
order, and only the full nonlinear constraints tell it from the true one. Ours.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from servoctl.types import Array

MOST_TRIED = 12
"""Up to so many drives every combination is tried; beyond, signs are turned alone and in pairs while that helps."""

Misfit = Callable[[Array], float]
"""Signs, shape (nodes,) -> largest residual relative to what the encoders' steps explain; infinite if none fits."""


@dataclass(frozen=True)
class FittingSigns:
    """The signs that fit best."""

    signs: Array  # one per node, shape (nodes,)
    misfit: float
    rival: float  # the second best misfit
    unclear: tuple[int, ...]  # indices of the nodes whose signs the second best combination turns


def fitting_signs(misfit: Misfit, start: Array, judged: Sequence[int]) -> FittingSigns:
    """The signs with the smallest misfit.

    Args:
        misfit: What is minimised.
        start: Signs to begin with; nodes that are not judged keep them.
        judged: Indices of the nodes whose sign the residual judges.
    """
    tried = {tuple(signs.tolist()): misfit(signs) for signs in _combinations(misfit, start, judged)}
    order = sorted(tried, key=lambda signs: tried[signs])
    best = order[0]
    if len(order) == 1:
        return FittingSigns(np.array(best), tried[best], np.inf, ())
    unclear = tuple(i for i, (a, b) in enumerate(zip(best, order[1], strict=True)) if a != b)
    return FittingSigns(np.array(best), tried[best], tried[order[1]], unclear)


def _combinations(misfit: Misfit, start: Array, judged: Sequence[int]) -> Iterator[Array]:
    if len(judged) <= MOST_TRIED:
        for turns in product((1.0, -1.0), repeat=len(judged)):
            signs = start.copy()
            signs[list(judged)] *= turns
            yield signs
        return
    best, least = start.copy(), misfit(start)
    yield best
    pairs = [(i,) for i in judged] + [(i, j) for i in judged for j in judged if i < j]
    better = True
    while better:
        better = False
        for turned in pairs:
            signs = best.copy()
            signs[list(turned)] *= -1.0
            yield signs
            if (value := misfit(signs)) < least:
                best, least, better = signs, value, True
