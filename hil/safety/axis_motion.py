"""The motion of the axes while their drives are tested, and what the test shows while an axis moves.

While brakes open, no load makes a machine fall faster than without torque, so an axis that does is driven by its own
motor. Torque that is missing, or too large, shows there too. C judges this over a few ticks (`hil/core/c/test.c`): the
finer the speeds, the fewer are needed.
"""

from collections.abc import Sequence

import numpy as np

from hil.core.compiled import Struct
from hil.sensing.motion import Hold
from servoctl.types import Array

ROOM = 1024  # ticks of the test that are remembered without new memory


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
