"""An estimator as the user configures it; `bind` makes it ready for a plant."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from servoctl.errors import TaskError
from servoctl.estimation.attached import AttachedEstimator
from servoctl.estimation.gains import Gains, alpha_beta_gains, low_pass_gains, model_gains
from servoctl.mechanics.model import Model
from servoctl.mechanics.timing import Timing
from servoctl.reference.curve import end_of
from servoctl.types import State

Kind = Literal["model", "alpha_beta", "difference"]

NOISE, ACCELERATION = 1e-5, 10.0  # defaults of `Estimator.noise` and `acceleration`

CHANGE = 4.0
"""Default of `Estimator.disturbance`: its standard deviation after one second, at most [unit/s^2].

The steps of all periods add up as a random walk does: `disturbance sqrt(period 1 s)` is this. It bounds the torque
activity. At 1 ms, encoders of 16 bits cost half the activity of differences.
"""

SHARE = 0.35
"""Default of `Estimator.disturbance`: the estimator's poles are near this / period, in 1/s, or slower.

Encoders of fine resolution allow it. An arm with friction, rotor inertia and a load of 1 kg that the model lacks then
follows its path twice as well as at 0.17. At one cycle of delay and one of lag, inputs may act 2.3 times as much as the
model says before the loop is unstable (2.5 times at 0.17); with a second cycle that the estimator does not know, 1.9.
"""

FILTER_PERIODS = 2.0  # default of `Estimator.filter_time` [periods]
PerCoordinate = float | Sequence[float]  # one number for all coordinates, or one each


@dataclass(frozen=True)
class Estimator:
    """Estimates state and disturbance from positions.

    Attributes:
        kind: `model`: Kalman filter with the plant's model and a disturbance acceleration per coordinate; `alpha_beta`:
            Kalman filter without a model; `difference`: differences with a low pass.
        disturbance: Of `model`: how fast the disturbance changes [unit/s^2 per s]; None: the poles are at 0.35 /
            period, or lower, so that it changes by no more than 4 unit/s^2 in a second.
        noise: Standard deviation of the measured positions [unit].
        acceleration: Of `alpha_beta`: standard deviation of the acceleration [unit/s^2].
        filter_time: Of `difference`: time constant of the low pass [s]; None: two periods.

    Raises:
        TaskError: A number is out of its range; lists all of them.
    """

    kind: Kind = "model"
    disturbance: PerCoordinate | None = None
    noise: PerCoordinate = NOISE
    acceleration: PerCoordinate = ACCELERATION
    filter_time: float | None = None

    def __post_init__(self) -> None:
        problems = []
        if self.kind not in get_args(Kind):
            problems.append(f"estimation.kind: expected one of {', '.join(get_args(Kind))}, got {self.kind!r}")
        for name in ("disturbance", "noise", "acceleration"):
            given = getattr(self, name)
            if given is not None and not (np.asarray(given, dtype=float) > 0.0).all():
                problems.append(f"estimation.{name}: expected positive numbers, got {given}")
        if self.filter_time is not None and not self.filter_time > 0.0:
            problems.append(f"estimation.filter_time: expected a positive time [s], got {self.filter_time}")
        if problems:
            raise TaskError("\n".join(problems))

    def gains(self, names: Sequence[str], period: float) -> tuple[Gains, ...]:
        """The steady gains of each coordinate.

        Raises:
            TaskError: A list has a wrong length, or there is no steady gain.
        """
        values = self._values(names, period)
        time = FILTER_PERIODS * period if self.filter_time is None else self.filter_time
        found = []
        for name, s, r, a in zip(names, values["disturbance"], values["noise"], values["acceleration"], strict=True):
            try:
                if self.kind == "model":
                    found.append(model_gains(period, s, r))
                else:
                    tracks = self.kind == "alpha_beta"
                    found.append(alpha_beta_gains(period, a, r) if tracks else low_pass_gains(period, time, r))
            except TaskError as error:
                raise TaskError(f"estimation: {name}: {error}") from error
        return tuple(found)

    def changes(self, names: Sequence[str], period: float) -> tuple[float, ...]:
        """How fast the disturbance of each coordinate changes [unit/s^2 per s]; errors as of `gains`."""
        return tuple(self._values(names, period)["disturbance"])

    def _values(self, names: Sequence[str], period: float) -> dict[str, list[float]]:
        """`disturbance`, `noise` and `acceleration` of each coordinate."""
        values: dict[str, list[float]] = {}
        for field in ("disturbance", "noise", "acceleration"):
            value = getattr(self, field)
            given = np.asarray(CHANGE / math.sqrt(period) if value is None else value, dtype=float)
            if given.shape not in ((), (len(names),)):
                raise TaskError(
                    f"estimation.{field}: expected one number, or {len(names)} ({', '.join(names)}), got {given.shape}"
                )
            values[field] = np.broadcast_to(given, len(names)).tolist()
        if self.disturbance is None:
            most = [(SHARE / period) ** 3 * r for r in values["noise"]]
            values["disturbance"] = [min(s, limit) for s, limit in zip(values["disturbance"], most, strict=True)]
        return values

    def attach(
        self,
        model: Model,
        start: State,
        timing: Timing,
        rank_tolerance: float = 1e-6,
        clearance: Sequence[float] = (),
    ) -> AttachedEstimator:
        """The estimator for a plant.

        Args:
            model: Plant and task.
            start: State that the run starts from.
            timing: Of the loop, which is sampled.
            rank_tolerance: A mechanism direction counts when its pivot exceeds this times the size of all rows.
            clearance: Of each mechanism row; empty: none has any.

        Raises:
            TaskError: The numbers do not fit the plant.
        """
        names, rows = tuple(model.plant.coordinates), model.passive_rows
        gains = self.gains(names, timing.h)
        noise = np.broadcast_to(np.asarray(self.noise, dtype=float), len(names))
        return AttachedEstimator(
            kind=self.kind,
            coordinates=names,
            timing=timing,
            holonomic=tuple(row.has_rate for row in rows),
            rigid=tuple(
                i for i, row in enumerate(rows) if row.has_violation and not (len(clearance) and clearance[i] > 0.0)
            ),
            start_q=tuple(map(float, start.q)),
            start_v=tuple(map(float, start.v)),
            gain_q=tuple(each.q for each in gains),
            gain_v=tuple(each.v for each in gains),
            gain_d=tuple(each.d for each in gains),
            innovation=tuple(each.innovation for each in gains),
            sigma=tuple(each.sigma[2] for each in gains),
            weight=tuple((noise / noise.max()).tolist()),
            even=bool(np.all(noise == noise[0])),
            ends=end_of(constraint.signals for constraint in model.task.values()),
            rank_tolerance=rank_tolerance,
        )
