"""One tick's facts -> events."""

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hil.bus.base import Health, Link
from hil.drives.base import Condition, Drive, Node
from hil.loop import SECOND, Tick
from hil.safety.events import Event, EventKind, Reaction

RUNAWAY = 1.2
"""Of the speed limit: beyond this, damping is not waited for."""

_ACTIVE = Link.ACTIVE

EVERY_TIME = (EventKind.STAGE, EventKind.GAIN)
"""Kinds that are written down however often they come; of the others the first for each subject."""

BEATS = 2.5
"""Heartbeats that may be missing."""

WINDOW = 0.5
"""Time over which clamped ticks are counted [s]."""


@dataclass(frozen=True)
class Bounds:
    """When an event is one.

    Attributes:
        period: Of the loop [s].
        stale: Age of a sample that stops the machine [s].
        lost: Age that disables the drives [s].
        late_ticks: Ticks in a row that come after skipped periods.
        late_share: Share of such ticks within 1 s.
        clamped_stop: Whether clamping for long stops the machine.
    """

    period: float
    stale: float
    lost: float
    late_ticks: int = 5
    late_share: float = 0.05
    clamped_stop: bool = False

    @property
    def stale_age(self) -> int:
        """[ns]; three periods at least."""
        return round(max(3 * self.period, self.stale) * SECOND)

    @property
    def lost_age(self) -> int:
        """[ns]; ten periods at least."""
        return round(max(10 * self.period, self.lost) * SECOND)


