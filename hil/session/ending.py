"""How a run on drives is closed: the last events, the summary, the folder, and what the caller gets."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from hil.bus import Health
from hil.calibration.calibrate import CalibratedAxis
from hil.loop import SECOND
from hil.recorder import Recorder
from hil.safety import Event, EventKind
from hil.safety.events import Origin
from hil.session.calibration import as_facts
from hil.session.parts import RunParts
from hil.session.summary import bus_states, drive_states, outcome, timing_figures, with_drawing
from servoctl.assembly.ending import why_missed
from servoctl.errors import RunFolderError
from servoctl.run_folder.trajectory import Trajectory

T = TypeVar("T")


@dataclass(frozen=True)
class RunResult:
    """Outcome of a run."""

    exit_code: int  # 0, 3, 4 or 130
    events: tuple[Event, ...]  # recorded events, in order
    unconfirmed: tuple[str, ...]  # drives that did not confirm that they are off; empty in shadow
    trajectory: Trajectory  # recorded rows
    calibration: tuple[CalibratedAxis, ...] = ()  # what a calibration found, per drive; empty in other stages
    patch: Path | None = None  # the file that a calibration wrote; None: none


@dataclass
class TickCounts:
    """What a run counts while it goes on.

    Attributes:
        ticks: Ticks that are done.
        wall_time, cpu_time: Of all ticks [s].
        task_span: First and last time in the task [s]; empty before it begins.
    """

    ticks: int = 0
    wall_time: float = 0.0
    cpu_time: float = 0.0
    task_span: list[float] = field(default_factory=list)


class Ending:
    """Closes a run whose drives are off.

    Args:
        parts: What the run is made of.
        counts: What it has counted.
    """

    def __init__(self, parts: RunParts, counts: TickCounts) -> None:
        self._parts, self._counts, self._reporter = parts, counts, parts.reporter

    def close(self) -> RunResult:
        """Closes buses, folder and live page.

        Raises:
            RunFolderError: The folder cannot be finished.
        """
        parts, monitor = self._parts, self._parts.monitor
        parts.outliers.close()
        self._attempt(self._judge, None)
        self._attempt(self._blame_emulator, None)
        more: dict[str, Any] = self._attempt(parts.environment.facts, {})
        buses = bus_states(self._attempt(parts.dispatch.healths, dict[str, Health]()))
        self._attempt(parts.dispatch.close, None)
        self._reporter.pass_on()
        trajectory = self._close_folder(self._facts(buses) | more)
        folder = parts.recorder.path if isinstance(parts.recorder, Recorder) else None
        drawn = with_drawing(trajectory, parts.setup.loop.system.model, folder)
        code, events = monitor.exit_code, tuple(monitor.events)
        if parts.hand is None:
            return RunResult(code, events, parts.unconfirmed, drawn)
        return RunResult(code, events, parts.unconfirmed, drawn, tuple(parts.hand.axes), parts.hand.write(folder))

    def _facts(self, buses: dict[str, Any]) -> dict[str, Any]:
        """What the summary says."""
        parts, counts, book = self._parts, self._counts, self._parts.logbook
        test = parts.stages.test
        book.close()
        cpu = counts.cpu_time / counts.ticks if counts.ticks and not parts.environment.lockstep else None
        duration = counts.ticks * parts.setup.settings.values.period
        return {
            **parts.facts,
            "timing": parts.facts.get("timing", {}) | timing_figures(book.timing, book.parts, cpu),
            "steps": counts.ticks,
            "evaluations": parts.controller.evaluations,
            "duration": duration,
            "wall_time": counts.wall_time,
            "realtime_factor": duration / counts.wall_time if counts.wall_time else None,
            "task_span": counts.task_span if len(counts.task_span) == 2 else [],
            **outcome(parts.monitor),
            "stage": parts.stage.name.lower(),
            "bus": buses,
            "drives": drive_states(parts.setup.drives, parts.rig.sends, None if test is None else test.proof),
            "ticks_in_c": parts.rig.ticks,
            "given_back": dict(parts.rig.given_back),
        }

    def _close_folder(self, facts: dict[str, Any]) -> Trajectory:
        """Finishes the folder; the live page shows how the run ended, or that the folder could not be finished."""
        shown = {
            "status": facts["status"], "exit_code": self._parts.monitor.exit_code, "error": facts.get("error"),
        }  # fmt: skip
        try:
            return self._reporter.close(facts)
        except RunFolderError as error:
            shown = {"status": "failed", "exit_code": Origin.RIG.value, "error": str(error)}
            raise
        finally:
            if self._parts.operator.view is not None:
                self._parts.operator.view.close(shown)

    def _judge(self) -> None:
        """Reports what a calibration refuses, or the required tasks that a run missed, unless the run has failed."""
        parts, hand, code = self._parts, self._parts.hand, self._parts.monitor.exit_code
        if hand is not None and code in (0, Origin.OPERATOR.value):
            for name, problem in hand.judge():
                self._reporter.report(EventKind.CALIBRATION, name, problem)
            parts.facts["calibration"] = as_facts(hand.axes)
        missed, run = parts.missed.missed(), parts.setup.run
        if missed and not parts.monitor.exit_code:
            why = why_missed(run.system, parts.setup.start, run.task_map, missed)
            shares = ", ".join(f"{task} in {share:.0%} of the ticks" for task, share in missed.items())
            self._reporter.report(EventKind.UNMET, "", f"{shares}; {why}")

    def _blame_emulator(self) -> None:
        """Reports after old samples whether the emulator in its own process was late, or the loop or the bus."""
        monitor = self._parts.monitor
        if not any(monitor.counts.get(kind) for kind in (EventKind.STALE, EventKind.LOST)):
            return
        late = self._parts.environment.emulator_lateness()
        if late is not None:
            own = late >= monitor.bounds.stale_age / SECOND / 2
            whose = "that explains the stale samples" if own else "the samples were lost by the loop or the bus"
            self._reporter.report(EventKind.EMULATOR, "", f"at most {1e3 * late:.1f} ms; {whose}")

    def _attempt(self, action: Callable[[], T], default: T) -> T:
        """Result of an action; if it raises, the exception is reported and the run counts as failed."""
        try:
            return action()
        except BaseException as error:  # a user's plant may raise anything, even SystemExit
            self._reporter.report_exception(error)
            return default
