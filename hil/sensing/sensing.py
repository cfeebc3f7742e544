"""From the samples of a tick to where the machine is.

Design: samples are judged one by one, brought to one instant by their speed, and only then put together, so that one
bad sample costs nothing and an old one is as good as its age. A channel without a fresh sample goes on at its speed;
how old it may become is for the safety rules to say.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hil.drives import Feedback
from hil.drives.sample import Sample
from hil.loop.clock import SECOND
from hil.loop.rig import Finding
from hil.sensing.channels import Channel, Displacements
from hil.sensing.coordinates import Coordinates, Estimate
from hil.sensing.observability import require_seen
from hil.sensing.plausibility import AxisMemory, Redundancy, judge
from hil.sensing.prediction import Prediction
from hil.sensing.rates import RateFilter, Track
from hil.sensing.tracking import TrackingMonitor
from servoctl.mechanics.model import Model
from servoctl.types import Array, State

SAMPLING = 2
"""Periods: the time constant of the rate filter, unless it is given."""


class Measurement(NamedTuple):
    """What a tick's samples say.

    Attributes:
        estimate: Where the machine is.
        ages: Of each channel's last good sample, shape (m,) [s]; infinite before the first.
        findings: What is wrong.
        positions: Of each channel, brought to the instant that was asked for [joint unit].
        rates: Of each channel [joint unit/s].
        valid: Whether every channel has been heard, all freedoms are seen and all numbers are finite.
    """

    estimate: Estimate
    ages: Array
    findings: Sequence[Finding]
    positions: Sequence[float]
    rates: Sequence[float]
    valid: bool


class Sensing:
    """Turns samples into q and v, tick by tick.

    Attributes:
        displacements: What is measured.
        coordinates: How q and v are found.
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
        """Builds everything that the ticks need.

        Args:
            model: The plant; its task does not matter.
            channels: What is measured, in the order of the samples.
            start: The start pose, given by a person: encoders do not know the assembly branch.
            period: Of the loop [s].
            rank_tolerance: Of the passive constraints.
            filtered: Whether speeds come from positions, whatever the drives say of them.
            filter_time: Time constant of that filter [s]; None: two periods, or two intervals of a slower channel.
            skew: By how much the age of a sample is uncertain [s]; None: one period.
            residual_tolerance: Largest residual of redundant displacements [joint unit]; None: by resolution.
            motion: The model's motion, for where the last torques lead; None: speeds stay as they are meanwhile, and
                no encoder is watched for being stuck.
            tracking: Watches whether the machine follows `motion`; None: nobody does.
            engine: `auto`, `c`, `vm` or `numpy`.

        Raises:
            ConfigError: A channel fits nothing, or a freedom is not measured.
            PlantError: The displacements of the motors are not known, or not conjugate to the actuators.
        """
        self.displacements = Displacements(model.plant, channels, start)
        self.coordinates = Coordinates(model, self.displacements, rank_tolerance, engine)
        require_seen(model, self.coordinates, start)
        self._model, self._motion, self._filtered = model, motion, filtered
        self._tracking = tracking
        self._skew = period if skew is None else skew
        times = [
            filter_time or SAMPLING * max(period, c.interval if math.isfinite(c.interval) else 0.0) for c in channels
        ]
        self._filters = [RateFilter(time) for time in times]
        self._residual_tolerance = residual_tolerance
        self._synced = [channel.feedback is Feedback.SYNC for channel in channels]
        self._unforeseen = [math.nan] * len(channels)
        self.begin(start, 0)

    def begin(self, start: State, now: int) -> None:
        """Forgets everything but the pose.

        Args:
            start: Where the machine is.
            now: Moment on the run's clock [ns].
        """
        m = len(self.displacements.channels)
        self._redundancy = Redundancy(self.displacements, self._residual_tolerance)
        self._memories = [AxisMemory()] * m
        self._tracks: list[Track | None] = [None] * m
        self._rates, self._before = [0.0] * m, [0.0] * m
        self._q, self._v, self._now = start.q, start.v, now
        self._syncs = (-1, -1)
        if self._tracking is not None:
            self._tracking.begin()

    def read(
        self, t: float, now: int, samples: Sequence[Sample | None], u: Array | None = None, sync: int | None = None
    ) -> Measurement:
        """Where the machine is.

        Args:
            t: Time of the plant [s].
            now: The instant that is asked for, on the run's clock [ns].
            samples: The newest of each channel.
            u: Inputs in force since the last tick, shape (actuators,) [actuator units]; None: not known.
            sync: When the last SYNC was sent [ns]: what is sampled after SYNC was measured then.
        """
        if sync is not None and sync != self._syncs[0]:
            self._syncs = (sync, self._syncs[0])
        plant, elapsed = self._model.plant, (now - self._now) / SECOND
        q, v, carry, expected = self._q, self._v, elapsed, self._unforeseen
        if self._motion is not None and u is not None and elapsed > 0.0:
            ahead, speed = self._motion(t - elapsed, elapsed, q, v, u)
            if _finite(ahead, speed):
                q, v, carry = ahead, speed, 0.0
                expected = self.displacements.rates(plant, q, v, t).tolist()
        findings: list[Finding] = []
        y, ages, slack = [], [], []
        heard, skew = True, self._skew
        for i, sample in enumerate(samples):
            last = None if sample is None else self._take(i, sample, expected[i], findings)
            if last is None:
                heard = False
                y.append(math.nan)
                ages.append(math.inf)
                slack.append(0.0)
                continue
            rate, age = self._rates[i], (now - last.time) / SECOND
            y.append(last.position + rate * age)
            ages.append(age)
            # an old sample is off by how far the speed has changed since, and by what is not known of its age
            slack.append(abs(rate) * skew + abs(rate - self._before[i]) * (age if age < 1.0 else 1.0))
        if not heard:
            known = self.displacements(plant, q + carry * v)
            y = [a if not math.isnan(a) else b for a, b in zip(y, known, strict=True)]
        found = self.coordinates(t, carry, q, v, y, self._rates, slack)
        finite = _finite(found.q, found.v)
        contradiction = self._redundancy.judge(found) if heard else None
        if contradiction is not None:
            findings.append(contradiction)
            # nobody knows yet which sample is wrong: the law gets where the last good ones lead
            found = found._replace(q=q + carry * v, v=v)
        if self._tracking is not None:
            surprise = found.v - v if carry == 0.0 and heard and finite else None
            lost = self._tracking.judge(t, elapsed, found.q, surprise, u)
            if lost is not None:
                findings.append(lost)
        if finite:
            self._q, self._v, self._now = found.q, found.v, now
        valid = heard and finite and found.rank == self._model.n
        return Measurement(found, np.array(ages), findings, y, self._rates, valid)

    def _take(self, i: int, sample: Sample, expected: float, findings: list[Finding]) -> Sample | None:
        """Takes one channel's sample in; returns the last good one."""
        memory, rate = self._memories[i], self._rates[i]
        time, velocity = sample.time, sample.velocity
        if self._synced[i]:
            time = self._measured(time)
        before = memory.accepted
        if time == memory.seen:
            return before
        if time != sample.time:
            sample = Sample(sample.position, velocity, sample.torque, time)
        displacements = self.displacements
        memory, finding = judge(displacements.channels[i], displacements.units[i], memory, sample, rate, expected)
        self._memories[i] = memory
        if finding is not None:
            findings.append(finding)
        if memory.accepted is not sample:
            return before
        self._before[i] = rate
        self._rates[i] = self._rate(i, before, sample) if self._filtered or velocity != velocity else velocity
        return sample

    def _rate(self, i: int, before: Sample | None, sample: Sample) -> float:
        """Speed of a channel whose newest sample tells none; the filter goes on from one that told it."""
        track = self._tracks[i]
        if before is not None and not (self._filtered or math.isnan(before.velocity)):
            track = Track(before.time, before.position, before.velocity)
        track = self._tracks[i] = self._filters[i].update(track, sample.position, sample.time)
        return track.rate

    def _measured(self, received: int) -> int:
        """When a sample was measured that is sent after SYNC [ns]."""
        last, before = self._syncs
        if 0 <= last <= received:
            return last
        return before if 0 <= before <= received else received

    def check_start(self, q: Array, samples: Sequence[Sample], tolerance: float) -> list[str]:
        """Why a machine is not in the pose that was given; a sentence per channel that is further off than allowed.

        Args:
            q: The pose, shape (n,).
            samples: Of each channel.
            tolerance: [joint unit].
        """
        given, said = self.displacements(self._model.plant, q), []
        for channel, unit, rho, sample in zip(
            self.displacements.channels, self.displacements.units, given, samples, strict=True
        ):
            apart = sample.position - float(rho)
            if not abs(apart) <= tolerance:
                said.append(
                    f"{'sensor' if channel.encoder else 'drive'} {channel.name}: the start pose puts it at "
                    f"{float(rho):.5g} {unit}, it is at {sample.position:.5g} {unit}: {apart:+.3g} {unit} apart, "
                    f"start_tolerance is {tolerance:g} {unit}"
                )
        return said


def _finite(q: Array, v: Array) -> bool:
    return math.isfinite(sum(q.tolist()) + sum(v.tolist()))  # of what is not finite no sum is
