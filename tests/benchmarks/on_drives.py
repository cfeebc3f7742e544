"""Ticks of six axes: in virtual time with the emulated world, and on the wall clock in Python and in C."""

import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from hil.assembly.emulation import Environment, in_lockstep
from hil.assembly.prepare import load
from hil.assembly.setup import RigSetup
from hil.loop import Tick
from hil.safety.plan import Phase, Stage
from hil.session.run import HilRun, RunResult
from servoctl.errors import RigError
from tests.benchmarks.contest import Entry, Line, Results
from tests.hil.socket_pair import on_pair

CONFIG = "coordinated_robots"

PATIENT = (
    "hil.safety.stale=0.4", "hil.safety.lost=0.6", "hil.safety.drive_watchdog=0.5", "hil.safety.late_ticks=1000",
    "hil.safety.late_share=0.99", "hil.safety.zero_time=0.2", "hil.safety.ramp_time=0.3",
)  # fmt: skip
"""A busy machine must not end the measurement."""

TRIES = 6
"""Most runs for one measurement: where real-time rights are missing, other programs hold up one in four."""


class TimedRun(HilRun):
    """A run that keeps the number of each tick in the task, and the processor time at its end [s]."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.times: list[tuple[int, float]] = []

    def _done(self, tick: Tick) -> None:
        super()._done(tick)
        if self.stages.mode is Phase.FULL:
            self.times.append((tick.number, time.thread_time()))

    def tick_time(self) -> float:
        """Mean processor time of a tick in the task [s]."""
        (first, begun), (last, over) = self.times[0], self.times[-1]
        return (over - begun) / (last - first)


def timed_run(setup: RigSetup, environment: Environment, duration: float, folder: Path | None) -> float:
    """Mean processor time of a tick of a run [s].

    Raises:
        RigError: The run did not reach the end of its task.
    """
    run = TimedRun(setup, environment, Stage.FULL, duration)
    result: RunResult = run.run(folder, lambda event: None)
    ticks = run.times[-1][0] - run.times[0][0] if run.times else 0
    # a burst of frames at the switch-off may not fit into a pair of sockets, which queues ten: the ticks are done then
    if ticks < 0.9 * duration / setup.settings.values.period:
        raise RigError(f"the run ended early: {[str(event) for event in result.events]}")
    return run.tick_time()


def hil(quick: bool) -> Results:
    """A tick of six emulated CiA 402 drives in virtual time, against real time."""
    duration, turns = (1.0, 1) if quick else (10.0, 3)
    times = []
    for _ in range(turns):
        setup = load(CONFIG)
        times.append(timed_run(setup, in_lockstep(setup, "auto"), duration, None))
    period = setup.settings.values.period
    entries = Entry("servoctl", sorted(times)[turns // 2]), Entry(f"real time, at {1 / period:.0f} Hz", period)
    yield Line("tick of six emulated CiA 402 drives in virtual time, processor time", entries)


def tick_c(quick: bool) -> Results:
    """Processor time of a tick of six axes on the wall clock at 400 Hz, in C and in Python, in turns."""
    turns, duration = (1, 2.0) if quick else (3, 6.0)
    times: dict[str, list[float]] = {"c": [], "python": []}
    for _ in range(turns):
        for kind, each in times.items():
            each.append(_on_wall_clock(kind, duration))
    entries = Entry("servoctl, C with the sockets", min(times["c"])), Entry("Python", min(times["python"]))
    yield Line("tick of six axes on the wall clock, processor time", entries,
               f"the least of {turns}; datagrams on pairs of Unix sockets, drives in another process")  # fmt: skip


def _on_wall_clock(tick: str, duration: float) -> float:
    """As `timed_run`, on a pair of sockets; a run that another program held up is repeated."""
    for _ in range(TRIES - 1):
        with suppress(RigError):
            return _on_pair(tick, duration)
    return _on_pair(tick, duration)


def _on_pair(tick: str, duration: float) -> float:
    setup = load(CONFIG, [f"hil.tick={tick}", *PATIENT])
    with tempfile.TemporaryDirectory() as folder, on_pair(setup, CONFIG) as environment:
        return timed_run(setup, environment, duration, Path(folder) / "run")
