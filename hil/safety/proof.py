"""Whether each drive moves its axis as the model says, in sign and in size: proved in stage zero, before the task.

    W y'' = F u - g                       F = diag(f): f is 1 by the model, and negative with the wrong polarity
    f = N^-1 sum j o (W v)                N = W W^+ o sum j j^T,   j = int u dt,   o: element by element

y are the displacements of the motors and v = y'; W and g are as of `hil.sensing.motion.Hold`. v and j count from the
beginning of the test, without their constant and linear parts: what the model lacks of the holding torque adds only
those. The test adds to the torque of every drive +d, -d, -d, +d, each for a quarter, so an axis moves a little and
comes back. Dry friction does not look like a torque: its sign follows the speed, which is orthogonal to this sequence.
Where it is larger than the torque it does: it keeps an axis from going with those that push it. In a closed chain other
motors then seem to make torques that none makes, and the test shows nothing.
Axes that are not proved get four times the torque in the next round, up to the limit of stage zero.

Design: a drive with the wrong polarity shows as soon as its brake opens. No load makes a machine fall faster than
without torque, so an axis that does is driven by its own motor; torque that is missing, or too large, shows there too.
What friction hides there is `unproved`, and watched by `hil.sensing.tracking` from then on. These rules are ours; the
momentum balance is that of `hil.sensing.tracking`. C does each tick of the test, and judges such a motion over a few
ticks: the finer the speeds, the fewer are needed (`hil/core/c/test.c`). Rounds are planned and judged here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from hil.core.compiled import Calls, Struct
from hil.drives.settings import DriveSettings
from hil.safety.events import EventKind
from hil.sensing.motion import Hold
from servoctl.engine.ccode import BoundCall
from servoctl.types import Array

REVERSED = -0.15  # a response below this is that of the wrong polarity
CERTAIN = 5.0  # a motion shows if it differs by so many times its noise


def ratio(a: Array, b: Array) -> Array:
    """a / b; 0 where b is 0."""
    quotient: Array = np.divide(a, b, out=np.zeros_like(a), where=b > 0.0)
    return quotient


MARGIN = 1.3  # limit of the torque in stage zero, as a share of what holds the pose and of what dry friction takes
SHARE = 0.05  # [share of torque_limit] part of that limit for a joint that carries nothing

HIDDEN_BELOW = 0.75  # a filter of the speeds that leaves less of a round's motion proves nothing

LINEAR = ("m",)  # units of displacements that do not change the pose of the others

SMALLEST, LARGEST = 0.4, 3.0
"""The response counts as that of the model within these factors: armature and elasticity may not be in the model."""

WEAK = 0.2  # a drive of a smaller response makes no torque that could hold its axis
DOUBT = 0.5  # a response counts as that of a weak motor if its doubt is a smaller share of it
ABLE = 2.0  # a drive that makes so many times the torque that holds the pose can stop its axis
BLOCKED = 0.1  # an axis that moves less than this share of what the model says stands still
FRICTION = 2.0  # a torque of the test below so many times the dry friction of the model shows nothing
POSITION_SCALE = 2.0  # positions and speeds may differ by this factor over the small motion of the test
ROUNDED = 3.0  # speeds that differ by fewer of their steps are not compared with positions
ROOM = 1024  # ticks of the test that are remembered without new memory
ROUNDS = 3  # largest number of rounds of the test; each has up to four times the torque of the one before
STEPS = 6.0  # the motion of the first round, in the smallest steps of position, speed and torque
LONGEST = 0.04  # [s] longest quarter of a round where speeds are coarse

HIDDEN = 4.0
"""A response counts as that of the wrong polarity if it is so many times its error beyond; 3 where speeds show it."""

DOUBTED = 2.0  # a response that is so many times its error below 0 is looked at again
JUDGED = 4  # ticks after which a round is judged again, from its middle on
LATE = 3  # largest number of periods after which the samples show a torque: frames and samples are late
SLOW = 0.006  # [s] a torque that acts so late does not count as one of the wrong polarity while it turns round


def zero_limits(drives: Sequence[DriveSettings], held: Array, dry: Array) -> list[float]:
    """Largest torque of each drive in stage zero and while it is enabled [actuator unit].

    1.3 times what holds the pose by the model and what dry friction takes, and 5 % of torque_limit for a joint that
    carries nothing; never above torque_limit. `held` and `dry`: these two, shape (m,).
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
    # shortest time for which a torque of the test keeps its sign [s]; more than `LATE` periods and `lag`, or one that
    # acts late looks like one with the wrong sign
    quarter: float
    units: Sequence[str]  # units of the displacements
    lag: float = 0.0  # [s] time by which the filter of the speeds shows a motion late
    measures_speed: bool = True  # whether speeds are measured, not computed from positions


