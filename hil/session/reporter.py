"""How events reach the recorder, the operator and the run folder, and what the operator asks for during a run.

The operator stops a run by a signal or by the live page, and changes gains. Missed tasks are found by counting ticks.
`summary.json` holds outcome, drives, buses and timing of a run.
"""

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from hil.assembly.setup import RigSetup
from hil.bus.load import BusRates
from hil.core.controller import Controller
from hil.loop import Clock, Tick
from hil.loop.realtime import StopSignals
from hil.recorder import InMemory, Recorder, add_missing, as_entry
from hil.rig.rig import CanRig
from hil.safety import Event, EventKind, Monitor
from hil.safety.plan import ENDING, Phase
from hil.safety.stages import Stages
from hil.view import SIGNAL
from hil.view.view import LivePage
from servoctl.errors import RunFolderError, in_one_line
from servoctl.run_folder.missed import MOST, OUT_OF_REACH, is_missed
from servoctl.run_folder.trajectory import Trajectory
from servoctl.simulation.closed_loop import Loop
from servoctl.types import Array, Status


class Reporter:
    """Reports events to the monitor, and passes on those that it records; `recorder`: writes the run folder."""

    def __init__(self, monitor: Monitor, recorder: Recorder | InMemory, clock: Clock) -> None:
        self._monitor, self._recorder, self._clock = monitor, recorder, clock
        self._passed = 0
        self.listener: Callable[[Event], None] = lambda event: None  # called with every recorded event

    def report(self, kind: EventKind, subject: str = "", detail: str = "") -> None:
        """Reports an event that happens now."""
        self._monitor.report(self._clock.now(), kind, subject, detail)

    def report_exception(self, error: BaseException) -> None:
        self.report(EventKind.EXCEPTION, "", in_one_line(error))

    def pass_on(self) -> None:
        """Passes new events to the recorder and the listener."""
        events = self._monitor.events
        while self._passed < len(events):
            event = events[self._passed]
            self._passed += 1  # before the listener, which may raise: it must not get the same event again
            self._recorder.event(_entry(event))
            self.listener(event)

    def close(self, facts: dict[str, Any]) -> Trajectory:
        """Closes the run folder. It holds every event, even if the recorder died.

        `facts`: contents of the summary.

        Raises RunFolderError if the folder cannot be finished; its summary has the status `failed`.
        """
        try:
            return self._recorder.close(facts)
        except RunFolderError:
            if self._recorder.path is not None:
                add_missing(self._recorder.path, map(_entry, self._monitor.events))
            raise


def _entry(event: Event) -> dict[str, Any]:
    fields = {"reaction": event.kind.reaction.name.lower(), "subject": event.subject}
    return as_entry(event.kind.name.lower(), str(event), event.time, fields)


class MissedTicks:
    """Counts the ticks of the last stage in which a required task is infeasible and violated.

    `band`: violations below this count as met [units of the row].
    """

    def __init__(self, loop: Loop, band: float) -> None:
        self._band, self._ticks = band, 0
        slices, command = loop.layout.slices, loop.layout.command_size
        self._status, self._residual = slices["status"].start, slices["residual"].start
        self._violation = slice(slices["violation"].start - command, slices["violation"].stop - command)
        optional_rows = loop.system.acting.optional_rows
        self._rows: dict[str, list[int]] = {}
        for i, row in enumerate(loop.system.model.task_rows):
            if i not in optional_rows:
                self._rows.setdefault(row.group, []).append(i)
        self._counts = dict.fromkeys(self._rows, 0)

    def tick(self, command: Array, log: Array) -> None:
        """Counts one tick; the arguments are the two parts of a row as `Layout` orders them."""
        self._ticks += 1
        status, residual, violation = command[self._status], command[self._residual], log[self._violation]
        if status in OUT_OF_REACH:
            for task, rows in self._rows.items():
                self._counts[task] += bool(is_missed(status, violation[rows], residual, self._band))

    def met(self, count: int) -> None:
        """Counts ticks whose command has none of the statuses in `OUT_OF_REACH`."""
        self._ticks += count

    def missed(self) -> dict[str, float]:
        """Task -> share of the ticks in which it was missed, for the tasks that were missed in most of them."""
        if not self._ticks:
            return {}
        shares = {task: count / self._ticks for task, count in self._counts.items()}
        return {task: share for task, share in shares.items() if share > MOST}


STATUSES = {0: "done", 130: "interrupted"}  # exit code -> status of the run; `stopped` for any other code
MISSED = Status.MISSED.name.lower()  # status of a run that missed a required task


