"""How the events of a run reach the recorder, the operator and the run folder."""

from collections.abc import Callable
from typing import Any

from hil.drives import DriveError
from hil.loop import Clock
from hil.recorder import InMemory, Recorder, add_missing, as_entry
from hil.safety import Event, EventKind, Monitor
from servoctl.errors import RunFolderError, in_one_line
from servoctl.run_folder.trajectory import Trajectory


class Reporter:
    """Reports events to the monitor, and passes on those that it records.

    Args:
        monitor: Counts events and keeps the recorded ones.
        recorder: Writes the run folder.
        clock: Clock of the run.
    """

    def __init__(self, monitor: Monitor, recorder: Recorder | InMemory, clock: Clock) -> None:
        self._monitor, self._recorder, self._clock = monitor, recorder, clock
        self._passed = 0
        self.listener: Callable[[Event], None] = lambda event: None  # called with every recorded event

    def report(self, kind: EventKind, subject: str = "", detail: str = "") -> None:
        """Reports an event that happens now."""
        self._monitor.report(self._clock.now(), kind, subject, detail)

    def report_exception(self, error: BaseException, subject: str = "") -> None:
        """Reports an exception as an event."""
        self.report(EventKind.EXCEPTION, subject, in_one_line(error))

    def report_handshake(self, error: DriveError) -> None:
        """Reports a failed handshake, one event per drive."""
        for line in str(error).splitlines():
            name, _, reason = line.partition(": ")
            self.report(EventKind.HANDSHAKE, name, reason)

    def pass_on(self) -> None:
        """Passes new events to the recorder and the listener."""
        events = self._monitor.events
        while self._passed < len(events):
            event = events[self._passed]
            self._passed += 1  # before the listener, which may raise: it must not get the same event again
            self._recorder.event(event.kind.name.lower(), str(event), event.time, **_fields(event))
            self.listener(event)

    def close(self, facts: dict[str, Any]) -> Trajectory:
        """Closes the run folder. It holds every event, even if the recorder died.

        Args:
            facts: Contents of the summary.

        Raises:
            RunFolderError: The folder cannot be finished; its summary has the status `failed`.
        """
        try:
            return self._recorder.close(facts)
        except RunFolderError:
            if isinstance(self._recorder, Recorder):
                events = self._monitor.events
                entries = [as_entry(each.kind.name.lower(), str(each), each.time, _fields(each)) for each in events]
                add_missing(self._recorder.path, entries)
            raise


def _fields(event: Event) -> dict[str, Any]:
    """Fields of an event besides its time, kind and text."""
    fields = event.as_dict()
    del fields["t"], fields["kind"], fields["text"]
    return fields