class Finding(NamedTuple):
    """A drive that contradicts the model, or is not proved."""

    drive: int
    kind: EventKind
    detail: str
    driven: bool = False  # whether its motor was seen to drive the axis away; if not, a round of the test shows it
    obeys: bool = False  # whether its torque is strong enough, and of the right sign, for its own control to stop it
    share: float = 1.0  # share of its torque that acts, where that is sure; else 1


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


class Evidence(NamedTuple):
    """What a round shows; arrays as `_balance` and `_response` have them."""

    impulse: Array
    momentum: Array
    response: Array
    error: Array
    reversed: int | None  # drive with the wrong polarity; None: there is none


@dataclass
class Group:
    """Drives that are tested in the same rounds: all, or each alone where motors act together."""

    drives: Sequence[int]  # their indices
    rounds: int = 0  # number of rounds so far
    done: bool = False  # whether their torque cannot grow any more
    impulses: list[Array] = field(default_factory=list)  # j and W v of each round, shape (rows, m)
    momenta: list[Array] = field(default_factory=list)


class AxisMotion:
    """What was measured and sent since the drives began to be enabled; arrays have shape (m,).

    Args:
        struct: A `proof` of `hil/core/c/tick.h`.
        hold: Torques and inertia at the pose at which they are enabled.
        positions: Displacements there.
    """

    def __init__(self, struct: Struct, hold: Hold, positions: Sequence[float]) -> None:
        self.W, self.P = hold.inertia, np.linalg.pinv(hold.inertia, rcond=1e-8, hermitian=True)
        self.projector = self.W @ self.P  # onto the torques that move the machine
        self.together = len(positions) - np.trace(self.projector) > 0.5  # whether motors are redundant
        self._struct, self._c, self._m, x = struct, struct.c, len(positions), struct.arrays
        x["inertia"][:], x["projector"][:] = self.W.ravel(), self.projector.ravel()
        self.noise = x["noise"]  # of a difference of two speeds
        self._c.together, self._c.samples = self.together, 0
        # a row for each tick: time since the tick before, positions, speeds, torques that hold, torques sent
        self._take(np.zeros((ROOM, 5 * self._m + 1)))
        self.add(0.0, positions, np.zeros(self._m), np.zeros(self._m), hold.u)  # nothing is sent in the first tick

    def _take(self, rows: Array) -> None:
        self.rows = rows
        self._c.rows, self._c.room = self._struct.ffi.cast("double *", rows.ctypes.data), len(rows)

    def _part(self, part: int) -> Array:
        columns: Array = self.rows[: self._c.samples, 1 + part * self._m : 1 + (part + 1) * self._m]
        return columns

    @property
    def elapsed(self) -> Array:
        """Time between ticks [s]."""
        elapsed: Array = self.rows[: self._c.samples, 0]
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
    def sent(self) -> Array:
        """Torques sent in the ticks before this one [actuator units]."""
        return self._part(3)[:-1]

    def add(self, elapsed: float, *parts: Sequence[float] | Array) -> bool:
        """Adds a tick, so long after the one before [s]; returns whether its samples are numbers.

        `parts`: positions, speeds and ages of the samples, and the torques that hold the pose, shape (m,) each.
        """
        c = self._c
        if c.samples == len(self.rows):
            self._take(np.vstack([self.rows, np.zeros_like(self.rows)]))
        arrays = [np.array(part, dtype=float) for part in parts]
        addresses = [self._struct.ffi.from_buffer("double[]", array) for array in arrays]
        finite: int = self._struct.functions.proof_add(c, c.samples, elapsed, *addresses)
        c.samples += 1
        return bool(finite)

    def sends(self, torques: Array) -> None:
        """The torques that are sent in this tick, shape (m,), where they are not those of the test."""
        self._part(3)[-1] = torques

    def balance(self, axis: int, row: int, late: int) -> tuple[Array, Array, Array, list[Array]]:
        """Momentum of an axis, that if its positions count backwards, and impulses of its weight and of its torque.

        They count from the last tick up to this row in which it did not move, shape (ticks,), without means. The
        impulses of the torque are those of torques that act up to so many ticks `late`.
        """
        moves = np.abs(self.v[:row, axis]) > self._struct.arrays["speed_step"][axis]
        first = max(1, int(np.flatnonzero(~moves)[-1]))
        dt, held = self.elapsed[first + 1 :], self._part(2)[first + 1 :, axis]
        sent = np.append(np.full(late + 1, self.sent[0, axis]), self.sent[:, axis])[-len(dt) - late - 1 :]
        rates = [(sent[late - n : -1 - n] + sent[late - n + 1 : len(sent) - n]) / 2.0 for n in range(late + 1)]
        momenta = (self.v[first:] - self.v[first]) * self.W[axis]
        own, others = momenta[:, axis], momenta.sum(axis=1) - momenta[:, axis]
        sums = [own + others, own - others, *(np.append(0.0, np.cumsum(dt * rate)) for rate in (held, *rates))]
        forward, backward, weight, *impulses = (each - each.mean() for each in sums)
        return forward, backward, weight, impulses


