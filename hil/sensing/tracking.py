"""Whether the machine moves as its model predicts under the torques that were sent.

    d = (Phi B)^+ (sum over a window of v - v-) / window

v- is the model's step from the estimate of the tick before. The sum telescopes, so errors of samples count only at the
two ends of the window. d is the smallest disturbance torque that explains the difference: friction, a load, or torque
that a drive does not make, because of a wrong torque constant, a wrong range table, derating or a slipping coupling.

Design: allowed are friction and loads up to `hil.safety.tracking` of each drive's torque limit, and errors of the model
up to `MODEL` of the largest torque in the window. Two effects of the loop are added: late torques shift the window, by
at most their swing within it; and each sample has its quantisation. The latter takes up to 0.5 ms to compute, so it is
computed, at the present pose, only when d exceeds the other bounds.

An estimator of kind model makes the law meet the disturbance, so errors of the model count up to `ESTIMATED`: what then
counts is the rate. A disturbance that comes at once is named by `hil.sensing.tracking`; a load stops nothing.

A motor that has lost its torque is named by `hil.sensing.arrival`, also where the torque is below these bounds.

Source: the momentum observer, in discrete time (De Luca, Mattone 2003); the bounds are ours.

What a disturbance torque may be: torque that does not arrive, a joint that is blocked, or a load.

    lost      d = (k - 1) u:      the torque that arrives is a share k of the torque sent, whatever that is
    blocked   d = -u or d' = -u': no torque, or none that is added, moves anything, and the joint stands still
    load      d' = 0:             it stays while the torque changes

Design: these differ in how d follows the torque, not in its size, so the two halves of a window are compared. A motor
whose torque is lost is alone; a load is felt by several joints. With redundant motors d is their smallest torque, of
which one motor shows its share p alone: `d_j^2 / p_j = |d|^2` if motor j explains everything.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hil.core.constants import AGAINST, ARRIVES, COMES_WITHIN, UNPROVED
from hil.loop.tick import Implausibility
from hil.sensing.arrival import BEYOND, LONGEST, NONE_LEFT, QUICK, VISIBLE, arrivals
from hil.sensing.channels import Channel
from hil.sensing.prediction import StateFunction
from servoctl.engine.kernel import BufferedCall
from servoctl.engine.linalg import decompose, frobenius
from servoctl.mechanics.model import Model
from servoctl.mechanics.terms import Matrices, assemble
from servoctl.types import Array, State

ALONE = 0.8  # one drive explains a disturbance from this share of its square on
FOLLOWS = 0.03  # smallest change of a torque that tells causes apart, relative to its limit


NOTHING = 0.1  # a joint that stands still is blocked if less of its torque moves it


class Half(NamedTuple):
    """Means over half a window."""

    d: Array  # disturbance torques, shape (m,)
    u: Array  # torques sent, shape (m,)


class Cause(NamedTuple):
    """What explains a disturbance best."""

    drive: int  # index of the drive that shows it most
    words: str  # the cause for the operator
    load: bool = False  # whether it is a load, which a machine may carry on with


def cause_of(
    d: Array, first: Half, second: Half, shares: Array, limits: Array, still: Sequence[bool] = ()
) -> Cause:  # fmt: skip
    """The cause of a disturbance.

    Args:
        d: The disturbance that came, shape (m,).
        first, second: The two halves of the last window.
        shares: Share of each torque that the motion shows, shape (m,).
        limits: Torque limits, shape (m,).
        still: Which joints stand still; empty: none.
    """
    square = d**2 / np.maximum(shares, 1e-9)
    alone = int(np.argmax(np.where(shares > 1e-9, square, 0.0)))
    worst = int(np.argmax(np.abs(d) / limits))
    du, change = second.u - first.u, second.d - first.d
    for i in range(len(d)):
        follows = abs(du[i]) > FOLLOWS * limits[i] and 0.5 < -change[i] / du[i] < 1.5
        nothing = all(abs(half.d[i] + half.u[i]) < NOTHING * abs(half.u[i]) for half in (first, second))
        if still and still[i] and (follows or nothing):
            return Cause(
                i, "the joint is blocked: it stands still whatever torque is added (brake, end stop, or its encoder)"
            )
    if square[alone] > ALONE * float(d @ d) and abs(second.u[alone]) > FOLLOWS * limits[alone]:
        share = 1.0 + second.d[alone] / shares[alone] / second.u[alone]
        proportional = first.d[alone] * second.u[alone] / (first.u[alone] or np.inf)
        if abs(second.d[alone] - proportional) < 0.5 * abs(change[alone]) and abs(du[alone]) > FOLLOWS * limits[alone]:
            return Cause(
                alone,
                f"{100.0 * max(share, 0.0):.0f} % of its torque arrives: a coupling that slips, or a wrong constant",
            )
        return Cause(alone, "a load on this joint alone, or torque that does not arrive", load=True)
    return Cause(worst, "a load that the model does not have", load=True)


class Window(NamedTuple):
    """The disturbance in a window."""

    d: Array  # disturbance torques, shape (m,)
    swing: float  # largest swing of a torque, relative to its limit
    used: float  # largest torque, relative to its limit


class Quick(NamedTuple):
    """What a window has gathered to judge which torques arrive."""

    elapsed: float  # [s] its length so far
    moved: Array  # sum of v - v-, shape (n,)
    sent: Array  # torque times time, shape (m,)


@dataclass
class WindowState:
    """What a window has gathered so far, and what is kept of those before it."""

    elapsed: float  # [s] its length so far
    moved: Array  # sum of v - v-, shape (n,)
    sent: Array  # torque times time, shape (m,)
    made: Array  # the same of the torques that the drives report, shape (m,); NaN: it reports none
    # least, most: range of each torque, shape (m,)
    least: Array
    most: Array
    half: tuple[float, Array, Array] | None  # length, motion and torque at half its time; None before
    where: Array  # displacements of the joints at that time, shape (m,)
    beyond: int  # windows in a row before it with a disturbance that is too large
    lacking: int  # windows in a row before it in which a drive reported less than half of its torque
    # d and the allowed d of the last windows, where the law works with an estimate of the disturbance
    last: deque[tuple[Array, Array]]
    quick: Quick  # the short window
    # states of `hil.sensing.arrival` by short windows, and by long ones, shape (2, m)
    arrivals: tuple[list[int], list[int]]
    before: tuple[list[float], list[float]]  # u and d of the long window before, shape (2, m)


WINDOW = 0.1  # time over which the motion is compared [s]; long compared with the delay of the loop
IN_A_ROW = 2  # consecutive windows that stop the machine; a short knock fills only one

MODEL = 0.1  # allowed error of the model, as a share of the largest torque in the window
ESTIMATED = 0.4  # the same where the law works with an estimate of the disturbance
LACK = 0.5  # a drive that reports less than this share of the torque that it was sent, over a window, does not make it
FELT = 0.005  # torque that must be missing all the same [share of torque_limit]; and two steps of the reported torque
LAG = 4  # periods by which a torque may act late: from SYNC to its frame, to the drive's next period, with filters
STILL = 0.005  # a joint stands still if its mean speed over half a window is below this share of its speed limit
GAP = 3  # periods without a tick after which the window restarts: what the drives did in the gap is not known
RANK_TOLERANCE = 1e-6  # a direction of the motors counts when its pivot exceeds this times |L^-1 B|_F

REMEDY = (
    "check torque constant, rated_torque, range table, gear and coupling of the drive, and the load in the model; "
    "or raise hil.safety.tracking"
)


Errors = Callable[[float, Array], Array]
"""Time and pose -> error of v by each sample's largest error, shape (samples, n)."""


