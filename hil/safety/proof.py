"""Whether each drive moves its axis as the model says, in sign and in size: proved in stage zero, before the task.

    W y'' = F u - g                       F = diag(f): f is 1 by the model, and negative with the wrong polarity
    f = N^-1 sum j o (W v)                N = W W^+ o sum j j^T,   j = int u dt,   o: element by element

y are the displacements of the motors and v = y'; W and g are as of `hil.sensing.gravity.Hold`. v and j count from the
beginning of the test, without their constant and linear parts: what the model lacks of the holding torque adds only
those. The test adds to the torque of every drive +d, -d, -d, +d, each for a quarter, so an axis moves a little and
comes back. Dry friction does not look like a torque: its sign follows the speed, which is orthogonal to this sequence.
Axes that are not proved get four times the torque in the next round, up to the limit of stage zero.

Design: a drive with the wrong polarity shows as soon as its brake opens: `AxisMotion` judges that. What friction hides
there is `unproved`, and watched by `hil.sensing.tracking` from then on. These rules are ours; the momentum balance is
that of `hil.sensing.tracking`. While brakes open (`AxisMotion`): no load makes a machine fall faster than without
torque, so an axis that does is driven by its own motor. Torque that is missing, or too large, shows there too. This is
judged over a few ticks: the finer the speeds, the fewer are needed. C does the ticks in which nothing can be found, by
bounds that are a little narrower (`c/test.c`); the others are judged here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import numpy as np

from hil.drives.settings import DriveSettings
from hil.safety.events import EventKind
from hil.sensing.gravity import Hold
from servoctl.types import Array

REVERSED, NOTHING, EXCESS = -0.15, 0.3, 1.6
"""While an axis moves, a response below the first is that of the wrong polarity, between the first two that of a motor
without torque, and above the last one that of a torque that is too large."""

WINDOWS = (2, 4)  # numbers of ticks over which an axis is judged at every tick
LONGER = (8, 16, 32, 64)  # the same in turn, one at each tick: a tick has little time
MOVING = 3.0  # [steps of the measured speed] an axis moves from here on
OPPOSITE = 2.0  # largest response of a drive with the wrong polarity: what is more has another cause
CERTAIN = 5.0  # a fall counts if it differs by so many times its noise
LINEAR = ("m",)  # units of displacements that do not change the pose of the others
ALONE = 0.8  # share of the squares of what is not explained that one drive must explain
ALIKE = 1.5  # how much more it must explain than any other where motors act together
UNLIKE = min(EXCESS - 1.0, 1.0 - NOTHING)
"""Torque that the motion shows, or lacks, along itself, as a share of that sent, below which nothing is found."""

ROOM = 1024  # ticks of the test that are remembered without new memory
TESTED = "samples", "round_tick", "away", "away_speed", "ahead", "ahead_speed"
"""Arrays of `TorqueProof` in which the test is remembered."""


class Driven(NamedTuple):
    """A drive whose torque does not act as it was sent."""

    drive: int
    kind: EventKind
    response: float  # torque that acts, as a share of that sent


class AxisMotion:
    """What was measured and sent since the drives began to be enabled; arrays have shape (m,).

    Args:
        hold: Torques and inertia at the pose at which they are enabled.
        positions: Displacements there.
        speed_step: Smallest steps of the speeds [joint unit/s].
        units: Units of the displacements.
        loaded: Whether each axis carries so much that a torque that is missing shows.
        samples: Number of samples, shape (1,); changed in place.
    """

    def __init__(
        self,
        hold: Hold,
        positions: Sequence[float],
        speed_step: Array,
        units: Sequence[str],
        loaded: Array,
        period: float,
        samples: Array,
    ) -> None:
        self.W, self.P = hold.inertia, np.linalg.pinv(hold.inertia, rcond=1e-8, hermitian=True)
        self.projector = self.W @ self.P  # onto the torques that move the machine
        self.together = len(positions) - np.trace(self.projector) > 0.5  # whether motors are redundant
        self.noise = np.sqrt(self.W**2 @ speed_step**2 / 6.0)  # of a difference of two rounded speeds
        self.speed_step, self._loaded, self._period = speed_step, loaded, period
        self.turns = np.array([0.0 if unit in LINEAR else 1.0 for unit in units])
        # a row for each tick: time since the tick before, positions, speeds, torques that hold, torques sent
        self.rows = np.zeros((ROOM, 4 * len(positions) + 1))
        self._samples, self._m = samples, len(positions)
        samples[0] = 0
        self.add(0.0, positions, np.zeros(len(positions)), hold.u)  # nothing is sent in the first tick

    def _part(self, part: int) -> Array:
        columns: Array = self.rows[: self._samples[0], 1 + part * self._m : 1 + (part + 1) * self._m]
        return columns

    @property
    def elapsed(self) -> Array:
        """Time between ticks [s]."""
        elapsed: Array = self.rows[: self._samples[0], 0]
        return elapsed

    @property
    def y(self) -> Array:
        """Displacements of the ticks [joint unit]."""
        return self._part(0)

    @property
    def v(self) -> Array:
        """Speeds of the ticks [joint unit/s]."""
        return self._part(1)

    @property
    def held(self) -> Array:
        """Torques that hold the poses of the ticks [actuator units]."""
        return self._part(2)

    @property
    def sent(self) -> Array:
        """Torques sent in the ticks before this one [actuator units]."""
        return self._part(3)[:-1]

    def add(
        self, elapsed: float, positions: Sequence[float] | Array, speeds: Sequence[float] | Array, gravity: Array
    ) -> bool:
        """Adds the samples of a tick, and the torques that hold its pose; returns whether they are numbers."""
        if self._samples[0] == len(self.rows):
            self.rows = np.vstack([self.rows, np.zeros_like(self.rows)])
        self._samples += 1
        self.elapsed[-1], self.y[-1], self.v[-1], self.held[-1] = elapsed, positions, speeds, gravity
        finite = bool(np.isfinite(self.y[-1]).all() and np.isfinite(self.v[-1]).all())
        if not finite:
            self.v[-1] = self.v[-2]
        return finite

    def add_sent(self, torques: Array) -> None:
        """Adds what this tick sends."""
        self._part(3)[-1] = torques

    @property
    def travel(self) -> Array:
        """Motion since the beginning [joint unit]."""
        travel: Array = self.y[-1] - self.y[0]
        return travel

    def _moves(self) -> Array:
        """Which axes move now, shape (m,)."""
        moves: Array = np.abs(self.v[-1]) > MOVING * self.speed_step
        return moves

    def _one_way(self, ticks: int) -> Array:
        """Which axes move, and one way in the last ticks: friction that has changed its sign drives nothing."""
        moves = self._moves()
        if not moves.any():
            return moves
        v = self.v[-ticks - 1 :]
        one_way: Array = moves & (v * np.sign(v[-1]) >= -self.speed_step).all(axis=0)
        return one_way

    def driven(self) -> Driven | None:
        """A motor that drives its axis the wrong way or too strongly, or makes no torque, while the axis moves."""
        for ticks in (*WINDOWS, LONGER[len(self.v) % len(LONGER)]):
            if len(self.v) <= ticks + 1:
                return None
            one_way = self._one_way(ticks)
            if not one_way.any():
                continue
            share, doubt, driven = self._shares(ticks)
            driven &= one_way
            if not driven.any():
                continue
            lowest, highest = np.where(driven, share + doubt, 1.0), np.where(driven, share - doubt, 1.0)
            least, most = int(np.argmin(lowest)), int(np.argmax(highest))
            if share[least] > -OPPOSITE and lowest[least] < REVERSED:
                return Driven(least, EventKind.REVERSED, float(share[least]))
            if highest[most] > EXCESS:
                return Driven(most, EventKind.RESPONSE, float(share[most]))
            if ticks > WINDOWS[0] and self._loaded[least] and lowest[least] < NOTHING:
                return Driven(least, EventKind.TORQUELESS, float(share[least]))
        return None

    def _shares(self, ticks: int) -> tuple[Array, Array, Array]:
        """Torque that acts as a share of that sent in the last ticks, its doubt, and which axes the rest drives."""
        few = max(1, ticks // 4)  # means of several samples at both ends: coarse speeds are noisy
        v, torques = self.v[-ticks - 1 :], self.sent[-ticks - 1 :]
        dt = self.elapsed[-ticks:, None]
        impulse = np.vstack([0.0 * v[:1], np.cumsum(dt * (torques[1:] + torques[:-1]) / 2, axis=0)])
        sent = impulse[-few:].mean(axis=0) - impulse[:few].mean(axis=0)
        change = v[-few:].mean(axis=0) - v[:few].mean(axis=0)
        time = dt.sum() * (1.0 - (few - 1) / ticks)
        acting = self.W @ change + time * np.mean(self.held[-ticks:], axis=0)
        unexplained, own = acting - self.projector @ sent, np.diag(self.projector)
        moves = self._moves()
        driven = (unexplained * v[-1] > 0.0) & moves & (sent != 0.0)
        # W is that of the first pose; a turn changes it by about its angle
        turned = np.abs(self.travel) @ self.turns
        wrong = turned * (np.abs(self.W) @ np.abs(change))
        doubt = CERTAIN * self.noise / few**0.5 + self._period * np.ptp(torques, axis=0) + 2.0 * wrong
        # one drive alone is blamed: an error of the model shows on several axes, and a closed brake on its own
        explained = ratio(unexplained**2, own)
        driven &= explained > ALONE * (unexplained**2)[moves].sum()
        if self.together:
            driven &= explained > ALIKE * np.sort(explained)[-2]
        size = own * np.abs(sent)
        return 1.0 + ratio(unexplained * np.sign(sent), size), ratio(doubt, size), driven


def ratio(a: Array, b: Array) -> Array:
    """a / b; 0 where b is 0."""
    quotient: Array = np.divide(a, b, out=np.zeros_like(a), where=b > 0.0)
    return quotient


MARGIN = 1.3  # limit of the torque in stage zero, as a share of what holds the pose and of what dry friction takes
SHARE = 0.05  # [share of torque_limit] part of that limit for a joint that carries nothing

SIGNS = 1.0, -1.0, -1.0, 1.0  # of the torque in each quarter of a round
SMALLEST, LARGEST = 0.4, 3.0
"""The response counts as that of the model within these factors: armature and elasticity may not be in the model."""

POSITION_SCALE = 2.0  # positions and speeds may differ by this factor over the small motion of the test
ROUNDED = 3.0  # speeds that differ by fewer of their steps are not compared with positions
ROUNDS = 3  # largest number of rounds of the test; each has up to four times the torque of the one before
STEPS = 6.0  # the motion of the first round, in the smallest steps of position, speed and torque
LONGEST = 0.04  # [s] longest quarter of a round where speeds are coarse

HIDDEN = 4.0
"""A response counts as that of the wrong polarity if it is so many times its error beyond; 3 where speeds show it."""

JUDGED = 4  # ticks after which a round is judged again
LATE = 3  # largest number of periods after which the samples show a torque: frames and samples are late


def zero_limits(drives: Sequence[DriveSettings], held: Array, dry: Array) -> list[float]:
    """Largest torque of each drive in stage zero and while it is enabled [actuator unit].

    1.3 times what holds the pose by the model and what dry friction takes, and 5 % of torque_limit for a joint that
    carries nothing; never above torque_limit.

    Args:
        held: Torques that hold the pose, shape (m,).
        dry: Dry friction that the model has, shape (m,).
    """
    needed = MARGIN * (np.abs(held) + dry)
    return [min(d.torque_limit, n + SHARE * d.torque_limit) for d, n in zip(drives, needed.tolist(), strict=True)]


@dataclass(frozen=True)
class ProofPlan:
    """What the test of the drives depends on; arrays have shape (m,)."""

    dry: Array  # [actuator units] dry friction that the model has
    position_step: Array  # [joint units] smallest visible motion
    speed_step: Array  # [joint unit/s] smallest step of the speed
    torque_step: Array  # [actuator units] smallest step of the torque
    travel: Array  # [joint units] largest motion of the test
    # shortest time for which a torque of the test keeps its sign [s]; more than `LATE` periods, or one that acts late
    # looks like one with the wrong sign
    quarter: float
    units: Sequence[str]  # units of the displacements
    measures_speed: bool = True  # whether speeds are measured, not computed from positions


class Finding(NamedTuple):
    """A drive that contradicts the model, or is not proved."""

    drive: int
    kind: EventKind
    detail: str


class State(Enum):
    """What the test has shown of a drive."""

    UNKNOWN = "not tested"
    PROVED = "proved"
    UNPROVED = "not proved"
    DISPROVED = "disproved"


@dataclass
class AxisProof:
    """What is known of one drive."""

    state: State = State.UNKNOWN  # what the test has shown
    response: float = float("nan")  # torque that acts, as a share of that sent; NaN: not known
    error: float = float("nan")  # standard error of `response`
    # motion by the positions, as a share of that by the speeds; NaN: not visible, or one follows from the other
    position: float = float("nan")

    def as_dict(self) -> dict[str, float | str | None]:
        """Entry of `summary.json`."""
        numbers = {"response": self.response, "error": self.error, "position": self.position}
        return {"state": self.state.value} | {key: None if n != n else round(n, 4) for key, n in numbers.items()}


@dataclass
class Group:
    """Drives that are tested in the same rounds: all, or each alone where motors act together."""

    drives: Sequence[int]  # their indices
    rounds: int = 0  # number of rounds so far
    done: bool = False  # whether their torque cannot grow any more
    impulses: list[Array] = field(default_factory=list)  # j and W v of each round, shape (rows, m)
    momenta: list[Array] = field(default_factory=list)


class TorqueProof:
    """Judges the motion in stage zero, and makes the torques of the test.

    Args:
        plan: What it depends on.
    """

    def __init__(self, plan: ProofPlan, drives: Sequence[DriveSettings], period: float) -> None:
        self._plan, self._drives, self._period = plan, drives, period
        self._largest = np.array([drive.torque_limit for drive in drives])
        self.axes = [AxisProof() for _ in drives]  # what is known of each drive
        # [actuator unit] largest torque of each drive until the test is over
        self.limits: list[float] = self._largest.tolist()
        self.over = False  # whether the test is over
        self.quarter = 1  # ticks for which a torque of the test keeps its sign
        self._most = np.zeros(len(drives))
        # torque of the round, and acceleration that it causes, shape (m,)
        self.test = self.pushed = np.zeros(len(drives))
        # largest motion that the test explains [joint unit]
        self.most_travel = 3.0 * np.maximum(plan.travel, plan.position_step)
        # these arrays change in place: number of samples, ticks of the present round (-1: none), and displacements and
        # speeds that the test causes by the model in the present tick, and in the next one
        self.samples, self.round_tick = np.zeros(1, dtype=np.int64), np.full(1, -1)
        self.away, self.away_speed = np.zeros(len(drives)), np.zeros(len(drives))
        self.ahead, self.ahead_speed = np.zeros(len(drives)), np.zeros(len(drives))

    def begin(self, hold: Hold, positions: Sequence[float]) -> None:
        """Takes the pose at which the drives are enabled."""
        plan, each = self._plan, range(len(positions))
        self._carries, loaded = np.abs(hold.u), np.abs(hold.u) > SHARE * self._largest
        # what was measured and sent
        self.motion = AxisMotion(hold, positions, plan.speed_step, plan.units, loaded, self._period, self.samples)
        self.limits = zero_limits(self._drives, hold.u, plan.dry)
        self._groups = [Group([i]) for i in each] if self.motion.together else [Group(list(each))]

    def sent(self, torques: Array) -> None:
        """Takes what this tick sends, or a drive that is being enabled begins with; in the sense of the commands."""
        if not self.over:
            self.motion.add_sent(torques)

    def judge(
        self, elapsed: float, positions: Sequence[float], speeds: Sequence[float], gravity: Array
    ) -> list[Finding]:
        """What the samples of a tick show.

        Args:
            elapsed: Time since the tick before [s].
            positions: Displacements of the joints.
            speeds: Their speeds.
            gravity: Torques that hold this pose by the model, shape (m,).
        """
        if self.over or not self.motion.add(elapsed, positions, speeds, gravity):
            return []
        driven = self.motion.driven()
        finding = self._moved() if driven is None else self._disproved(*driven)
        if finding is not None:
            return [finding]
        return self._judge_round() if self.testing else []

    def _disproved(self, index: int, kind: EventKind, response: float) -> Finding:
        axis = self.axes[index]
        axis.state, axis.response = State.DISPROVED, response
        return Finding(index, kind, f"{response:.2g} of the torque sent acts on it")

    def _moved(self) -> Finding | None:
        """A finding if an axis has left the pose by more than the test explains."""
        travel = self.motion.travel
        allowed = self.most_travel
        worst = int(np.argmax(np.abs(travel) / allowed))
        if not abs(travel[worst]) > allowed[worst]:
            return None
        unit = self._plan.units[worst]
        detail = f"it has moved by {travel[worst]:+.3g} {unit}, at most {allowed[worst]:g} {unit} is allowed"
        return Finding(worst, EventKind.UNSTEADY, detail)

    @property
    def testing(self) -> bool:
        """Whether a round of the test goes on."""
        return bool(self.round_tick[0] >= 0)

    @property
    def caused(self) -> tuple[Array, Array]:
        """Displacements and speeds that the test causes by the model in the present tick, shape (m,)."""
        return self.away, self.away_speed

    def start(self) -> None:
        """Begins the test: all brakes are open."""
        if not self.over and not self.testing:
            self._begin_round()

    def torques(self) -> Array:
        """Torques of the test in this tick, shape (m,) [actuator units]."""
        if not self.testing:
            return np.zeros(len(self._drives))
        quarter = int(self.round_tick[0]) // self.quarter
        self.round_tick += 1
        sign = SIGNS[quarter] if quarter < len(SIGNS) else 0.0
        acceleration, period = self.pushed * sign, self._period
        self.away[:], self.away_speed[:] = self.ahead, self.ahead_speed
        self.ahead[:] = self.away + period * self.away_speed + period**2 / 2 * acceleration
        self.ahead_speed[:] = self.away_speed + period * acceleration
        torques: Array = self.test * sign
        return torques

    def _begin_round(self) -> None:
        """Begins the next round, if a group of drives is left that is not proved and whose torque may grow."""
        left = [group for group in self._groups if not group.done and any(self._unproved(group.drives))]
        if not left:
            self.over = True
            return
        group = self._group = min(left, key=lambda each: each.rounds)
        plan, mobility = self._plan, np.diag(self.motion.P)
        room = 0.7 * (np.array(self.limits) - self._carries)  # the feedback needs the rest
        needed = ratio(STEPS * plan.speed_step, mobility * room)  # coarse speeds need long quarters
        self.quarter = max(1, round(max(plan.quarter, min(float(needed.max(initial=0.0)), LONGEST)) / self._period))
        time = self.quarter * self._period
        least = np.maximum(STEPS * plan.speed_step / time, STEPS * plan.position_step / time**2)
        wanted = np.maximum(ratio(least, mobility), STEPS * plan.torque_step) * 4.0**group.rounds
        size = np.minimum(np.minimum(wanted, room), ratio(plan.travel, mobility) / time**2)
        test = np.zeros(len(size))
        test[group.drives] = (size * self._signs())[group.drives] * self._unproved(group.drives)
        self.test = test / max(1.0, float((np.abs(self.motion.P @ test) * time**2 / plan.travel).max(initial=0.0)))
        self.pushed = self.motion.P @ self.test
        self._most = np.maximum(self._most, np.abs(self.test))
        group.rounds += 1
        group.done = group.rounds == ROUNDS or bool((size < wanted)[group.drives].all())
        self.round_tick[0], self._first = 0, len(self.motion.v) - 1
        self.ahead[:], self.ahead_speed[:] = self.caused

    def _unproved(self, drives: Sequence[int]) -> list[bool]:
        return [self.axes[i].state is not State.PROVED for i in drives]

    def _signs(self) -> Array:
        """Directions of the test: away from a near position limit."""
        signs = np.ones(len(self._drives))
        for i, (drive, y, travel) in enumerate(zip(self._drives, self.motion.y[0], self._plan.travel, strict=True)):
            lower, upper = drive.position_limits
            if upper - y < min(2.0 * travel, y - lower):
                signs[i] = -1.0
        return signs

    def _judge_round(self) -> list[Finding]:
        """What the present round shows; ends it after its time."""
        tick, group = int(self.round_tick[0]), self._group
        over = tick >= 4 * self.quarter + LATE
        if not over and (tick < self.quarter or tick % JUDGED):
            return []
        impulse, momentum = self._balance()
        response, error = self._response([*group.impulses, impulse], [*group.momenta, momentum])
        # Errors of rounded speeds that hardly change are alike and average out only over a whole round: before its end
        # they contradict nothing, and then only by a response of the model's size, far beyond its error.
        size = np.abs(response) if over else response
        seen = np.ptp(momentum, axis=0) > CERTAIN * self.motion.noise
        shows = seen | ((size > SMALLEST) & (size < LARGEST))
        error = np.where(shows, error, np.maximum(error, np.abs(response)))
        highest = response + np.where(seen, 3.0, HIDDEN) * error
        worst = min(group.drives, key=lambda i: highest[i])
        if highest[worst] < REVERSED:
            self.axes[worst].error = float(error[worst])
            return [self._disproved(worst, EventKind.REVERSED, float(response[worst]))]
        if not over:
            return []
        group.impulses.append(impulse)
        group.momenta.append(momentum)
        return self._end_round(response, error)

    def _balance(self) -> tuple[Array, Array]:
        """j of this round, each drive's by the lag that fits best, and W v; shape (rows, m)."""
        first, v = self._first, self.motion.v[self._first :]
        dt = self.motion.elapsed[first + 1 :]
        basis = _trend(dt)
        momentum = _detrended((v - v[0]) @ self.motion.W, basis)
        sent, count = self.motion.sent[first - LATE :], len(dt)
        lagged = [sent[LATE - lag : LATE - lag + count] for lag in range(LATE + 1)]
        impulses = np.zeros((LATE + 1, *v.shape))
        impulses[:, 1:] = np.cumsum(dt[:, None] * lagged, axis=1)
        impulses = _detrended(impulses, basis)
        sizes = np.sqrt((impulses**2).sum(axis=1))
        best = np.argmax(ratio(np.abs((impulses * momentum).sum(axis=1)), sizes), axis=0)
        return impulses[best, :, np.arange(len(best))].T, momentum

    def _response(self, impulses: Sequence[Array], momenta: Sequence[Array]) -> tuple[Array, Array]:
        """f and its standard error by these rounds, shape (m,); infinite where motors that act together hide it."""
        impulse, momentum, projector = np.vstack(impulses), np.vstack(momenta), self.motion.projector
        information = projector * (impulse.T @ impulse)
        size = np.sqrt(np.abs(np.diag(information)))
        size[size == 0.0] = 1.0
        scaled = information / np.outer(size, size)
        inverse = np.linalg.pinv(scaled, rcond=1e-6, hermitian=True)
        shown = np.diag(inverse @ scaled) > 0.99
        inverse /= np.outer(size, size)
        f = inverse @ (impulse * momentum).sum(axis=0)
        rest = momentum - (impulse * f) @ projector
        variance = np.maximum((rest**2).sum(axis=0) / max(1, len(rest) - 3), self.motion.noise**2 / 2.0)
        return f, np.where(shown, np.sqrt(np.abs(np.diag(inverse)) * variance), np.inf)

    def _end_round(self, response: Array, error: Array) -> list[Finding]:
        self.round_tick[0] = -1
        findings: list[Finding] = []
        for i in self._group.drives:
            axis = self.axes[i]
            if axis.state is not State.PROVED:
                axis.response, axis.error = float(response[i]), float(error[i])
                findings += self._end_axis(i, axis)
        if findings:
            self.over = True
            return findings
        self._begin_round()
        return [self._result(i) for i in range(len(self.axes))] if self.over else []

    def _end_axis(self, i: int, axis: AxisProof) -> list[Finding]:
        plan, (response, error) = self._plan, (axis.response, axis.error)
        axis.state = State.UNPROVED
        if not error < abs(response) / 3.0:
            return []
        if response - 3.0 * error > LARGEST:
            axis.state = State.DISPROVED
            return [Finding(i, EventKind.RESPONSE, f"it moves {response:.3g} times as much as the model says")]
        v, y = self.motion.v[self._first :, i], self.motion.y[self._first :, i]
        dt = self.motion.elapsed[self._first + 1 :]
        basis = _trend(dt)
        path = _detrended(np.append(0.0, np.cumsum(dt * (v[1:] + v[:-1]) / 2)), basis)
        y = _detrended(y, basis)
        shows = max(np.ptp(path), np.ptp(y) / POSITION_SCALE) > 2.0 * plan.position_step[i]
        # a speed rounded to one of its steps differs by up to half a step, always the same way while it hardly changes
        if plan.measures_speed and shows and np.ptp(v) > ROUNDED * plan.speed_step[i]:
            axis.position = float(path @ y / (path @ path))
            if not 1 / POSITION_SCALE < axis.position < POSITION_SCALE:
                axis.state = State.DISPROVED
                what = f"by its positions it moves {axis.position:.3g} times as much as by its speeds"
                return [Finding(i, EventKind.SCALE, what)]
        if SMALLEST < response < LARGEST:
            axis.state = State.PROVED
        return []

    def _result(self, i: int) -> Finding:
        axis = self.axes[i]
        if axis.state is State.PROVED:
            scale = (
                "" if axis.position != axis.position else f", positions {axis.position:.2f} of the integrated speeds"
            )
            return Finding(i, EventKind.PROVED, f"{axis.response:.2f} of the predicted motion{scale}")
        most = f"{self._most[i]:.3g} more than its holding torque"
        if not np.isfinite(axis.error):
            what = "other motors act together with it"
        elif axis.error < abs(axis.response) / 3.0:
            what = (
                f"{axis.response:.2g} of the predicted motion, under {most}: friction, or inertia that the model lacks"
            )
        else:
            what = f"it does not move visibly under {most}"
        return Finding(i, EventKind.UNPROVED, what)


def _trend(dt: Array) -> Array:
    """Orthonormal columns of what is constant and what is linear over these steps of time."""
    time = np.append(0.0, np.cumsum(dt))
    basis: Array = np.linalg.qr(np.stack([np.ones_like(time), time], axis=1))[0]
    return basis


def _detrended(rows: Array, basis: Array) -> Array:
    """Rows without the constant and the linear part of each column."""
    detrended: Array = rows - basis @ (basis.T @ rows)
    return detrended
