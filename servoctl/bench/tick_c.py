"""Processor time and latency of a tick on the wall clock: in Python, in C, and in C with the sockets."""

import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hil.assembly.environment import Environment
from hil.assembly.prepare import RigSetup, load
from hil.bus import Bus
from hil.loop import SECOND, Tick, WallClock
from hil.loop.realtime import prepare
from hil.recorder import read_frames
from hil.recorder.columns import STAGES
from hil.safety.plan import Phase, Stage
from hil.session.run import HilRun
from servoctl.bench.report import BenchReport, Comparison, Effort, Progress, TextTable, at_most
from servoctl.bench.socket_pair import bus_on
from servoctl.bench.timing import shown
from servoctl.errors import RigError

CONFIG, FAST = "coordinated_robots", "two_arms_damiao"
"""At 400 Hz, and at 1 kHz: six CiA 402 drives do not fit on a classic bus then, six drives on an FD bus do."""

PYTHON, BUFFERS, SOCKETS = "Python", "C, Python has the sockets", "C, sockets included"

MOST, SHARE, LATENCY = 110e-6, 0.25, 60e-6
"""Targets: processor time of a tick [s], its share of that in Python, and time from input to output [s]."""

PATIENT = (
    "hil.safety.stale=0.4", "hil.safety.lost=0.6", "hil.safety.drive_watchdog=0.5", "hil.safety.late_ticks=1000",
    "hil.safety.late_share=0.99", "hil.safety.zero_time=0.2", "hil.safety.ramp_time=0.3",
)  # fmt: skip
"""A busy machine must not end the measurement."""

TRIES = 6
"""Most runs for one measurement: where real-time rights are missing, other programs hold up one in four."""


class Ticks(NamedTuple):
    """What the ticks of the task cost in one run.

    Attributes:
        ticks: Number of these ticks.
        in_c: How many of all ticks C did.
        skipped: Number of skipped periods.
        cpu: Mean processor time of a tick [s].
        latency: Median time from the arrival of the last sample to the first torque on the socket [s].
        lateness: Median and 99th percentile of the lateness [s].
    """

    ticks: int
    in_c: int
    skipped: int
    cpu: float
    latency: float
    lateness: tuple[float, float]


