"""What happens in a run on drives, from the first frame until every drive is off.

Design: every problem that can be found before the first frame is found there. However the loop ends, every drive is
switched off and asked to confirm it, and the folder is closed with the data that exist. Status, events and exit code
always agree, also for a run that never began or whose recorder died.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from hil.assembly.environment import Environment, TamperedController
from hil.assembly.prepare import RigSetup
from hil.bus import Health
from hil.calibration.calibrate import Axis
from hil.drives import DriveError
from hil.loop import SECOND, Reading, Tick, TickLoop, nanoseconds
from hil.loop.controller import Controller
from hil.loop.realtime import Grant, without_collector
from hil.loop.stop_signals import StopSignals
from hil.loop.tick import TickTimes
from hil.recorder import InMemory, Recorder
from hil.recorder.columns import ColumnLayout
from hil.rig.dispatch import Dispatch
from hil.safety import Event, EventKind, Limits, Monitor
from hil.safety.events import Origin
from hil.safety.plan import UNPOWERED, Phase, Stage
from hil.safety.stages import Stages
from hil.session.ahead import TicksAhead
from hil.session.calibration import HandCalibration, as_facts
from hil.session.logbook import Logbook
from hil.session.missed import MissedTicks
from hil.session.operator import CHECK_EVERY, OperatorLink
from hil.session.outliers import OutlierReports
from hil.session.reporter import Reporter
from hil.session.summary import bus_states, drive_states, outcome, timing_figures, with_drawing
from hil.session.tick_choice import tick_in_c
from hil.tick.ahead import AheadRig
from hil.view.view import LivePage
from servoctl.assembly.ending import why_missed
from servoctl.errors import RunFolderError, ServoctlError, in_one_line
from servoctl.run_folder.trajectory import Trajectory
from servoctl.types import Array

BRING_UP = 20.0
"""Time limit from the first frame to the first tick [s]."""

WAIT_SHARE = 0.6
"""Share of the period for which a tick waits for samples."""

T = TypeVar("T")


@dataclass(frozen=True)
class Result:
    """Outcome of a run.

    Attributes:
        exit_code: 0, 3, 4 or 130.
        events: Recorded events, in order.
        unconfirmed: Drives that did not confirm that they are off; empty in shadow.
        trajectory: Recorded rows.
        calibration: What a calibration found, per drive; empty in other stages.
        patch: The file that a calibration wrote; None: none.
    """

    exit_code: int
    events: tuple[Event, ...]
    unconfirmed: tuple[str, ...]
    trajectory: Trajectory
    calibration: tuple[Axis, ...] = ()
    patch: Path | None = None


class HilRun:
    """One run.

    Args:
        setup: The config, ready for drives.
        environment: Buses and clock.
        stage: Last stage.
        duration: Time in the last stage [s]; None: that of the config.
        out: Run folder; None: the run is kept in memory, in virtual time only.
        facts: Facts for the summary that this class does not know; more may be added before the run ends.
        signals: Signals that request the controlled stop, already handled; None: they are handled during `run`.

    Attributes:
        facts: Facts for the summary.
        recorder: Records rows, frames and events.
        columns: Column -> unit, in the order of a row.

    Raises:
        RunFolderError: The folder cannot be made.
    """

    def __init__(
        self,
        setup: RigSetup,
        environment: Environment,
        stage: Stage,
        duration: float | None,
        out: Path | None,
        facts: dict[str, Any],
        signals: StopSignals | None = None,
    ) -> None:
        self._setup, self._environment, self._stage, self.facts = setup, environment, stage, facts
        nodes = [*setup.drives, *setup.sensors]
        self._plan = setup.plan(stage, duration)
        self._monitor = Monitor(
            setup.drives, setup.sensors, setup.bounds, setup.sensing.displacements.units[: len(setup.drives)]
        )
        faults = environment.faults
        self._controller = Controller(setup.loop) if faults is None else TamperedController(setup.loop, faults)
        setup.live_gains.begin(self._controller.take_law)
        gains = [gain.path for gain in setup.live_gains.gains]
        self._table = ColumnLayout(setup.loop, nodes, len(setup.drives), environment.truth is not None, gains)
        self.columns = columns = self._table.units
        self._began = self._engaged = False
        self._task_span: list[float] = []
        self._missed = MissedTicks(setup.loop, setup.run.settings.settling_band)
        self._wall_time, self._cpu_time, self._ticks = 0.0, 0.0, 0
        self._progress: Callable[[float], None] | None = None
        if out is None:
            self.recorder: InMemory | Recorder = InMemory(columns, facts)
        else:
            text = "" if setup.run.loaded is None else setup.run.loaded.text
            self.recorder = Recorder(out, columns, facts, text, environment.lockstep)
        try:
            self._assemble(signals)
        except BaseException as error:
            if isinstance(self.recorder, Recorder):
                self.recorder.__exit__(type(error), error, error.__traceback__)
            raise

    def _assemble(self, signals: StopSignals | None) -> None:
        """Builds the parts that a tick uses."""
        setup, environment = self._setup, self._environment
        values, nodes = setup.settings.values, [*setup.drives, *setup.sensors]
        self._reporter = Reporter(self._monitor, self.recorder, environment.clock)
        self._outliers = OutlierReports(setup.loop, self._reporter)
        self._dispatch = Dispatch(environment.buses, nodes, environment.clock, self.recorder.frame)
        self._rig = AheadRig(
            self._dispatch,
            setup.drives,
            setup.sensors,
            setup.sensing,
            setup.start,
            values.period,
            values.safety.start_tolerance,
            sends=self._stage not in UNPOWERED,
            prediction=setup.prediction if values.prediction else None,
            truth=environment.truth,
            asks=self._stage is Stage.CALIBRATE,
            holding=self._plan.hold(setup.start.q).u.tolist(),
            evenly=self._controller.estimating,
        )
        self._hand = HandCalibration(setup) if self._stage is Stage.CALIBRATE else None
        limits = Limits(setup.settings.drives, values.period, environment.clock.now)
        self._stages = Stages(self._rig, self._controller, self._monitor, limits, self._plan)
        in_c = tick_in_c(self._rig, setup, self._controller, self._stages, limits, self.recorder.frame_records)
        self.facts["tick"] = in_c
        parts = self._controller, self._rig, self._stages
        self._logbook = Logbook(setup, *parts, self._table, self.recorder, environment.truth is not None)
        self.operator = OperatorLink(setup, *parts, self._reporter, environment.lockstep, signals)
        self._ahead = TicksAhead(
            setup, self._rig, self._stages, self._monitor, self._logbook, self._missed, self._outliers, self.operator,
            self.recorder, self._wait, self._done,
        )  # fmt: skip

    @property
    def _wait(self) -> int:
        """Longest time after the beginning of a tick to wait for samples [ns]."""
        return round(WAIT_SHARE * nanoseconds(self._setup.settings.values.period))

    def show(self, view: LivePage) -> None:
        """Connects a live page; its viewers can stop the run and change gains."""
        self.operator.view = view

    def run(self, say: Callable[[Event], None], progress: Callable[[float], None] | None = None) -> Result:
        """Runs to the end.

        Args:
            say: Called with every recorded event as it happens.
            progress: Called now and then with the share that is done, 0 to 1.

        Raises:
            RunFolderError: The folder cannot be finished; every drive is off.
        """
        self._reporter.listener, self._progress = say, progress
        with self.operator.listen():
            self._reporter.pass_on()
            if self.operator.stop_reason:
                self._reporter.report(EventKind.INTERRUPTED, "", f"{self.operator.stop_reason}, before the first frame")
            else:
                self._work()
            return self._close()

    def _work(self) -> None:
        """From the first frame until every drive is off."""
        self._began = True
        clock, reporter = self._environment.clock, self._reporter
        try:
            self._rig.start(clock.now() + round(BRING_UP * SECOND))
            period = nanoseconds(self._setup.settings.values.period)
            loop = TickLoop(self._rig, clock, period, self._wait)
            wall, cpu = time.perf_counter(), time.thread_time()
            try:
                # a warning of NumPy would be written from within a tick, or end the run where warnings are errors
                with without_collector(), np.errstate(all="ignore"), self._ahead.awake():
                    loop.run(self._decide, self._log, self._ahead)
            finally:
                self._wall_time, self._cpu_time = time.perf_counter() - wall, time.thread_time() - cpu
        except DriveError as error:
            reporter.report_handshake(error)
        except ServoctlError as error:
            reporter.report(EventKind.EXCEPTION, "", str(error))
        except KeyboardInterrupt as error:  # signals raise nothing here, so the user's plant raised it
            reporter.report(EventKind.INTERRUPTED, "", in_one_line(error))
        except BaseException as error:  # a user's plant may raise anything, even SystemExit: the drives must go off
            reporter.report_exception(error)
        finally:
            self._off()

    def abandon(self, error: BaseException | None = None) -> None:
        """Closes everything that a run left open because it failed or never began; no effect after a normal end.

        Args:
            error: The cause; None: the run never began.
        """
        if isinstance(self.recorder, Recorder) and not self.recorder.closed:
            if isinstance(error, KeyboardInterrupt):
                self._reporter.report(EventKind.INTERRUPTED, "", "" if self._began else "before the first frame")
            elif error is None:
                self._reporter.report(EventKind.EXCEPTION, "", "the run never began")
            else:
                detail = str(error) if isinstance(error, ServoctlError) else in_one_line(error)
                self._reporter.report(EventKind.EXCEPTION, "", detail)
            with suppress(Exception):  # the first failure is the one to report; the folder still gets its events
                self._reporter.pass_on()
            facts = {**self.facts, **outcome(self._monitor), "stage": self._stage.name.lower()}
            if facts["status"] != "interrupted":
                facts["status"] = "failed"
            with suppress(RunFolderError):
                self._reporter.close(facts)
        with suppress(Exception):
            self._dispatch.close()

    def not_granted(self, grants: Iterable[Grant]) -> None:
        """Reports the real-time rights that the system did not grant; called before the run begins."""
        for grant in grants:
            self._reporter.report(EventKind.REALTIME, grant.name, grant.sentence)

    def _off(self) -> None:
        """Switches every drive off, whatever happened before."""
        try:
            self._rig.stop()
        except Exception as error:  # of the clock: `stop` catches what a drive or a bus raises
            self._reporter.report_exception(error)
        for name, failure in self._rig.failures.items():
            self._reporter.report(EventKind.EXCEPTION, name, failure)
        if self._rig.sends:
            for drive in self._setup.drives:
                if not drive.confirmed_off:
                    kind = EventKind.NOT_CONFIRMED if drive.possibly_on else EventKind.NEVER_ENABLED
                    self._reporter.report(kind, drive.settings.name)
        self._reporter.pass_on()

    def _decide(self, tick: Tick, reading: Reading) -> Array | None:
        environment = self._environment
        if environment.faults is not None and (stall := environment.faults.stall()):
            environment.clock.sleep_until(environment.clock.now() + stall)
        if self._hand is not None and not tick.number:
            environment.guided(self._plan.duration)
        torques = self._rig.decide(tick)
        if torques is None:
            torques = self._stages.decide(tick, reading)
        if self._stages.mode in (Phase.FULL, Phase.FLOAT) and not self._engaged:
            self._engaged = True
            environment.engaged()
        return torques

    def _log(self, tick: Tick, reading: Reading, sent: Array, times: TickTimes) -> None:
        self._logbook.enter(tick, reading, sent, times)
        self._done(tick)

    def _done(self, tick: Tick) -> None:
        """What a tick, or the last one of several in C, leads to when its row is written."""
        stages = self._stages
        self._ticks = tick.number + 1
        if self._hand is not None:
            self._hand.take(self._environment.clock.now())
        if stages.mode is Phase.FULL:
            self._task_span = [*self._task_span[:1], tick.began / SECOND]
            self._missed.tick(*self._table.parts[2:])
        task_time = stages.task_time if stages.mode is Phase.FULL else 0.0
        self._outliers.tick(tick.began / SECOND, self._table.parts[2], task_time)
        if tick.number % CHECK_EVERY == 0 and (problem := self.recorder.problem) is not None:
            self._reporter.report(EventKind.RECORDER, "", problem)
        self.operator.attend(tick)
        self._reporter.pass_on()
        if self._progress is not None and tick.number % 100 == 0:
            self._progress(min(1.0, stages.task_time / self._plan.duration))

    def _judge(self) -> None:
        """Reports what a calibration refuses, or the required tasks that a run missed, unless the run has failed."""
        if self._hand is not None and self._monitor.exit_code in (0, Origin.OPERATOR.value):
            for name, problem in self._hand.judge():
                self._reporter.report(EventKind.CALIBRATION, name, problem)
            self.facts["calibration"] = as_facts(self._hand.axes)
        missed, run = self._missed.missed(), self._setup.run
        if missed and not self._monitor.exit_code:
            why = why_missed(run.system, self._setup.start, run.task_map, missed)
            shares = ", ".join(f"{task} in {share:.0%} of the ticks" for task, share in missed.items())
            self._reporter.report(EventKind.UNMET, "", f"{shares}; {why}")

    def _blame_emulator(self) -> None:
        """Reports after old samples whether the emulator in its own process was late, or the loop or the bus."""
        counts = self._monitor.counts
        if not any(counts.get(kind) for kind in (EventKind.STALE, EventKind.LOST)):
            return
        late = self._environment.emulator_lateness()
        if late is not None:
            own = late >= self._monitor.bounds.stale_age / SECOND / 2
            whose = "that explains the stale samples" if own else "the samples were lost by the loop or the bus"
            self._reporter.report(EventKind.EMULATOR, "", f"at most {1e3 * late:.1f} ms; {whose}")

    def _close(self) -> Result:
        """Closes buses, folder and live page."""
        self._outliers.close()
        self._attempt(self._judge, None)
        self._attempt(self._blame_emulator, None)
        more: dict[str, Any] = self._attempt(self._environment.facts, {})
        buses = bus_states(self._attempt(self._dispatch.healths, dict[str, Health]()))
        self._attempt(self._dispatch.close, None)
        self._reporter.pass_on()
        code, ending = self._monitor.exit_code, outcome(self._monitor)
        drives, sends = self._setup.drives, self._rig.sends
        unconfirmed = tuple(drive.settings.name for drive in drives if drive.possibly_on) if sends else ()
        cpu = self._cpu_time / self._ticks if self._ticks and not self._environment.lockstep else None
        self._logbook.close()
        timing = timing_figures(self._logbook.timing, self._logbook.parts, cpu)
        duration = self._ticks * self._setup.settings.values.period
        more |= {"ticks_in_c": self._rig.ticks, "given_back": dict(self._rig.given_back)}
        facts = {
            **self.facts, "timing": self.facts.get("timing", {}) | timing, "steps": self._ticks,
            "evaluations": self._setup.loop.evaluations, "duration": duration, "wall_time": self._wall_time,
            "realtime_factor": duration / self._wall_time if self._wall_time else None,
            "task_span": self._task_span if len(self._task_span) == 2 else [], **ending,
            "stage": self._stage.name.lower(), "bus": buses, "drives": drive_states(drives, sends), **more,
        }  # fmt: skip
        shown = {"status": ending["status"], "exit_code": code, "error": ending.get("error")}
        try:
            trajectory = self._reporter.close(facts)
        except RunFolderError as error:
            shown = {"status": "failed", "exit_code": Origin.RIG.value, "error": str(error)}
            raise
        finally:
            if self.operator.view is not None:
                self.operator.view.close(shown)
        folder = self.recorder.path if isinstance(self.recorder, Recorder) else None
        drawn = with_drawing(trajectory, self._setup.loop.system.model, folder)
        events, hand = tuple(self._monitor.events), self._hand
        if hand is None:
            return Result(code, events, unconfirmed, drawn)
        return Result(code, events, unconfirmed, drawn, tuple(hand.axes), hand.write(folder))

    def _attempt(self, action: Callable[[], T], default: T) -> T:
        """Result of an action; if it raises, the exception is reported and the run counts as failed."""
        try:
            return action()
        except Exception as error:
            self._reporter.report_exception(error)
            return default
