"""A run on drives, from the first frame to the last drive off.

Design: everything that can be wrong is found before the first frame; whatever ends the loop, every drive is sent off
and asked to confirm, and the folder is closed with what there is.
"""

import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from hil.columns import Table
from hil.dispatch import Dispatch
from hil.drives import DriveError
from hil.logbook import Logbook
from hil.place import Place, TamperedController
from hil.prepare import Prepared
from hil.realtime import Grant, without_collector
from hil.recorder import InMemory, Recorder
from hil.rig import CanRig
from hil.safety import Event, Kind, Limits, Monitor
from hil.safety.plan import Stage
from hil.safety.stages import Mode, Stages
from hil.view import View
from hil.view.plan import SIGNAL
from servoctl.config import dump
from servoctl.errors import ServoctlError, in_one_line
from servoctl.loop import SECOND, Controller, Reading, Tick, TickLoop
from servoctl.loop.tick import Times
from servoctl.loop.timing import Timing
from servoctl.mechanics.drawing import drawing
from servoctl.run_folder import write_drawing
from servoctl.trajectory import Trajectory
from servoctl.types import Array

BRING_UP = 20.0
"""Time from the first frame to the first tick, at most [s]."""

WAIT_SHARE = 0.6
"""Of the period: how long samples are waited for."""