class DisturbanceObserver:
    """Disturbance torques d that explain an acceleration which the model does not predict, shape (m,); compiled."""

    def __init__(self, model: Model, rank_tolerance: float = 1e-6, engine: str = "auto") -> None:
        self._model, self._tolerance = model.plain, rank_tolerance
        self.n = model.n  # number of coordinates
        self._rest = np.zeros(model.n)
        further = {"acceleration": model.n}
        self._function = StateFunction("disturbance", self._model, self._torques, ("d", "shares"), engine, further)

    def __call__(self, t: float, q: Array, acceleration: Array) -> Array:
        """d at a pose, for an unpredicted acceleration of shape (n,)."""
        return self.with_shares(t, q, acceleration)[0]

    def with_shares(self, t: float, q: Array, acceleration: Array) -> tuple[Array, Array]:
        """d, and the share of each torque that the motion shows, which is 1 unless motors are redundant."""
        d, shares = self._function(State(t, q, self._rest), acceleration)
        return d, shares

    def buffered(self) -> BufferedCall:
        """A call of it with buffers of its own."""
        return self._function.buffered()

    def _torques(self, state: State, matrices: Matrices, acceleration: Array) -> tuple[Array, Array]:
        terms = assemble(state, matrices.without_task(), self._tolerance)
        inputs = decompose(terms.project(terms.inputs), RANK_TOLERANCE, frobenius(terms.inputs))
        return inputs.solve(terms.L.T @ acceleration), (inputs.row_basis**2).sum(axis=0)


