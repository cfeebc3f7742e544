"""The measurement of one node: resolution, noise, and the faults of an encoder.

Design: a reading is x~ = r floor((x + noise) / r + 1/2), as in `servoctl.simulation.realism`. The noise is a stream of
each encoder, because drives read their encoders at their own times, not once per tick of the loop.
"""

import random
from dataclasses import dataclass
from math import floor, nan

from hil.drives.settings import DriveSettings, SensorSettings
from hil.emulator.plant import SimulatedPlant
from hil.loop.clock import SECOND
from servoctl.simulation.realism import quantised


@dataclass(frozen=True)
class EncoderModel:
    """Properties of an encoder, at the motor."""

    resolution: float = 0.0  # smallest step of position [rad]; 0: none
    noise: float = 0.0  # [rad] standard deviation of position


class Encoder:
    """Measures one displacement."""

    def __init__(
        self,
        plant: SimulatedPlant,
        settings: SensorSettings,
        index: int,
        options: EncoderModel,
        seed: int,
    ) -> None:
        """Connects the encoder.

        Args:
            settings: Gear, sign and offset. The encoder of a drive measures the displacement conjugate to its
                actuator, that of a sensor a coordinate.
            index: Number of the actuator, or of the coordinate.
            seed: Seed of the run; each encoder has its own stream of noise.
        """
        coordinate = not isinstance(settings, DriveSettings)
        self._motion, self._index = plant.coordinate_motion if coordinate else plant.motion, index
        self._gear, self._offset = settings.motor_rate(1.0), settings.offset
        self._noise, self._resolution = options.noise, options.resolution
        self._random = random.Random(f"{seed}/{settings.bus}/{settings.name}/{coordinate}")
        # jump: added to the joint's displacement [joint unit]; faults set this and the following
        # drift: [joint unit/s] rate of an error of the displacement
        self.jump = self.drift = 0.0
        self.drifting = 0  # [ns] since when it drifts
        # flipped: whether its sign is wrong
        # stuck: whether it repeats one reading
        # invalid: whether it reports NaN, where the protocol can
        self.flipped = self.stuck = self.invalid = False
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
        displacement, rate = positions[self._index], rates[self._index]
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
        if self.stuck:
            self._held = position, 0.0
        return position, velocity

    def freeze(self, stuck: bool) -> None:
        """Makes it repeat its next reading, or measure again."""
        self.stuck, self._held = stuck, None
