"""An estimator as the user configures it; `bind` makes it ready for a plant.

    model       x = (q, v, d),  x- = A x + (h^2/2, h, 0) a,  x = x- + K (y - q-)
                A = [[1, h, h^2/2], [0, 1, h], [0, 0, 1]],  Q = diag(0, 0, (s h)^2),  R = r^2
    alpha_beta  x = (q, v),  the same with a random acceleration of standard deviation s, constant over each period

K is the steady Kalman gain: of the discrete Riccati equation, or in closed form.

Design: the equation is solved for q / r, v h / r, d h^2 / r, where only the number s h^3 / r is left, so that its
numbers stay near 1 for every unit and period.

Source: Kalman 1960; Kalata 1984 for alpha-beta. The disturbance as a state is usual.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field

from servoctl.errors import TaskError
from servoctl.estimation.attached import AttachedEstimator
from servoctl.mechanics.model import Model
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.timing import Timing
from servoctl.reference.curve import end_of
from servoctl.tree.fields import Notes, PerName, Positive, PositiveTime, ScalarOr, described, one_per_name
from servoctl.tree.rules import Broken, FieldPath, Rules, Section, outer_rule, rule
from servoctl.types import Array, State

LEAST, MOST = 1e-12, 1e6
"""Range of s h^3 / r in which the Riccati equation is solved to the last digits, and of s h^2 / r."""

SHORTEST, LONGEST = 0.2, 1e6
"""Times of a low pass, from one that passes differences unchanged to 1e-4 to one that hardly passes any [periods]."""


@dataclass(frozen=True)
class Gains:
    """Steady gains of one coordinate."""

    q: float  # [-] on the innovation, of the position
    v: float  # [1/s] of the velocity
    d: float  # of the disturbance [1/s^2]; 0 without one
    innovation: float  # [its unit] standard deviation of the innovation
    sigma: tuple[float, float, float]  # [its unit, per s, per s^2] standard deviations of q, v and d after an update


def model_gains(h: float, disturbance: float, noise: float) -> Gains:
    """The Kalman gains with a disturbance acceleration.

    Args:
        disturbance: s: how fast the disturbance changes [unit/s^2 per s].
        noise: r: standard deviation of the positions [unit].

    Raises:
        TaskError: The numbers are too far apart for a solution.
    """
    from scipy.linalg import solve_discrete_are  # here, because it takes a third of the time to start a command

    index = disturbance * h**3 / noise
    if not LEAST <= index <= MOST:
        raise TaskError(
            f"disturbance {disturbance:g} and noise {noise:g} at a period of {h:g} s: disturbance period^3 / noise is "
            f"{index:.2g} (expected {LEAST:g} to {MOST:g})"
        )
    A = np.array([[1.0, 1.0, 0.5], [0.0, 1.0, 1.0], [0.0, 0.0, 1.0]])
    H, Q, R = np.array([[1.0, 0.0, 0.0]]), np.diag([0.0, 0.0, index**2]), np.eye(1)
    try:
        P = solve_discrete_are(A.T, H.T, Q, R)
    except (np.linalg.LinAlgError, ValueError) as error:
        raise TaskError(f"disturbance {disturbance:g}, noise {noise:g}: no steady gain ({error})") from error
    for _ in range(3):  # the recursion itself takes the last digits of rounding away
        P = A @ (P - np.outer(P[:, 0], P[0]) / (P[0, 0] + 1.0)) @ A.T + Q
    S = P[0, 0] + 1.0
    K, after = P[:, 0] / S, P - np.outer(P[:, 0], P[0]) / S
    sigma = noise * np.sqrt(np.diag(after)) / np.array([1.0, h, h * h])
    return Gains(float(K[0]), float(K[1] / h), float(K[2] / h**2), float(noise * np.sqrt(S)), tuple(sigma.tolist()))


def alpha_beta_gains(h: float, acceleration: float, noise: float) -> Gains:
    """The steady Kalman gains without a model.

    Args:
        acceleration: s: standard deviation of the acceleration [unit/s^2].
        noise: r: standard deviation of the positions [unit].

    Raises:
        TaskError: The numbers are too far apart for gains that are neither 0 nor 1.
    """
    index = acceleration * h * h / noise
    if not LEAST <= index <= MOST:
        raise TaskError(
            f"acceleration {acceleration:g} and noise {noise:g} at a period of {h:g} s: acceleration period^2 / noise "
            f"is {index:.2g} (expected {LEAST:g} to {MOST:g})"
        )
    # (4 + index - sqrt(8 index + index^2)) / 4, without the difference of two numbers that are nearly equal
    root = 4.0 / (4.0 + index + np.sqrt(8.0 * index + index * index))
    alpha = 1.0 - root * root
    beta = 2.0 * (2.0 - alpha) - 4.0 * root
    return _tracking(h, float(alpha), float(beta), noise)


def low_pass_gains(h: float, time: float, noise: float) -> Gains:
    """Gains of a filter that differentiates positions: alpha-beta with both poles at exp(-2 h / time).

    Raises:
        TaskError: The time is too short, or too long.
    """
    if not SHORTEST * h <= time <= LONGEST * h:
        raise TaskError(f"filter_time {time:g} s: expected {SHORTEST:g} to {LONGEST:g} periods of {h:g} s")
    pole = float(np.exp(-2.0 * h / time))
    return _tracking(h, 1.0 - pole * pole, (1.0 - pole) ** 2, noise)


def _tracking(h: float, alpha: float, beta: float, noise: float) -> Gains:
    speed = noise / h * float(np.sqrt(beta * (alpha - beta / 2.0) / (1.0 - alpha)))
    return Gains(alpha, beta / h, 0.0, noise / float(np.sqrt(1.0 - alpha)), (noise * float(np.sqrt(alpha)), speed, 0.0))


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

OF_KIND = {"disturbance": "model", "acceleration": "alpha_beta", "filter_time": "difference"}
"""Field -> the kind that uses it."""


class PositionNoise(Section):
    """Noise of the measured positions."""

    q: PerName[Positive] = Field(
        description="standard deviation [units of the plant]: one for all, list in the plant's order, or by name"
    )


REPLACED = {"velocity": "source of speeds", "velocity_filter": "filter of speeds", "prediction": "prediction"}
"""Fields of `hil` that an estimator replaces."""


@dataclass(frozen=True)
class Estimator(Rules):
    """Estimates state and disturbance from positions."""

    kind: Kind = described(
        "model",
        "model: Kalman filter with a disturbance acceleration per coordinate, which the law cancels; "
        "alpha_beta: Kalman filter without a model; difference: differences with a low pass; left out: model",
    )
    disturbance: PerName[Positive] | None = described(
        None,
        "of model: how fast the disturbance changes [unit/s^2 per s]: one for all, list in the plant's "
        "order, or by name; left out: the estimator's poles are at 0.35 / period, or lower, so that the "
        "disturbance changes by no more than 4 unit/s^2 in a second",
    )
    noise: ScalarOr[Positive, PositionNoise] | None = described(
        None,
        "noise of the positions, one for all or {q: ...}; left out: from realism, or from the "
        "resolution of the drives; 1e-5 where neither is given",
    )
    acceleration: PerName[Positive] | None = described(
        None,
        "of alpha_beta: standard deviation of the acceleration [unit/s^2], written as disturbance is; left out: 10",
    )
    filter_time: PositiveTime | None = described(
        None, "of difference: time constant of the low pass [s]; left out: two periods"
    )

    @rule
    def _fields_fit_the_kind(self) -> Broken:
        for field, of in OF_KIND.items():
            if getattr(self, field) is not None and self.kind != of:
                yield (field,), f"belongs to kind {of}, not to {self.kind} (leave it out)"

    @outer_rule
    def _fits_the_loop(self, config: Any, at: FieldPath) -> Broken:
        law, hil = config.law, config.hil
        if law in (None, "none"):
            yield at, "needs a law (an open-loop run has no use for an estimate)"
        if hil is None and config.run.period is None:
            yield at, "needs a sampled law (give run.period)"
        if self.kind == "model" and getattr(law, "observer", None) is not None:
            yield (
                ("law", "observer"),
                "cannot be used with estimation.kind model: both would cancel the same disturbance (leave one out)",
            )
        for field, what in () if hil is None else REPLACED.items():
            if getattr(hil, field) not in (None, False, "drive"):
                yield ("hil", field), f"estimation replaces this {what} (leave one of the two out)"

    def ready(self, plant: Plant, measured: Array | None, period: float, problems: Notes) -> Self:
        """The estimator with a number per coordinate, or one, in every field.

        Args:
            measured: Standard deviation of the measured positions, shape (n,), used where no noise is given; 0: exact.
            period: Of the loop [s].
            problems: Takes what is wrong.
        """

        def each(given: Any, default: Array | float, *path: str) -> tuple[float, ...]:
            numbers = {} if given is None else given
            values = one_per_name(numbers, plant.coordinates, "coordinate", problems, "estimation", *path)
            return tuple(np.where(values > 0.0, values, default).tolist())  # wrong ones are noted

        given, *path = (self.noise.q, "q") if isinstance(self.noise, PositionNoise) else (self.noise,)
        noise = each(given, NOISE if measured is None else np.where(measured > 0.0, measured, NOISE), "noise", *path)
        change = np.minimum(CHANGE / math.sqrt(period), (SHARE / period) ** 3 * np.array(noise))
        return replace(
            self,
            noise=PositionNoise(q=noise),
            disturbance=each(self.disturbance, change, "disturbance"),
            acceleration=each(self.acceleration, ACCELERATION, "acceleration"),
            filter_time=FILTER_PERIODS * period if self.filter_time is None else self.filter_time,
        )

    @property
    def numbers(self) -> tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]:
        """Noise, disturbance and acceleration of each coordinate; of an estimator that is ready."""
        ready: Any = self
        return ready.noise.q, ready.disturbance, ready.acceleration

    def gains(self, names: Iterable[str], period: float) -> tuple[Gains, ...]:
        """The steady gains of each coordinate; of an estimator that is ready.

        Raises:
            TaskError: There is no steady gain.
        """
        assert self.filter_time is not None
        found = []
        for name, r, s, a in zip(names, *self.numbers, strict=True):
            try:
                if self.kind == "model":
                    found.append(model_gains(period, s, r))
                else:
                    tracks = self.kind == "alpha_beta"
                    time = self.filter_time
                    found.append(alpha_beta_gains(period, a, r) if tracks else low_pass_gains(period, time, r))
            except TaskError as error:
                raise TaskError(f"estimation: {name}: {error}") from error
        return tuple(found)

    def attach(
        self,
        model: Model,
        start: State,
        timing: Timing,
        rank_tolerance: float = 1e-6,
        clearance: Sequence[float] = (),
    ) -> AttachedEstimator:
        """The estimator for a plant; this one is ready.

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
        gains, noise = self.gains(names, timing.h), np.array(self.numbers[0])
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
