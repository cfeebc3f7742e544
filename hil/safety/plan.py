"""What a run on drives does: its stages, their times, and the torques that hold and damp the machine."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from servoctl.types import Array


class Stage(IntEnum):
    """Last stage of a run, as the operator chooses it."""

    SHADOW = 0
    """Nothing is sent; the law only computes what it would send."""

    ZERO = 1
    """Drives enabled, no task: zero torque, or gravity compensation for a machine that falls without torque."""

    RAMP = 2
    """Torques blend from those of `ZERO` to those of the law; task time stands still."""

    FULL = 3
    """The task runs."""


@dataclass(frozen=True)
class RunPlan:
    """Stages, times and auxiliary torques of a run.

    Attributes:
        stage: Last stage.
        duration: Time in the last stage [s]; in `FULL` it is task time.
        zero_time: Time in `ZERO` before `RAMP` [s].
        ramp_time: Time of the blend in `RAMP` [s].
        stop_time: Longest controlled stop [s].
        engage_tolerance: The task starts when every violation and its rate are below this.
        damping: Damping D of the controlled stop, per drive [actuator unit per its speed].
        hold: q -> torques that hold the pose, shape (m,); zeros where the machine does not fall.
        errors: (task time, q, v) -> task row -> its violation and rate; the rate is NaN where the row has none.
        stops_on: Codes of the law's statuses that end the run.
        resolved: Task row -> smallest steps of its violation and of its rate that the samples resolve.
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
