"""What a node measures of the simulated machine: resolution, noise, latency, and what can be wrong with it."""

import random
from dataclasses import dataclass
from math import nan

from hil.drives.settings import SensorSettings
from hil.emulator.plant import SimulatedPlant
from hil.loop.clock import SECOND, nanoseconds


@dataclass(frozen=True)
class EncoderModel:
    """What an encoder is like, at the motor.

    Attributes:
        resolution: Smallest step of position [rad]; 0: none.
        noise: Standard deviation of position [rad].
        velocity_noise: Standard deviation of velocity [rad/s].
        latency: Age of what it says [s].
    """

    resolution: float = 0.0
    noise: float = 0.0
    velocity_noise: float = 0.0
    latency: float = 0.0


class Encoder:
    """Measures one displacement.

    Attributes:
        jump: Added to the joint's displacement [joint unit]; this and what follows are set by faults.
        drift: Rate at which the displacement runs away since `drifting` [joint unit/s].
        drifting: [ns].
        flipped: Whether the sign is wrong.
        stuck: Whether it says the same for ever.
        wrap: Angle of the motor after which it starts again at minus half of it [rad]; None: never.
        invalid: Whether it says that it knows nothing: NaN, where the protocol has that.
    """

    def __init__(
        self,
        plant: SimulatedPlant,
        settings: SensorSettings,
        index: int,
        options: EncoderModel,
        seed: int,
        coordinate: bool = False,
    ) -> None:
        """Looks at a plant.

        Args:
            plant: The machine.
            settings: Gear, sign and offset.
            index: Of the actuator, or of the coordinate.
            options: What it is like.
            seed: Of the noise; each encoder has its own stream.
            coordinate: Whether it measures a coordinate; else what is conjugate to an actuator.
        """
        self._plant, self._index, self._coordinate = plant, index, coordinate
        self._gear, self._offset = settings.motor_rate(1.0), settings.offset
        self._options, self._latency = options, nanoseconds(options.latency)
        if self._latency:
            plant.remember(self._latency)
        self._random = random.Random(f"{seed}/{settings.bus}/{settings.name}/{coordinate}")
        self.jump = self.drift = 0.0
        self.drifting = 0
        self.flipped = self.stuck = self.invalid = False
        self.wrap: float | None = None
        self._held: tuple[float, float] | None = None

    def read(self, now: int) -> tuple[float, float]:
        """Angle of the motor [rad] and its speed [rad/s]."""
        if self.invalid:
            return nan, nan
        if self.stuck and self._held is not None:
            return self._held
        options = self._options
        if self._coordinate or self._latency:
            displacement, rate = self._look(now)
        else:
            positions, rates = self._plant.motion(now)
            displacement, rate = positions[self._index], rates[self._index]
        if self.drift:
            displacement += self.drift * (now - self.drifting) / SECOND
            rate += self.drift
        position, velocity = self._gear * (displacement + self.jump - self._offset), self._gear * rate
        if self.flipped:
            position, velocity = -position, -velocity
        if options.noise:
            position += self._random.gauss(0.0, options.noise)
        if options.velocity_noise:
            velocity += self._random.gauss(0.0, options.velocity_noise)
        if options.resolution:
            position = options.resolution * round(position / options.resolution)
        if self.wrap is not None:
            position = (position + self.wrap / 2) % self.wrap - self.wrap / 2
        if self.stuck:
            self._held = position, 0.0
        return position, velocity

    def freeze(self, stuck: bool) -> None:
        """Lets it say for ever what it says next, or go on."""
        self.stuck, self._held = stuck, None

    def _look(self, now: int) -> tuple[float, float]:
        """Of a coordinate, or of an earlier moment."""
        place = 0 if self._coordinate else 2
        if self._latency:
            seen = self._plant.past(max(0, now - self._latency), now)
            return float(seen[place][self._index]), float(seen[place + 1][self._index])
        q, v = self._plant.state(now)
        return float(q[self._index]), float(v[self._index])