LOOK_EVERY = 100
"""Ticks from one look at the recorder to the next."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

SUSPEND = signal.SIGTSTP
"""Ctrl-Z: on the wall clock a loop that stands still would leave the drives to their watchdogs."""

BUTTON = "stop button of the live page"

STOPPED = (Mode.STOPPING, Mode.DISABLING, Mode.OVER)


@dataclass(frozen=True)
class Ended:
    """How a run ended.

    Attributes:
        exit_code: 0, 3, 4 or 130.
        events: What happened, in order.
        unconfirmed: Drives that did not confirm that they are off; none in shadow, where they are not ours.
        trajectory: What was recorded.
    """

    exit_code: int
    events: tuple[Event, ...]
    unconfirmed: tuple[str, ...]
    trajectory: Trajectory


class HilRun:
    """One run.

    Attributes:
        said: What the run says of itself; more may be added before it ends.
        recorder: What it leaves.
        columns: Of a row: column -> unit, in order.
    """

    def __init__(
        self,
        prepared: Prepared,
        place: Place,
        stage: Stage,
        duration: float | None,
        out: Path | None,
        said: dict[str, Any],
    ) -> None:
        """Takes what it runs on.

        Args:
            prepared: The config, ready.
            place: Buses and clock.
            stage: The last stage.
            duration: Time in it [s]; None: that of the config.
            out: The run folder; None: in memory only, which is for lock-step.
            said: What the run says of itself beside what is found here; more may be added before it ends.

        Raises:
            RunFolderError: The folder cannot be made.
        """
        self._prepared, self._place, self._stage = prepared, place, stage
        values, nodes = prepared.settings.values, [*prepared.drives, *prepared.sensors]
        self._plan = prepared.plan(stage, duration)
        self._monitor = Monitor(prepared.drives, prepared.sensors, prepared.bounds)
        faults = place.faults
        self._controller = Controller(prepared.loop) if faults is None else TamperedController(prepared.loop, faults)
        self._live = prepared.live
        self._view: View | None = None
        self._live.begin(self._controller.take_law)
        emulated, gains = place.truth is not None, [gain.path for gain in self._live.gains]
        table = Table(prepared.loop, nodes, len(prepared.drives), emulated, gains)
        self.columns = table.units
        timing = Timing(round(values.period * SECOND), [node.settings.name for node in nodes])
        self.said = said
        text = "" if prepared.run.loaded is None else dump(prepared.run.loaded.config)
        self.recorder = (
            InMemory(table.units, said) if out is None else Recorder(out, table.units, said, text, place.lockstep)
        )
        dispatch = Dispatch(place.buses, nodes, place.clock, self.recorder.frame)
        self._dispatch = dispatch
        self._rig = CanRig(
            dispatch,
            prepared.drives,
            prepared.sensors,
            prepared.sensing,
            prepared.start,
            values.period,
            values.safety.start_tolerance,
            sends=stage is not Stage.SHADOW,
            prediction=prepared.prediction if values.prediction else None,
            truth=place.truth,
        )
        limits = Limits(prepared.settings.drives, values.period, place.clock.now)
        self._stages = Stages(self._rig, self._controller, self._monitor, limits, self._plan)
        self._logbook = Logbook(
            prepared.loop,
            self._controller,
            self._rig,
            self._stages,
            self._live,
            table,
            timing,
            self.recorder,
            emulated,
        )
        self._told, self._engaged = 0, False
        self._span: list[float] = []
        self._wall, self._worked, self._ticks = 0.0, 0.0, 0
        self._error: str | None = None

    def show(self, view: View) -> None:
        """Lets an operator look on, and act, from now on."""
        self._view = view

    def run(self, say: Callable[[Event], None], progress: Callable[[float], None] | None = None) -> Ended:
        """Runs to the end.

        Args:
            say: Takes every event as it happens.
            progress: Called now and then with the fraction that is done, 0 to 1.
        """
        self._say, self._progress = say, progress
        with self._signals():
            self._tell()
            try:
                self._rig.start(self._place.clock.now() + round(BRING_UP * SECOND))
                period = round(self._prepared.settings.values.period * SECOND)
                loop = TickLoop(self._rig, self._place.clock, period, round(WAIT_SHARE * period))
                began, worked = time.perf_counter(), time.thread_time()
                try:
                    with without_collector():
                        loop.run(self._decide, self._log)
                finally:
                    self._wall, self._worked = time.perf_counter() - began, time.thread_time() - worked
            except DriveError as error:
                for line in str(error).splitlines():
                    name, _, what = line.partition(": ")
                    self._report(Kind.HANDSHAKE, name, what)
            except ServoctlError as error:
                self._report(Kind.EXCEPTION, "", str(error))
            except Exception as error:  # a user's plant may raise anything: the drives must go off all the same
                self._report(Kind.EXCEPTION, "", in_one_line(error))
            finally:
                self._off()
        return self._close()

    def abandon(self) -> None:
        """Closes what a run that never began, or failed, has left open."""
        if isinstance(self.recorder, Recorder):
            self.recorder.__exit__(None, None, None)
        self._dispatch.close()

    def not_granted(self, grants: Iterable[Grant]) -> None:
        """Reports what the system did not grant, before the run begins."""
        for grant in grants:
            self._report(Kind.REALTIME, grant.name, grant.sentence)

    def _report(self, kind: Kind, subject: str, detail: str) -> None:
        self._monitor.report(self._place.clock.now(), kind, subject, detail)

    def _off(self) -> None:
        """Every drive off, whatever has happened before."""
        try:
            self._rig.stop()
        finally:
            if self._rig.sends:
                for drive in self._prepared.drives:
                    if not drive.surely_off:
                        kind = Kind.NOT_CONFIRMED if drive.maybe_on else Kind.NEVER_ENABLED
                        self._report(kind, drive.settings.name, "")
            self._tell()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Signals ask for the controlled stop."""

        def ask(number: int, frame: FrameType | None) -> None:
            self._stages.ask_to_stop(BUTTON if number == SIGNAL else signal.Signals(number).name)
            self._rig.cancel()

        heard = [*SIGNALS, *([] if self._view is None else [SIGNAL]), *([] if self._place.lockstep else [SUSPEND])]
        before = {number: signal.signal(number, ask) for number in heard}
        if self._view is not None and self._view.stop_pressed:  # before anybody heard it
            ask(SIGNAL, None)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _decide(self, tick: Tick, reading: Reading) -> Array | None:
        if self._place.faults is not None and (stall := self._place.faults.stall()):
            self._place.clock.sleep_until(self._place.clock.now() + stall)
        torques = self._stages.decide(tick, reading)
        if self._stages.mode is Mode.FULL and not self._engaged:
            self._engaged = True
            self._place.engaged()
        return torques

    def _log(self, tick: Tick, reading: Reading, sent: Array, times: Times) -> None:
        stages = self._stages
        self._logbook.enter(tick, reading, sent, times)
        self._ticks = tick.number + 1
        if stages.mode is Mode.FULL:
            self._span = [*self._span[:1], tick.began / SECOND]
        if tick.number % LOOK_EVERY == 0 and (problem := self.recorder.problem) is not None:
            self._report(Kind.RECORDER, "", problem)
        self._attend(tick)
        self._tell()
        if self._progress is not None and tick.number % 100 == 0:
            self._progress(min(1.0, stages.task_time / self._plan.duration))

    def _attend(self, tick: Tick) -> None:
        """Gains that the operator wants, and those on their way: behind the torque, so that it waits for nobody."""
        if self._view is not None:
            for number, value in self._view.look():
                refused = "refused: the run is stopping" if self._stages.mode in STOPPED else None
                self._report(Kind.GAIN, self._live.gains[number].path, refused or self._live.ask(number, value))
            if tick.number % LOOK_EVERY == 0 and (end := self._view.gone) is not None:
                self._report(Kind.VIEW, "", end)
            if self._place.lockstep:
                self._view.pace(tick.began)
        self._live.advance(self._controller.take_law)

    def _tell(self) -> None:
        """Hands events on that are new."""
        if self._told == len(self._monitor.events):
            return
        for event in self._monitor.events[self._told :]:
            fields = event.as_dict()
            del fields["t"], fields["kind"], fields["text"]
            self.recorder.event(event.kind.name.lower(), str(event), event.time, **fields)
            self._say(event)
        self._told = len(self._monitor.events)

    def _close(self) -> Ended:
        code = self._monitor.exit_code
        verdicts = list(self._monitor.verdicts())
        status = {0: "done", 130: "interrupted"}.get(code, "stopped")
        timing = (
            self.said.get("timing", {})
            | self._logbook.timing.as_dict()
            | {f"{name}_s": part.as_dict() for name, part in self._logbook.parts.items()}
        )
        if not self._place.lockstep and self._ticks:
            timing["cpu_per_tick_s"] = self._worked / self._ticks
        facts: dict[str, Any] = {**self.said, "status": status, "timing": timing, "stage": self._stage.name.lower()}
        drives, sends = self._prepared.drives, self._rig.sends
        unconfirmed = tuple(drive.settings.name for drive in drives if drive.maybe_on) if sends else ()
        lasted = self._ticks * self._prepared.settings.values.period
        facts |= {
            "duration": lasted, "steps": self._ticks, "evaluations": self._prepared.loop.evaluations,
            "wall_time": self._wall, "realtime_factor": lasted / self._wall if self._wall else None,
        }  # fmt: skip
        facts["task_span"] = self._span if len(self._span) == 2 else []
        if verdicts and code:
            facts["error"] = str(verdicts[0])
        facts["bus"] = {
            name: health._asdict() | {"link": health.link.value} for name, health in self._dispatch.healths().items()
        }
        facts["drives"] = {
            drive.settings.name: {
                "condition": drive.condition.value, "fault": drive.fault, "rejected": drive.rejected,
                "confirmed_off": drive.surely_off if sends and (drive.surely_off or drive.maybe_on) else None,
            }
            for drive in self._prepared.drives
        }  # fmt: skip
        facts["faults"] = [str(event) for event in verdicts]
        facts["counts"] = {kind.name.lower(): count for kind, count in self._monitor.counts.items()}
        facts |= self._place.facts()
        self._dispatch.close()
        trajectory = self.recorder.close(facts)
        if self._view is not None:
            self._view.close({"status": status, "exit_code": code, "error": facts.get("error")})
        trajectory = self._draw(trajectory)
        return Ended(code, tuple(self._monitor.events), unconfirmed, trajectory)

    def _draw(self, trajectory: Trajectory) -> Trajectory:
        """The run with its drawing, in its folder too; left out where the plant cannot: the run has ended as it has."""
        run = trajectory
        with suppress(Exception):
            task_time = run.columns.get("task_time")
            frames = drawing(self._prepared.loop.system.model, run.t, run.q, run.v, task_time)
            run = replace(run, drawing=frames)
            if frames and isinstance(self.recorder, Recorder):
                write_drawing(self.recorder.path, frames)
        return run