def outcome(monitor: Monitor) -> dict[str, Any]:
    """Status, error, faults and counts; they follow from the same events as the exit code."""
    code, ending_events = monitor.exit_code, list(monitor.verdicts())
    unmet = bool(ending_events) and ending_events[0].kind is EventKind.UNMET
    values: dict[str, Any] = {
        "status": MISSED if unmet else STATUSES.get(code, "stopped"),
        "faults": [str(event) for event in ending_events],
        "counts": {kind.name.lower(): count for kind, count in monitor.counts.items()},
    }
    if code:
        unconfirmed = [event for event in monitor.events if event.kind is EventKind.NOT_CONFIRMED]
        values["error"] = str([*ending_events, *unconfirmed][0])
    return values


def bus_loads(run: Trajectory, buses: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[float, float, float]]:
    """Bus -> its mean load in the loop, that of the loop's busiest window, and of the busiest one before the loop.

    With the most stuff bits there can be. The loop begins when the drives are enabled; a run that
    ended before has none.
    """
    times = run.t[~np.isin(run["stage"], [phase.number for phase in (Phase.WAITING, Phase.ENABLING, Phase.OVER)])]
    if not len(times):
        return {}
    counts, loads = run.metadata.get("bus_bits", {}), {}
    nominal = counts.get("bits", [])
    data = counts.get("data_bits") or [[0] * len(bits) for bits in nominal]
    for (name, keys), bits, fast in zip(buses.items(), nominal, data, strict=False):
        rates = BusRates.of(keys)
        used = np.asarray(bits, dtype=float) / rates.nominal + np.asarray(fast, dtype=float) / rates.data
        load = used / counts["window"]
        begin, end = np.ceil(times[0] / counts["window"]), np.floor(times[-1] / counts["window"])
        before, loop = load[: int(begin)], load[int(begin) : int(end)]
        if len(loop):
            loads[name] = float(loop.mean()), float(loop.max()), float(before.max(initial=0.0))
    return loads


STOP_BUTTON = "stop button of the live page"

STOPPED = (Phase.STOPPING, *ENDING)  # phases in which no gain changes
CHECK_EVERY = 100  # ticks between two checks of a process: the live page, the recorder


class OperatorLink:
    """Connects the operator with a run."""

    def __init__(
        self,
        setup: RigSetup,  # gains that may change
        controller: Controller,
        rig: CanRig,  # its bring-up is cancelled by the request to stop
        stages: Stages,
        reporter: Reporter,
        lockstep: bool,  # whether time is virtual
    ) -> None:
        self._stages, self._rig, self._live_gains, self._controller = stages, rig, setup.live_gains, controller
        self._reporter, self._lockstep = reporter, lockstep
        self.stop_reason = ""  # first request to stop; empty before
        self.view: LivePage | None = None  # the live page; None without one

    @contextmanager
    def listen(self, signals: StopSignals) -> Iterator[None]:
        """Signals request the controlled stop in this context."""
        with ExitStack() as stack:
            signals.heard = self.request_stop
            stack.callback(setattr, signals, "heard", None)
            if self.view is not None:
                previous = signal.signal(SIGNAL, lambda number, frame: self.request_stop(STOP_BUTTON))
                stack.callback(signal.signal, SIGNAL, previous)
                if self.view.requests.stopped:  # before the handler was there
                    self.request_stop(STOP_BUTTON)
            if signals.first:
                self.request_stop(signals.first)
            yield

    def request_stop(self, reason: str) -> None:
        """Requests the controlled stop; may run in a signal handler. It has no effect after the run is over."""
        self.stop_reason = self.stop_reason or reason
        self._stages.ask_to_stop(reason)
        self._rig.bring_up.cancel()

    def attend(self, tick: Tick) -> None:
        """Reads the requests for gains and moves changing gains on; called after the torques were sent."""
        if self.view is not None:
            for number, value in self.view.requests.gains():
                refused = "refused: the run is stopping" if self._stages.mode in STOPPED else None
                gain = self._live_gains.gains[number]
                self._reporter.report(EventKind.GAIN, gain.path, refused or self._live_gains.request(number, value))
            if tick.number % CHECK_EVERY == 0 and (end := self.view.gone) is not None:
                self._reporter.report(EventKind.VIEW, "", end)
            if self._lockstep:
                self.view.pace(tick.began)
        self._live_gains.advance(self._controller.take_law)
