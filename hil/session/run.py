"""A run on drives, from the first frame to the last drive off.

Design: everything that can be wrong is found before the first frame; whatever ends the loop, every drive is sent off
and asked to confirm, and the folder is closed with what there is. Status, events and exit code say the same, also of a
run that never began, or whose recorder died.
"""

import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from hil.assembly.environment import Environment, TamperedController
from hil.assembly.prepare import RigSetup
from hil.bus import Health
from hil.drives import DriveError
from hil.loop import SECOND, Controller, Reading, Tick, TickLoop
from hil.loop.realtime import Grant, without_collector
from hil.loop.stop_signals import StopSignals
from hil.loop.tick import TickTimes
from hil.loop.timing import Timing
from hil.recorder import InMemory, Recorder, add_missing, as_entry
from hil.recorder.columns import ColumnLayout
from hil.rig.dispatch import Dispatch
from hil.rig.rig import CanRig
from hil.safety import Event, EventKind, Limits, Monitor
from hil.safety.events import Origin
from hil.safety.plan import Stage
from hil.safety.stages import Phase, Stages
from hil.session.ending import fields_of, of_buses, of_drives, verdict
from hil.session.logbook import Logbook
from hil.view import LivePage
from hil.view.plan import SIGNAL
from servoctl.config import dump
from servoctl.errors import RunFolderError, ServoctlError, in_one_line
from servoctl.mechanics.drawing import drawing
from servoctl.run_folder import write_drawing
from servoctl.run_folder.trajectory import Trajectory
from servoctl.types import Array

BRING_UP = 20.0
"""Time from the first frame to the first tick, at most [s]."""

WAIT_SHARE = 0.6
"""Of the period: how long samples are waited for."""

LOOK_EVERY = 100
"""Ticks from one look at the recorder to the next."""

T = TypeVar("T")

BUTTON = "stop button of the live page"

STOPPED = (Phase.STOPPING, Phase.DISABLING, Phase.OVER)


