"""Motor, brake and encoder of an emulated drive, and the temperature: one heat capacity, heated by the torque squared.

Design: a reading is x~ = r floor((x + noise) / r + 1/2), as in `servoctl.simulation.realism`. The noise is a stream of
each encoder, because drives read their encoders at their own times, not once per tick of the loop.
"""

import random
from collections.abc import Callable
from math import copysign, exp, floor, inf, nan

from hil.drives.settings import DriveSettings, SensorSettings
from hil.emulator.plant import SimulatedPlant
from hil.loop.clock import SECOND, Event, World, cancel, nanoseconds
from servoctl.config.hil import Emulation, ThermalConfig
from servoctl.simulation.realism import quantised


class Encoder:
    def __init__(
        self,
        plant: SimulatedPlant,
        settings: SensorSettings,
        index: int,
        seed: int,
        resolution: float = 0.0,  # smallest step of position, at the motor [rad]; 0: none
        noise: float = 0.0,  # [rad] standard deviation of position, at the motor
    ) -> None:
        """Connects the encoder.

        That of a drive measures the displacement conjugate to the actuator of this index, that of a sensor a
        coordinate. Each encoder has its own stream of noise.
        """
        coordinate = not isinstance(settings, DriveSettings)
        self._motion, self._index = plant.state if coordinate else plant.motion, index
        self._gear, self._offset = settings.motor_rate(1.0), settings.offset
        self._noise, self._resolution = noise, resolution
        self._random = random.Random(f"{seed}/{settings.bus}/{settings.name}/{coordinate}")
        self.jump = 0.0  # [joint unit] added to the displacement; faults set this and the following
        self.drift = 0.0  # [joint unit/s] rate of an error of the displacement
        self.drifting = 0  # [ns] since when it drifts
        self.flipped = False  # whether its sign is wrong
        self.stuck = False  # whether it repeats one reading
        self.invalid = False  # whether it reports NaN, where the protocol can
        # range of the motor's angle, from minus half to plus half of it, in which it counts [rad]; None: no limit
        self.wrap: float | None = None
        self._held: tuple[float, float] | None = None

    def read(self, now: int) -> tuple[float, float]:
        """Angle of the motor [rad] and its speed [rad/s]."""
        if self.invalid:
            return nan, nan
        if self.stuck and self._held is not None:
            return self._held
        positions, rates = self._motion(now)
        displacement, rate = float(positions[self._index]), float(rates[self._index])
        if self.drift:
            displacement += self.drift * (now - self.drifting) / SECOND
            rate += self.drift
        position, velocity = self._gear * (displacement + self.jump - self._offset), self._gear * rate
        if self.flipped:
            position, velocity = -position, -velocity
        if self._noise:
            position += self._random.gauss(0.0, self._noise)
        if self._resolution:
            position = quantised(position, self._resolution, floor)
        if self.wrap is not None:
            position = (position + self.wrap / 2) % self.wrap - self.wrap / 2
        self._held = (position, 0.0) if self.stuck else None
        return position, velocity


NEAR = 10.0  # [K] a drive that can warn does so within so many degrees of its trip


class Thermal:
    """Load and temperature of a motor, at first those without load; `limit`: torque whose load is 1 [N m].

    time load' = (torque / limit)^2 - load,    temperature = ambient + rise load
    """

    def __init__(self, options: ThermalConfig, limit: float) -> None:
        self._options, self._limit, self._since = options, limit, 0
        self.trip = inf if options.trip is None else options.trip  # [degree C] temperature at which it switches off
        self.load = 0.0  # at the last `heat`

    def heat(self, torque: float, now: int) -> None:
        """Lets a torque [N m] act from the last call until now [ns]."""
        final = (torque / self._limit) ** 2
        self.load = final + (self.load - final) * exp((self._since - now) / SECOND / self._options.time)
        self._since = now

    @property
    def near(self) -> bool:
        return self.temperature > self.trip - NEAR

    @property
    def temperature(self) -> float:
        """Temperature at the last `heat` [degree C]."""
        return self._options.ambient + self._options.rise * self.load


RISE = 0.25
"""Last share of the time in which a brake closes, in which its torque rises: at once, it would stop a fast axis so
hard that it throws the next one.

Source: Mayr, ROBA-servostop 8982 (B.8982.EN), switching times t1 and t11: 5 of 15 to 10 of 30 ms, or 15 of 65 ms.
"""
STEPS = 5  # in which it rises


