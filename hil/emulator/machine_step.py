"""One step of a machine that another simulator moves, behind emulated drives; it is used like `HeldStep`."""

from collections.abc import Sequence

import numpy as np

from hil.emulator.actuator import ActuatorOptions, after
from hil.loop.clock import SECOND
from servoctl.simulation.machine import Machine
from servoctl.types import Array


class MachineStep:
    """A step of a machine under the mean torque of each actuator.

    Attributes:
        engine: `mujoco`.
        actuators: State of each actuator, as described in `Actuator`, shape (4, m).
        gains: As of `HeldStep`.
    """

    engine = "mujoco"

    def __init__(
        self, machine: Machine, options: Sequence[ActuatorOptions], gains: Sequence[float], origin: float = 0.0
    ) -> None:
        """Prepares the step; `begin` then puts the machine at its start.

        Args:
            machine: The machine.
            options: Properties of each actuator.
            gains: Torque or force at each joint per torque of the motor.
            origin: Time of the plant when the world's time is 0 [s].
        """
        self._machine, self._origin = machine, origin
        self.gains, self._lags = np.array(gains, dtype=float), np.array([each.lag for each in options])
        m = len(options)
        self.actuators, self._kept, self._lost = np.zeros((4, m), order="F"), np.zeros((4, m)), np.zeros(m)
        self._rest = self._later = np.zeros(machine.size)

    def begin(self, x: Array) -> None:
        """Puts machine and actuators at their start; x: q and v, shape (2n,)."""
        self.actuators[:] = self._lost[:] = 0.0
        self._rest = self._later = self._machine.start(self._origin, x)

    def __call__(self, x: Array, duration: int, now: int, lost: Array | None = None) -> Array:
        """x after a step; `keep` then advances machine and actuators. Arguments as of `HeldStep`."""
        if lost is not None:
            self._lost[:] = lost
        h = duration / SECOND
        torques, impulse = after(self.actuators, now, self._lags, np.exp)
        self._kept[0], self._kept[2], self._kept[3] = torques, self.actuators[2], now
        u = self.gains * impulse / h - self._lost
        following, self._later = self._machine.after(self._origin + (now - duration) / SECOND, x, self._rest, u, h)
        return following

    def together(self, x: Array, duration: int, now: int) -> Array | None:
        """None: several steps in one call are for compiled code."""
        return None

    def keep(self) -> None:
        """Advances machine and actuators to the end of the last step."""
        self.actuators[:] = self._kept
        self._rest = self._later
