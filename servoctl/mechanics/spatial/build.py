"""Builds a `Robot` from what files describe."""

from collections.abc import Sequence

from servoctl.mechanics.spatial.plant import GRAVITY, Robot, built_robot
from servoctl.mechanics.spatial.tree_builder import TreeBuilder


class RobotBuilder(TreeBuilder):
    """Collects robots, payloads, frames and loops, and makes the plant."""

    def plant(self, gravity: Sequence[float] = GRAVITY) -> Robot:
        """The plant.

        Args:
            gravity: Acceleration of gravity in world axes [m/s^2].

        Raises:
            PlantError: Everything that is wrong with the parts.
        """
        return built_robot(self, gravity)
