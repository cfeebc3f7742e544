"""What a run on drives says of itself when it is over."""

from collections.abc import Iterable
from typing import Any

from hil.bus.base import Health
from hil.drives import Drive
from hil.safety import Event, EventKind, Monitor

STATUSES = {0: "done", 130: "interrupted"}
"""Exit code -> status of the run; any other code: `stopped`."""


def verdict(monitor: Monitor) -> dict[str, Any]:
    """Status, error, faults and counts, all by the same events as the exit code."""
    code, verdicts = monitor.exit_code, list(monitor.verdicts())
    found: dict[str, Any] = {
        "status": STATUSES.get(code, "stopped"),
        "faults": [str(event) for event in verdicts],
        "counts": {kind.name.lower(): count for kind, count in monitor.counts.items()},
    }
    if code:
        unconfirmed = [event for event in monitor.events if event.kind is EventKind.NOT_CONFIRMED]
        found["error"] = str([*verdicts, *unconfirmed][0])
    return found


def of_drives(drives: Iterable[Drive], sends: bool) -> dict[str, dict[str, Any]]:
    """Drive -> how it stands; `confirmed_off` is None where this run has nothing to answer for."""
    return {
        drive.settings.name: {
            "condition": drive.condition.value, "fault": drive.fault, "rejected": drive.rejected,
            "confirmed_off": drive.confirmed_off if sends and (drive.confirmed_off or drive.possibly_on) else None,
        }
        for drive in drives
    }  # fmt: skip


def of_buses(healths: dict[str, Health]) -> dict[str, dict[str, Any]]:
    """Bus -> how it stands, and its counts."""
    return {name: health._asdict() | {"link": health.link.value} for name, health in healths.items()}


def fields_of(event: Event) -> dict[str, Any]:
    """What an event has beside time, kind and text."""
    fields = event.as_dict()
    del fields["t"], fields["kind"], fields["text"]
    return fields
