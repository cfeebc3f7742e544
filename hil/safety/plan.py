"""How far a run on drives goes, and what the stages need of a machine."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

from hil.drives.base import Drive
from hil.safety.events import EventKind
from hil.safety.monitor import Monitor
from servoctl.types import Array


class Stage(IntEnum):
    """How far a run goes."""

    SHADOW = 0
    """Nothing is sent; the law is computed beside the machine."""

    ZERO = 1
    """Drives enabled, without a task: no torque, or what holds the pose of a machine that falls without."""

    RAMP = 2
    """From there to the law's torques, task time standing still."""

    FULL = 3
    """The task."""


class Machine(Protocol):
    """What the stages need of a rig."""

    @property
    def drives(self) -> Sequence[Drive]:
        """In the order of the plant's actuators."""

    positions: list[float]
    """Of the joints [joint unit]."""
    speeds: list[float]
    """Of the joints [joint unit/s]."""
    problems: list[tuple[EventKind, str, str]]
    """What sensing has found at the last read: kind, subject, detail."""

    def begin_enable(self, torques: Sequence[float]) -> None:
        """Starts to enable every drive, each with its torque from the first instant on."""

    def advance(self) -> bool:
        """Goes on with it; returns whether it is over. Raises DriveError."""

    def disable(self, brake: bool) -> bool:
        """Sends every drive off, by its own braking where wanted; returns whether all have confirmed."""

    def start_problems(self) -> list[tuple[str, str]]:
        """Drive and sentence where an encoder contradicts the start pose."""

    def watch(self, monitor: Monitor, now: int, since: int, working: bool) -> None:
        """Reports what nodes and buses say."""


@dataclass(frozen=True)
class RunPlan:
    """How far, how long, and by which torques.

    Attributes:
        stage: The last one.
        duration: Time in it [s]; of `FULL`, task time.
        zero_time: [s].
        ramp_time: [s].
        stop_time: Longest controlled stop [s].
        engage_tolerance: Largest violation and rate at which the task starts.
        damping: D of the controlled stop, per drive [actuator unit per its speed].
        hold: q -> torques that hold the pose, shape (m,); zeros where the machine does not fall.
        errors: (task time, q, v) -> row of the task -> its violation and rate; NaN for a rate that there is not.
        stops_on: Codes of statuses of the law that end the run.
        resolved: Row of the task -> steps of its violation and of its rate that the samples resolve.
    """

    stage: Stage
    duration: float
    zero_time: float
    ramp_time: float
    stop_time: float
    engage_tolerance: float
    damping: Sequence[float]
    hold: Callable[[Array], Array]
    errors: Callable[[float, Array, Array], dict[str, tuple[float, float]]]
    stops_on: frozenset[int] = frozenset()
    resolved: Mapping[str, tuple[float, float]] = field(default_factory=dict)
