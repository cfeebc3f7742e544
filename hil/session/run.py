"""A run on drives in three phases: it is prepared, runs until every drive is off, and is closed.

Design: every problem that can be found before the first frame is found there. However the loop ends, every drive is
switched off and asked to confirm it, and the folder is closed with the data that exist. Status, events and exit code
always agree, also for a run that never began or whose recorder died.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from hil.assembly.emulation import Environment, TamperedController
from hil.assembly.setup import RigSetup
from hil.bus import Health, close_all
from hil.core.controller import Controller
from hil.drives import DriveError
from hil.loop import SECOND, Ahead, Tick, nanoseconds, run_ticks
from hil.loop.realtime import StopSignals, prepare, without_collector
from hil.loop.tick import TickTimes
from hil.recorder import InMemory, Recorder
from hil.rig.dispatch import Dispatch
from hil.rig.handshake import OtherMasterError, StartPoseError
from hil.rig.logbook import STAGES, Logbook
from hil.rig.rig import CanRig
from hil.rig.sockets import TicksOnSockets, make_ticks
from hil.safety import Event, EventKind, Monitor
from hil.safety.events import Origin
from hil.safety.plan import Phase
from hil.safety.rules import gauge_rules, hidden_gauges
from hil.safety.stages import Stages
from hil.session.by_hand import write_calibration
from hil.session.calibration import CalibratedAxis, Calibration
from hil.session.reporter import (
    CHECK_EVERY,
    MissedTicks,
    OperatorLink,
    Reporter,
    outcome,
)
from hil.view.view import LivePage
from servoctl.assembly.diagnosis import why_missed
from servoctl.errors import RigError, RunFolderError, ServoctlError, in_one_line
from servoctl.report.drawing import drawing, placed_shapes, task_frames
from servoctl.run_folder import write_drawing
from servoctl.run_folder.trajectory import Trajectory
from servoctl.types import Array, Status
from servoctl.version import VERSION

BRING_UP = 20.0  # [s] time limit from the first frame to the first tick
VIEW_TIME = 0.02  # [s] longest time between two looks at the operator's requests for gains

T = TypeVar("T")


@dataclass(frozen=True)
class RunResult:
    exit_code: int  # 0, 3, 4 or 130
    events: tuple[Event, ...]  # recorded events, in order
    unconfirmed: tuple[str, ...]  # drives that did not confirm that they are off; empty in shadow
    trajectory: Trajectory  # recorded rows
    calibration: tuple[CalibratedAxis, ...] = ()  # what a calibration found, per drive; empty in other stages
    patch: Path | None = None  # the file that a calibration wrote; None: none


class HilRun:
    """One run in three phases: `hil.session.start.start` prepares it, `run` does it and ends it."""

    def __init__(
        self,
        setup: RigSetup,
        environment: Environment,
        stage: Phase,
        duration: float | None = None,  # time in the last stage [s]; None: that of the config
        notes: Sequence[str] = (),  # what the operator should know before it begins
        cpu: int | None = None,  # CPU on which the loop runs in real time; None: any
        require_rt: bool = False,  # whether to refuse a run in real time without real-time rights
    ) -> None:
        self.setup = setup  # the config, ready for drives
        self.environment, self.notes = environment, notes
        self.stage = stage  # last stage
        self._cpu, self._require_rt = cpu, require_rt
        self.unconfirmed: tuple[str, ...] = ()  # drives that did not confirm that they are off; empty in shadow
        self._period = nanoseconds(setup.settings.values.period)
        self._ticks = 0  # ticks that are done
        self._evaluated = setup.loop.evaluations  # before this run
        self._wall_time = self._cpu_time = 0.0  # [s] of all ticks
        self._task_span: list[float] = []  # [s] first and last time in the task; empty before it begins
        self._began = self._engaged = False
        self._progress: Callable[[float], None] | None = None
        self.plan = setup.plan(stage, duration)
        self.monitor = Monitor(setup.drives, setup.sensors, setup.bounds, setup.rules)
        faults = environment.faults
        self.controller = Controller(setup.loop) if faults is None else TamperedController(setup.loop, faults)
        self._missed = MissedTicks(setup.loop, setup.run.settings.settling_band)
        self._hand = Calibration(setup) if stage is Phase.CALIBRATE else None

    # Run.

    def run(
        self,
        out: Path | None,  # run folder; None: in memory, in virtual time only
        say: Callable[[Event], None],  # called with every recorded event as it happens; in real time it must not block
        # called now and then with the share that is done, 0 to 1; it must not block either
        progress: Callable[[float], None] | None = None,
        # called with the address of the live page; None: no page. With a page a run in virtual time keeps pace with the
        # wall clock
        show: Callable[[str], None] | None = None,
    ) -> RunResult:
        """Runs to the end.

        Raises RigError if the page cannot be served; nothing was sent. RealtimeError if real-time rights were required
        and not granted; nothing was sent. RunFolderError if the folder cannot be made, and nothing was sent; or
        cannot be finished, and every drive is off.
        """
        with ExitStack() as stack:
            stack.callback(self.close)
            signals = stack.enter_context(StopSignals(suspend=not self.environment.lockstep))
            self.open(out)
            stack.push(lambda kind, error, trace: self.abandon(error))
            if show is not None:
                # started before real-time rights are taken: the page's process must not inherit them
                self.operator.view = stack.enter_context(self._page())
                show(self.operator.view.address)
            if not self.environment.lockstep:
                self._take_rights(stack)
            self.reporter.listener, self._progress = say, progress
            with self.operator.listen(signals):
                self.reporter.pass_on()
                if reason := self.operator.stop_reason:
                    self.reporter.report(EventKind.INTERRUPTED, "", f"{reason}, before the first frame")
                else:
                    self._work()
                return self._end()

    def open(self, out: Path | None) -> None:
        """Connects what a run consists of, and opens the recorder. Nothing is sent.

        Raises RunFolderError if the folder cannot be made.
        """
        setup, environment, loop, clock = self.setup, self.environment, self.setup.loop, self.environment.clock
        setup.live_gains.begin(self.controller.take_law)
        self.dispatch = Dispatch(environment.buses, setup.nodes, clock)
        self.rig = CanRig(setup, environment, self.dispatch, self.stage)
        self.stages = Stages(self.rig, self.controller, self.monitor, self.plan)
        in_c = self.rig.in_c = make_ticks(setup, self.controller, self.dispatch, self.stages)
        self.logbook = Logbook(setup, in_c, self.controller, environment.truth is not None)
        self.facts: dict[str, Any] = {
            "config": setup.run.name, "servoctl": VERSION, **loop.facts,
            "torque_limits": {drive.name: drive.torque_limit for drive in setup.settings.drives},
            "stages": STAGES, "notes": list(self.notes),
            "emulated": environment.emulated, "lockstep": environment.lockstep,
            "tick": f"Python, because {in_c.why}" if in_c.why else in_c.how,
        }  # fmt: skip
        self.recorder: Recorder | InMemory = InMemory(self.logbook.units, self.facts)
        if out is not None:
            self.recorder = Recorder(out, self.logbook.units, self.facts, setup.loaded.text, environment.lockstep)
        self.dispatch.record = self.recorder.frame
        if isinstance(in_c, TicksOnSockets):
            in_c.record(self.logbook, self.recorder.rings)
        self.reporter = Reporter(self.monitor, self.recorder, clock)
        self.operator = OperatorLink(setup, self.controller, self.rig, self.stages, self.reporter, environment.lockstep)

    def _page(self) -> LivePage:
        """Starts the live page; RigError if it cannot be served."""
        if not isinstance(self.recorder, Recorder):
            raise RigError("--view: a run in memory cannot be shown (give it a folder)")
        setup, settings, values = self.setup, self.setup.settings, self.setup.settings.values
        model, names = setup.model, ("config", "torque_limits", "stages", "lockstep", "emulated")
        about: dict[str, Any] = {name: self.facts[name] for name in names}
        if (guiding := self.plan.guiding) is not None:
            about["torque_limits"] = dict(zip(model.plant.actuators, guiding.limits, strict=True))
        about |= {
            "position_limits": {drive.name: drive.position_limits for drive in settings.drives},
            "position_units": dict(zip(model.plant.actuators, setup.units, strict=False)),
            "units": dict(self.logbook.units), "period": values.period,
            "ramp": values.live_ramp, "stage": self.stage.value,
            "statuses": {status.code: status.value for status in Status},
            "frames": task_frames(model.plain.task), "shapes": placed_shapes(model.bounds),
        }  # fmt: skip
        gains = {gain.path: (gain.lower, gain.upper) for gain in setup.live_gains.gains}
        return LivePage(self.recorder, list(self.logbook.units), gains, about, model.plant)

    def _take_rights(self, stack: ExitStack) -> None:
        """Takes real-time rights, and reports those that the system does not grant."""
        grants = stack.enter_context(prepare(cpu=self._cpu, require=self._require_rt))
        for grant in grants:
            if not grant.granted:
                self.reporter.report(EventKind.REALTIME, grant.name, grant.sentence)
        self.facts["realtime"] = [grant.sentence for grant in grants]

    def _work(self) -> None:
        """From the first frame until every drive is off."""
        self._began = True
        rig, reporter, clock, drives = self.rig, self.reporter, self.environment.clock, self.setup.drives
        try:
            rig.start(clock.now() + round(BRING_UP * SECOND))
            for drive in drives:
                if drive.doubts:
                    reporter.report(EventKind.STOPS_OTHERWISE, drive.settings.name, "; ".join(drive.doubts))
                if rig.sends and (hidden := hidden_gauges(drive)):
                    reporter.report(EventKind.UNSEEN, drive.settings.name, ", ".join(hidden))
            self.monitor.watch(gauge_rules(drives))
            in_c = rig.in_c
            noticed = in_c.awake() if isinstance(in_c, TicksOnSockets) else nullcontext()
            wall, cpu = time.perf_counter(), time.thread_time()
            try:
                # a warning of NumPy would be written from within a tick, or end the run where warnings are errors
                with without_collector(), np.errstate(all="ignore"), noticed:
                    run_ticks(rig, clock, self._period, self._decide, self._log, self._go_ahead)
            finally:
                self._wall_time, self._cpu_time = time.perf_counter() - wall, time.thread_time() - cpu
        except StartPoseError as error:
            self.monitor.refused(clock.now(), error, EventKind.START_POSE)
        except OtherMasterError as error:
            self.monitor.refused(clock.now(), error, EventKind.FOREIGN)
        except DriveError as error:
            self.monitor.refused(clock.now(), error)
            self.monitor.buses(clock.now(), self.dispatch.healths())
        except ServoctlError as error:
            reporter.report(EventKind.EXCEPTION, "", str(error))
        except KeyboardInterrupt as error:  # signals raise nothing here, so the user's plant raised it
            reporter.report(EventKind.INTERRUPTED, "", in_one_line(error))
        except BaseException as error:  # a user's plant may raise anything, even SystemExit: the drives must go off
            reporter.report_exception(error)
        finally:
            self._off()
            self._attempt(self._record_aftermath, None)  # a machine that has failed may fail again

    def _decide(self, tick: Tick) -> Array | None:
        environment, stages = self.environment, self.stages
        if environment.faults is not None and (stall := environment.faults.stall()):
            environment.clock.sleep_until(environment.clock.now() + stall)
        if self._hand is not None and not tick.number:
            environment.guided(self.plan.duration)
        torques = self.rig.in_c.decide(tick, environment.clock.now())
        if torques is None:
            torques = stages.decide(tick, self.rig.in_c.reading())
        if stages.mode in (Phase.FULL, Phase.FLOAT) and not self._engaged:
            self._engaged = True
            environment.engaged()
        return torques

    def _log(self, tick: Tick, times: TickTimes) -> None:
        self.recorder.row(self.logbook.enter(self.stages, tick, times, self.rig.true))
        self._done(tick)

    def _go_ahead(self, number: int, deadline: int) -> Ahead:
        """Ticks that C did from the one with this number and deadline [ns] on; see `hil.loop.tick.run_ticks`.

        They end with one whose number is a multiple of `CHECK_EVERY`: Python then looks at the other processes.
        """
        in_c, most, live_gains = self.rig.in_c, 1 + -number % CHECK_EVERY, self.setup.live_gains
        if not isinstance(in_c, TicksOnSockets) or not self.stages.ordinary:
            return Ahead()
        self.rig.take_over()
        if self.operator.view is not None:
            most = min(most, max(1, round(VIEW_TIME * SECOND / self._period)))
        if self.monitor.clamps or live_gains.moving:  # Python looks at each tick
            most = 1
        ahead = in_c.go_ahead(most, deadline, np.array(live_gains.values, dtype=float))
        if ahead.ticks:
            last = in_c.last(number + ahead.ticks - 1)
            if self.stages.mode is Phase.FULL:
                self._missed.met(ahead.ticks - 1)
            self.stages.follow(last, ahead.ticks)
            self._done(last)
        if ahead.began is None:  # of a row; any other is raised where the rest of the tick is done
            in_c.raise_failure()
        return ahead

    def _done(self, tick: Tick) -> None:
        """What a tick, or the last one of several in C, leads to when its row is written."""
        stages = self.stages
        self._ticks = tick.number + 1
        if self._hand is not None:
            self._hand.take(self.environment.clock.now())
        in_task = stages.mode is Phase.FULL
        if in_task:
            self._task_span = [*self._task_span[:1], tick.began / SECOND]
            self._missed.tick(self.logbook.command, self.logbook.values)
        if tick.number % CHECK_EVERY == 0 and (problem := self.recorder.problem) is not None:
            self.reporter.report(EventKind.RECORDER, "", problem)
        self.operator.attend(tick)
        self.reporter.pass_on()
        if self._progress is not None and tick.number % 100 == 0:
            self._progress(min(1.0, stages.task_time / self.plan.duration))

    def _off(self) -> None:
        """Switches every drive off, whatever happened before."""
        rig, reporter = self.rig, self.reporter
        try:
            rig.stop()
        except BaseException as error:  # of the clock: `stop` catches what a drive or a bus raises
            reporter.report_exception(error)
        for name, failure in rig.switch_off.failures.items():
            reporter.report(EventKind.EXCEPTION, name, failure)
        if rig.sends:
            self.unconfirmed = tuple(drive.settings.name for drive in self.setup.drives if drive.possibly_on)
            self.monitor.unconfirmed(self.environment.clock.now())
        reporter.pass_on()

    def _record_aftermath(self) -> None:
        """Records rows in stage `over` while time is virtual and a drive is on, a brake open or the machine in motion.

        Nothing is sent to the drives any more.
        """
        environment, rig = self.environment, self.rig
        if not (environment.lockstep and rig.sends):
            return
        clock, tick = environment.clock, self._ticks
        self.stages.mode, now = Phase.OVER, clock.now()
        end = now + nanoseconds(self.setup.settings.values.emulation.after)
        self.facts["loop_end"] = now / SECOND  # from here on no law is evaluated
        while True:
            rig.listen()
            reading = rig.in_c.reading()
            self.controller.nothing(reading.q, reading.v)
            ended, times = Tick(tick, now, now, self._period, 0), TickTimes(now, now, now)
            self.recorder.row(self.logbook.enter(self.stages, ended, times, rig.true, counts=False))
            if environment.settled() or now + self._period > end:
                return
            tick, now = tick + 1, now + self._period
            clock.sleep_until(now)

    # End.

    def _end(self) -> RunResult:
        """Closes buses, folder and live page of a run whose drives are off.

        Raises RunFolderError if the folder cannot be finished.
        """
        self._attempt(self._judge, None)
        self._attempt(self._blame_emulator, None)
        more: dict[str, Any] = self._attempt(self.environment.facts, {})
        healths = self._attempt(self.dispatch.healths, dict[str, Health]())
        self._attempt(self.dispatch.close, None)
        self.reporter.pass_on()
        trajectory = self._close_folder(self._summary(healths) | more)
        if (folder := self.recorder.path) is not None:
            with suppress(BaseException):  # an error of the plant leaves the drawing out
                task_time = trajectory.columns.get("task_time")
                if frames := drawing(self.setup.model, trajectory.t, trajectory.q, trajectory.v, task_time):
                    write_drawing(folder, frames)
        code, events = self.monitor.exit_code, tuple(self.monitor.events)
        axes = () if self._hand is None else tuple(self._hand.axes)
        patch = write_calibration(folder, self.setup, axes)
        return RunResult(code, events, self.unconfirmed, trajectory, axes, patch)

    def _summary(self, healths: Mapping[str, Health]) -> dict[str, Any]:
        ticks, wall, in_c, sends = self._ticks, self._wall_time, self.rig.in_c, self.rig.sends
        drives = {
            drive.settings.name: {
                "condition": drive.condition.value,
                "fault": drive.fault,
                "rejected": drive.rejected,
                # None if this run never switched the drive on
                "confirmed_off": drive.confirmed_off if sends and (drive.confirmed_off or drive.possibly_on) else None,
                "proof": axis.as_dict(),
            }
            for drive, axis in zip(self.setup.drives, self.stages.test.proof.axes, strict=True)
        }
        timing = self.logbook.timing.as_dict()
        if ticks and not self.environment.lockstep:
            timing["cpu_per_tick_s"] = self._cpu_time / ticks
        duration = ticks * self.setup.settings.values.period
        return {
            **self.facts,
            "timing": timing,
            "steps": ticks,
            "evaluations": self.setup.loop.evaluations - self._evaluated + self.controller.commands,
            "duration": duration,
            "wall_time": wall,
            "realtime_factor": duration / wall if wall else None,
            "task_span": self._task_span if len(self._task_span) == 2 else [],
            **outcome(self.monitor),
            "stage": self.stage.value,
            "bus": {name: health._asdict() | {"link": health.link.value} for name, health in healths.items()},
            "drives": drives,
            "ticks_in_c": in_c.count,
            "given_back": dict(in_c.given_back),
        }

    def _close_folder(self, facts: dict[str, Any]) -> Trajectory:
        """Finishes the folder; the live page shows how the run ended, or that the folder could not be finished."""
        shown = {"status": facts["status"], "exit_code": self.monitor.exit_code, "error": facts.get("error")}
        try:
            return self.reporter.close(facts)
        except RunFolderError as error:
            shown = {"status": "failed", "exit_code": Origin.RIG.value, "error": str(error)}
            raise
        finally:
            if self.operator.view is not None:
                self.operator.view.close(shown)

    def _judge(self) -> None:
        """Reports what a calibration refuses, or the required tasks that a run missed, unless the run has failed."""
        hand, code = self._hand, self.monitor.exit_code
        if hand is not None and code in (0, Origin.OPERATOR.value):
            for name, problem in hand.judge():
                self.reporter.report(EventKind.CALIBRATION, name, problem)
            self.facts["calibration"] = {axis.name: axis.as_dict() for axis in hand.axes}
        missed, run = self._missed.missed(), self.setup.run
        if missed and not self.monitor.exit_code:
            why = why_missed(run.system, self.setup.start, run.task_map, missed)
            shares = ", ".join(f"{task} in {share:.0%} of the ticks" for task, share in missed.items())
            self.reporter.report(EventKind.UNMET, "", f"{shares}; {why}")

    def _blame_emulator(self) -> None:
        """Reports after old samples whether the emulator in its own process was late, or the loop or the bus."""
        monitor = self.monitor
        if not any(monitor.counts.get(kind) for kind in (EventKind.STALE, EventKind.LOST)):
            return
        late = self.environment.emulator_lateness()
        if late is not None:
            own = late >= monitor.bounds.stale_age / SECOND / 2
            whose = "that explains the stale samples" if own else "the samples were lost by the loop or the bus"
            self.reporter.report(EventKind.EMULATOR, "", f"at most {1e3 * late:.1f} ms; {whose}")

    def _attempt(self, action: Callable[[], T], default: T) -> T:
        """Result of an action; if it raises, the exception is reported and the run counts as failed."""
        try:
            return action()
        except BaseException as error:  # a user's plant may raise anything, even SystemExit
            self.reporter.report_exception(error)
            return default

    def abandon(self, error: BaseException | None = None) -> None:
        """Closes everything that a run left open because it failed or never began; no effect after a normal end.

        `error`: the cause; None: the run never began.
        """
        reporter = self.reporter
        if not self.recorder.closed:
            if isinstance(error, KeyboardInterrupt):
                reporter.report(EventKind.INTERRUPTED, "", "" if self._began else "before the first frame")
            elif error is None:
                reporter.report(EventKind.EXCEPTION, "", "the run never began")
            else:
                detail = str(error) if isinstance(error, ServoctlError) else in_one_line(error)
                reporter.report(EventKind.EXCEPTION, "", detail)
            with suppress(Exception):  # the first failure is the one to report; the folder still gets its events
                reporter.pass_on()
            facts = {**self.facts, **outcome(self.monitor), "stage": self.stage.value}
            if facts["status"] != "interrupted":
                facts["status"] = "failed"
            with suppress(RunFolderError):
                reporter.close(facts)

    def close(self) -> None:
        """Closes the buses, also of a run that does not begin."""
        close_all(self.environment.buses.values())
