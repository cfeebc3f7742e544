"""Checks the facts of a tick and reports events."""

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence

from hil.bus.base import Health, Link
from hil.drives.base import Condition, Drive, DriveError, Node
from hil.loop import SECOND, Tick
from hil.safety.events import Event, EventKind, Reaction
from hil.safety.plan import Phase
from hil.safety.rules import Rule, SafetyBounds

EVERY_TIME = (EventKind.STAGE, EventKind.GAIN)
"""Kinds that are recorded each time; of the other kinds only the first event of each subject is recorded."""

_LINKS = {Link.OFF: EventKind.BUS, Link.DOWN: EventKind.BUS, Link.PASSIVE: EventKind.BUS_PASSIVE}
"""State of a link -> its event; a warning for the others."""

WINDOW = 0.5  # [s] time over which clamped ticks are counted


class Monitor:
    """Watches nodes, buses and the loop itself; `rules`: what is judged at every tick, in order."""

    def __init__(
        self, drives: Sequence[Drive], sensors: Sequence[Node], bounds: SafetyBounds, rules: Sequence[Rule]
    ) -> None:
        self.nodes = [*drives, *sensors]  # drives, then encoder nodes
        self._drives, self.bounds = list(drives), bounds
        self._rejected = [node.rejected for node in self.nodes]
        # rules: what is still judged: a warning is reported once
        self.rules, self._beyond = list(rules), [0] * len(rules)
        self._ticks, self._window = 0, max(1, round(WINDOW / bounds.period))  # ticks so far, and those that count
        self._clamped = [deque[int]() for _ in drives]  # those in which a limit has changed the torque of each drive
        self._late_ticks = 0
        self._skipped: deque[int] = deque()
        self._seen: set[tuple[EventKind, str]] = set()
        self.counts: dict[EventKind, int] = {}  # kind -> number of events, also of those that are not recorded
        self.worst = Reaction.NOTE  # worst reaction so far; it never falls
        self.events: list[Event] = []  # recorded events: one per kind and subject, except for `EVERY_TIME`

    def report(self, time: int, kind: EventKind, subject: str = "", detail: str = "") -> Event | None:
        """Counts an event; returns it if it is recorded, None if its kind and subject were recorded before."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self.worst = max(self.worst, kind.reaction)
        if kind not in EVERY_TIME:
            if (kind, subject) in self._seen:
                return None
            self._seen.add((kind, subject))
        if self.events:  # an event dated at the tick's beginning may come after one that was seen within the tick
            time = max(time, self.events[-1].time)
        event = Event(time, kind, subject, detail)
        self.events.append(event)
        return event

    def watch(self, rules: Sequence[Rule]) -> None:
        """Judges these rules too from now on."""
        self.rules += rules
        self._beyond += [0] * len(rules)

    def judge(self, now: int, measured: Mapping[str, Sequence[float]], phase: Phase) -> None:
        """Judges every rule; `measured`: numbers of each node, by what `Rule.measured` names."""
        beyond, spent = self._beyond, []
        for i, rule in enumerate(self.rules):
            value = measured[rule.measured][rule.node]
            if not (value < rule.lower or value > rule.upper) or phase not in rule.phases:
                beyond[i] = 0
                continue
            beyond[i] += 1
            if beyond[i] >= rule.ticks:
                self.report(now, rule.kind, rule.subject, rule.tell(value))
                if rule.once:
                    spent.append(i)
        for i in reversed(spent):
            del self.rules[i], beyond[i]

    def rejections(self, now: int) -> None:
        """Reports the invalid frames that were dropped since the last call."""
        for i, node in enumerate(self.nodes):
            if node.rejected != self._rejected[i]:
                self.report(now, EventKind.REJECTED, node.settings.name, f"{node.rejected - self._rejected[i]} frames")
                self._rejected[i] = node.rejected

    def refused(self, now: int, error: DriveError, kind: EventKind = EventKind.HANDSHAKE) -> None:
        """Reports a failed handshake, one event per drive."""
        for line in str(error).splitlines():
            name, _, reason = line.partition(": ")
            self.report(now, kind, name, reason)

    def unconfirmed(self, now: int) -> None:
        """Reports the drives that have not confirmed that they are off."""
        for drive in self._drives:
            if not drive.confirmed_off:
                kind = EventKind.NOT_CONFIRMED if drive.possibly_on else EventKind.NEVER_ENABLED
                self.report(now, kind, drive.settings.name, drive.condition.value)

    def drives(self, now: int, looped: Collection[Drive]) -> None:
        """Checks the condition of each drive; `looped`: those that should be enabled."""
        enabled = Condition.ENABLED
        for drive in self._drives:
            working = drive in looped
            problem = drive.fault or drive.foreign or (working and (drive.saturated or drive.condition is not enabled))
            if not problem:
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

    def torques(self, now: int, clamped: Sequence[bool], unchanged: int = 0) -> None:
        """Counts the torques that a limit has changed in a tick, and so many ticks before it without any."""
        kind = EventKind.CLAMPED_STOP if self.bounds.safety.clamped == "stop" else EventKind.CLAMPED
        self._ticks += unchanged + 1
        for drive, changed, ticks in zip(self._drives, clamped, self._clamped, strict=True):
            if changed:
                ticks.append(self._ticks)
            while ticks and ticks[0] <= self._ticks - self._window:
                ticks.popleft()
            if 2 * len(ticks) > self._window <= self._ticks:
                self.report(now, kind, drive.settings.name)

    @property
    def clamps(self) -> bool:
        """Whether limits have changed so many torques that the next ticks may report it."""
        return any([2 * len(ticks) > self._window for ticks in self._clamped])

    def ordinary(self, tick: Tick, clamped: Sequence[bool], count: int = 1) -> None:
        """Takes note of so many ticks in which the tick in C found nothing to report, and of the last one.

        `clamped`: whether a limit has changed the torque of each drive in the last; empty: that does not count. No
        limit has changed one in the others, and `clamps` was False before.
        """
        self.lateness(tick)
        self._beyond = [0] * len(self._beyond)
        if clamped:
            self.torques(tick.began, clamped, count - 1)

    def buses(self, now: int, healths: Mapping[str, Health]) -> None:
        """Checks the health of each bus."""
        for name, health in healths.items():
            if health.link is Link.ACTIVE and not health.errors:
                continue
            kind = _LINKS.get(health.link, EventKind.BUS_WARNING)
            state, reason = health.link.value, health.reason
            self.report(now, kind, name, reason if state in reason else f"{state}: {reason}")

    def lateness(self, tick: Tick) -> None:
        """Checks how many periods have passed without a tick."""
        now = tick.began
        while self._skipped and self._skipped[0] < now - SECOND:
            self._skipped.popleft()
        if not tick.skipped:
            self._late_ticks = 0
            return
        self._late_ticks += 1
        self._skipped.extend([now] * tick.skipped)
        self.report(now, EventKind.OVERRUN, "", f"{tick.skipped} before tick {tick.number}")
        share = len(self._skipped) * self.bounds.period
        if self._late_ticks > self.bounds.safety.late_ticks:
            self.report(now, EventKind.OVERRUNS, "", f"{self._late_ticks} late ticks in a row")
        elif share > self.bounds.safety.late_share and tick.number * self.bounds.period >= 1.0:
            self.report(now, EventKind.OVERRUNS, "", f"{100 * share:.0f} % of the last second")

    def verdicts(self) -> Iterator[Event]:
        """Events by which the run does not count as done, in order."""
        return (event for event in self.events if event.kind.reaction >= Reaction.STOP or event.kind is EventKind.UNMET)

    @property
    def exit_code(self) -> int:
        """Exit code of the run, by the first event that ended it; 3 if a drive did not confirm that it is off."""
        if any(event.kind is EventKind.NOT_CONFIRMED for event in self.events):
            return EventKind.NOT_CONFIRMED.origin.value
        return next((event.kind.origin.value for event in self.verdicts()), 0)
