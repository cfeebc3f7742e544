"""Motor and brake of an emulated drive."""

from collections.abc import Callable

from hil.drives.settings import DriveSettings
from hil.emulator.plant import SimulatedPlant
from hil.loop.virtual_time import Event, World, cancel

BRAKE_TIME = 100_000_000
"""Time that a brake takes to close [ns]."""


class Motor:
    """Motor and brake of a drive.

    Attributes:
        enabled: Whether the drive makes torque.
        braked: Whether the brake is closed; False without a brake.
        shorted: Whether its phases are shorted: its torque then comes from the motion, and ends with it.
        told: Called with `torque on` or `torque off` at each change.
    """

    def __init__(
        self, world: World, plant: SimulatedPlant, index: int, settings: DriveSettings, brake_time: int = BRAKE_TIME
    ) -> None:
        """Starts without torque, with the brake closed if there is one.

        Args:
            world: Its time.
            plant: The machine.
            index: Number of the actuator.
            settings: Settings of the drive.
            brake_time: Time that the brake takes to close [ns].
        """
        self._world, self._plant, self.index, self._settings = world, plant, index, settings
        self._brake_time = brake_time
        self._closing: Event | None = None
        self.enabled = self.shorted = self.braked = False
        self.told: Callable[[str], None] = lambda word: None
        self.actuator = plant.actuators[index]
        self._brake(True)

    def enable(self, torque: float) -> None:
        """Enables torque, at first this one [N m], and opens the brake."""
        if not self.enabled:
            self.told("torque on")
        self.enabled, self.shorted = True, False
        cancel(self._closing)
        self._closing = None
        self._brake(False)
        self._plant.command(self.index, torque, self._world.now)

    def command(self, torque: float) -> None:
        """Commands a torque [N m], if the motor is enabled."""
        if self.enabled:
            now = self._world.now
            self._plant.advance(now)
            self.actuator.command(torque, now)

    def disable(self) -> None:
        """Switches torque off; the brake closes after its time, unless it closes already."""
        if self.shorted:
            self.short(0.0)
            self.shorted = False
        if not self.enabled:
            return
        self.enabled = False
        self.told("torque off")
        self._plant.command(self.index, 0.0, self._world.now)
        self.close_brake()

    def close_brake(self) -> None:
        """Closes the brake, which takes its time; torque stays as it is meanwhile."""
        if self._settings.brake and not self.braked and self._closing is None:
            self._closing = self._world.after(self._brake_time, self._close)

    def short(self, torque: float) -> None:
        """Makes the torque of shorted phases [N m], which needs no supply, while the drive is off."""
        if not self.enabled:
            self.shorted = True
            self._plant.command(self.index, torque, self._world.now)

    def _close(self) -> None:
        self._closing = None
        self._brake(True)

    def _brake(self, closed: bool) -> None:
        if self._settings.brake:
            self.braked = closed
            self._plant.brake(self.index, closed, self._world.now)

    def limit(self, torque: float) -> None:
        """Sets the largest torque [N m]."""
        self.actuator.limit = torque
        self._plant.refresh(self.index, self._world.now)

    def torque(self) -> float:
        """Torque now [N m]."""
        self._plant.advance(self._world.now)
        return self.actuator.torque(self._world.now)

    def joint_torque(self) -> float:
        """Torque or force that the motor makes at the joint now [actuator unit]."""
        return self._settings.joint_torque(self.torque())

    @property
    def saturated(self) -> bool:
        """Whether the commanded torque exceeds the limit."""
        return self.enabled and self.actuator.saturated
