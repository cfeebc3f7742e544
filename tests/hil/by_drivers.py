"""Runs whose frames no table describes: the drivers read and write each of them, and Python decides every tick.

So do drives of a protocol of one's own without a table. A run of the built-in ones must be the same to the bit.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hil.rig import rig

TICKS = ("python", "c")
"""What reads the frames and decides the ticks: the drivers and Python, or C."""


@contextmanager
def ticks(kind: str) -> Iterator[None]:
    """Runs that begin in this context have these ticks."""
    with pytest.MonkeyPatch.context() as patch:
        if kind == "python":
            patch.setattr(rig, "wires_of", lambda nodes: ([], "a test says so"))
        yield
