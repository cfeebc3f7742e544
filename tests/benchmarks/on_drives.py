"""Ticks of six axes: in virtual time with the emulated world, and on the wall clock in Python and in C."""

import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from hil.assembly.emulation import Environment, environment_of, make_emulator
from hil.assembly.prepare import load
from hil.assembly.setup import RigSetup
from hil.core.compiled import library
from hil.loop import Tick, WallClock, nanoseconds
from hil.loop.realtime import PRIORITY, prepare
from hil.loop.timing import COUNTS, figures
from hil.safety.plan import Phase
from hil.session.run import HilRun, RunResult
from servoctl.errors import RigError
from tests.benchmarks.contest import Entry, Line, Results, Table
from tests.hil.by_drivers import ticks
from tests.hil.emulation import SHORT
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
    """A run that keeps number and processor time [s] at the end of the first and of the last tick of each phase."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.times: dict[Phase, list[tuple[int, float]]] = {}  # first, last

    def _done(self, tick: Tick) -> None:
        super()._done(tick)
        done = tick.number, time.thread_time()
        self.times.setdefault(self.stages.mode, [done, done])[1] = done

    def ticks(self, phase: Phase) -> int:
        """Number of ticks between the first and the last of a phase."""
        (first, _), (last, _) = self.times.get(phase, ((0, 0.0), (0, 0.0)))
        return last - first

    def tick_time(self, phase: Phase) -> float:
        """Mean processor time of a tick of a phase [s]."""
        (_, begin), (_, end) = self.times[phase]
        return (end - begin) / self.ticks(phase)


LAST = {Phase.FLOAT: Phase.FLOAT, Phase.FULL: Phase.FULL, Phase.CALIBRATE: Phase.CALIBRATE}
"""Last stage of a run -> the phase that lasts as long as is asked for."""


def timed_run(
    setup: RigSetup, environment: Environment, duration: float, folder: Path | None, stage: Phase = Phase.FULL
) -> TimedRun:
    """A run after its end.

    Raises:
        RigError: The run did not reach the end of its last stage.
    """
    run = TimedRun(setup, environment, stage, duration)
    result: RunResult = run.run(folder, lambda event: None)
    # a burst of frames at the switch-off may not fit into a pair of sockets, which queues ten: the ticks are done then
    if run.ticks(LAST[stage]) < 0.9 * duration / setup.settings.values.period:
        raise RigError(f"the run ended early: {[str(event) for event in result.events]}")
    return run


def hil(quick: bool) -> Results:
    """A tick of six emulated CiA 402 drives in virtual time, against real time."""
    duration, turns, sets = (0.1, 1, SHORT) if quick else (10.0, 3, ())
    times = []
    for _ in range(turns):
        setup = load(CONFIG, sets)
        environment = environment_of(setup, make_emulator(setup, "auto"))
        times.append(timed_run(setup, environment, duration, None).tick_time(Phase.FULL))
    period = setup.settings.values.period
    entries = Entry("servoctl", sorted(times)[turns // 2]), Entry(f"real time, at {1 / period:.0f} Hz", period)
    yield Line("tick of six emulated CiA 402 drives in virtual time, processor time", entries)


def tick_c(quick: bool) -> Results:
    """Processor time of a tick of six axes on the wall clock at 400 Hz, in C and in Python, in turns."""
    turns, duration = (1, 0.1) if quick else (3, 6.0)
    times: dict[str, list[float]] = {"c": []} if quick else {"c": [], "python": []}
    for _ in range(turns):
        for kind, each in times.items():
            each.append(_on_wall_clock(kind, duration).tick_time(Phase.FULL))
    names = {"c": "servoctl, C with the sockets", "python": "Python"}
    entries = tuple(Entry(names[kind], min(each)) for kind, each in times.items())
    yield Line("tick of six axes on the wall clock, processor time", entries,
               f"the least of {turns}; datagrams on pairs of Unix sockets, drives in another process")  # fmt: skip


PHASES = {
    Phase.FLOAT: (Phase.FLOAT,),
    Phase.FULL: (
        Phase.ENABLING, Phase.ZERO, Phase.RAMP, Phase.FULL, Phase.STOPPING, Phase.BRAKING, Phase.DISABLING,
    ),
    Phase.CALIBRATE: (Phase.CALIBRATE,),
}  # fmt: skip
"""Last stage of a run -> the phases that are measured in it."""


def tick_stages(quick: bool) -> Results:
    """Processor time of a tick of six axes on the wall clock at 400 Hz in each stage, in C and in Python."""
    duration = 1.0 if quick else 3.0
    for stage, phases in PHASES.items():
        runs = {kind: _on_wall_clock(kind, duration, stage) for kind in ("c", "python")}
        for phase in phases:
            measured = [run.tick_time(phase) for run in runs.values()]
            entries = Entry("servoctl, with C", measured[0]), Entry("Python", measured[1])
            yield Line(f"tick of six axes in stage {phase.value}, processor time", entries,
                       f"{runs['c'].ticks(phase)} ticks")  # fmt: skip


FD_CONFIG, FD_PERIOD = "coordinated_robots_moteus", 0.001

FD_BUS = "{interface: emulated, bitrate: 1000000, fd: true, data_bitrate: 5000000}"

FD_SETTINGS = (
    *PATIENT, f"hil.period={FD_PERIOD}", f"hil.buses={{a: {FD_BUS}, b: {FD_BUS}, c: {FD_BUS}}}",
    *(f"hil.drives.{i}.bus={'abc'[i // 2]}" for i in range(6)),
)  # fmt: skip
"""Two drives on each of three buses: one bus of 1 and 5 Mbit/s carries six at 554 Hz at most."""


def bare_lateness(period: float, seconds: float) -> dict[str, Any]:
    """How punctual an empty loop is: the limit that this machine sets before any work."""
    clock, step, lateness, skipped = WallClock(), nanoseconds(period), np.zeros(COUNTS, np.uint64), 0
    ffi, functions = library()
    counts = ffi.from_buffer("unsigned long long[]", lateness)
    deadline = clock.now() + step
    last = deadline + nanoseconds(seconds)
    while deadline < last:
        clock.sleep_until(deadline)
        functions.log_count(counts, clock.now() - deadline)
        missed = max(0, (clock.now() - deadline) // step)
        skipped, deadline = skipped + missed, deadline + (1 + missed) * step
    return {"ticks": int(lateness[0]), "skipped_periods": skipped, "lateness_s": figures(lateness)}


def fd_at_1khz(quick: bool) -> Results:
    """Periods that six CAN FD drives at 1 kHz skip, beside those that an empty loop skips on the same machine."""
    duration = 3.0 if quick else 60.0
    with prepare(PRIORITY):
        bare = bare_lateness(FD_PERIOD, duration)
    setup = load(FD_CONFIG, FD_SETTINGS)
    with (
        tempfile.TemporaryDirectory() as folder,
        on_pair(setup, FD_CONFIG, FD_SETTINGS) as environment,
        ticks("c"),
    ):
        run = timed_run(setup, environment, duration, Path(folder) / "run")
    loop = run.logbook.timing.as_dict()
    rows = [
        (name, *(str(values[key]) for key in ("ticks", "skipped_periods")),
         *(f"{1e6 * values['lateness_s'][key]:.0f}" for key in ("p50", "p99_9", "max")))
        for name, values in (("empty loop", bare), ("six drives, all stages", loop))
    ]  # fmt: skip
    header = ("loop", "ticks", "skipped periods", "lateness p50 [us]", "p99.9 [us]", "largest [us]")
    used = f"a tick of stage full takes {1e6 * run.tick_time(Phase.FULL):.0f} us of processor time"
    yield Table(f"six moteus at 1 kHz for {duration:g} s, drives in another process; {used}", header, rows)


def _on_wall_clock(tick: str, duration: float, stage: Phase = Phase.FULL) -> TimedRun:
    """As `timed_run`, on a pair of sockets; a run that another program held up is repeated."""
    for _ in range(TRIES - 1):
        with suppress(RigError):
            return _on_pair(tick, duration, stage)
    return _on_pair(tick, duration, stage)


def _on_pair(tick: str, duration: float, stage: Phase) -> TimedRun:
    times = [f"hil.safety.{name}={duration}" for name in ("zero_time", "ramp_time")] if stage is Phase.FULL else []
    setup = load(CONFIG, [*PATIENT, *times])
    with tempfile.TemporaryDirectory() as folder, on_pair(setup, CONFIG) as environment, ticks(tick):
        return timed_run(setup, environment, duration, Path(folder) / "run", stage)
