"""Whether the machine moves as its model predicts under the torques that were sent.

    d = (Phi B)^+ (sum over a window of v - v-) / window

v- is the model's step from the estimate of the tick before. The sum telescopes, so errors of samples count only at the
two ends of the window. d is the smallest disturbance torque that explains the difference: friction, a load, or torque
that a drive does not make, because of a wrong torque constant, a wrong range table, derating or a slipping coupling.

Design: allowed are friction and loads up to `hil.safety.tracking` of each drive's torque limit, and errors of the model
up to `MODEL` of the largest torque in the window. Two effects of the loop are added: late torques shift the window, by
at most their swing within it; and each sample has its quantisation. The latter takes up to 0.5 ms to compute, so it is
computed, at the present pose, only when d exceeds the other bounds.

Source: the momentum observer, in discrete time (De Luca, Mattone 2003); the bounds are ours.
"""

from collections.abc import Callable, Sequence

import numpy as np

from hil.loop.rig import Finding
from hil.sensing.channels import Channel
from hil.sensing.state_function import StateFunction
from servoctl.engine.linalg import decompose, frobenius
from servoctl.mechanics.model import Model
from servoctl.mechanics.terms import Matrices, assemble
from servoctl.types import Array, State

WINDOW = 0.1
"""Time over which the motion is compared [s]; long compared with the delay of the loop."""

IN_A_ROW = 2
"""Consecutive windows that stop the machine; a short knock fills only one."""

MODEL = 0.1
"""Allowed error of the model, as a share of the largest torque in the window."""

LAG = 4
"""Periods by which a torque may act late: from SYNC to its frame, to the drive's next period, with filters."""

GAP = 3
"""Periods without a tick after which the window restarts: what the drives did in the gap is not known."""

RANK_TOLERANCE = 1e-6
"""A direction of the motors counts when its pivot exceeds this times |L^-1 B|_F."""

REMEDY = (
    "check torque constant, rated_torque, range table, gear and coupling of the drive, and the load in the model; "
    "or raise hil.safety.tracking"
)


Errors = Callable[[float, Array], Array]
"""Time and pose -> error of v by each sample's largest error, shape (samples, n)."""


class DisturbanceObserver:
    """Disturbance torques d that explain an acceleration which the model does not predict, shape (m,); compiled.

    Args:
        model: The plant; its task is not used.
        rank_tolerance: A passive direction counts when its pivot exceeds this times |Ahat L^-T|_F.
        engine: `auto`, `c`, `vm` or `numpy`.

    Attributes:
        n: Number of coordinates.
    """

    def __init__(self, model: Model, rank_tolerance: float = 1e-6, engine: str = "auto") -> None:
        self._model, self._tolerance, self.n = model.plain, rank_tolerance, model.n
        self._rest = np.zeros(model.n)
        further = {"acceleration": model.n}
        self._function = StateFunction("disturbance", self._model, self._torques, ("d",), engine, further)

    def __call__(self, t: float, q: Array, acceleration: Array) -> Array:
        """d at a pose, for an unpredicted acceleration of shape (n,)."""
        return self._function(State(t, q, self._rest), acceleration)[0]

    def _torques(self, state: State, matrices: Matrices, acceleration: Array) -> tuple[Array]:
        terms = assemble(state, matrices, self._tolerance)
        inputs = decompose(terms.project(terms.inputs), RANK_TOLERANCE, frobenius(terms.inputs))
        return (inputs.solve(terms.L.T @ acceleration),)


class TrackingMonitor:
    """Checks the motion, window by window.

    Args:
        observer: Disturbance observer of the model.
        drives: Channels of the drives, in the order of the actuators.
        limits: Torque limits, shape (m,) [actuator units].
        share: Allowed disturbance as a share of the torque limits.
        period: Period of the loop [s].
    """

    def __init__(
        self, observer: DisturbanceObserver, drives: Sequence[Channel], limits: Array, share: float, period: float
    ) -> None:
        self._observer, self._drives, self._limits, self._share = observer, drives, limits, share
        self._longest, self._lag = GAP * period, LAG * period / WINDOW
        self._errors: Errors | None = None
        self.begin()

    def begin(self) -> None:
        """Starts again; the next tick begins a window."""
        self._row = 0
        self._begin_window()

    def _begin_window(self) -> None:
        self._elapsed, self._sum = 0.0, np.zeros(self._observer.n)
        self._least, self._most = np.full(len(self._limits), np.inf), np.full(len(self._limits), -np.inf)

    def set_errors(self, errors: Errors) -> None:
        """Sets the errors of v by each sample's largest error; before this call samples count as exact."""
        self._errors = errors

    def floor(self, t: float, q: Array) -> Array:
        """Largest d that errors of the samples alone can cause, shape (m,): one error at each end of a window."""
        if self._errors is None:
            return np.zeros(len(self._limits))
        apparent = np.array([self._observer(t, q, 2.0 * error / WINDOW) for error in self._errors(t, q)])
        floor: Array = np.abs(apparent).sum(axis=0)
        return floor

    def judge(self, t: float, elapsed: float, q: Array, innovation: Array | None, u: Array | None) -> Finding | None:
        """Adds a tick; returns a finding if the machine did not follow its model in the last windows.

        Args:
            t: Time [s].
            elapsed: Time since the tick before [s].
            q: Coordinates, shape (n,).
            innovation: v - v-, shape (n,); None: there is no prediction.
            u: Inputs since the tick before, shape (m,); None: the motors do not move the machine.
        """
        if innovation is None or u is None or elapsed > self._longest:
            self.begin()
            return None
        self._elapsed += elapsed
        self._sum += innovation
        np.minimum(self._least, u, out=self._least)
        np.maximum(self._most, u, out=self._most)
        if self._elapsed < WINDOW:
            return None
        d = self._observer(t, q, self._sum / self._elapsed)
        used = float((np.maximum(self._most, -self._least) / self._limits).max())
        swing = float(((self._most - self._least) / self._limits).max())
        self._begin_window()
        allowed = (self._share + MODEL * used + self._lag * swing) * self._limits
        if (np.abs(d) > allowed).any():
            allowed = allowed + self.floor(t, q)
        worst = int(np.argmax(np.abs(d) / allowed))
        if not abs(d[worst]) > allowed[worst]:
            self._row = 0
            return None
        self._row += 1
        if self._row < IN_A_ROW:
            return None
        reason = f"its motion needs {d[worst]:+.3g} more than the torque sent, at most {allowed[worst]:.3g} is allowed"
        return Finding(self._drives[worst].name, f"{reason}: {REMEDY}", True, motion=True)
