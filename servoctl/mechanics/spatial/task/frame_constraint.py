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

from servoctl.engine.kernel import directional, jacobian, substituted
from servoctl.engine.symbol import symbols
from servoctl.engine.trace import trace
from servoctl.errors import PlantError, TaskError
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.rows import Rows
from servoctl.mechanics.spatial.kinematics import FrameMotion
from servoctl.mechanics.spatial.rotation import skew
from servoctl.mechanics.spatial.task.targeted import Targeted
from servoctl.types import Array


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
        return _differentiated(self, motions, plant, t)

    def problems(self, plant: Plant) -> list[str]:
        found = super().problems(plant)
        if not isinstance(plant, HasFrames):
            return [*found, f"expected a robot, got {type(plant).__name__} (only a robot has frames)"]
        anywhere = np.ones(len(plant.coordinates))  # a free base has no pose where its quaternion is 0
        for name in dict.fromkeys(self.frames):
            try:
                plant.frame_motions([name], anywhere, anywhere)
            except PlantError as error:
                found.append(str(error))
        return found

    def rows(self, plant: Plant, t: Any, q: Array, v: Array) -> Rows:
        assert isinstance(plant, HasFrames)  # `problems` says otherwise
        return self.frame_rows(trace(plant.frame_motions, list(dict.fromkeys(self.frames)), q, v), plant, t)


def _differentiated(task: FrameConstraint, motions: Mapping[str, FrameMotion], plant: Plant, t: Any) -> Rows:
    """The rows of a residual, by automatic differentiation with respect to poses and time only."""
    size = 12 * len(motions)
    x, rate, second, clock = (symbols(name, count) for name, count in zip("xrst", (size, size, size, 1), strict=True))
    posed = {name: _at_pose(motion, x[12 * i :]) for i, (name, motion) in enumerate(motions.items())}
    value = np.asarray(trace(task.residual, posed, plant, task._time(clock[0])), dtype=object)
    phi = np.atleast_1d(value)
    if phi.ndim != 1:
        raise TaskError(f"{type(task).__name__}.residual: expected a scalar or a vector, got shape {value.shape}")
    phi_rate = directional(phi, x, rate) + jacobian(phi, clock)[:, 0]
    curvature = directional(phi_rate, x, rate) + directional(phi_rate, rate, second) + jacobian(phi_rate, clock)[:, 0]
    parts = [_pose_derivatives(motion) for motion in motions.values()]
    poses, columns, rates, drifts = (np.concatenate(part) for part in zip(*parts, strict=True))
    phi, slope, phi_rate, curvature = substituted(
        [phi, jacobian(phi, x), phi_rate, curvature], [x, rate, second, clock], [poses, rates, drifts, np.array([t])]
    )
    return Rows(slope @ columns, -curvature, phi, phi_rate)


def _at_pose(motion: FrameMotion, x: Array) -> FrameMotion:
    """A frame at the pose of the symbols x: position, then rotation by rows."""
    return replace(motion, position=x[:3], rotation=x[3:12].reshape(3, 3))


def _pose_derivatives(motion: FrameMotion) -> tuple[Array, Array, Array, Array]:
    """Position and rotation by rows, shape (12,); their Jacobian, rate and drift: `x'' = columns q'' + drift`."""
    R, w = motion.rotation, skew(motion.angular_velocity)
    turns = [skew(column) @ R for column in motion.angular.T]
    columns = np.concatenate([motion.linear, np.array([turn.ravel() for turn in turns], dtype=object).T])
    drift = skew(motion.angular_drift) @ R + w @ (w @ R)
    return (
        np.concatenate([motion.position, R.ravel()]),
        columns,
        np.concatenate([motion.velocity, (w @ R).ravel()]),
        np.concatenate([motion.drift, drift.ravel()]),
    )
