"""What `summary.json` holds about a run on drives: outcome, drives, buses, timing."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hil.bus.base import Health
from hil.drives import Drive
from hil.loop.timing import Distribution, TickStatistics
from hil.safety import EventKind, Monitor
from hil.safety.proof import TorqueProof
from servoctl.mechanics.drawing import drawing
from servoctl.mechanics.model import Model
from servoctl.run_folder import write_drawing
from servoctl.run_folder.trajectory import Trajectory
from servoctl.types import Status

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


def drive_states(drives: Iterable[Drive], sends: bool, proof: TorqueProof | None = None) -> dict[str, dict[str, Any]]:
    """Drive -> its state; `confirmed_off` is None if this run never switched the drive on."""
    states: dict[str, dict[str, Any]] = {
        drive.settings.name: {
            "condition": drive.condition.value, "fault": drive.fault, "rejected": drive.rejected,
            "confirmed_off": drive.confirmed_off if sends and (drive.confirmed_off or drive.possibly_on) else None,
        }
        for drive in drives
    }  # fmt: skip
    for state, axis in zip(states.values(), () if proof is None else proof.axes, strict=False):
        state["proof"] = axis.as_dict()
    return states


def bus_states(healths: Mapping[str, Health]) -> dict[str, dict[str, Any]]:
    """Bus -> its health and its counts."""
    return {name: health._asdict() | {"link": health.link.value} for name, health in healths.items()}


def timing_figures(timing: TickStatistics, parts: Mapping[str, Distribution], cpu_time: float | None) -> dict[str, Any]:
    """Lateness and durations of the ticks [s].

    Args:
        timing: Lateness and sample ages.
        parts: Part of a tick -> its durations.
        cpu_time: CPU time per tick [s]; None: not measured, as in virtual time.
    """
    figures = timing.as_dict() | {f"{name}_s": part.as_dict() for name, part in parts.items()}
    return figures if cpu_time is None else figures | {"cpu_per_tick_s": cpu_time}


def save_drawing(run: Trajectory, model: Model, folder: Path) -> None:
    """Adds the drawing of a run to its folder; an error of the plant leaves it out."""
    with suppress(BaseException):
        if frames := drawing(model, run.t, run.q, run.v, run.columns.get("task_time")):
            write_drawing(folder, frames)
