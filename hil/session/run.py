"""What happens in a run on drives, from the first frame until every drive is off.

Design: every problem that can be found before the first frame is found there. However the loop ends, every drive is
switched off and asked to confirm it, and the folder is closed with the data that exist. Status, events and exit code
always agree, also for a run that never began or whose recorder died.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from hil.assembly.environment import Environment
from hil.assembly.prepare import RigSetup
from hil.drives import DriveError
from hil.loop import SECOND, Ahead, Reading, Tick, TickLoop, nanoseconds
from hil.loop.realtime import Grant, without_collector
from hil.loop.stop_signals import StopSignals
from hil.loop.tick import TickTimes
from hil.recorder import Recorder
from hil.safety import Event, EventKind
from hil.safety.plan import Phase, Stage
from hil.safety.rules import gauge_rules, hidden_gauges
from hil.session.aftermath import record_aftermath
from hil.session.ending import Ending, RunResult, TickCounts
from hil.session.operator import CHECK_EVERY
from hil.session.parts import assemble
from hil.session.summary import outcome
from hil.view.view import LivePage
from servoctl.errors import RunFolderError, ServoctlError, in_one_line
from servoctl.types import Array

BRING_UP = 20.0  # [s] time limit from the first frame to the first tick
WAIT_SHARE = 0.6  # share of the period for which a tick waits for samples


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
        parts: What the run is made of.
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
        self.facts = facts
        self._period = nanoseconds(setup.settings.values.period)
        self._wait = round(WAIT_SHARE * self._period)
        self.parts = assemble(setup, environment, stage, duration, out, facts, signals, self._wait)
        self.recorder, self.columns = self.parts.recorder, self.parts.table.units
        self._counts = TickCounts()
        self._began = self._engaged = False
        self._progress: Callable[[float], None] | None = None

    def show(self, view: LivePage) -> None:
        """Connects a live page; its viewers can stop the run and change gains."""
        self.parts.operator.view = view

    def run(self, say: Callable[[Event], None], progress: Callable[[float], None] | None = None) -> RunResult:
        """Runs to the end.

        Args:
            say: Called with every recorded event as it happens.
            progress: Called now and then with the share that is done, 0 to 1.

        Raises:
            RunFolderError: The folder cannot be finished; every drive is off.
        """
        reporter, operator = self.parts.reporter, self.parts.operator
        reporter.listener, self._progress = say, progress
        with operator.listen():
            reporter.pass_on()
            if operator.stop_reason:
                reporter.report(EventKind.INTERRUPTED, "", f"{operator.stop_reason}, before the first frame")
            else:
                self._work()
            return Ending(self.parts, self._counts).close()

    def _work(self) -> None:
        """From the first frame until every drive is off."""
        self._began = True
        parts, counts, reporter = self.parts, self._counts, self.parts.reporter
        clock = parts.environment.clock
        try:
            parts.rig.start(clock.now() + round(BRING_UP * SECOND))
            for drive in parts.setup.drives:
                if drive.doubts:
                    reporter.report(EventKind.STOPS_OTHERWISE, drive.settings.name, "; ".join(drive.doubts))
                if parts.rig.sends and (hidden := hidden_gauges(drive)):
                    reporter.report(EventKind.UNSEEN, drive.settings.name, ", ".join(hidden))
            parts.monitor.watch(gauge_rules(parts.setup.drives))
            loop = TickLoop(parts.rig, clock, self._period, self._wait)
            wall, cpu = time.perf_counter(), time.thread_time()
            try:
                # a warning of NumPy would be written from within a tick, or end the run where warnings are errors
                with without_collector(), np.errstate(all="ignore"), parts.ahead.awake():
                    loop.run(self._decide, self._log, self._go_ahead)
            finally:
                counts.wall_time, counts.cpu_time = time.perf_counter() - wall, time.thread_time() - cpu
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
            record_aftermath(parts, counts.ticks)

    def abandon(self, error: BaseException | None = None) -> None:
        """Closes everything that a run left open because it failed or never began; no effect after a normal end.

        Args:
            error: The cause; None: the run never began.
        """
        reporter = self.parts.reporter
        if isinstance(self.recorder, Recorder) and not self.recorder.closed:
            if isinstance(error, KeyboardInterrupt):
                reporter.report(EventKind.INTERRUPTED, "", "" if self._began else "before the first frame")
            elif error is None:
                reporter.report(EventKind.EXCEPTION, "", "the run never began")
            else:
                detail = str(error) if isinstance(error, ServoctlError) else in_one_line(error)
                reporter.report(EventKind.EXCEPTION, "", detail)
            with suppress(Exception):  # the first failure is the one to report; the folder still gets its events
                reporter.pass_on()
            facts = {**self.facts, **outcome(self.parts.monitor), "stage": self.parts.stage.name.lower()}
            if facts["status"] != "interrupted":
                facts["status"] = "failed"
            with suppress(RunFolderError):
                reporter.close(facts)
        with suppress(Exception):
            self.parts.dispatch.close()

    def not_granted(self, grants: Iterable[Grant]) -> None:
        """Reports the real-time rights that the system did not grant; called before the run begins."""
        for grant in grants:
            self.parts.reporter.report(EventKind.REALTIME, grant.name, grant.sentence)

    def _off(self) -> None:
        """Switches every drive off, whatever happened before."""
        rig, reporter = self.parts.rig, self.parts.reporter
        try:
            rig.stop()
        except BaseException as error:  # of the clock: `stop` catches what a drive or a bus raises
            reporter.report_exception(error)
        for name, failure in rig.switch_off.failures.items():
            reporter.report(EventKind.EXCEPTION, name, failure)
        if rig.sends:
            self.parts.unconfirmed = tuple(
                drive.settings.name for drive in self.parts.setup.drives if drive.possibly_on
            )
            for drive in self.parts.setup.drives:
                if not drive.confirmed_off:
                    kind = EventKind.NOT_CONFIRMED if drive.possibly_on else EventKind.NEVER_ENABLED
                    reporter.report(kind, drive.settings.name)
        reporter.pass_on()

    def _decide(self, tick: Tick, reading: Reading) -> Array | None:
        parts, environment = self.parts, self.parts.environment
        if environment.faults is not None and (stall := environment.faults.stall()):
            environment.clock.sleep_until(environment.clock.now() + stall)
        if parts.hand is not None and not tick.number:
            environment.guided(parts.plan.duration)
        torques = parts.rig.decide(tick)
        if torques is None:
            torques = parts.stages.decide(tick, reading)
        if parts.stages.mode in (Phase.FULL, Phase.FLOAT) and not self._engaged:
            self._engaged = True
            environment.engaged()
        return torques

    def _log(self, tick: Tick, reading: Reading, sent: Array, times: TickTimes) -> None:
        self.parts.logbook.enter(tick, reading, sent, times)
        self._done(tick)

    def _go_ahead(self, number: int, deadline: int) -> Ahead:
        done = self.parts.ahead(number, deadline)
        if self.parts.ahead.last is not None:
            self._done(self.parts.ahead.last)
        return done

    def _done(self, tick: Tick) -> None:
        """What a tick, or the last one of several in C, leads to when its row is written."""
        parts, stages, counts = self.parts, self.parts.stages, self._counts
        counts.ticks = tick.number + 1
        if parts.hand is not None:
            parts.hand.take(parts.environment.clock.now())
        _, _, command, log = parts.table.parts
        in_task = stages.mode is Phase.FULL
        if in_task:
            counts.task_span = [*counts.task_span[:1], tick.began / SECOND]
            parts.missed.tick(command, log)
        parts.outliers.tick(tick.began / SECOND, command, stages.task_time if in_task else 0.0)
        if tick.number % CHECK_EVERY == 0 and (problem := self.recorder.problem) is not None:
            parts.reporter.report(EventKind.RECORDER, "", problem)
        parts.operator.attend(tick)
        parts.reporter.pass_on()
        if self._progress is not None and tick.number % 100 == 0:
            self._progress(min(1.0, stages.task_time / parts.plan.duration))
