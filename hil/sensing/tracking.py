"""Whether the machine moves as its model predicts under the torques that were sent.

    d = (Phi B)^+ (sum over a window of v - v-) / window

v- is the model's step from the estimate of the tick before. The sum telescopes, so errors of samples count only at the
two ends of the window. d is the smallest disturbance torque that explains the difference: friction, a load, or torque
that a drive does not make, because of a wrong torque constant, a wrong range table, derating or a slipping coupling.

Design: allowed are friction and loads up to `hil.safety.tracking` of each drive's torque limit, and errors of the model
up to `MODEL` of the largest torque in the window. Two effects of the loop are added: late torques shift the window, by
at most their swing within it; and each sample has its quantisation. The latter takes up to 0.5 ms to compute, so it is
computed, at the present pose, only when d exceeds the other bounds.

An estimator of kind model makes the law meet the disturbance, so errors of the model count up to `ESTIMATED`. What
then counts is the rate: a disturbance that comes at once is named; a load stops nothing.

A motor that has lost its torque is named also where the torque is below these bounds. C computes all of it, and
explains the rules of a lost torque and of the cause of a disturbance: `hil/core/c/window.c`.

Source: the momentum observer, in discrete time (De Luca, Mattone 2003); the bounds are ours.
"""

from collections.abc import Callable, Sequence

import numpy as np

from hil.core.compiled import Calls, Struct
from hil.sensing.channels import Channel
from hil.sensing.motion import StateFunction
from servoctl.engine.ccode import BoundCall
from servoctl.engine.decomposition import decompose, frobenius
from servoctl.mechanics.model import Model
from servoctl.mechanics.terms import Terms
from servoctl.types import Array, State

WINDOW = 0.1  # time over which the motion is compared [s]; long compared with the delay of the loop
MODEL = 0.1  # allowed error of the model, as a share of the largest torque in the window
ESTIMATED = 0.4  # the same where the law works with an estimate of the disturbance
FELT = 0.005  # torque that must be missing all the same [share of torque_limit]; and two steps of the reported torque
LAG = 4  # periods by which a torque may act late: from SYNC to its frame, to the drive's next period, with filters
STILL = 0.005  # a joint stands still if its mean speed over half a window is below this share of its speed limit
GAP = 3  # periods without a tick after which the window restarts: what the drives did in the gap is not known
RANK_TOLERANCE = 1e-6  # a direction of the motors counts when its pivot exceeds this times |L^-1 B|_F

QUICK = 2  # length of a short window, which judges whether torques arrive, in periods
LONGEST = 0.3  # [s] longest time without torque before friction does not explain it any more
VISIBLE = 0.001  # [share of torque_limit] smallest mean torque that is judged
BEYOND = 2.0  # what friction and loads do not take, as a share of what they may take

Errors = Callable[[float, Array], Array]
"""Time and pose -> error of v by each sample's largest error, shape (samples, n)."""


class DisturbanceObserver(StateFunction):
    """Disturbance torques d that explain an acceleration which the model does not predict, shape (m,); compiled."""

    def __init__(self, model: Model, rank_tolerance: float = 1e-6, engine: str = "auto") -> None:
        self.n, self._rest, further = model.n, np.zeros(model.n), {"acceleration": model.n}  # n: number of coordinates
        super().__init__("disturbance", model.plain, rank_tolerance, self._torques, ("d", "shares"), engine, further)

    def __call__(self, t: float, q: Array, acceleration: Array) -> tuple[Array, Array]:
        """d at a pose, for an unpredicted acceleration of shape (n,), and the share of each torque that motion shows.

        The shares are 1 unless motors are redundant.
        """
        d, shares = self.at(State(t, q, self._rest), acceleration)
        return d, shares

    def _torques(self, state: State, terms: Terms, acceleration: Array) -> tuple[Array, Array]:
        inputs = decompose(terms.project(terms.inputs), RANK_TOLERANCE, frobenius(terms.inputs))
        return inputs.solve(terms.L.T @ acceleration), (inputs.row_basis**2).sum(axis=0)


class TrackingMonitor:
    """What C remembers of the motion, and by what it judges each tick, window by window.

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
        self.limits = limits  # [actuator units] torque limits, shape (m,)
        self.errors: Errors | None = None  # of v; None: samples count as exact
        n, m = observer.n, len(limits)
        self.calls = Calls()  # calls of C
        sizes = {"n": n, "m": m, "2 m": 2 * m, "4 m": 4 * m, "windows": self.calls.functions.WINDOWS * m}
        self.struct = Struct("tracking", sizes, self.calls)  # what C remembers
        self._settings(self.struct, drives, share, period, estimated)
        self.struct.connect(self.struct.c.disturbance, observer.bound())
        self.struct.connect(self.struct.c.floor, self._floor_call())
        self.struct.arrays["floors"][:] = np.nan  # none is known yet
        self.begin()

    def _settings(
        self, struct: Struct, drives: Sequence[Channel], share: float, period: float, estimated: bool
    ) -> None:
        c, limits = struct.c, self.limits
        c.n, c.m, c.estimated = self.observer.n, len(limits), estimated
        c.window, c.longest, c.share = WINDOW, GAP * period, share
        c.lag = LAG * period / WINDOW  # time by which a torque may act late, as a share of a window
        c.level_model, c.rate_model = ESTIMATED if estimated else MODEL, MODEL
        # so that the ticks of a short window do not depend on their lateness
        c.quick = (QUICK - 0.5) * period
        # numbers of short and of long windows within `LONGEST`
        c.most_windows = round(LONGEST / (QUICK * period)), round(LONGEST / WINDOW)
        # smallest torque that a report tells from none, and smallest difference of one that counts alone
        resolved = 2.0 * np.array([drive.torque_step for drive in drives])
        c.limits, c.resolved, c.felt = map(struct.numbers, (limits, resolved, FELT * limits + resolved))
        # time by which a reported torque may be that of another moment, as a share of a window
        reports = np.array([drive.torque_every for drive in drives])
        c.report_lag = struct.numbers(np.minimum(1.0, c.lag + reports / WINDOW))
        # smallest torques that are judged by the motion in a window and in a short one
        c.least_torque, c.quick_least = map(struct.numbers, (VISIBLE * limits, max(VISIBLE, share) * limits))
        # torques that friction and loads do not take; the law meets a load by its estimate
        c.friction = struct.numbers((np.inf if estimated else BEYOND * share) * limits)
        # speed below which a joint stands
        c.slow = struct.numbers(STILL * np.array([drive.speed_limit for drive in drives]))

    def begin(self, unproved: Sequence[int] = ()) -> None:
        """Starts again; the next tick begins a window. `unproved`: motors that stage zero has not proved, by number."""
        self.struct.arrays["unproved"][:] = [number in unproved for number in range(len(self.limits))]
        self.struct.functions.track_begin(self.struct.c)

    def floor(self, t: float, q: Array) -> Array:
        """Largest d that errors of the samples alone can cause, shape (m,): one error at each end of a window."""
        if self.errors is None:
            return np.zeros(len(self.limits))
        apparent = np.array([self.observer(t, q, 2.0 * error / WINDOW)[0] for error in self.errors(t, q)])
        floor: Array = np.abs(apparent).sum(axis=0)
        return floor

    def _floor_call(self) -> BoundCall:
        t, q, floor = np.zeros(1), np.zeros(self.observer.n), np.zeros(len(self.limits))

        def evaluate() -> None:
            floor[:] = self.floor(float(t[0]), q)

        return BoundCall(evaluate, [t, q], [floor])
