"""The base of tasks on frames: rows from the motion of frames, in closed form or differentiated here.

    @dataclass(frozen=True)
    class SameHeight(FrameConstraint):
        first: str
        second: str

        @property
        def frames(self) -> tuple[str, ...]:
            return (self.first, self.second)

        def residual(self, motions, plant, t):
            return motions[self.first].position[2] - motions[self.second].position[2]

Design: a residual is a function of poses and time, so only it is differentiated, with symbols in place of the poses;
the kinematics come with their own Jacobians and drifts. A subclass with closed-form derivatives overrides `frame_rows`.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from servoctl.engine.trace import trace
from servoctl.errors import PlantError, TaskError
from servoctl.mechanics.constraint import Rows
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.spatial.kinematics import FrameMotion, PointMotion
from servoctl.mechanics.spatial.rotation import relative_motion, skew
from servoctl.mechanics.spatial.task.target import Targeted
from servoctl.types import Array

SAME = 1e-12  # [m, rad] two frames that move less than this are on one body: a law would follow their rounding


@runtime_checkable
class HasFrames(Protocol):
    """A plant with named frames, such as `Robot`."""

    def frame_motions(self, names: Any, q: Array, v: Array) -> dict[str, FrameMotion]:
        """Name -> motion of each frame; raises PlantError for a name that is unknown."""


class FrameConstraint(Targeted):
    """`phi(poses of frames, t) = 0`; subclass it with `@dataclass(frozen=True)`."""

    @property
    @abstractmethod
    def frames(self) -> tuple[str, ...]:
        """Names of the frames that the rows refer to; `world` is one."""

    def residual(self, motions: Mapping[str, FrameMotion], plant: Plant, t: Any) -> Any:
        """phi, a scalar or shape (r,), from the `rotation` and `position` of each frame; plain NumPy.

        Args:
            motions: Name -> motion of each of `frames`. Only poses are there.
            plant: The robot; its parameters may be symbols.
            t: Time [s].
        """
        raise TaskError(f"{type(self).__name__}: override residual(motions, plant, t)")

    def frame_rows(self, motions: Mapping[str, FrameMotion], plant: Plant, t: Any) -> Rows:
        """The rows from the motions of `frames`: `residual`, differentiated here, unless overridden.

        Args:
            motions: Name -> motion of each of `frames`, as symbols.
            plant: The robot; its parameters may be symbols.
            t: The symbol of time [s]; `self._time(t)` is the time of the task.
        """

        def residual(x: Array) -> Array:
            poses = x[:-1].reshape(-1, 12)
            posed = {
                name: replace(motion, position=pose[:3], rotation=pose[3:].reshape(3, 3))
                for (name, motion), pose in zip(motions.items(), poses, strict=True)
            }
            value = np.asarray(self.residual(posed, plant, self._time(x[-1])), dtype=object)
            if value.ndim > 1:
                what = f"expected a scalar or a vector, got shape {value.shape}"
                raise TaskError(f"{type(self).__name__}.residual: {what}")
            return value

        parts = [_flat(motion) for motion in motions.values()]
        n = parts[0].linear.shape[1]
        clock = PointMotion(np.array([t]), np.zeros((1, n)), np.ones(1), np.zeros(1))
        fields = ("position", "linear", "velocity", "drift")
        x = PointMotion(*(np.concatenate([getattr(part, name) for part in [*parts, clock]]) for name in fields))
        return x.mapped(residual).rows

    def problems(self, plant: Plant) -> list[str]:
        found = super().problems(plant)
        if not isinstance(plant, HasFrames):
            return [*found, f"expected a robot, got {type(plant).__name__} (only a robot has frames)"]
        names, still = list(dict.fromkeys(self.frames)), np.zeros(len(plant.coordinates))
        poses = [still + 1.0, np.linspace(0.3, 0.9, len(still))]  # a free base has none where its quaternion is 0
        for name in names:
            try:
                plant.frame_motions([name], poses[0], still)
            except PlantError as error:
                found.append(str(error))
        if len(names) == 2 and not found:
            first, second = (relative_motion(*plant.frame_motions(names, q, still).values()) for q in poses)
            if (
                max(np.abs(first.position - second.position).max(), np.abs(first.rotation - second.rotation).max())
                < SAME
            ):
                both = " and ".join(f"'{name}'" for name in names)
                found.append(f"no joint moves {both} relative to each other (name frames of two bodies)")
        return found

    def rows(self, plant: Plant, t: Any, q: Array, v: Array) -> Rows:
        assert isinstance(plant, HasFrames)  # `problems` says otherwise
        return self.frame_rows(trace(plant.frame_motions, list(dict.fromkeys(self.frames)), q, v), plant, t)


def _flat(motion: FrameMotion) -> PointMotion:
    """The motion of a pose as one vector: position, then rotation by rows, shape (12,)."""
    R, w = motion.rotation, skew(motion.angular_velocity)
    turns = [skew(column) @ R for column in motion.angular.T]
    drift = skew(motion.angular_drift) @ R + w @ (w @ R)
    return PointMotion(
        np.concatenate([motion.position, R.ravel()]),
        np.concatenate([motion.linear, np.array([turn.ravel() for turn in turns], dtype=object).T]),
        np.concatenate([motion.velocity, (w @ R).ravel()]),
        np.concatenate([motion.drift, drift.ravel()]),
    )