class TrackingMonitor:
    """Checks the motion, window by window.

    Args:
        drives: Channels of the drives, in the order of the actuators.
        limits: Torque limits, shape (m,) [actuator units].
        share: Allowed disturbance as a share of the torque limits.
        estimated: Whether the law works with an estimate of the disturbance.
    """

    def __init__(
        self,
        observer: DisturbanceObserver,
        drives: Sequence[Channel],
        limits: Array,
        share: float,
        period: float,
        estimated: bool = False,
    ) -> None:
        self.observer = observer  # disturbance observer of the model
        self._drives = drives
        self.limits = limits  # [actuator units] torque limits, shape (m,)
        self.share = share  # allowed disturbance as a share of the torque limits
        self.estimated = estimated  # whether the law works with an estimate of the disturbance
        self.longest = GAP * period  # [s] time without a tick after which the window restarts
        self.lag = LAG * period / WINDOW  # time by which a torque may act late, as a share of a window
        # [actuator units] smallest torque that a report tells from none, shape (m,)
        self.resolved = 2.0 * np.array([drive.torque_step for drive in drives])
        # [actuator units] smallest difference of a reported torque that counts alone, shape (m,)
        self.felt = FELT * limits + self.resolved
        # [s] length of a short window, so that the ticks of a window do not depend on their lateness
        self.quick = (QUICK - 0.5) * period
        # numbers of short and of long windows within `arrival.LONGEST`
        self.most_windows = round(LONGEST / (QUICK * period)), round(LONGEST / WINDOW)
        # [actuator units] smallest torques that are judged by the motion in a window and in a short one, shape (m,)
        self.least, self.quick_least = VISIBLE * limits, max(VISIBLE, share) * limits
        # [actuator units] torques that friction and loads do not take, shape (m,); the law meets a load by its estimate
        self.friction = (np.inf if estimated else BEYOND * share) * limits
        # [joint unit/s] speed below which a joint stands, shape (m,)
        self.slow = STILL * np.array([drive.speed_limit for drive in drives])
        # `floor` at the last pose where it was needed, shape (m,); NaN before
        self.floors = np.full(len(limits), np.nan)
        # numbers of the motors that stage zero has not proved, from the next `begin` on
        self.unproved: Sequence[int] = ()
        self._errors: Errors | None = None
        self.begin()

    def begin(self) -> None:
        """Starts again; the next tick begins a window."""
        m, zero = len(self.limits), [0.0] * len(self.limits)
        first = [UNPROVED if number in self.unproved else ARRIVES for number in range(m)]
        self._stopped = False
        # what the present window has gathered; its arrays change with the next tick
        self.window = WindowState(
            0.0, *self._empty(), None, np.full(m, np.nan), 0, 0, deque(maxlen=COMES_WITHIN), self._empty_quick(),
            (first, list(first)), (zero, list(zero)),
        )  # fmt: skip

    def _empty(self) -> tuple[Array, Array, Array, Array, Array]:
        """Sums and ranges at the beginning of a window: `moved` to `most` of `WindowState`."""
        m = len(self.limits)
        return np.zeros(self.observer.n), np.zeros(m), np.zeros(m), np.full(m, np.inf), np.full(m, -np.inf)

    def _begin_window(self) -> None:
        w = self.window
        w.elapsed, w.half, w.where = 0.0, None, np.full(len(self.limits), np.nan)
        w.moved, w.sent, w.made, w.least, w.most = self._empty()

    def _empty_quick(self) -> Quick:
        return Quick(0.0, np.zeros(self.observer.n), np.zeros(len(self.limits)))

    def set_errors(self, errors: Errors) -> None:
        """Sets the errors of v by each sample's largest error; before this call samples count as exact."""
        self._errors = errors

    def floor(self, t: float, q: Array) -> Array:
        """Largest d that errors of the samples alone can cause, shape (m,): one error at each end of a window."""
        if self._errors is None:
            return np.zeros(len(self.limits))
        apparent = np.array([self.observer(t, q, 2.0 * error / WINDOW) for error in self._errors(t, q)])
        floor: Array = np.abs(apparent).sum(axis=0)
        return floor

    def judge(
        self,
        t: float,
        elapsed: float,
        q: Array,
        innovation: Array | None,
        u: Array | None,
        positions: Sequence[float] | None = None,
        made: Sequence[float] | None = None,
        speeds: Sequence[float] | None = None,
    ) -> Implausibility | None:
        """Adds a tick; returns a finding if the machine did not follow its model in the last windows.

        Args:
            t: Time [s].
            elapsed: Time since the tick before [s].
            q: Coordinates, shape (n,).
            innovation: v - v-, shape (n,); None: there is no prediction.
            u: Inputs since the tick before, shape (m,); None: the motors do not move the machine.
            positions: Displacements of the joints, m or more [joint unit]; None: not known.
            made: Torques that the drives report, m or more [actuator units]; None: not known.
            speeds: Speeds of the joints, m or more [joint unit/s]; None: not known.
        """
        if innovation is None or u is None or elapsed > self.longest:
            self.begin()
            return None
        w = self.window
        w.elapsed += elapsed
        w.moved += innovation
        w.sent += elapsed * u
        w.made += elapsed * (np.full(len(u), np.nan) if made is None else np.array(made[: len(u)]))
        np.minimum(w.least, u, out=w.least)
        np.maximum(w.most, u, out=w.most)
        at = np.full(len(u), np.nan) if positions is None else np.array(positions[: len(u)])
        if w.half is None and w.elapsed >= WINDOW / 2:
            w.half, w.where = (w.elapsed, w.moved.copy(), w.sent.copy()), at
        quick, rates = w.quick, np.zeros(len(u)) if speeds is None else np.array(speeds[: len(u)])
        w.quick = quick = Quick(quick.elapsed + elapsed, quick.moved + innovation, quick.sent + elapsed * u)
        lost = None
        if quick.elapsed >= self.quick:
            lost = self._arrives(0, t, q, quick, rates)
            w.quick = self._empty_quick()
        if w.elapsed < WINDOW:
            return lost
        lost = self._arrives(1, t, q, Quick(w.elapsed, w.moved, w.sent), rates) or lost
        used = float((np.maximum(w.most, -w.least) / self.limits).max())
        swing = float(((w.most - w.least) / self.limits).max())
        window = Window(self.observer(t, q, w.moved / w.elapsed), swing, used)
        w.where = np.abs(at - w.where)
        finding = self._lack() or lost or self._level(window, t, q) or self._rate(window, t, q)
        self._stopped |= finding is not None and finding.stops
        self._begin_window()
        return finding

    def _arrives(self, which: int, t: float, q: Array, window: Quick, speeds: Array) -> Implausibility | None:
        """A finding if none of a torque that arrived before arrives; `which`: short windows, or long ones."""
        if np.isnan(self.floors).any():
            self.floors[:] = self.floor(t, q)
        u = window.sent / window.elapsed
        d, shares = self.observer.with_shares(t, q, window.moved / window.elapsed)

        def judged() -> tuple[list[int], int | None]:
            visible, least, largest = self._shown(which, window.elapsed)
            before, reported = (self.window.before, self._reports_none()) if which else (None, None)
            return arrivals(
                self.window.arrivals[which], d.tolist(), u.tolist(), shares.tolist(), speeds.tolist(), visible, least,
                largest, self.slow.tolist(), self.friction.tolist(), self.most_windows[which], before, reported,
            )  # fmt: skip

        after, lost = judged()
        if lost is not None:
            self.floors[:] = self.floor(t, q)  # the pose may be another one
            after, lost = judged()
        self.window.arrivals[which][:] = after
        if which:
            self.window.before = u.tolist(), d.tolist()
        if lost is None:
            return None
        if after[lost] == AGAINST:
            reason = (
                f"it moves against the {u[lost]:+.3g} that was sent, unless a load drives it; it was not proved before"
            )
            return Implausibility(self._drives[lost].name, reason, True, motion=True, reversed=True)
        reason = (
            f"its motion shows nothing of the {u[lost]:+.3g} that was sent (no power, safe torque off, a wrong mode, "
            "or a coupling that slips)"
        )
        return Implausibility(self._drives[lost].name, reason, True, motion=True, torqueless=True)

    def _shown(self, which: int, elapsed: float) -> tuple[list[float], list[float], list[float]]:
        """Smallest torques that a window shows, smallest and largest that it judges, shape (m,) [actuator units]."""
        visible = np.maximum(self.least, self.floors * WINDOW / elapsed).tolist()
        quick = np.maximum(self.quick_least, self.floors * WINDOW / self.quick).tolist()
        return (visible, visible, quick) if which else (visible, quick, [np.inf] * len(quick))

    def _reports_none(self) -> list[bool]:
        """Whether each drive reports none of a visible torque over the window."""
        sent, made = np.abs(self.window.sent), np.abs(self.window.made)
        none: list[bool] = ((made <= NONE_LEFT * sent) & (sent > self.resolved * self.window.elapsed)).tolist()
        return none

    def _lack(self) -> Implausibility | None:
        """A finding if a drive reports far less than the torque that it was sent, in two windows in a row."""
        sent, made = self.window.sent / self.window.elapsed, self.window.made / self.window.elapsed
        missing = np.abs(sent - made)
        allowed = LACK * np.abs(sent) + self.lag * (self.window.most - self.window.least) + self.felt
        if not (missing > allowed).any():  # NaN: it reports none
            self.window.lacking = 0
            return None
        self.window.lacking += 1
        if self.window.lacking < IN_A_ROW:
            return None
        worst = int(np.nanargmax(missing / allowed))
        reason = (
            f"it reports {made[worst]:+.3g} where {sent[worst]:+.3g} was sent (no power, safe torque off, a wrong "
            "mode, or a wrong rated torque or range table)"
        )
        return Implausibility(self._drives[worst].name, reason, True, motion=True)

    @property
    def level_model(self) -> float:
        """Allowed error of the model in `_level`, as a share of the largest torque in the window."""
        return ESTIMATED if self.estimated else MODEL

    def _allowed(self, window: Window, model: float) -> Array:
        allowed: Array = (self.share + model * window.used + self.lag * window.swing) * self.limits
        return allowed

    def _level(self, window: Window, t: float, q: Array) -> Implausibility | None:
        """A finding if the disturbance is too large in two windows in a row; it stops the machine."""
        d, allowed = window.d, self._allowed(window, self.level_model)
        if (np.abs(d) > allowed).any():
            allowed = allowed + self.floor(t, q)
        worst = int(np.argmax(np.abs(d) / allowed))
        if not abs(d[worst]) > allowed[worst]:
            self.window.beyond = 0
            return None
        self.window.beyond += 1
        if self.window.beyond < IN_A_ROW:
            return None
        reason = f"its motion needs {d[worst]:+.3g} more than the torque sent, at most {allowed[worst]:.3g} is allowed"
        cause = self._cause(d, t, q)
        return Implausibility(self._drives[cause.drive].name, f"{reason}: {cause.words}: {REMEDY}", True, motion=True)

    def _rate(self, window: Window, t: float, q: Array) -> Implausibility | None:
        """A finding if the disturbance has changed at once and stayed; a load alone does not stop the machine."""
        if not self.estimated or self._stopped:
            return None
        allowed = self._allowed(window, MODEL)
        *before, (last, then) = self.window.last or ((window.d, allowed),)
        self.window.last.append((window.d, allowed))
        for windows, (reference, _) in enumerate(reversed(before), start=IN_A_ROW):
            change = window.d - reference
            stayed = np.abs(last - reference) > then  # a knock fills only one window
            if (stayed & (np.abs(change) > allowed)).any():
                stayed &= np.abs(change) > allowed + self.floor(t, q)
                if stayed.any():
                    self.window.last.clear()
                    self.window.last.append((window.d, allowed))
                    return self._came(change, WINDOW * windows, t, q)
        return None

    def _came(self, change: Array, since: float, t: float, q: Array) -> Implausibility:
        """The finding of a change of d within a time [s]."""
        cause = self._cause(change, t, q)
        name, more = self._drives[cause.drive].name, change[cause.drive]
        reason = f"its motion needs {more:+.3g} more than {since:g} s before: {cause.words}"
        return Implausibility(name, reason if cause.load else f"{reason}: {REMEDY}", not cause.load, motion=True)

    def _cause(self, d: Array, t: float, q: Array) -> Cause:
        """What explains a disturbance, by the two halves of this window."""
        assert self.window.half is not None
        time, moved, sent = self.window.half
        later = self.window.elapsed - time, self.window.moved - moved, self.window.sent - sent
        first, second = (Half(self.observer(t, q, v / h), u / h) for h, v, u in (self.window.half, later))
        speeds = (self.window.where / later[0]).tolist()
        still = [speed < STILL * drive.speed_limit for speed, drive in zip(speeds, self._drives, strict=True)]
        shares = self.observer.with_shares(t, q, np.zeros(self.observer.n))[1]
        return cause_of(d, first, second, shares, self.limits, still)
