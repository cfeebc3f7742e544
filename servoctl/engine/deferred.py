"""Functions that are made when more of them is needed than their names and sizes.

Design: a run in C from the cache needs no function at all, and to read those of two arms with a box takes half of such
a command's time.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np


class DeferredFunction:
    """A CasADi function in the making; it answers for its name and sizes, and is made for everything else."""

    def __init__(
        self,
        name: str,
        inputs: Mapping[str, Sequence[int]],
        outputs: Mapping[str, Sequence[int]],
        make: Callable[[], Any],
        length: int | None = None,
    ) -> None:
        """Keeps what is known.

        Args:
            name: Name of the function.
            inputs: Name -> shape, in order.
            outputs: Name -> shape, in order.
            make: () -> the function.
            length: Number of instructions; None: it is not known before.
        """
        self._name, self._length, self._make = name, length, make
        self._sizes = [[int(np.prod(shape)) for shape in shapes.values()] for shapes in (inputs, outputs)]

    @cached_property
    def made(self) -> Any:
        """The function."""
        return self._make()

    def name(self) -> str:
        return self._name

    def n_in(self) -> int:
        return len(self._sizes[0])

    def n_out(self) -> int:
        return len(self._sizes[1])

    def numel_in(self, index: int) -> int:
        return self._sizes[0][index]

    def numel_out(self, index: int) -> int:
        return self._sizes[1][index]

    def n_instructions(self) -> int:
        return int(self.made.n_instructions()) if self._length is None else self._length

    def __call__(self, *arguments: Any) -> Any:
        return self.made(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.made, name)