class TimedRun(HilRun):
    """A run that keeps the processor time of its ticks in the task.

    Attributes:
        times: Numbers of ticks, and the time of the thread at the end of each [s].
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.times: list[tuple[int, float]] = []

    def without_sockets(self) -> None:
        """Leaves the sends and receives to Python."""
        self.parts.rig.sockets = self.parts.rig.stretch = None

    def _done(self, tick: Tick) -> None:
        super()._done(tick)
        if self.parts.stages.mode is Phase.FULL:
            self.times.append((tick.number, time.thread_time()))


@contextmanager
def on_pair(setup: RigSetup, config: str) -> Iterator[Environment]:
    """Buses on pairs of Unix sockets, with the emulated drives of a config in another process at the other ends.

    Raises:
        RigError: The drives do not come up.
    """
    pairs = {name: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for name in setup.settings.buses}
    there = [end.fileno() for _, end in pairs.values()]
    command = [sys.executable, "-m", "servoctl.bench.socket_pair", config, *map(str, there)]
    child = subprocess.Popen(command, pass_fds=there, stdout=subprocess.PIPE, text=True)
    try:
        for _, end in pairs.values():
            end.close()
        assert child.stdout is not None
        if child.stdout.readline() != "ready\n":
            raise RigError(f"{config}: the emulated drives in their own process do not come up")
        clock = WallClock()
        keys = setup.settings.buses
        buses: dict[str, Bus] = {
            name: bus_on(end, name, clock, bool(keys[name].get("fd"))) for name, (end, _) in pairs.items()
        }
        yield Environment(buses, clock, emulated=True, lockstep=False)
    finally:
        child.terminate()
        child.wait(10)
        if child.stdout is not None:
            child.stdout.close()


def measured(rate: float, duration: float, kind: str, config: str = CONFIG) -> Ticks:
    """As `once`; a run that another program held up is repeated."""
    for _ in range(TRIES - 1):
        with suppress(RigError):
            return once(rate, duration, kind, config)
    return once(rate, duration, kind, config)


def once(rate: float, duration: float, kind: str, config: str = CONFIG) -> Ticks:
    """Runs a config on a pair of sockets.

    Args:
        rate: Rate of the loop [Hz].
        duration: Time in the task [s].
        kind: `PYTHON`, `BUFFERS` or `SOCKETS`.
        config: A path, or the bare name of a shipped config.

    Raises:
        RigError: The run did not reach its end.
    """
    tick = "python" if kind == PYTHON else "c"
    setup = load(config, [f"hil.tick={tick}", f"hil.period={1.0 / rate!r}", *PATIENT])
    with tempfile.TemporaryDirectory() as folder, on_pair(setup, config) as environment:
        run = TimedRun(setup, environment, Stage.FULL, duration, Path(folder) / "run", {})
        if kind == BUFFERS:
            run.without_sockets()
        with prepare():
            ended = run.run(lambda event: None)
        if ended.exit_code or len(run.times) < 3:
            raise RigError(
                f"{config}: the run on a pair of sockets ended early: {[str(each) for each in ended.events]}"
            )
        in_task = ended.trajectory.columns["stage"] == STAGES.index(Phase.FULL.value)
        latency = _latency(Path(folder) / "run", [drive.command_bits for drive in setup.drives], setup)
    (first, begun), (last, over) = run.times[0], run.times[-1]
    columns = {name: each[in_task] for name, each in ended.trajectory.columns.items()}
    late = float(np.median(columns["lateness"])), float(np.percentile(columns["lateness"], 99))
    in_c, skipped = int(ended.trajectory.metadata["ticks_in_c"]), int(columns["skipped"].sum())
    return Ticks(last - first + 1, in_c, skipped, (over - begun) / (last - first), latency, late)


def _latency(folder: Path, bits: Sequence[int], setup: RigSetup) -> float:
    """Median time from the last frame before a torque to that torque [s]."""
    command = setup.drives[0]
    first = command.command(0.0).id & bits[0]
    bus = list(setup.settings.buses).index(command.settings.bus)
    received, passed = 0, []
    for number, sent, frame, moment in read_frames(folder):
        if number != bus:
            continue
        if not sent:
            received = moment
        elif received and frame.id & bits[0] == first:
            passed.append(moment - received)
            received = 0
    return statistics.median(passed) / SECOND


def tick_c(effort: Effort, progress: Progress) -> BenchReport:
    """A tick of six axes on the wall clock: in Python, in C, and in C with the sockets, in turns.

    Args:
        effort: Quick runs each for two seconds at 400 Hz, once, and leaves out 1 kHz.
        progress: Called after each run.
    """
    turns, duration = (1, 2.0) if effort.quick else (3, 6.0)
    kinds = (PYTHON, BUFFERS, SOCKETS)
    found: dict[str, list[Ticks]] = {kind: [] for kind in kinds}
    for turn in range(turns):
        for i, kind in enumerate(kinds):
            found[kind].append(measured(400.0, duration, kind))
            progress((turn * len(kinds) + i + 1) / (turns * len(kinds) + (not effort.quick)))
    best = {kind: min(found[kind], key=lambda each: each.cpu) for kind in kinds}
    latency = {kind: min(each.latency for each in found[kind]) for kind in kinds}
    rows = [
        [kind, *map(shown, (each.cpu, latency[kind], *each.lateness)), f"{each.in_c} of {each.ticks}"]
        for kind, each in best.items()
    ]
    header = ("tick", "processor time", "input to output", "lateness p50", "p99", "in C, of the task's")
    tables = [TextTable(f"{CONFIG}, six axes at 400 Hz, best of {turns} in turns", header, rows)]
    values: dict[str, Any] = {kind: [each._asdict() for each in found[kind]] for kind in kinds}
    findings = [
        at_most("a tick in C with the sockets, processor time", best[SOCKETS].cpu, MOST),
        Comparison(
            "a tick in C with the sockets", "the tick in Python", best[SOCKETS].cpu, best[PYTHON].cpu, 1 / SHARE
        ),
        at_most("input to output, in C with the sockets", latency[SOCKETS], LATENCY),
    ]
    notes = [
        "transport: datagrams of SocketCAN's records on a pair of Unix sockets, the emulated drives in another process",
        "processor time: of the loop's thread in the task, for each tick, recording and live gains included",
        "input to output: from the arrival of the last sample, by the kernel's time stamp, to the first torque",
    ]
    if not effort.quick:
        fast = measured(1000.0, 60.0, SOCKETS, FAST)
        values["1 kHz"] = fast._asdict()
        notes.append(
            f"{FAST}, six drives on an FD bus, at 1 kHz for 60 s: {fast.skipped} of 60000 periods skipped, "
            f"{shown(fast.cpu)} a tick"
        )
    return BenchReport("A tick on the wall clock, in Python and in C", tables, values, notes, findings)
