"""Drives on CAN as a rig: samples in, q and v out, torques on the wire while it may, and every drive off at the end.

Design: once `disable` or `stop` was called no torque goes out any more, whatever is asked for: that is latched here,
below everything that decides. What fails for one drive on the way out never keeps the others on.
"""

from collections.abc import Callable, Sequence

import numpy as np

from hil.drives.base import Condition, Drive, Feedback, Node
from hil.drives.sample import Sample
from hil.frame import Frame
from hil.loop import SECOND, Clock, Reading, Rig, nanoseconds
from hil.rig.dispatch import BusExchange, Dispatch
from hil.rig.handshake import Handshake
from hil.safety.events import EventKind
from hil.safety.monitor import Monitor
from hil.sensing import Finding, Prediction, Sensing
from servoctl.errors import in_one_line
from servoctl.types import Array, State

ENABLE_TIME = 5.0
"""Time that all drives have to be enabled [s]."""

OFF_TIME = 0.5
"""Time that drives have to go off when the loop has ended [s]."""

BRAKE_TIME = 0.1
"""Of that, how long drives may brake by themselves [s]."""

PAUSE = 1_000_000
"""Time to the next look at a bus that raises, while drives are sent off [ns]."""

NOTHING = Sample(np.nan, np.nan, np.nan, 0)


def _kind(finding: Finding) -> EventKind:
    if finding.motion:
        return EventKind.TRACKING
    return EventKind.ENCODER if finding.stops else EventKind.IMPLAUSIBLE