class TorqueProof:
    """Judges the motion in stage zero, and makes the torques of the test."""

    def __init__(self, plan: ProofPlan, drives: Sequence[DriveSettings], period: float) -> None:
        self._plan, self._drives, self._period = plan, drives, period
        self._largest = np.array([drive.torque_limit for drive in drives])
        self.axes = [AxisProof() for _ in drives]  # what is known of each drive
        # [actuator unit] largest torque of each drive until the test is over
        self.limits: list[float] = self._largest.tolist()
        self.over = False  # whether the test is over
        # double pole of the filter of the speeds, which lags by tau - T/2, and what it leaves of a round's response
        self._pole = math.exp(-2.0 * period / (plan.lag + period / 2)) if plan.lag > 0.0 else 0.0
        self._left = 1.0
        self._most = np.zeros(len(drives))
        self.struct = Struct("proof", {"m": len(drives), "m m": len(drives) ** 2}, Calls())  # what C computes with
        c, x = self.struct.c, self.struct.arrays
        c.m, c.period, c.reversed, c.certain, c.judged = len(drives), period, REVERSED, CERTAIN, JUDGED
        # largest number of periods after which a torque shows
        c.late, c.lag = LATE + math.ceil(plan.lag / period), period + plan.lag
        c.quarter, c.round_tick, c.slow = 1, -1, math.ceil(SLOW / period)
        self._contradicts = np.zeros(1)
        self.struct.connect(c.round, BoundCall(self._look, [], [self._contradicts]))
        x["position_step"][:] = np.inf if plan.measures_speed else plan.position_step
        x["least_step"][:] = x["speed_step"][:] = plan.speed_step
        x["turns"][:] = [unit not in LINEAR for unit in plan.units]
        x["most_travel"][:] = 3.0 * np.maximum(plan.travel, plan.position_step)  # largest motion that the test explains

    def begin(self, hold: Hold, positions: Sequence[float]) -> None:
        """Takes the pose at which the drives are enabled."""
        plan, each = self._plan, range(len(positions))
        self._carries = np.abs(hold.u)
        self.struct.arrays["loaded"][:] = self._carries > SHARE * self._largest
        self.motion = AxisMotion(self.struct, hold, positions)  # what was measured and sent
        self.limits = zero_limits(self._drives, hold.u, plan.dry)
        self._groups = [Group([i]) for i in each] if self.motion.together else [Group(list(each))]

    def judge(
        self,
        elapsed: float,
        positions: Sequence[float],
        speeds: Sequence[float],
        ages: Sequence[float],
        gravity: Array,
    ) -> list[Finding]:
        """What the samples of a tick show, which came so long after the one before [s].

        `positions`, `speeds`: of the joints; `ages`: of these samples [s]; `gravity`: torques that hold this pose by
        the model, shape (m,).
        """
        if self.over or not self.motion.add(elapsed, positions, speeds, ages, gravity):
            return []
        c, functions = self.struct.c, self.struct.functions
        answer = functions.proof_judge(c, c.samples - 1)
        self.struct.raise_failure()
        if answer == functions.SHOWS_ROUND:
            return self._judge_round()
        return [self._shown(answer, c.drive, c.response)] if answer else []

    def _shown(self, answer: int, index: int, response: float) -> Finding:
        """The finding of a drive that does not act as it should while its axis moves."""
        functions = self.struct.functions
        opposed = answer == functions.SHOWS_OPPOSED
        if opposed or answer == functions.SHOWS_MOTION:
            moved, x = self.struct.c.moved, self.struct.arrays
            travel, allowed, unit = x["travel"][moved], x["most_travel"][moved], self._plan.units[moved]
            which, driver = ("it", "") if moved == index else (self._drives[moved].name, "this joint drives it: ")
            detail = f"{which} has moved by {travel:+.3g} {unit}, at most {allowed:g} {unit} is allowed"
            if opposed:
                detail += (
                    f"; {driver}{response:.2g} of the torque sent to it acts: its polarity is wrong, or it is pushed"
                )
            weak = not opposed and WEAK < response < 1.0 and x["doubt"][index] < DOUBT * response
            share = response if weak else 1.0
            if opposed or moved == index:
                return Finding(index, EventKind.UNSTEADY, detail, share=share)
            detail += f"; this joint drives it, as {response:.2g} of the torque sent to it would, or another load"
            enough = response * self._largest[index] > ABLE * self._carries[index]
            obeys = enough and SMALLEST < response < LARGEST
            return Finding(index, EventKind.UNSTEADY, detail, obeys=obeys, share=share)
        kinds = {functions.SHOWS_REVERSED: EventKind.REVERSED, functions.SHOWS_EXCESS: EventKind.RESPONSE}
        return self._disproved(index, kinds.get(answer, EventKind.TORQUELESS), response)._replace(driven=True)

    def _disproved(self, index: int, kind: EventKind, response: float) -> Finding:
        axis = self.axes[index]
        axis.state, axis.response = State.DISPROVED, response
        return Finding(index, kind, f"{response:.2g} of the torque sent acts on it")

    @property
    def _hidden(self) -> bool:
        """Whether the filter of the speeds leaves too little of a round's motion."""
        return self._left < HIDDEN_BELOW

    @property
    def testing(self) -> bool:
        """Whether a round of the test goes on."""
        return bool(self.struct.c.round_tick >= 0)

    def start(self) -> None:
        """Begins a round, if none goes on and one is left: all brakes are open."""
        if not self.over and not self.testing:
            self._begin_round()

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
        quarter = max(1, round(max(plan.quarter, min(float(needed.max(initial=0.0)), LONGEST)) / self._period))
        time = quarter * self._period
        least = np.maximum(STEPS * plan.speed_step / time, STEPS * plan.position_step / time**2)
        wanted = np.maximum(ratio(least, mobility), STEPS * plan.torque_step) * 4.0**group.rounds
        size = np.minimum(np.minimum(wanted, room), ratio(plan.travel, mobility) / time**2)
        test = np.zeros(len(size))
        test[group.drives] = (size * self._signs())[group.drives] * self._unproved(group.drives)
        test = test / max(1.0, float((np.abs(self.motion.P @ test) * time**2 / plan.travel).max(initial=0.0)))
        self._most = np.maximum(self._most, np.abs(test))
        group.rounds += 1
        self._left = _left(quarter, self.struct.c.late, self._pole)
        group.done = self._hidden or group.rounds == ROUNDS or bool((size < wanted)[group.drives].all())
        self._first, c, x = len(self.motion.v) - 1, self.struct.c, self.struct.arrays
        c.round_tick, c.quarter = 0, quarter
        x["test"][:], x["pushed"][:] = test, self.motion.P @ test  # torque, and acceleration that it causes
        self._expected_speed = np.abs(x["pushed"]) * time * self._left  # largest speed that it causes
        # the motion that it causes goes on from that of the rounds before
        x["ahead"][:], x["ahead_speed"][:] = x["away"], x["away_speed"]

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

    def _look(self) -> None:
        """Finds out in a tick of C whether the present round contradicts the model; it is not over."""
        self._contradicts[0] = self._evidence(over=False).reversed is not None

    def _judge_round(self) -> list[Finding]:
        """What the present round shows; ends it after its time."""
        c, group = self.struct.c, self._group
        over = c.round_tick >= 4 * c.quarter + c.late
        shown = self._evidence(over)
        if (worst := shown.reversed) is not None:
            self.axes[worst].error = float(shown.error[worst])
            return [self._disproved(worst, EventKind.REVERSED, float(shown.response[worst]))]
        if not over:
            return []
        group.impulses.append(shown.impulse)
        group.momenta.append(shown.momentum)
        return self._end_round(shown.response, shown.error)

    def _evidence(self, over: bool) -> Evidence:
        """What the present round shows so far; `over`: it is complete."""
        group, (impulse, momentum) = self._group, self._balance()
        response, error = self._response([*group.impulses, impulse], [*group.momenta, momentum])
        # Errors of rounded speeds that hardly change are alike and average out only over a whole round: before its end
        # they contradict nothing, and then only by a response of the model's size, far beyond its error.
        size = np.abs(response) if over else response
        seen = np.ptp(momentum, axis=0) > CERTAIN * self.motion.noise
        shows = (seen | ((size > SMALLEST) & (size < LARGEST))) & (self._most >= FRICTION * self._plan.dry)
        # W v of an axis that is blocked is what the others push it by
        shows &= np.ptp(self.motion.v[self._first :], axis=0) >= BLOCKED * self._expected_speed
        # where a motor seems to act as none does, friction or an error of the model moves the machine
        impossible = bool((np.abs(response) - 3.0 * error > LARGEST).any())
        error = np.where(shows, error, np.maximum(error, np.abs(response)))
        highest = response + np.where(seen, 3.0, HIDDEN) * error
        worst = min(group.drives, key=lambda i: highest[i])
        named = highest[worst] < (REVERSED if over else -SMALLEST) and not impossible
        return Evidence(impulse, momentum, response, error, worst if named else None)

    def _balance(self) -> tuple[Array, Array]:
        """j of this round, each drive's by the lag that fits best, and W v; shape (rows, m)."""
        first, v = self._first, self.motion.v[self._first :]
        dt = self.motion.elapsed[first + 1 :]
        basis = _trend(dt)
        momentum = _detrended((v - v[0]) @ self.motion.W, basis)
        lags = np.arange(self.struct.c.late + 1)[:, None]
        lagged = self.motion.sent[np.maximum(first - lags + np.arange(len(dt)), 1)]  # before the first tick: as in it
        impulses = np.zeros((len(lags), *v.shape))
        impulses[:, 1:] = np.cumsum(dt[:, None] * lagged, axis=1)
        impulses = _detrended(impulses, basis)
        sizes = np.sqrt((impulses**2).sum(axis=1))
        best = np.argmax(ratio(np.abs((impulses * momentum).sum(axis=1)), sizes), axis=0)
        return self._left * impulses[best, :, np.arange(len(best))].T, momentum

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
        alike = 1.0 + 2.0 * self._plan.lag / self._period  # samples in a row whose errors a filter makes alike
        return f, np.where(shown & (not self._hidden), np.sqrt(np.abs(np.diag(inverse)) * variance * alike), np.inf)

    def _end_round(self, response: Array, error: Array) -> list[Finding]:
        self.struct.c.round_tick = -1
        if (response + DOUBTED * error)[self._group.drives].min() < 0.0:  # another round of this size tells
            self._group.done = self._hidden or self._group.rounds == ROUNDS
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
            rest = y - axis.position * path
            error = 3.0 * float(np.sqrt(rest @ rest / max(1, len(y) - 3) / (path @ path)))
            # noise of an encoder contradicts nothing
            if axis.position - error > POSITION_SCALE or axis.position + error < 1 / POSITION_SCALE:
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
        if self._hidden:
            what = "the filter of the speeds is so slow that it hides the motion of the test"
        elif not np.isfinite(axis.error):
            what = "other motors act together with it"
        elif axis.error < abs(axis.response) / 3.0:
            what = (
                f"{axis.response:.2g} of the predicted motion, under {most}: friction, or inertia that the model lacks"
            )
        else:
            what = f"it does not move visibly under {most}"
        return Finding(i, EventKind.UNPROVED, what)


