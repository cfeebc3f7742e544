"""Parts of a machine that do not act on each other, such as the robots of a swarm.

Design: a part is a connected component of coordinates, inputs and rows over the structural nonzeros of M, B and A. An
entry that is zero at one state alone connects, so the parts are the same at every state. After reordering, M, B, Ahat
and A are block diagonal; so are their factors and pseudoinverses, which compiled code computes block by block
(`engine.structured.blocks`). Rank and status are those of the whole.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.engine.structured import Sparse, components
from servoctl.types import Array


@dataclass(frozen=True)
class Part:
    """Indices of the coordinates, inputs, passive rows and task rows of one part, each in increasing order."""

    coordinates: Array
    inputs: Array
    passive: Array
    task: Array

    @property
    def size(self) -> tuple[int, int, int, int]:
        """Number of coordinates, inputs, passive rows and task rows."""
        return len(self.coordinates), len(self.inputs), len(self.passive), len(self.task)


SHOWN = 4  # number of parts, and of coordinates of a part, that a sentence names


def parts_in_words(parts: Sequence[Part], coordinates: Sequence[str]) -> str:
    """What `check` says about a machine in separate parts."""

    def named(names: list[str], separator: str) -> str:
        more = f"{separator}and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        return separator.join(names[:SHOWN]) + more

    groups = named([named([coordinates[i] for i in part.coordinates], ", ") for part in parts], "; ")
    return f"{len(parts)} separate parts ({groups}): they do not act on each other"


def connected_parts(M: Any, B: Any, passive: Any, task: Any) -> list[Part]:
    """The parts, in the order of their first coordinates; one part if an input or a row acts on no coordinate.

    Args:
        M: Mass matrix, shape (n, n): an array or a `Sparse`, of symbols or of numbers.
        B: Actuation matrix, shape (n, m).
        passive: A of the passive rows, shape (p, n).
        task: A of the task rows, shape (r, n).
    """
    M, B, passive, task = (Sparse.of(matrix) for matrix in (M, B, passive, task))
    n, m, p, r = len(M), B.shape[1], len(passive), len(task)
    one = np.concatenate([M.rows, B.rows, passive.columns, task.columns])
    other = np.concatenate([M.columns, n + B.columns, n + m + passive.rows, n + m + p + task.rows])
    size = n + m + p + r
    count, label = components(one, other, size)
    if count > len(set(label[:n].tolist())):
        return [Part(np.arange(n), np.arange(m), np.arange(p), np.arange(r))]
    labels = np.split(label, [n, n + m, n + m + p])
    return [Part(*(np.flatnonzero(each == part) for each in labels)) for part in range(count)]
