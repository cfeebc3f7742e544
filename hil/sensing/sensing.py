"""How the state of the machine follows from the samples of a tick.

Design: each sample is checked by itself, then extrapolated to the present instant with its speed, and only then are
the samples combined. So one bad sample is simply left out. A channel without a new sample for `OLD` periods follows the
model instead, with the torques that were sent; the safety rules limit how old a sample may become.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hil.drives import Feedback
from hil.drives.base import Sample
from hil.loop.clock import SECOND
from hil.loop.tick import Implausibility
from hil.sensing.channels import Channel, Displacements
from hil.sensing.coordinates import CoordinateEstimate, Coordinates, require_observability
from hil.sensing.plausibility import AxisMemory, Redundancy, judge
from hil.sensing.prediction import Prediction
from hil.sensing.scale import ScaleMemory, compare
from hil.sensing.tracking import TrackingMonitor
from servoctl.mechanics.model import Model
from servoctl.types import Array, State


class Track(NamedTuple):
    """State of the filter for one displacement."""

    time: int  # [ns] time of the last sample
    position: float  # [joint unit] filtered position
    rate: float  # [joint unit/s] estimated speed


class RateFilter:
    """An alpha-beta observer with a double pole at `exp(-2 T / tau)`; T is the actual time between two samples.

    Source: Benedict, Bordner 1962; alpha and beta of critical damping, `alpha = 1 - p^2`, `beta = (1 - p)^2`.
    """

    def __init__(self, tau: float) -> None:
        # time constant [s], positive. The rate lags by tau - T/2
        self.tau = tau

    def gains(self, elapsed: float) -> tuple[float, float]:
        """alpha and beta after a time [s]."""
        p = self._pole(elapsed)
        return 1.0 - p * p, (1.0 - p) * (1.0 - p)

    def update(self, track: Track | None, position: float, time: int) -> Track:
        """State after a sample; the same sample again changes nothing.

        Args:
            track: State before the sample; None: it is the first.
            position: Measured position [joint unit].
            time: When it was measured [ns].
        """
        if track is None:
            return Track(time, position, 0.0)
        elapsed = (time - track.time) / SECOND
        if elapsed <= 0.0:
            return track
        alpha, beta = self.gains(elapsed)
        predicted = track.position + track.rate * elapsed
        innovation = position - predicted
        return Track(time, predicted + alpha * innovation, track.rate + beta / elapsed * innovation)

    def _pole(self, elapsed: float) -> float:
        return math.exp(-2.0 * elapsed / self.tau)


OLD = 1.5  # age from which on a channel follows the model instead of its last sample, in periods
ASKED = 8  # number of SYNCs that are remembered; an older reply is stale
SAMPLING = 2  # default time constant of the rate filter, in periods


class Measurement(NamedTuple):
    """State of the machine by the samples of one tick."""

    estimate: CoordinateEstimate  # coordinates and velocities
    ages: Array  # age of each channel's last good sample, shape (m,) [s]; infinite before the first
    findings: Sequence[Implausibility]  # implausible samples and motions
    positions: Sequence[float]  # [joint unit] displacement of each channel at the present instant
    rates: Sequence[float]  # [joint unit/s] speed of each channel
    valid: bool  # whether every channel has sent a sample, all directions are measured and all numbers are finite


@dataclass
class SensingState:
    """What sensing remembers from tick to tick."""

    # q, v: last state of the machine
    q: Array
    v: Array
    now: int  # [ns] its time
    # when the last SYNCs were sent, and the first command of each of the last ticks, the newest first, two or more [ns]
    asked: dict[Feedback, tuple[int, ...]]
    received: list[int]  # [ns] when the last sample of each channel was received
    memories: list[AxisMemory]  # accepted sample of each channel, and what it is checked by
    scales: list[ScaleMemory]  # what tells whether the positions of each channel fit its speeds
    rates: list[float]  # [joint unit/s] speed of each channel
    before: list[float]  # the speeds before


class Sensing:
    """Computes q and v from the samples of each tick.

    Args:
        channels: What is measured, in the order of the samples.
        start: Start pose from the config: encoders cannot tell which assembly branch the machine is in.
        filtered: Whether speeds are computed from positions even if the drives measure speeds.
        filter_time: Time constant of that filter [s]; None: two periods, or two intervals of a slower channel.
        skew: Uncertainty of a sample's age [s]; None: one period.
        residual_tolerance: Largest residual of redundant displacements [joint unit]; None: by the resolutions.
        motion: Predicts the motion under the last torques; None: speeds stay constant between ticks, and stuck
            encoders are not detected.
        tracking: Checks whether the machine follows `motion`; None: not checked.

    Raises:
        ConfigError: A channel fits no actuator or coordinate, or a degree of freedom is not measured.
        PlantError: The displacements of the motors are not known, or not conjugate to the actuators.
    """

    def __init__(
        self,
        model: Model,
        channels: Sequence[Channel],
        start: State,
        period: float,
        *,
        rank_tolerance: float = 1e-6,
        filtered: bool = False,
        filter_time: float | None = None,
        skew: float | None = None,
        residual_tolerance: float | None = None,
        motion: Prediction | None = None,
        tracking: TrackingMonitor | None = None,
        engine: str = "auto",
    ) -> None:

        self.displacements = Displacements(model.plant, channels, start)  # what is measured
        self.coordinates = Coordinates(model, self.displacements, rank_tolerance, engine)  # solves for q and v
        require_observability(model, self.coordinates, start)
        self._model, self._motion = model, motion
        self.filtered = filtered  # whether speeds are computed from positions even if the drives measure speeds
        self.tracking = tracking  # checks whether the machine follows its model; None: not checked
        self.skew = period if skew is None else skew  # [s] uncertainty of a sample's age
        self.old = round(OLD * period * SECOND) / SECOND  # [s] age from which on a channel follows the model
        self._period = round(period * SECOND)
        # [s] time constant of the filter of each channel, where one is used
        self.filter_times = [
            filter_time or SAMPLING * max(period, c.interval if math.isfinite(c.interval) else 0.0) for c in channels
        ]
        self._filters = [RateFilter(time) for time in self.filter_times]
        # largest residual of redundant displacements [joint unit]; None: by the resolutions
        self.residual_tolerance = residual_tolerance
        self._feedbacks = [channel.feedback for channel in channels]
        self._no_prediction = [math.nan] * len(channels)
        self.begin(start, 0)

    def begin(self, start: State, now: int) -> None:
        """Starts again from a pose."""
        m = len(self.displacements.channels)
        self._redundancy = Redundancy(self.displacements, self.residual_tolerance)
        self._tracks: list[Track | None] = [None] * m
        self._late = [False] * m
        asked: dict[Feedback, tuple[int, ...]] = {Feedback.SYNC: (-1, -1), Feedback.REPLY: (-1, -1)}
        self.state = SensingState(
            start.q, start.v, now, asked, [-1] * m, [AxisMemory()] * m, [ScaleMemory()] * m, [0.0] * m, [0.0] * m
        )
        if self.tracking is not None:
            self.tracking.begin()

    @property
    def steady(self) -> bool:
        """Whether redundant measurements agree, no speed is filtered, and each reply came before the next question."""
        return self._redundancy.agrees and not any(self._tracks) and not any(self._late)

    def read(
        self,
        t: float,
        now: int,
        samples: Sequence[Sample | None],
        u: Array | None = None,
        sync: int | None = None,
        command: int | None = None,
    ) -> Measurement:
        """State of the machine now.

        Args:
            t: Time of the plant [s].
            samples: Newest sample of each channel.
            u: Inputs since the last tick, shape (actuators,) [actuator units]; None: not known.
            sync: When the last SYNC was sent [ns]; channels with SYNC feedback measure at that moment.
            command: When the last commands were sent, the first of them [ns]; channels with REPLY feedback measure
                after that.
        """
        for feedback, moment in ((Feedback.SYNC, sync), (Feedback.REPLY, command)):
            asked = self.state.asked[feedback]
            if moment is not None and moment != asked[0]:
                self.state.asked[feedback] = (moment, *asked[: ASKED - 1])
        plant, elapsed = self._model.plant, (now - self.state.now) / SECOND
        # start point of the solver: the model's prediction, or the last state, which then moves on by `carry` seconds
        q, v, carry, expected = self.state.q, self.state.v, elapsed, self._no_prediction
        if self._motion is not None and u is not None and elapsed > 0.0:
            predicted_q, predicted_v = self._motion(t - elapsed, elapsed, q, v, u)
            if _finite(predicted_q, predicted_v):
                q, v, carry = predicted_q, predicted_v, 0.0
                expected = self.displacements.speeds(plant, q, v, t)
        findings: list[Implausibility] = []
        y, ages, slack, rates = [], [], [], self.state.rates
        complete, skew, predicted = True, self.skew, None
        for i, sample in enumerate(samples):
            before = self.state.memories[i].accepted
            if sample is None:
                last = None
            else:
                asked = self.state.asked.get(self._feedbacks[i], ())
                time = self._sampled(i, sample, expected[i], now, q, asked) if asked else sample.time
                last = self._accept(i, sample, time, expected[i], findings)
            if last is None:
                complete = False
                y.append(math.nan)
                ages.append(math.inf)
                slack.append(0.0)
                continue
            rate, age = self.state.rates[i], (now - last.time) / SECOND
            if age > self.old and last is before and math.isfinite(expected[i]):
                predicted = self.displacements(plant, q) if predicted is None else predicted
                rates = [*rates[:i], expected[i], *rates[i + 1 :]]
                y.append(float(predicted[i]))
            else:
                y.append(last.position + rate * age)
            ages.append(age)
            # error of the extrapolation: the uncertain age, and the change of the speed since the sample
            slack.append(abs(rate) * skew + abs(rate - self.state.before[i]) * (age if age < 1.0 else 1.0))
        if not complete:
            predicted = self.displacements(plant, q + carry * v)
            y = [a if not math.isnan(a) else b for a, b in zip(y, predicted, strict=True)]
        estimate = self.coordinates(t, carry, q, v, y, rates, slack)
        finite = _finite(estimate.q, estimate.v)
        contradiction = self._redundancy.judge(estimate) if complete else None
        if contradiction is not None:
            findings.append(contradiction)
            # it is not known which sample is wrong: the law gets the prediction from the last good samples
            estimate = estimate._replace(q=q + carry * v, v=v)
        if self.tracking is not None:
            innovation = estimate.v - v if carry == 0.0 and complete and finite else None
            made = [math.nan if sample is None else sample.torque for sample in samples]
            deviation = self.tracking.judge(t, elapsed, estimate.q, innovation, u, y, made, rates)
            if deviation is not None:
                findings.append(deviation)
        if finite:
            self.state.q, self.state.v, self.state.now = estimate.q, estimate.v, now
        valid = complete and finite and estimate.rank == self._model.n
        return Measurement(estimate, np.array(ages), findings, y, rates, valid)

    def _accept(
        self, i: int, sample: Sample, time: int, expected: float, findings: list[Implausibility]
    ) -> Sample | None:
        """Checks a channel's sample of a time [ns]; returns the last good one, None if there is none."""
        memory, rate, velocity = self.state.memories[i], self.state.rates[i], sample.velocity
        before = memory.accepted
        if time == memory.seen:
            return before
        if time != sample.time:
            sample = Sample(sample.position, velocity, sample.torque, time)
        channel, unit = self.displacements.channels[i], self.displacements.units[i]
        memory, finding = judge(channel, unit, memory, sample, rate, expected)
        self.state.memories[i] = memory
        if finding is not None:
            findings.append(finding)
        if memory.accepted is not sample:
            return before
        self.state.scales[i], wrong = compare(channel, unit, self.state.scales[i], before, sample)
        if wrong:
            findings.append(Implausibility(channel.name, wrong, True))
        self.state.before[i] = rate
        no_velocity = velocity != velocity  # NaN
        self.state.rates[i] = self._rate(i, before, sample) if self.filtered or no_velocity else velocity
        return sample

    def _rate(self, i: int, before: Sample | None, sample: Sample) -> float:
        """Filtered speed of a channel; the filter starts from the last velocity that the node measured, if any."""
        track = self._tracks[i]
        if before is not None and not (self.filtered or math.isnan(before.velocity)):
            track = Track(before.time, before.position, before.velocity)
        track = self._tracks[i] = self._filters[i].update(track, sample.position, sample.time)
        return track.rate

    def _sampled(self, i: int, sample: Sample, expected: float, now: int, q: Array, asked: Sequence[int]) -> int:
        """Time at which a sample was measured [ns]: that of the SYNC or command that it answers.

        It answers one that no reply has answered yet. Where a reply is missing, it may have been lost, or be this one:
        then the one counts at which the position fits the motion of the model, or the last one where all of them fit.
        A reply that comes within a period of its command is dated at its receipt, and so is one that nothing known has
        asked for.
        """
        received, seen = sample.time, self.state.memories[i].seen
        sent = [moment for moment in asked if 0 <= moment <= received]
        if not sent:
            return received
        open_ones = [moment for moment in sent if moment > seen]
        if received == self.state.received[i] or not open_ones:
            return seen
        self.state.received[i], self._late[i] = received, False
        if self._feedbacks[i] is Feedback.REPLY:
            open_ones = [received if received - moment <= self._period else moment for moment in open_ones]
        newest = open_ones[0]
        if len(open_ones) == 1 or seen < 0 or not math.isfinite(expected):
            return newest
        channel = self.displacements.channels[i]
        present = float(self.displacements(self._model.plant, q)[i])

        def misfit(moment: int) -> float:
            return abs(sample.position + expected * (now - moment) / SECOND - present)

        best = min(open_ones, key=misfit)
        self._late[i] = misfit(best) + max(channel.resolution, 2.0 * channel.position_error) < misfit(newest)
        return best if self._late[i] else newest

    def check_start(self, q: Array, samples: Sequence[Sample], tolerances: Sequence[float]) -> list[str]:
        """Checks the start pose; returns one explanation per channel that differs by more than its tolerance.

        Args:
            q: Start pose, shape (n,).
            samples: Sample of each channel.
            tolerances: Largest difference of each [joint unit].
        """
        problems = []
        for channel, unit, expected, sample, tolerance in zip(
            self.displacements.channels,
            self.displacements.units,
            self.displacements(self._model.plant, q).tolist(),
            samples,
            tolerances,
            strict=True,
        ):
            difference = sample.position - expected
            if not abs(difference) <= tolerance:
                problems.append(
                    f"{'sensor' if channel.encoder else 'drive'} {channel.name}: expected {expected:.5g} {unit} at the "
                    f"start pose, measured {sample.position:.5g} {unit} (difference {difference:+.3g} {unit}, "
                    f"start_tolerance {tolerance:g} {unit})"
                )
        return problems


def _finite(q: Array, v: Array) -> bool:
    return math.isfinite(sum(q.tolist()) + sum(v.tolist()))  # the sum is not finite if any value is not