@lru_cache
def _left(quarter: int, late: int, pole: float) -> float:
    """Share of the response in a round that a filter with this double pole leaves [-]; `late`: ticks after it."""
    torque = np.append(np.repeat([1.0, -1.0, -1.0, 1.0], quarter), np.zeros(late))
    impulse = np.append(0.0, np.cumsum(torque))
    basis = _trend(np.ones(len(torque)))
    ticks = np.arange(len(impulse))
    response = (1.0 - pole) ** 2 * (ticks + 1) * pole**ticks  # of the filter to a single tick
    seen = _detrended(np.convolve(impulse, response)[: len(impulse)], basis)
    lagged = [_detrended(np.append(np.zeros(lag), impulse[: len(impulse) - lag]), basis) for lag in range(late + 1)]
    best = max(lagged, key=lambda each: abs(each @ seen) / np.sqrt(each @ each))
    return float(best @ seen / (best @ best))


def _trend(dt: Array) -> Array:
    """Orthonormal columns of what is constant and what is linear over these steps of time."""
    basis: Array = np.ones((len(dt) + 1, 2))
    basis[0, 1], basis[1:, 1] = 0.0, np.cumsum(dt)
    basis[:, 1] -= basis[:, 1].mean()
    basis /= np.sqrt((basis**2).sum(axis=0))
    return basis


def _detrended(rows: Array, basis: Array) -> Array:
    """Rows without the constant and the linear part of each column."""
    detrended: Array = rows - basis @ (basis.T @ rows)
    return detrended
