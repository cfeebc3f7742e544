"""Sensing as a textbook has it: plain Python, written from the rules in `hil/core/c`, to judge C by.

A verdict is a tuple (found, channel, whether it stops the machine, cause, numbers of its sentence).
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hil.core.constants import Cause, Found
from hil.drives import Feedback, Sample
from hil.sensing.channels import Channel
from hil.sensing.sensing import Sensing
from servoctl.mechanics.plant import Plant
from servoctl.types import Array

NS = 1e9
Verdict = tuple[Found, int, bool, Cause, tuple[float, ...]]


def verdict(found: Found, channel: int, stops: bool, *numbers: float) -> Verdict:
    return found, channel, stops, Cause.NONE, numbers


@dataclass
class Joint:
    """One channel: its accepted sample and what the next one is checked by."""

    index: int
    channel: Channel
    interval: float  # [s] ordinary time between two samples
    tau: float  # [s] time constant of the rate filter
    filtered: bool
    accepted: Sample | None = None
    seen: int = -1
    received: int = -1
    rejected: int = 0
    travel: float = 0.0
    moved: int = 0
    rate: float = 0.0
    before: float = 0.0
    window: tuple[int, float, float, float, int] = (0, 0.0, 0.0, 0.0, 0)  # since, position, moved, path, beyond
    track: tuple[int, float, float] | None = None  # time, position, rate

    def accept(self, sample: Sample, expected: float) -> tuple[bool, list[Verdict]]:
        """Whether a new sample is accepted, and what is wrong with it."""
        last, self.seen = self.accepted, sample.time
        found = self._implausible(sample, expected)
        if found is not None:
            self.rejected += 1
            return False, [verdict(found[0], self.index, self.rejected >= 2, *found[1])]
        self.rejected = 0
        wrong = [*self._standstill(last, sample, expected), *self._scale(last, sample)]
        self.before = self.rate
        if self.filtered or math.isnan(sample.velocity):
            if last is not None and not self.filtered and not math.isnan(last.velocity):
                self.track = last.time, last.position, last.velocity
            self.track = self._filter(sample)
            self.rate = self.track[2]
        else:
            self.rate = sample.velocity
        self.accepted = sample
        return True, wrong

    def _implausible(self, sample: Sample, expected: float) -> tuple[Found, tuple[float, ...]] | None:
        if not math.isfinite(sample.position):
            return Found.POSITION, (sample.position,)
        if math.isinf(sample.velocity):
            return Found.VELOCITY, (sample.velocity,)
        if self.accepted is None:
            return None
        c, elapsed = self.channel, (sample.time - self.accepted.time) / NS
        ordinary = min(elapsed, self.interval)
        possible = 3 * c.resolution
        if math.isfinite(c.speed_limit):
            possible += 1.5 * c.speed_limit * ordinary
        else:
            fastest = [abs(speed) for speed in (self.rate, sample.velocity, expected) if math.isfinite(speed)]
            possible = possible + 1.5 * max(fastest, default=0.0) * ordinary + c.leap
        step = sample.position - (self.accepted.position + self.rate * (elapsed - ordinary))
        return None if abs(step) <= possible else (Found.JUMP, (step, elapsed * 1e3, possible))

    def _standstill(self, last: Sample | None, sample: Sample, expected: float) -> list[Verdict]:
        if last is None or sample.position != last.position or not math.isfinite(expected):
            self.travel, self.moved = 0.0, sample.time
            return []
        elapsed, still = (sample.time - last.time) / NS, (sample.time - self.moved) / NS
        self.travel += math.copysign(max(0.0, abs(expected) - self.channel.held * elapsed), expected) * elapsed
        if abs(self.travel) > 10.0 * (self.channel.visible or self.channel.resolution) and still >= 0.02:
            return [verdict(Found.STUCK, self.index, True, sample.position, still, self.travel)]
        if still >= 0.1:
            self.travel, self.moved = 0.0, sample.time
        return []

    def _scale(self, last: Sample | None, sample: Sample) -> list[Verdict]:
        c, (since, position, moved, path, beyond) = self.channel, self.window
        self.window = sample.time, sample.position, 0.0, 0.0, 0
        if last is None or not math.isfinite(last.velocity + sample.velocity):
            return []
        step, mean = (sample.time - last.time) / NS, 0.5 * (last.velocity + sample.velocity)
        if step > 3.0 * self.interval:
            return []
        moved, path = moved + step * mean, path + step * abs(mean)
        elapsed, travelled = (sample.time - since) / NS, sample.position - position
        errors = 2.0 * c.position_error + c.speed_error * elapsed
        if elapsed >= 0.03 and abs(travelled - moved) > 0.4 * path + errors:
            self.window = *self.window[:4], beyond + 1
            return [verdict(Found.SCALE, self.index, True, travelled, elapsed, moved)] if beyond else []
        if elapsed >= 0.03 and (path > 3.0 * errors or elapsed >= 0.3):
            self.window = *self.window[:4], 0 if abs(moved) > 0.5 * path else beyond
        else:
            self.window = since, position, moved, path, beyond
        return []

    def _filter(self, sample: Sample) -> tuple[int, float, float]:
        if self.track is None:
            return sample.time, sample.position, 0.0
        time, position, rate = self.track
        elapsed = (sample.time - time) / NS
        if elapsed <= 0.0:
            return self.track
        p, predicted = math.exp(-2.0 * elapsed / self.tau), position + rate * elapsed
        error = sample.position - predicted
        return sample.time, predicted + (1.0 - p * p) * error, rate + (1.0 - p) * (1.0 - p) / elapsed * error

    def sampled(
        self, sample: Sample, expected: float, now: int, present: float, asked: Sequence[int], period: int
    ) -> int:
        """Time at which a sample was measured, by the questions that were asked, the newest first."""
        sent = [moment for moment in asked if 0 <= moment <= sample.time]
        unanswered = [moment for moment in sent if moment > self.seen]
        if not sent:
            return sample.time
        if sample.time == self.received or not unanswered:
            return self.seen
        self.received = sample.time
        if self.channel.feedback is Feedback.REPLY:
            unanswered = [sample.time if sample.time - moment <= period else moment for moment in unanswered]
        if len(unanswered) == 1 or self.seen < 0 or not math.isfinite(expected):
            return unanswered[0]

        def misfit(moment: int) -> float:
            return abs(sample.position + expected * (now - moment) / NS - present)

        best, allowed = min(unanswered, key=misfit), max(self.channel.resolution, 2.0 * self.channel.position_error)
        return best if misfit(best) + allowed < misfit(unanswered[0]) else unanswered[0]


@dataclass
class Windows:
    """The windows of `TrackingMonitor`, whose functions and settings it shares."""

    monitor: Any  # a `TrackingMonitor`
    drives: Sequence[Channel]
    share: float
    period: float
    estimated: bool
    floors: Array = field(default_factory=lambda: np.array([math.nan]))

    def __post_init__(self) -> None:
        self.limits, self.m = self.monitor.limits, len(self.monitor.limits)
        resolved = 2.0 * np.array([drive.torque_step for drive in self.drives])
        self.resolved, self.felt = resolved, 0.005 * self.limits + resolved
        self.slow = 0.005 * np.array([drive.speed_limit for drive in self.drives])
        self.least, self.quick_least = 0.001 * self.limits, max(0.001, self.share) * self.limits
        self.friction = (math.inf if self.estimated else 2.0 * self.share) * self.limits
        self.lag, self.quick_time = 4 * self.period / 0.1, 1.5 * self.period
        self.report_lag = np.minimum(1.0, self.lag + np.array([drive.torque_every for drive in self.drives]) / 0.1)
        self.most = round(0.3 / (2 * self.period)), 3
        self.begin()

    def begin(self) -> None:
        names = self.monitor.struct.functions
        unproved = self.monitor.struct.arrays["unproved"]
        first = [names.UNPROVED if each else names.ARRIVES for each in unproved]
        self.states, self.before = [list(first), list(first)], (np.zeros(self.m), np.zeros(self.m))
        self.torques = np.zeros((2, self.m))  # of the last two short windows
        self.beyond = self.lacking = 0
        self.stopped = False
        self.last: deque[tuple[Array, Array]] = deque(maxlen=3)
        self._window()
        self._quick()

    def _window(self) -> None:
        self.elapsed, self.half = 0.0, None
        self.moved, self.sent, self.made = np.zeros(self.monitor.observer.n), np.zeros(self.m), np.zeros(self.m)
        self.low, self.high, self.where = (np.full(self.m, x) for x in (math.inf, -math.inf, math.nan))

    def _quick(self) -> None:
        self.quick = 0.0, np.zeros(self.monitor.observer.n), np.zeros(self.m)

    def judge(
        self,
        t: float,
        elapsed: float,
        q: Array,
        innovation: Array | None,
        u: Array | None,
        positions: Array,
        made: Array,
        speeds: Array,
    ) -> Verdict | None:
        if innovation is None or u is None or elapsed > 3 * self.period:
            self.begin()
            return None
        self.elapsed += elapsed
        self.moved, self.sent, self.made = (
            self.moved + innovation, self.sent + elapsed * u, self.made + elapsed * made,
        )  # fmt: skip
        self.low, self.high = np.minimum(self.low, u), np.maximum(self.high, u)
        if self.half is None and self.elapsed >= 0.05:
            self.half, self.where = (self.elapsed, self.moved, self.sent), positions
        time, moved, sent = self.quick
        self.quick = quick = time + elapsed, moved + innovation, sent + elapsed * u
        lost = None
        if quick[0] >= self.quick_time:
            lost = self._arrives(0, t, q, quick, speeds)
            self._quick()
        if self.elapsed < 0.1:
            return lost
        lost = self._arrives(1, t, q, (self.elapsed, self.moved, self.sent), speeds) or lost
        used = float((np.maximum(self.high, -self.low) / self.limits).max())
        swing = float(((self.high - self.low) / self.limits).max())
        d = self.monitor.observer(t, q, self.moved / self.elapsed)[0]
        self.where = np.abs(positions - self.where)
        found = self._lack() or lost or self._level(d, used, swing, t, q) or self._change(d, used, swing, t, q)
        self.stopped |= found is not None and found[2]
        self._window()
        return found

    def _arrives(
        self, which: int, t: float, q: Array, window: tuple[float, Array, Array], speeds: Array
    ) -> Verdict | None:
        elapsed, moved, sent = window
        if np.isnan(self.floors).any():
            self.floors = self.monitor.floor(t, q)
        u, (d, shares) = sent / elapsed, self.monitor.observer(t, q, moved / elapsed)
        named = self._arrivals(which, elapsed, u, d, shares, speeds)[1]
        if named is not None:
            self.floors = self.monitor.floor(t, q)
        after, named = self._arrivals(which, elapsed, u, d, shares, speeds)
        self.states[which] = after
        if which:
            self.before = u, d
        else:
            self.torques = np.array([u, self.torques[0]])
        if named is None:
            return None
        against = after[named] == self.monitor.struct.functions.AGAINST
        return verdict(Found.AGAINST if against else Found.LOST, named, True, u[named])

    def _arrivals(
        self, which: int, elapsed: float, u: Array, d: Array, shares: Array, speeds: Array
    ) -> tuple[list[int], int | None]:
        names, after, lost, square = (
            self.monitor.struct.functions,
            list(self.states[which]),
            None,
            sum(x * x for x in d),
        )
        visible = np.maximum(self.least, self.floors * 0.1 / elapsed)
        late = self.lag * (self.high - self.low) if which else np.abs(u - self.torques).max(axis=0)
        quick = np.maximum(self.quick_least, self.floors * 0.1 / self.quick_time)
        none = (np.abs(self.made) <= 0.25 * np.abs(self.sent)) & (np.abs(self.sent) > self.resolved * self.elapsed)
        for i, state in enumerate(self.states[which]):
            p, size, unproved = shares[i], abs(u[i]), state in (names.UNPROVED, names.AGAINST)
            if p <= 0.1 or (which and size > quick[i]):
                continue
            missing, left, moves = abs(d[i]) / p, abs(d[i] / p + u[i]), abs(speeds[i]) > self.slow[i]
            if max(size, missing) <= (visible if which or unproved else quick)[i]:
                continue
            alone = p > 0.99 or d[i] * d[i] / p > 0.8 * square
            du, dd = u[i] - self.before[0][i], (d[i] - self.before[1][i]) / p
            follows = not which or (abs(du) > 0.1 * size and abs(dd + du) <= 0.25 * abs(du))
            reported = bool(which and none[i])
            if unproved:
                against = alone and d[i] * u[i] < 0.0 < d[i] * speeds[i]
                against = against and missing >= max(visible[i], 0.75 * size) + late[i]
                after[i] = names.ARRIVES if missing <= 0.5 * size else names.AGAINST if against else names.UNPROVED
                after[i] = after[i] if moves else names.UNPROVED
                lost = i if after[i] == state == names.AGAINST else lost
            elif missing <= 0.5 * size:
                after[i] = names.ARRIVES
            elif left > 0.25 * size or not alone:
                after[i] = names.BETWEEN if state == names.ARRIVES else names.OTHER
            elif state == names.OTHER:
                continue
            elif reported or (moves and missing > late[i] and (d[i] * speeds[i] > 0.0 or missing > self.friction[i])):
                after[i] = names.NOT_FRICTION
                lost = i if state == names.NOT_FRICTION and (reported or follows) else lost
            else:
                gone = state == names.NOT_FRICTION or state > self.most[which]
                after[i] = names.OTHER if gone else max(names.LOST, state + 1)
        return after, lost

    def _lack(self) -> Verdict | None:
        sent, made = self.sent / self.elapsed, self.made / self.elapsed
        missing = np.abs(sent - made)
        allowed = 0.5 * np.abs(sent) + self.report_lag * (self.high - self.low) + self.felt
        self.lacking = self.lacking + 1 if (missing > allowed).any() else 0
        if self.lacking < 2:
            return None
        worst = int(np.nanargmax(missing / allowed))
        return verdict(Found.NOT_MADE, worst, True, made[worst], sent[worst])

    def _level(self, d: Array, used: float, swing: float, t: float, q: Array) -> Verdict | None:
        allowed = (self.share + (0.4 if self.estimated else 0.1) * used + self.lag * swing) * self.limits
        if (np.abs(d) > allowed).any():
            allowed = allowed + self.monitor.floor(t, q)
        worst = int(np.argmax(np.abs(d) / allowed))
        self.beyond = self.beyond + 1 if abs(d[worst]) > allowed[worst] else 0
        if self.beyond < 2:
            return None
        motor, cause, share = self._cause(d, t, q)
        return Found.DISTURBANCE, motor, True, cause, (d[worst], allowed[worst], share)

    def _change(self, d: Array, used: float, swing: float, t: float, q: Array) -> Verdict | None:
        if not self.estimated or self.stopped:
            return None
        allowed = (self.share + 0.1 * used + self.lag * swing) * self.limits
        *older, (last, then) = self.last or ((d, allowed),)
        self.last.append((d, allowed))
        for windows, (reference, _) in enumerate(reversed(older), start=2):
            change, stayed = np.abs(d - reference), np.abs(last - reference) > then
            if (stayed & (change > allowed)).any() and (stayed & (change > allowed + self.monitor.floor(t, q))).any():
                self.last.clear()
                self.last.append((d, allowed))
                motor, cause, share = self._cause(d - reference, t, q)
                stops = cause in (Cause.BLOCKED, Cause.PART)
                return Found.CHANGE, motor, stops, cause, ((d - reference)[motor], 0.1 * windows, share)
        return None

    def _cause(self, d: Array, t: float, q: Array) -> tuple[int, Cause, float]:
        assert self.half is not None
        time, moved, sent = self.half
        later, observer, limits = self.elapsed - time, self.monitor.observer, self.limits
        d0, shares = observer(t, q, moved / time)
        d1, u0, u1 = observer(t, q, (self.moved - moved) / later)[0], sent / time, (self.sent - sent) / later
        for i in range(self.m):
            du, change = u1[i] - u0[i], d1[i] - d0[i]
            follows = abs(du) > 0.03 * limits[i] and 0.5 < -change / du < 1.5
            nothing = abs(d0[i] + u0[i]) < 0.1 * abs(u0[i]) and abs(d1[i] + u1[i]) < 0.1 * abs(u1[i])
            nothing = nothing and min(abs(u0[i]), abs(u1[i])) > 0.03 * limits[i]
            if self.where[i] / later < self.slow[i] and (follows or nothing):
                return i, Cause.BLOCKED, 0.0
        square = np.where(shares > 1e-9, d**2 / np.maximum(shares, 1e-9), 0.0)
        a = int(np.argmax(square))
        if square[a] > 0.8 * sum(x * x for x in d) and abs(u1[a]) > 0.03 * limits[a]:
            proportional = d0[a] * u1[a] / (u0[a] or math.inf)
            if abs(d1[a] - proportional) < 0.5 * abs(d1[a] - d0[a]) and abs(u1[a] - u0[a]) > 0.03 * limits[a]:
                return a, Cause.PART, 100.0 * max(1.0 + d1[a] / shares[a] / u1[a], 0.0)
            return a, Cause.ALONE, 0.0
        return int(np.argmax(np.abs(d) / limits)), Cause.LOAD, 0.0


class Textbook:
    """All of `Sensing`, whose functions it shares."""

    def __init__(
        self, sensing: Sensing, plant: Plant, motion: Any, period: float, windows: Windows | None, **options: Any
    ) -> None:
        self.h, self.solve, self.motion, self.windows = sensing.displacements, sensing.coordinates, motion, windows
        self.plant, self.period, self.tolerance = plant, period, options.get("residual_tolerance")
        self.carried = options.get("carried", math.inf)
        self.q, self.v = (sensing.struct.arrays[name].copy() for name in "qv")
        self.now, self.row, filtered = 0, 0, options.get("filtered", False)
        self.asked: dict[Feedback, list[int]] = {Feedback.SYNC: [-1] * 8, Feedback.REPLY: [-1] * 8}
        times = period, sensing.filter_time
        self.joints = [Joint(i, channel, *times, filtered) for i, channel in enumerate(self.h.channels)]

    def read(
        self,
        t: float,
        now: int,
        samples: Sequence[Sample | None],
        u: Array | None,
        sync: int | None,
        command: int | None,
    ) -> tuple[list[Verdict], Array, Array, list[float], list[float], bool]:
        """Verdicts, q, v, displacements, speeds, and whether they are valid."""
        for feedback, moment in ((Feedback.SYNC, sync), (Feedback.REPLY, command)):
            if moment is not None and moment != self.asked[feedback][0]:
                self.asked[feedback] = [moment, *self.asked[feedback][:7]]
        elapsed, found = (now - self.now) / NS, list[Verdict]()
        q, v, carry, expected = self.q, self.v, elapsed, [math.nan] * len(samples)
        if self.motion is not None and u is not None and elapsed > 0.0:
            q, v = self.motion(t - elapsed, elapsed, q, v, u)
            carry, expected = 0.0, self._speeds(t, q, v)
        present, y, speeds, slack = self.h(self.plant, q), list[float](), list[float](), list[float]()
        for joint, sample, speed, there in zip(self.joints, samples, expected, present, strict=True):
            new = False
            if sample is not None:
                asked = self.asked.get(joint.channel.feedback)
                if asked is not None:
                    time = joint.sampled(sample, speed, now, there, asked, round(self.period * NS))
                    sample = sample._replace(time=time)
                if sample.time != joint.seen:
                    new, wrong = joint.accept(sample, speed)
                    found += wrong
            if sample is None or joint.accepted is None:
                y.append(math.nan)
                speeds.append(joint.rate)
                slack.append(0.0)
                continue
            age = (now - joint.accepted.time) / NS
            follows = age > round(1.5 * self.period * NS) / NS and not new and math.isfinite(speed)
            carried = min(age, self.carried)
            y.append(float(there) if follows else joint.accepted.position + joint.rate * carried)
            speeds.append(speed if follows else joint.rate if carried == age else 0.0)
            late = abs(joint.rate) * self.period + abs(joint.rate - joint.before) * min(age, 1.0)
            slack.append(late + abs(joint.rate) * (age - carried))
        complete = not any(map(math.isnan, y))
        if not complete:
            ahead = self.h(self.plant, q + carry * v)
            y = [float(b) if math.isnan(a) else a for a, b in zip(y, ahead, strict=True)]
        estimate = self.solve(t, carry, q, v, y, speeds, slack)
        finite, (new_q, new_v) = bool(np.isfinite([*estimate.q, *estimate.v]).all()), (estimate.q, estimate.v)
        if complete and (wrong := self._redundant(estimate)):
            found += wrong
            new_v = v if carry == 0.0 or self.row < 2 else np.zeros(len(v))
            new_q = q + carry * new_v
        if self.windows is not None:
            innovation = new_v - v if carry == 0.0 and complete and finite else None
            torques = np.array([math.nan if sample is None else sample.torque for sample in samples])
            m = self.windows.m
            more = np.array(y)[:m], torques[:m], np.array(speeds)[:m]
            deviation = self.windows.judge(t, elapsed, new_q, innovation, u, *more)
            found += [] if deviation is None else [deviation]
        if finite:
            self.q, self.v, self.now = new_q, new_v, now
        return found, new_q, new_v, y, speeds, complete and finite and estimate.rank == len(q)

    def _speeds(self, t: float, q: Array, v: Array) -> list[float]:
        """Speeds of the displacements; constant rows are summed in the order of the coordinates."""
        if self.h.rows is None:
            varying: list[float] = self.h.rates(self.plant, q, v, t).tolist()
            return varying
        speeds = [0.0] * len(self.h.rows)
        for i, row in enumerate(self.h.rows):
            for j, factor in row:  # not by sum(), which compensates rounding from Python 3.12 on
                speeds[i] += factor * float(v[j])
        return speeds

    def _redundant(self, estimate: Any) -> list[Verdict]:
        residual = np.abs(estimate.residual)
        most = (
            estimate.bound + 1e-3 * self.h.errors if self.tolerance is None else np.full(len(residual), self.tolerance)
        )
        self.row = 0 if (residual <= most).all() else self.row + 1
        if not self.row:
            return []
        worst = int(np.argmax(residual * self.h.weights / np.sqrt(np.maximum(estimate.redundancy, 1e-12))))
        allowed = estimate.bound[worst] if self.tolerance is None else self.tolerance
        return [verdict(Found.CONTRADICTION, worst, self.row >= 2, estimate.residual[worst], allowed)]