class Motor:
    def __init__(
        self,
        world: World,
        plant: SimulatedPlant,
        index: int,
        settings: DriveSettings,
        options: Emulation,
    ) -> None:
        """Starts without torque, with the brake closed if there is one."""
        self.thermal = Thermal(options.thermal, settings.motor_limit)
        self._world, self._plant, self.index, self._settings = world, plant, index, settings
        self._brake_time, self._strength = nanoseconds(options.brake_time), options.brake_torque * settings.torque_limit
        self._closing: Event | None = None
        self._closed = 0  # steps of its torque that the brake has; `STEPS`: it is closed
        self.enabled = False  # whether the drive makes torque
        self.has_worked = False  # whether it ever did
        self.shorted = False  # whether its phases are: its torque then comes from the motion, and ends with it
        self.stuck = False  # whether the brake does not open; faults set this and the following
        self.grip = 1.0  # strength of the brake relative to that of a good one; with 0 it never closes
        self._pressed = 0.0
        self.told: Callable[[str], None] = lambda word: None  # called with `torque on` or `torque off` at each change
        self.actuator = plant.actuators[index]
        self._press(STEPS)

    def enable(self, torque: float) -> None:
        """Enables torque, at first this one [N m], and opens the brake."""
        if not self.enabled:
            self.told("torque on")
        self.enabled, self.has_worked, self.shorted = True, True, False
        cancel(self._closing)
        self._closing = None
        self._press(0)
        self.actuator.command(torque, self._world.now)

    def command(self, torque: float) -> None:
        """Commands a torque [N m], if the motor is enabled."""
        if self.enabled:
            self.actuator.command(torque, self._world.now)

    def disable(self) -> None:
        """Switches torque off; the brake closes after its time, unless it closes already."""
        if self.shorted:
            self.actuator.command(0.0, self._world.now)
            self.shorted = False
        if not self.enabled:
            return
        self.enabled = False
        self.release()
        self.told("torque off")
        self.actuator.command(0.0, self._world.now)
        self.close_brake()

    def close_brake(self) -> None:
        """Closes the brake, which takes its time; torque stays as it is meanwhile."""
        if self._settings.brake and not self._closed and self._closing is None:
            rise = (STEPS - 1) * self._step_time
            self._closing = self._world.after(self._brake_time - rise, self._close)

    def short(self, rate: float, largest: float) -> None:
        """Shorts its phases while the drive is off: they brake it at a rate [1/s] by its true motion, without supply.

        `largest`: torque that they make [N m].
        """
        if not self.enabled:
            self.shorted, (_, speeds) = True, self._plant.motion(self._world.now)
            torque = -rate * self.inertia * self._settings.motor_rate(speeds[self.index])
            polarity = copysign(1.0, self.actuator.constant)  # shorted phases brake, however they are connected
            self.actuator.command(polarity * min(largest, max(-largest, torque)), self._world.now)

    @property
    def _step_time(self) -> int:
        return round(RISE * self._brake_time / STEPS)

    def _close(self) -> None:
        self._press(self._closed + 1)
        self._closing = None if self._closed == STEPS else self._world.after(self._step_time, self._close)

    def _press(self, steps: int) -> None:
        self._closed = steps
        self.refresh_brake()

    @property
    def _share(self) -> float:
        """Share of its torque that the brake has."""
        if not self._settings.brake:
            return 0.0
        return 1.0 if self.stuck else self._closed / STEPS

    def refresh_brake(self) -> None:
        before, self._pressed = self._pressed, self._strength * self.grip * self._share
        if self._pressed == before:
            return
        for strength, closes in ((before, False), (self._pressed, True)):
            if strength:
                self._plant.brake(self.index, closes, self._world.now, strength)

    @property
    def braked(self) -> bool:
        """Whether the brake is closed; one whose torque still rises is not."""
        return self._pressed > 0.0 and self._share == 1.0

    def torque(self) -> float:
        """Torque now, as the drive measures it [N m]."""
        return self.actuator.torque(self._world.now)

    def torque_for(self, acceleration: float) -> float:
        """Torque [N m] for an acceleration of the motor [rad/s^2], while the drive brakes by itself: see `Loads`."""
        wanted = self._settings.joint_rate(acceleration)
        return self._settings.motor_torque(self._plant.loads.torque(self.index, wanted, self._world.now))

    def release(self) -> None:
        self._plant.loads.release(self.index)

    @property
    def inertia(self) -> float:
        """Inertia that the motor sees while the other joints are free [kg m^2]."""
        return self._plant.loads.inertia(self.index, self._world.now) / self._settings.gear**2

    @property
    def settled(self) -> bool:
        """Whether neither the drive nor shorted phases make torque, and the brake, if there is one, is closed."""
        return not (self.enabled or self.shorted) and self.braked is self._settings.brake

    @property
    def makes_torque(self) -> bool:
        """Whether torque of the motor acts on the machine while its drive is on."""
        return self.enabled and self.actuator.powered

    @property
    def saturated(self) -> bool:
        return self.enabled and self.actuator.saturated
