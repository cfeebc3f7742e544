"""What a motion must not exceed: positions, speeds and torques of the motors, from everything that a config states."""

from dataclasses import dataclass

import numpy as np

from servoctl.assembly import Run
from servoctl.assembly.values import limit_pair
from servoctl.config.schema import LawConfig
from servoctl.mechanics.spatial.plant import Robot
from servoctl.mechanics.spatial.pose_solver import joint_limits
from servoctl.types import Array


@dataclass(frozen=True)
class MotorLimits:
    """Limits per actuator; infinite where none is known.

    Attributes:
        lower, upper: Displacement, shape (m,).
        speed: Largest speed, shape (m,).
        least, most: Torque, shape (m,).
    """

    lower: Array
    upper: Array
    speed: Array
    least: Array
    most: Array

    def share(self, position: Array, speed: Array, torque: Array) -> float:
        """The largest share of a limit that a motion uses; at most 1 inside all limits.

        Args:
            position, speed, torque: Of the motors along the motion, shape (rows, m).
        """
        parts = [
            np.maximum((position - self.middle) / self.half, (self.middle - position) / self.half),
            np.abs(speed) / self.speed,
            np.maximum(torque / self.most, torque / self.least),
        ]
        return max(float(np.max(np.nan_to_num(part, nan=0.0), initial=0.0)) for part in parts)

    @property
    def middle(self) -> Array:
        """Middle of the displacements, shape (m,); 0 where a limit is infinite."""
        both = np.isfinite(self.lower) & np.isfinite(self.upper)
        return np.where(both, 0.5 * (np.where(both, self.lower, 0.0) + np.where(both, self.upper, 0.0)), 0.0)

    @property
    def half(self) -> Array:
        """Half the range of the displacements, shape (m,)."""
        return np.where(np.isfinite(self.upper - self.lower), 0.5 * (self.upper - self.lower), np.inf)


def motor_limits(run: Run) -> MotorLimits:
    """The limits that a config states: of its drives, its law, and the files of its robots; the narrowest holds."""
    assert run.loaded is not None
    config, plant = run.loaded.config, run.system.model.plant
    names = list(plant.actuators)
    widest = {"lower": -np.inf, "upper": np.inf, "speed": np.inf, "least": -np.inf, "most": np.inf}
    found = {key: np.full(len(names), size) for key, size in widest.items()}

    def narrow(name: str, key: str, value: float | None) -> None:
        if value is not None:
            j, lowest = names.index(name), key in ("lower", "least")
            found[key][j] = max(found[key][j], value) if lowest else min(found[key][j], value)

    for drive in () if config.hil is None else config.hil.drives:
        for key, value in zip(("lower", "upper"), drive.position_limits, strict=True):
            narrow(drive.actuator, key, value)
        narrow(drive.actuator, "speed", drive.speed_limit)
        narrow(drive.actuator, "least", -drive.torque_limit)
        narrow(drive.actuator, "most", drive.torque_limit)
    if isinstance(config.law, LawConfig) and isinstance(config.law.limits, dict):
        for name, limit in config.law.limits.items():
            for key, value in zip(("least", "most"), limit_pair(limit), strict=True):
                narrow(name, key, value)
    if isinstance(plant, Robot):
        lower, upper = (dict(zip(plant.coordinates, ends, strict=True)) for ends in joint_limits(plant.tree))
        for name in names:
            least, most = plant.tree.joint(name).effort or (None, None)
            speed = plant.tree.velocity(name)
            values = {"lower": lower[name], "upper": upper[name], "speed": speed, "least": least, "most": most}
            for key, value in values.items():
                narrow(name, key, value)
    return MotorLimits(**found)