class CanRig(Rig):
    """Drives and encoder nodes.

    Attributes:
        positions: Displacements of the joints at the last read [joint unit]; NaN before there is one.
        speeds: Of the joints [joint unit/s].
        measured: Position, then speed, then torque of each drive's last sample as it came [joint and actuator units];
            NaN where there is none.
        problems: What sensing found at the last read: kind, subject, detail.
        sends: Whether anything may be sent at all; not in shadow.
        off: Whether torque is over for good.
        failures: Drive, or nothing where none is known -> what was raised while drives were sent off.
        true: The simulated plant's state at the beginning of the last read; the start pose where there is none.
    """

    def __init__(
        self,
        dispatch: Dispatch,
        drives: Sequence[Drive],
        sensors: Sequence[Node],
        sensing: Sensing,
        start: State,
        period: float,
        tolerance: float,
        sends: bool,
        prediction: Prediction | None = None,
        truth: Callable[[], State] | None = None,
    ) -> None:
        """Takes what is on the buses.

        Args:
            dispatch: Frames' way to the nodes.
            drives: In the order of the plant's actuators.
            sensors: Encoder nodes.
            sensing: Samples -> q and v.
            start: The pose that the machine is said to be in.
            period: Of the loop [s].
            tolerance: Largest difference from that pose [joint unit].
            sends: Whether anything may be sent at all.
            prediction: Of the state at which this tick's torques act; None: the law gets the state as it is.
            truth: The simulated plant's state now; None where there is none to see.
        """
        self._drives, self._nodes, self._dispatch = list(drives), [*drives, *sensors], dispatch
        self._sensing, self._start = sensing, start
        self._period, self._tolerance, self.sends = period, tolerance, sends
        self.positions = [np.nan] * len(self.drives)
        self.speeds = [np.nan] * len(self.drives)
        self.measured = [np.nan] * (3 * len(self.drives))
        self.problems: list[tuple[EventKind, str, str]] = []
        self.off = not sends
        self.failures: dict[str, str] = {}
        self._awaited = [
            (node, node.settings.bus, node.feedback is Feedback.SYNC)
            for node in self._nodes
            if sends and node.feedback is not Feedback.CYCLIC
        ]
        self._polled = [node for node in self._nodes if node.feedback is not Feedback.SYNC]
        self._prediction, self._ahead = prediction, period
        self._truth, self.true = truth, start
        self._verbs: Handshake | None = None
        self._cancelled = False
        self._began = 0
        self._written = 0
        self._command = np.zeros(len(self.drives))
        self._count = 0

    @property
    def drives(self) -> Sequence[Drive]:
        """In the order of the plant's actuators."""
        return self._drives

    @property
    def clock(self) -> Clock:
        """The run's."""
        return self._dispatch.clock

    def start(self, deadline: int) -> None:
        """Identifies every node; then configures every drive and lets its watchdog run out once, unless cancelled.

        Raises:
            DriveError: A node is not what the config says, refuses, or does not answer in time; names every such node.
        """
        self._dispatch.drain()
        if not self.sends:
            return
        exchanges = {name: BusExchange(self._dispatch, name, self._period) for name in self._dispatch.buses}
        self._perform({node: node.identify(exchanges[node.settings.bus]) for node in self._nodes}, deadline)
        self._perform({drive: drive.configure(exchanges[drive.settings.bus]) for drive in self.drives}, deadline)
        self._perform({drive: drive.test_watchdog() for drive in self.drives}, deadline)

    def _perform(self, verbs: dict[Node, object], deadline: int) -> None:
        left = (deadline - self.clock.now()) / SECOND
        running = Handshake(verbs, self._dispatch.send, self.clock, left)  # type: ignore[arg-type]
        period = nanoseconds(self._period)
        try:
            while not (self._cancelled or running.advance()):
                end = self.clock.now() + period
                while self.clock.now() < end:
                    self._dispatch.wait(min(end, self._dispatch.tend(period)), lambda: next(iter(self._dispatch.buses)))
        finally:
            running.abandon()

    def cancel(self) -> None:
        """Cuts `start` short; may be called from a signal handler."""
        self._cancelled = True

    def read(self, deadline: int) -> Reading:
        dispatch, began = self._dispatch, self.clock.now()
        self._began = began
        if self._truth is not None:
            self.true = self._truth()
        if self.sends:
            dispatch.synchronise()
            for node in self._polled:
                for frame in node.poll():
                    dispatch.send(node.settings.bus, frame)
        dispatch.wait(deadline, self._missing)
        return self._sense()

    def _missing(self) -> str | None:
        """Name of a bus that a sample of this tick is still to come from."""
        began, written = self._began, self._written
        for node, bus, synced in self._awaited:
            sample = node.sample
            if sample is None or sample.time < (began if synced else written):
                return bus
        return None

    def _sense(self) -> Reading:
        now, free = self.clock.now(), self._free
        sight = self._sensing.read(
            now / SECOND,
            now,
            [node.sample for node in self._nodes],
            self._command if free else None,
            self._began if self.sends else None,
        )
        found, drives = sight.estimate, len(self.drives)
        self.positions, self.speeds = list(sight.positions[:drives]), list(sight.rates[:drives])
        samples = [drive.sample or NOTHING for drive in self._drives]
        self.measured = [each.position for each in samples]
        self.measured += [each.velocity for each in samples]
        self.measured += [each.torque for each in samples]
        self.problems = [(_kind(finding), finding.channel, finding.reason) for finding in sight.findings]
        residual = max(map(abs, found.residual.tolist()), default=0.0)
        q, v = found.q, found.v
        if self._prediction is not None and sight.valid and free:
            q, v = self._prediction(now / SECOND, self._ahead, q, v, self._command)
        return Reading(q, v, sight.ages, sight.valid, residual)

    @property
    def _free(self) -> bool:
        """Whether the machine moves by the torques that are sent: no brake holds it, no drive is off."""
        enabled = Condition.ENABLED
        return not self.off and all([drive.condition is enabled for drive in self._drives])

    def write(self, command: Array) -> None:
        self._command = np.zeros(len(self.drives)) if self.off else command
        if not self.off:
            send, enabled = self._dispatch.send, Condition.ENABLED
            for drive, torque in zip(self._drives, command.tolist(), strict=True):
                if drive.condition is enabled and not drive.quiet:
                    send(drive.settings.bus, drive.command(torque))
        if self.sends:
            self._dispatch.keep_alive()
        self._written = self.clock.now()

    def begin_enable(self, torques: Sequence[float]) -> None:
        """Starts to enable every drive, each with its torque from the first instant on."""
        for drive in self.drives:
            drive.enable_requested = True
        verbs = {drive: drive.enable(torque) for drive, torque in zip(self.drives, torques, strict=True)}
        self._verbs = Handshake(verbs, self._dispatch.send, self.clock, ENABLE_TIME)  # type: ignore[arg-type]

    def advance(self) -> bool:
        """Goes on with it; returns whether it is over.

        Raises:
            DriveError: A drive refuses, or does not answer in time.
        """
        return self._verbs is None or self._verbs.advance()

    def start_problems(self) -> list[tuple[str, str]]:
        """Drive and sentence where an encoder contradicts the start pose."""
        samples = [node.sample for node in self._nodes if node.sample is not None]
        return [("", sentence) for sentence in self._sensing.check_start(self._start.q, samples, self._tolerance)]

    def watch(self, monitor: Monitor, now: int, since: int, working: bool) -> None:
        """Reports what nodes and buses say; in shadow the drives are not ours, nor are their faults and masters."""
        monitor.feedback(self.clock.now(), since)
        if self.sends:
            monitor.drives(self.clock.now(), working)
        if not self._dispatch.well:
            monitor.buses(now, self._dispatch.healths())

    def disable(self, brake: bool) -> bool:
        """Sends every drive off, by its own braking where wanted; returns whether all have confirmed. Never raises."""
        self.off = True
        if self._verbs is not None:
            self._try("", self._verbs.abandon)
        for drive in self._drives:
            self._send_off(drive, brake)
        self._count += 1
        return self._count > 1 and all([drive.confirmed_off for drive in self._drives])

    def _send_off(self, drive: Drive, brake: bool) -> None:
        """Sends the frames that stop one drive; where it cannot be asked to brake, those that disable it."""
        name, bus = drive.settings.name, drive.settings.bus
        frames: Sequence[Frame] = ()
        try:
            frames = drive.quick_stop_frames() if brake else drive.disable_frames()
        except Exception as error:
            self._failed(name, error)
            if brake:
                self._send_off(drive, False)
        for frame in frames:
            try:
                self._dispatch.send(bus, frame)
            except Exception as error:
                self._failed(name, error)

    def stop(self) -> None:
        """Sends every drive off and waits until all have confirmed, `OFF_TIME` at most; `unconfirmed` says which not.

        Drives that nobody has sent off before brake by themselves first, where they can. For every way out of the loop;
        after `disable` has confirmed it does nothing. What one drive, or a bus, raises meanwhile goes to `failures`.
        """
        if not self.sends or (self.off and not self.unconfirmed and self._count > 1):
            return
        now = self.clock.now()
        end, braking = now + nanoseconds(OFF_TIME), now if self.off else now + nanoseconds(BRAKE_TIME)
        while self.clock.now() < end and not self.disable(brake=self.clock.now() < braking):
            self._listen(self.clock.now() + nanoseconds(max(self._period, 0.005)))

    def _listen(self, until: int) -> None:
        """Takes in what drives answer, and keeps their watchdogs fed, up to a moment [ns]."""
        period = nanoseconds(self._period)
        while (now := self.clock.now()) < until:
            due = until
            try:
                due = min(until, self._dispatch.tend(period))
            except Exception as error:
                self._failed("", error)
            try:
                self._dispatch.wait(due, lambda: next(iter(self._dispatch.buses)))
            except Exception as error:
                self._failed("", error)
                if self.clock.now() == now:
                    self._try("", lambda: self.clock.sleep_until(min(until, now + PAUSE)))

    def _try(self, name: str, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:
            self._failed(name, error)

    def _failed(self, name: str, error: Exception) -> None:
        """Notes what was raised on the way out: the first of each drive is the one that helps."""
        self.failures.setdefault(name, in_one_line(error))

    @property
    def unconfirmed(self) -> list[str]:
        """Drives that have not confirmed that they are off."""
        return [drive.settings.name for drive in self.drives if not drive.confirmed_off]
