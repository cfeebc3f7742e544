"""Whether the machine moves as the model says under the torques that were sent.

    d = (Phi B)^+ (sum over a window of v - v-) / window

v- is the model's step from the estimate of one tick before, so that the sum telescopes: errors of samples count at the
two ends of the window alone. d is the least torque that explains the rest: friction, a load, or torque that a drive
does not make, be it for a wrong torque constant, a wrong table of ranges, derating or a coupling that slips.

Design: friction and loads are let be up to `hil.safety.tracking` of each drive's torque limit, errors of the model up
to `MODEL` of the largest torque in the window, in terms of its limit. What the loop itself does is added: torques that
act late shift the window, by no more than their swing within it; and each sample is wrong by its quantisation, which
is looked at, at the pose of that moment, only where d is beyond the rest: that takes up to 0.5 ms.

Source: the momentum observer, in discrete time (De Luca, Mattone 2003); the bounds are ours.
"""

from collections.abc import Callable, Sequence

import numpy as np

from hil.loop.rig import Finding
from hil.sensing.channels import Channel
from servoctl.engine.kernel import Kernel
from servoctl.engine.linalg import decompose, frobenius
from servoctl.engine.select_engine import run_fast
from servoctl.engine.symbol import symbols
from servoctl.engine.trace import trace
from servoctl.errors import TraceError
from servoctl.mechanics.model import Model
from servoctl.mechanics.terms import Matrices, assemble
from servoctl.types import Array, State

WINDOW = 0.1
"""Time over which the motion is compared [s]: the loop's delay is a small part of it."""

IN_A_ROW = 2
"""Windows that are a finding: a knock is none."""

MODEL = 0.1
"""Of the largest torque in the window, relative to its limit: what the model may be wrong by."""

LAG = 4
"""Periods by which a torque may act late: from SYNC to its frame, to the drive's next period, filters included."""

LATE = 3
"""Periods without a tick: the window begins anew, for nobody knows what the drives did meanwhile."""

RANK_TOLERANCE = 1e-6
"""A direction of the motors counts when its pivot exceeds this times |L^-1 B|_F."""

CAUSES = (
    "check its torque constant, rated_torque, range table and gear, that its coupling holds and the load is the "
    "model's; or raise hil.safety.tracking"
)


Errors = Callable[[float, Array], Array]
"""Time and pose -> error of v by each sample's largest error, shape (samples, n)."""


class DisturbanceObserver:
    """Acceleration that the model does not explain -> the least torques that would, shape (m,); compiled.

    Attributes:
        n: Number of coordinates.
    """

    def __init__(self, model: Model, rank_tolerance: float = 1e-6, engine: str = "auto") -> None:
        """Compiles.

        Args:
            model: The plant; its task does not matter.
            rank_tolerance: A passive direction counts when its pivot exceeds this times |Ahat L^-T|_F.
            engine: `auto`, `c`, `vm` or `numpy`.
        """
        self._model, self._tolerance, self.n = model.plain, rank_tolerance, model.n
        self._rest = np.zeros(model.n)
        self._kernel: Kernel | None = None
        if engine == "numpy" or model.opaque is not None:
            return
        try:
            given = {**self._model.symbols(), "acceleration": symbols("acceleration", model.n)}
            state = State(given["t"][0], given["q"], given["v"])
            d = trace(self._torques, state, self._model.symbolic_matrices(given), given["acceleration"])
            self._kernel = Kernel.compile("unexplained", given, {"d": d})
        except TraceError:
            return
        run_fast(self._kernel, engine)

    def __call__(self, t: float, q: Array, acceleration: Array) -> Array:
        """d at a pose, for an acceleration of shape (n,)."""
        if self._kernel is not None:
            (d,) = self._kernel(t, q, self._rest, self._model.parameters, acceleration)
            return d
        state = State(t, q, self._rest)
        return self._torques(state, self._model.matrices(state), acceleration)

    def _torques(self, state: State, matrices: Matrices, acceleration: Array) -> Array:
        terms = assemble(state, matrices, self._tolerance)
        reached = decompose(terms.project(terms.inputs), RANK_TOLERANCE, frobenius(terms.inputs))
        d: Array = reached.solve(terms.L.T @ acceleration)
        return d


class TrackingMonitor:
    """Watches the motion, window by window."""

    def __init__(
        self, unexplained: DisturbanceObserver, drives: Sequence[Channel], limits: Array, share: float, period: float
    ) -> None:
        """Takes the machine.

        Args:
            unexplained: Of its model.
            drives: Their channels, in the order of the actuators.
            limits: Their largest torques, shape (m,) [actuator units].
            share: Of these that may be missing, or too much.
            period: Of the loop [s].
        """
        self._unexplained, self._drives, self._limits, self._share = unexplained, drives, limits, share
        self._longest, self._lag = LATE * period, LAG * period / WINDOW
        self._errors: Errors | None = None
        self.begin()

    def begin(self) -> None:
        """Forgets everything; the next tick begins a window."""
        self._row = 0
        self._renew()

    def _renew(self) -> None:
        self._elapsed, self._sum = 0.0, np.zeros(self._unexplained.n)
        self._least, self._most = np.full(len(self._limits), np.inf), np.full(len(self._limits), -np.inf)

    def know(self, errors: Errors) -> None:
        """Learns how wrong v can be by each sample's largest error; before, samples count as exact."""
        self._errors = errors

    def floor(self, t: float, q: Array) -> Array:
        """Torques that samples alone can seem to show at a pose, shape (m,): one error at each end of a window."""
        if self._errors is None:
            return np.zeros(len(self._limits))
        apparent = np.array([self._unexplained(t, q, 2.0 * error / WINDOW) for error in self._errors(t, q)])
        floor: Array = np.abs(apparent).sum(axis=0)
        return floor

    def judge(self, t: float, elapsed: float, q: Array, surprise: Array | None, u: Array | None) -> Finding | None:
        """Takes a tick in; a finding where the machine has not followed its model in the windows before.

        Args:
            t: Time [s].
            elapsed: Since the tick before [s].
            q: Coordinates, shape (n,).
            surprise: v - v-, shape (n,); None where there is no prediction.
            u: Inputs in force since then, shape (m,); None: the machine does not move by its motors.
        """
        if surprise is None or u is None or elapsed > self._longest:
            self.begin()
            return None
        self._elapsed += elapsed
        self._sum += surprise
        np.minimum(self._least, u, out=self._least)
        np.maximum(self._most, u, out=self._most)
        if self._elapsed < WINDOW:
            return None
        d = self._unexplained(t, q, self._sum / self._elapsed)
        used = float((np.maximum(self._most, -self._least) / self._limits).max())
        swing = float(((self._most - self._least) / self._limits).max())
        self._renew()
        allowed = (self._share + MODEL * used + self._lag * swing) * self._limits
        if (np.abs(d) > allowed).any():
            allowed = allowed + self.floor(t, q)
        worst = int(np.argmax(np.abs(d) / allowed))
        if not abs(d[worst]) > allowed[worst]:
            self._row = 0
            return None
        self._row += 1
        found = f"{d[worst]:+.3g} beside what was sent explain its motion, at most {allowed[worst]:.3g} may"
        return (
            Finding(self._drives[worst].name, f"{found}: {CAUSES}", True, motion=True)
            if self._row >= IN_A_ROW
            else None
        )