class Monitor:
    """Watches nodes, buses and the loop itself.

    Attributes:
        counts: Kind -> how often, notes included.
        worst: The worst reaction so far; it never falls.
        events: What happened, each kind once per subject but for `EVERY_TIME`.
    """

    def __init__(self, drives: Sequence[Drive], sensors: Sequence[Node], bounds: Bounds) -> None:
        """Takes the drives, the encoder nodes, and when an event is one."""
        self._drives, self._nodes, self.bounds = list(drives), [*drives, *sensors], bounds
        self._stale, self._lost = bounds.stale_age, bounds.lost_age
        self._missed = round(1.5 * bounds.period * SECOND)
        self._rejected = [node.rejected for node in self._nodes]
        self._fast = [0] * len(self._drives)
        window = max(1, round(WINDOW / bounds.period))
        self._clamped: deque[Sequence[bool]] = deque(maxlen=window)
        self._changed = [0] * len(self._drives)
        self._late_row = 0
        self._late: deque[int] = deque()
        self._seen: set[tuple[EventKind, str]] = set()
        self.counts: dict[EventKind, int] = {}
        self.worst = Reaction.NOTE
        self.events: list[Event] = []

    def report(self, time: int, kind: EventKind, subject: str = "", detail: str = "") -> Event | None:
        """Takes an event in; returns it where it is the first of its kind and subject."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self.worst = max(self.worst, kind.reaction)
        if kind not in EVERY_TIME:
            if (kind, subject) in self._seen:
                return None
            self._seen.add((kind, subject))
        if self.events:  # what is told as of a tick's beginning may follow from what was seen within it
            time = max(time, self.events[-1].time)
        event = Event(time, kind, subject, detail)
        self.events.append(event)
        return event

    def feedback(self, now: int, since: int) -> None:
        """Ages and validity of samples.

        Args:
            now: [ns].
            since: Samples are expected from this moment on [ns].
        """
        for i, node in enumerate(self._nodes):
            sample = node.sample
            age = now - (since if sample is None or sample.time < since else sample.time)
            if age <= self._missed and node.rejected == self._rejected[i]:
                continue
            name = node.settings.name
            if age > self._missed:
                shown = f"{age / 1e6:.1f} ms old"
                self.report(now, EventKind.MISSED, name, shown)
                if age >= self._lost:
                    self.report(now, EventKind.LOST, name, shown)
                elif age >= self._stale:
                    self.report(now, EventKind.STALE, name, shown)
            if node.rejected != self._rejected[i]:
                self.report(now, EventKind.REJECTED, name, f"{node.rejected - self._rejected[i]} frames")
                self._rejected[i] = node.rejected

    def drives(self, now: int, working: bool) -> None:
        """Conditions of the drives.

        Args:
            now: [ns].
            working: Whether every drive should be enabled.
        """
        enabled = Condition.ENABLED
        for drive in self._drives:
            quick = drive.heartbeat is None or not drive.alive or now - drive.alive <= BEATS * drive.heartbeat * SECOND
            told = drive.fault or drive.foreign or (working and (drive.saturated or drive.condition is not enabled))
            if quick and not told:
                continue
            name = drive.settings.name
            if drive.fault and not drive.quiet:
                self.report(now, EventKind.DRIVE_FAULT, name, drive.fault)
            elif working and drive.condition is not enabled:
                self.report(now, EventKind.DRIVE_STATE, name, drive.condition.value)
            if drive.saturated and working:
                self.report(now, EventKind.SATURATED, name)
            if drive.foreign:
                self.report(now, EventKind.FOREIGN, name, drive.foreign)
            if not quick:
                self.report(now, EventKind.HEARTBEAT, name, f"{(now - drive.alive) / 1e9:.3f} s")

    def motion(self, now: int, positions: Sequence[float], speeds: Sequence[float]) -> None:
        """Position and speed of each joint against its limits; NaN is no news."""
        for i, drive in enumerate(self._drives):
            limits, position, speed = drive.settings, positions[i], abs(speeds[i])
            lower, upper = limits.position_limits
            if lower <= position <= upper and speed <= limits.speed_limit:
                self._fast[i] = 0
                continue
            if position < lower or position > upper:
                self.report(now, EventKind.POSITION, limits.name, f"{position:.4g}, limits {lower:.4g} to {upper:.4g}")
            if speed > RUNAWAY * limits.speed_limit:
                self.report(now, EventKind.RUNAWAY, limits.name, f"{speed:.4g}, limit {limits.speed_limit:.4g}")
            self._fast[i] = self._fast[i] + 1 if speed > limits.speed_limit else 0
            if self._fast[i] >= 2:
                self.report(now, EventKind.SPEED, limits.name, f"{speed:.4g}, limit {limits.speed_limit:.4g}")

    def torques(self, now: int, clamped: Sequence[bool]) -> None:
        """Which torques a limit has changed."""
        kind = EventKind.CLAMPED_STOP if self.bounds.clamped_stop else EventKind.CLAMPED
        window = self._clamped
        for sign, changed in ((-1, window[0] if len(window) == window.maxlen else ()), (1, clamped)):
            if True in changed:
                self._changed = [count + sign * each for count, each in zip(self._changed, changed, strict=True)]
        window.append(tuple(clamped))
        if len(window) < (window.maxlen or 0):
            return
        for drive, count in zip(self._drives, self._changed, strict=True):
            if 2 * count > len(window):
                self.report(now, kind, drive.settings.name)

    def buses(self, now: int, healths: Mapping[str, Health]) -> None:
        """How each bus stands."""
        for name, health in healths.items():
            if health.link is _ACTIVE and not health.errors:
                continue
            if health.link in (Link.OFF, Link.DOWN, Link.PASSIVE):
                self.report(now, EventKind.BUS, name, f"{health.link.value}: {health.reason}")
            else:
                self.report(now, EventKind.BUS_WARNING, name, f"{health.link.value}: {health.reason}")

    def lateness(self, tick: Tick) -> None:
        """Periods that have gone by without a tick."""
        now = tick.began
        while self._late and self._late[0] < now - SECOND:
            self._late.popleft()
        if not tick.skipped:
            self._late_row = 0
            return
        self._late_row += 1
        self._late.extend([now] * tick.skipped)
        self.report(now, EventKind.OVERRUN, "", f"{tick.skipped} before tick {tick.number}")
        share = len(self._late) * self.bounds.period
        if self._late_row > self.bounds.late_ticks:
            self.report(now, EventKind.OVERRUNS, "", f"{self._late_row} late ticks in a row")
        elif share > self.bounds.late_share and tick.number * self.bounds.period >= 1.0:
            self.report(now, EventKind.OVERRUNS, "", f"{100 * share:.0f} % of the last second")

    def verdicts(self) -> Iterator[Event]:
        """Events that ask for a reaction, in order."""
        return (event for event in self.events if event.kind.reaction >= Reaction.STOP)

    @property
    def exit_code(self) -> int:
        """Of the run, by the first event that ended it; 3 where a drive did not confirm that it is off."""
        if any(event.kind is EventKind.NOT_CONFIRMED for event in self.events):
            return EventKind.NOT_CONFIRMED.origin.value
        return next((event.kind.origin.value for event in self.verdicts()), 0)


def finite(values: Sequence[float]) -> bool:
    """Whether every value is."""
    return all(map(math.isfinite, values))
