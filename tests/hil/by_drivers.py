"""Runs whose frames no table describes: the drivers read and write each of them, and Python decides every tick.

So do drives of a protocol of one's own without a table. A run of the built-in ones must be the same to the bit.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from hil.rig import sockets, ticks_in_c
from hil.safety import EventKind
from hil.session.run import RunResult
from tests.faces import frames_of, on_drives

TICKS = ("python", "c")
"""What reads the frames and decides the ticks: the drivers and Python, or C."""


@contextmanager
def ticks(kind: str) -> Iterator[None]:
    """Runs that begin in this context have these ticks."""
    with pytest.MonkeyPatch.context() as patch:
        if kind == "python":
            for module in (ticks_in_c, sockets):
                patch.setattr(module, "tables_of", lambda nodes: ([], "a test says so"))
        yield


def left_by(kind: str, play: Callable[[], RunResult]) -> dict[str, Any]:
    """What a run in memory leaves: columns as bytes, frames, events, exit code, figures, and how many ticks C did."""
    with ticks(kind):
        ended, frames = frames_of(play)
    facts, failed = ended.trajectory.metadata, any(event.kind is EventKind.EXCEPTION for event in ended.events)
    last = facts["steps"] if failed else None  # after an exception the law has no further task time
    columns = {name: column[:last].tobytes() for name, column in ended.trajectory.columns.items()}
    left = {"columns": columns, "frames": frames, "events": ended.events, "code": ended.exit_code}
    figures = ("counts", "timing", "evaluations", "given_back")
    return left | {name: facts[name] for name in figures} | {"ticks": facts["ticks_in_c"]}


def compared(play: Callable[[], RunResult]) -> dict[str, Any]:
    """What a run leaves whose ticks C does, after a comparison with the same run by the drivers."""
    python, c = (left_by(kind, play) for kind in TICKS)
    assert not python["ticks"]
    assert c["events"] == python["events"]
    assert {name for name, each in c["columns"].items() if each != python["columns"][name]} == set()
    for name in ("code", "counts", "frames", "timing", "evaluations"):
        assert c[name] == python[name], name
    return c


def compare(config: str, *sets: str, duration: float = 0.3) -> dict[str, Any]:
    """As `compared`, of a config on its drives."""
    return compared(lambda: on_drives(config, *sets, duration=duration, engine="auto"))