@dataclass(frozen=True)
class Result:
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
        prepared: RigSetup,
        place: Environment,
        stage: Stage,
        duration: float | None,
        out: Path | None,
        said: dict[str, Any],
        signals: StopSignals | None = None,
    ) -> None:
        """Takes what it runs on.

        Args:
            prepared: The config, ready.
            place: Buses and clock.
            stage: The last stage.
            duration: Time in it [s]; None: that of the config.
            out: The run folder; None: in memory only, which is for lock-step.
            said: What the run says of itself beside what is found here; more may be added before it ends.
            signals: That ask for the controlled stop, noted already; None: from the beginning of `run` on.

        Raises:
            RunFolderError: The folder cannot be made.
        """
        self._given = signals
        self._prepared, self._place, self._stage = prepared, place, stage
        nodes = [*prepared.drives, *prepared.sensors]
        self._plan = prepared.plan(stage, duration)
        self._monitor = Monitor(prepared.drives, prepared.sensors, prepared.bounds)
        faults = place.faults
        self._controller = Controller(prepared.loop) if faults is None else TamperedController(prepared.loop, faults)
        self._live = prepared.live
        self._view: LivePage | None = None
        self._live.begin(self._controller.take_law)
        emulated, gains = place.truth is not None, [gain.path for gain in self._live.gains]
        self._table = ColumnLayout(prepared.loop, nodes, len(prepared.drives), emulated, gains)
        self.columns = table = self._table.units
        self.said = said
        text = "" if prepared.run.loaded is None else dump(prepared.run.loaded.config)
        self._told, self._engaged = 0, False
        self._span: list[float] = []
        self._wall, self._worked, self._ticks = 0.0, 0.0, 0
        self._began, self._asked = False, ""
        self._say: Callable[[Event], None] = lambda event: None
        self._progress: Callable[[float], None] | None = None
        self.recorder = InMemory(table, said) if out is None else Recorder(out, table, said, text, place.lockstep)
        try:
            self._assemble(emulated)
        except BaseException as error:
            if isinstance(self.recorder, Recorder):
                self.recorder.__exit__(type(error), error, error.__traceback__)
            raise

    def _assemble(self, emulated: bool) -> None:
        """Puts together what the ticks pass through."""
        prepared, place = self._prepared, self._place
        values, nodes = prepared.settings.values, [*prepared.drives, *prepared.sensors]
        timing = Timing(round(values.period * SECOND), [node.settings.name for node in nodes])
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
            sends=self._stage is not Stage.SHADOW,
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
            self._table,
            timing,
            self.recorder,
            emulated,
        )

    def show(self, view: LivePage) -> None:
        """Lets an operator look on, and act, from now on."""
        self._view = view

    def run(self, say: Callable[[Event], None], progress: Callable[[float], None] | None = None) -> Result:
        """Runs to the end.

        Args:
            say: Takes every event as it happens.
            progress: Called now and then with the fraction that is done, 0 to 1.
        """
        self._say, self._progress = say, progress
        with self._signals():
            self._tell()
            if self._asked:
                self._report(EventKind.INTERRUPTED, "", f"{self._asked}, before the first frame")
            else:
                self._work()
            return self._close()

    def _work(self) -> None:
        """From the first frame to the last drive off."""
        self._began = True
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
                self._report(EventKind.HANDSHAKE, name, what)
        except ServoctlError as error:
            self._report(EventKind.EXCEPTION, "", str(error))
        except KeyboardInterrupt as error:  # no key of a terminal, which raises nothing: a user's plant raised it
            self._report(EventKind.INTERRUPTED, "", in_one_line(error))
        except (
            BaseException
        ) as error:  # a user's plant may raise anything, and exit: the drives must go off all the same
            self._report(EventKind.EXCEPTION, "", in_one_line(error))
        finally:
            self._off()

    def abandon(self, error: BaseException | None = None) -> None:
        """Closes what a run that never began, or failed, has left open; after its end it does nothing.

        Args:
            error: Why it did.
        """
        if isinstance(self.recorder, Recorder) and not self.recorder.closed:
            if isinstance(error, KeyboardInterrupt):
                self._report(EventKind.INTERRUPTED, "", "before the first frame" if not self._began else "")
            else:
                why = "the run never began" if error is None else in_one_line(error)
                self._report(EventKind.EXCEPTION, "", str(error) if isinstance(error, ServoctlError) else why)
            with suppress(Exception):  # what failed has been told; the folder is to say so as well
                self._tell()
            found = verdict(self._monitor)
            if found["status"] != "interrupted":
                found["status"] = "failed"
            with suppress(RunFolderError):
                self._finish({**self.said, **found, "stage": self._stage.name.lower()})
        with suppress(Exception):
            self._dispatch.close()

    def not_granted(self, grants: Iterable[Grant]) -> None:
        """Reports what the system did not grant, before the run begins."""
        for grant in grants:
            self._report(EventKind.REALTIME, grant.name, grant.sentence)

    def _report(self, kind: EventKind, subject: str, detail: str) -> None:
        self._monitor.report(self._place.clock.now(), kind, subject, detail)

    def _off(self) -> None:
        """Every drive off, whatever has happened before."""
        try:
            self._rig.stop()
        except Exception as error:  # of the clock: what a drive or a bus raises, `stop` itself has noted
            self._report(EventKind.EXCEPTION, "", in_one_line(error))
        for name, what in self._rig.failures.items():
            self._report(EventKind.EXCEPTION, name, what)
        if self._rig.sends:
            for drive in self._prepared.drives:
                if not drive.confirmed_off:
                    kind = EventKind.NOT_CONFIRMED if drive.possibly_on else EventKind.NEVER_ENABLED
                    self._report(kind, drive.settings.name, "")
        self._tell()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Signals ask for the controlled stop."""
        with ExitStack() as stack:
            signals = self._given or stack.enter_context(StopSignals(suspend=not self._place.lockstep))
            signals.heard = self._ask
            stack.callback(setattr, signals, "heard", None)
            if self._view is not None:
                before = signal.signal(SIGNAL, lambda number, frame: self._ask(BUTTON))
                stack.callback(signal.signal, SIGNAL, before)
                if self._view.stop_pressed:  # before anybody heard it
                    self._ask(BUTTON)
            if signals.first:
                self._ask(signals.first)
            yield

    def _ask(self, why: str) -> None:
        """Asks for the controlled stop; in a signal handler. Once the run is over it changes nothing."""
        self._asked = self._asked or why
        self._stages.ask_to_stop(why)
        self._rig.cancel()

    def _decide(self, tick: Tick, reading: Reading) -> Array | None:
        if self._place.faults is not None and (stall := self._place.faults.stall()):
            self._place.clock.sleep_until(self._place.clock.now() + stall)
        torques = self._stages.decide(tick, reading)
        if self._stages.mode is Phase.FULL and not self._engaged:
            self._engaged = True
            self._place.engaged()
        return torques

    def _log(self, tick: Tick, reading: Reading, sent: Array, times: TickTimes) -> None:
        stages = self._stages
        self._logbook.enter(tick, reading, sent, times)
        self._ticks = tick.number + 1
        if stages.mode is Phase.FULL:
            self._span = [*self._span[:1], tick.began / SECOND]
        if tick.number % LOOK_EVERY == 0 and (problem := self.recorder.problem) is not None:
            self._report(EventKind.RECORDER, "", problem)
        self._attend(tick)
        self._tell()
        if self._progress is not None and tick.number % 100 == 0:
            self._progress(min(1.0, stages.task_time / self._plan.duration))

    def _attend(self, tick: Tick) -> None:
        """Gains that the operator wants, and those on their way: behind the torque, so that it waits for nobody."""
        if self._view is not None:
            for number, value in self._view.look():
                refused = "refused: the run is stopping" if self._stages.mode in STOPPED else None
                self._report(EventKind.GAIN, self._live.gains[number].path, refused or self._live.ask(number, value))
            if tick.number % LOOK_EVERY == 0 and (end := self._view.gone) is not None:
                self._report(EventKind.VIEW, "", end)
            if self._place.lockstep:
                self._view.pace(tick.began)
        self._live.advance(self._controller.take_law)

    def _tell(self) -> None:
        """Hands events on that are new."""
        events = self._monitor.events
        while self._told < len(events):
            event = events[self._told]
            self._told += 1  # first: a listener that raises is not told the same again
            self.recorder.event(event.kind.name.lower(), str(event), event.time, **fields_of(event))
            self._say(event)

    def _close(self) -> Result:
        place: dict[str, Any] = self._tried(self._place.facts, {})
        buses = of_buses(self._tried(self._dispatch.healths, dict[str, Health]()))
        self._tried(self._dispatch.close, None)
        self._tell()
        code, found = self._monitor.exit_code, verdict(self._monitor)
        drives, sends = self._prepared.drives, self._rig.sends
        unconfirmed = tuple(drive.settings.name for drive in drives if drive.possibly_on) if sends else ()
        facts = {
            **self.said, **self._figures(), **found, "stage": self._stage.name.lower(), "bus": buses,
            "drives": of_drives(drives, sends), **place,
        }  # fmt: skip
        end = {"status": found["status"], "exit_code": code, "error": found.get("error")}
        try:
            trajectory = self._finish(facts)
        except RunFolderError as error:
            end = {"status": "failed", "exit_code": Origin.RIG.value, "error": str(error)}
            raise
        finally:
            if self._view is not None:
                self._view.close(end)
        return Result(code, tuple(self._monitor.events), unconfirmed, self._draw(trajectory))

    def _tried(self, ask: Callable[[], T], otherwise: T) -> T:
        """What is asked for; where that raises, the run has failed, and is to say so."""
        try:
            return ask()
        except Exception as error:
            self._report(EventKind.EXCEPTION, "", in_one_line(error))
            return otherwise

    def _figures(self) -> dict[str, Any]:
        """How long it took, and how punctual it was."""
        timing = (
            self.said.get("timing", {})
            | self._logbook.timing.as_dict()
            | {f"{name}_s": part.as_dict() for name, part in self._logbook.parts.items()}
        )
        if not self._place.lockstep and self._ticks:
            timing["cpu_per_tick_s"] = self._worked / self._ticks
        lasted = self._ticks * self._prepared.settings.values.period
        return {
            "timing": timing, "duration": lasted, "steps": self._ticks,
            "evaluations": self._prepared.loop.evaluations, "wall_time": self._wall,
            "realtime_factor": lasted / self._wall if self._wall else None,
            "task_span": self._span if len(self._span) == 2 else [],
        }  # fmt: skip

    def _finish(self, facts: dict[str, Any]) -> Trajectory:
        """Closes the folder; events that a recorder which died has left out are in it all the same.

        Raises:
            RunFolderError: It cannot be finished; its summary says `failed`.
        """
        try:
            return self.recorder.close(facts)
        except RunFolderError:
            if isinstance(self.recorder, Recorder):
                events = self._monitor.events
                entries = [as_entry(each.kind.name.lower(), str(each), each.time, fields_of(each)) for each in events]
                add_missing(self.recorder.path, entries)
            raise

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
