"""What a run on drives does: its stages, their times, and the torques that hold the machine."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import isfinite

import numpy as np

from hil.safety.proof import ProofPlan
from hil.safety.torques import Guiding
from hil.sensing.motion import GravityCompensation
from servoctl.config.hil import Safety
from servoctl.types import Array


class Phase(Enum):
    """Present state of a run; the value is shown to the operator and recorded.

    The operator chooses one of those with a comment as the last stage of a run, before it stops.
    """

    SHADOW = "shadow"  # nothing is sent; the law only computes what it would send
    WAITING = "waiting for samples"
    ENABLING = "enabling"
    ZERO = "zero"  # drives enabled, no task: the pose is held, and the drives are tested
    RAMP = "ramp"  # torques blend from those of `ZERO` to those of the law; task time stands still
    FULL = "full"  # the task runs
    STOPPING = "stopping"
    DISABLING = "disabling"
    OVER = "over"
    FLOAT = "float"  # after `ZERO` a hand guides the machine, held against gravity alone, damped and torque-limited
    CALIBRATE = "calibrate"  # a hand moves the machine; nodes are started and asked for samples, no drive is enabled
    QUICK_STOP = "quick stop"
    BRAKING = "braking"  # the place in this list is the number in the column `stage` of every log: add at the end

    def __init__(self, shown: str) -> None:
        self.number = len(type(self).__members__)  # in that column

    @property
    def asks(self) -> bool:
        """Whether nodes are asked for samples in a run with this last stage."""
        return self is not Phase.SHADOW


WATCHING = (Phase.SHADOW, Phase.CALIBRATE)  # phases in which no drive is commanded

WORKING = (Phase.ZERO, Phase.RAMP, Phase.FULL, Phase.FLOAT, Phase.STOPPING)
"""Phases in which every drive should be enabled; C measures their ticks."""

ENDING = (Phase.QUICK_STOP, Phase.BRAKING, Phase.DISABLING, Phase.OVER)
"""Phases after the controlled stop: only the end follows."""

LET_GO = (Phase.BRAKING, Phase.DISABLING, Phase.OVER)
"""Phases in which drives go off, one after the other; one that is off may not answer."""


LEARNING = 0.6  # shortest time in `ZERO` before `FLOAT` [s]: the feedback of the pose settles within it


START_AT_REST = "let it start at rest, as 1 - cos(t) does, or set hil.safety.engage_tolerance above its rate"


@dataclass(frozen=True)
class RunPlan:
    """Stages, times and auxiliary torques of a run."""

    stage: Phase  # last stage
    duration: float  # time in the last stage [s]; in `FULL` it is task time
    safety: Safety  # its times, and the tolerance with which the task starts
    stop_rate: float  # [1/s] rate at which speeds decay in a controlled stop
    stands: bool  # whether it takes torques to hold the pose: drives begin with them, and what they lack is learned
    hold: GravityCompensation  # torques that cancel the forces by the model, and the inertia that the motors see
    # (task time, q, v) -> task row -> its violation and rate; the rate is NaN where the row has none
    errors: Callable[[float, Array, Array], dict[str, tuple[float, float]]]
    proof: ProofPlan  # how the drives are tested in `ZERO`
    stops_on: frozenset[int] = frozenset()  # codes of the law's statuses that end the run
    # task row -> smallest steps of its violation and of its rate that the samples resolve
    resolved: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    guiding: Guiding | None = None  # how the machine feels in the hand; None unless `stage` is `FLOAT`

    @property
    def time_in_zero(self) -> float:
        """Time in `ZERO` [s]; before `FLOAT` long enough to learn what the pose needs beyond the model."""
        if self.stage is Phase.ZERO:
            return self.duration
        zero_time = self.safety.zero_time
        return max(zero_time, LEARNING) if self.stage is Phase.FLOAT else zero_time

    def too_large(self, errors: Mapping[str, tuple[float, float]]) -> list[str]:
        """The task rows whose violation or rate forbids the start of the task."""
        # a row without a rate has NaN there, and fmax ignores NaN
        return [name for name, pair in errors.items() if not np.fmax(*np.abs(pair)) < self.safety.engage_tolerance]

    def why_not_engaged(self, name: str, error: tuple[float, float], at_rest: tuple[float, float]) -> str:
        """Violation and rate of a row, the smallest steps that can be measured, and the remedy.

        `at_rest`: what they would be at this pose if the machine stood still.
        """
        tolerance, resolved = self.safety.engage_tolerance, self.resolved.get(name, (0.0, 0.0))
        parts, coarsest = [], 0.0
        for word, value, step in zip(("error", "rate"), error, resolved, strict=True):
            size = abs(value)
            if not isfinite(size):
                parts.append(f"no {word}")
                continue
            parts.append(f"{word} {size:.3g}" + (f", measured in steps of {step:.2g}" if step else ""))
            coarsest = max(coarsest, step if size >= tolerance else 0.0)
        remedy = (
            "the machine is held off the start of the task: check initial.q and the gains, torque constant and gear of "
            "the drives, and load and friction in the model"
        )
        if abs(error[0]) < tolerance:
            remedy = f"the machine stands, and the task starts in motion: {START_AT_REST}"
            if abs(at_rest[1]) < tolerance:
                remedy = (
                    "the machine does not come to rest: check torque constant and gear of the drives, the gains, and "
                    "load and friction in the model"
                )
        if coarsest >= tolerance:
            remedy = (
                f"the tolerance is finer than the measurement: set engage_tolerance to {coarsest:.2g} or more, "
                "or use finer encoders"
            )
        return f"{'; '.join(parts)}; tolerance {tolerance:g}; {remedy}"
