"""The common supply of emulated drives: braking raises its voltage, and too high a voltage switches them off."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from hil.emulator.node import EmulatedDrive
from hil.emulator.plant import SimulatedPlant
from hil.emulator.timers import Timer
from hil.loop.clock import SECOND, nanoseconds
from hil.loop.virtual_time import World

PERIOD = 0.001  # [s] time between two looks at the power


@dataclass(frozen=True)
class SupplyOptions:
    """Properties of a supply."""

    voltage: float  # voltage below which it gives current; it takes none back [V]
    capacitance: float  # [F] capacitance between it and the drives
    trip: float  # [V] voltage at which the drives switch off
    # resistor that is on above the mean of `voltage` and `trip` [ohm]; None: there is none
    resistor: float | None = None


class Supply:
    """The link between a supply and its drives, `d(C V^2 / 2)/dt = -(power of the motors) - (that of the resistor)`.

    Losses of motors and drives are left out, so that the voltage is no lower than on a real machine.

    Args:
        drives: All drives on it.
    """

    def __init__(
        self, world: World, plant: SimulatedPlant, drives: Sequence[EmulatedDrive], options: SupplyOptions
    ) -> None:
        self._world, self._plant, self._drives, self._options = world, plant, drives, options
        self.voltage = options.voltage  # [V] voltage now
        self._timer = Timer(world, self._step)
        self._timer.start(nanoseconds(PERIOD))
        for drive in drives:
            drive.supply = self

    def _step(self) -> None:
        options = self._options
        enabled = [drive.motor for drive in self._drives if drive.motor.enabled]
        rates = self._plant.motion(self._world.now)[1] if enabled else []
        power = sum(motor.joint_torque() * rates[motor.index] for motor in enabled)
        if options.resistor is not None and self.voltage > (options.voltage + options.trip) / 2:
            power += self.voltage**2 / options.resistor
        square = self.voltage**2 - 2 * power * nanoseconds(PERIOD) / SECOND / options.capacitance
        self.voltage = max(options.voltage, sqrt(max(0.0, square)))
        if self.voltage >= options.trip:
            for drive in self._drives:
                drive.motor.disable()  # the power stage is off before the drive can brake
                drive.trip(drive.usual_code if drive.overvoltage_code is None else drive.overvoltage_code)
