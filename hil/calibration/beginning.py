"""A motion by hand, and where it begins: where encoder nodes and stops say, and for the rest at the known pose.

Design: nodes and stops are right. A known pose that they contradict refuses nothing, but zeros that rest on it say so.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from hil.calibration.stops import StopZero
from hil.drives.base import Feedback, Node
from hil.drives.settings import SensorSettings
from hil.loop import SECOND
from hil.sensing.channels import Displacements
from servoctl.mechanics.model import Model
from servoctl.types import Array, State

STEPS = 20  # largest number of Newton steps
SOLVED = 1e-13  # [coordinate unit, joint unit] Newton ends below this error
RANK_TOLERANCE = 1e-9  # relative singular value below which rows count as dependent


def pose_at(
    model: Model, displacements: Displacements, t: float, q: Array, channels: Sequence[int], values: Array
) -> tuple[Array, float]:
    """The pose, shape (n,), and the largest error that remains there.

    Args:
        model: The plant; its task is not used.
        displacements: What the channels measure.
        t: Time of the plant [s].
        q: Pose to begin with, shape (n,).
        channels: Indices of the channels whose values are given.
        values: These values, shape (channels,) [joint unit].
    """
    chosen, rest = list(channels), np.zeros(model.n)
    holonomic = np.array([row.kind == "holonomic" for row in model.passive_rows], dtype=bool)
    error = np.inf
    for _ in range(STEPS):
        rows = model.passive_rows_at(t, q, rest, model.parameters)
        H = np.asarray(displacements.jacobian(model.plant, q, t), dtype=float)[chosen]
        missing = np.concatenate([-rows.violation[holonomic], values - displacements(model.plant, q)[chosen]])
        before, error = error, float(np.abs(missing).max(initial=0.0))
        if not error > SOLVED or error > 2.0 * before:
            break
        q = q + np.linalg.lstsq(np.concatenate([rows.A[holonomic], H]), missing, RANK_TOLERANCE)[0]
    return q, error


STILL_STEPS = 2.0  # encoders count as still while they stay within so many steps of their first value
LONGEST_STILL = 200  # largest number of samples of which the start is the mean


class HandMotion:
    """Collects one sample of every node per tick.

    Args:
        nodes: Drives in the order of the actuators, then encoder nodes.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = list(nodes)
        self.settings: list[SensorSettings] = [node.settings for node in nodes]  # settings of the nodes
        # [joint unit] smallest visible step of each node, shape (nodes,)
        self.steps = np.array([node.visible() for node in nodes])
        # whether all nodes sample at the same instant
        self.synced = all(node.feedback is Feedback.SYNC for node in nodes)
        self._rows: list[list[float]] = []

    def add(self, now: int) -> None:
        """Takes the newest sample of every node, moved on to now [ns] at its own speed; nothing before all have one."""
        row = []
        for node in self._nodes:
            sample = node.sample
            if sample is None:
                return
            moving = sample.velocity == sample.velocity and node.feedback is not Feedback.SYNC
            age = (now - sample.time) / SECOND
            row.append(sample.position + (sample.velocity * age if moving else 0.0))
        self._rows.append([now / SECOND, *row])

    @property
    def t(self) -> Array:
        """Times, shape (samples,) [s]."""
        return np.array([row[0] for row in self._rows])

    @property
    def motors(self) -> Array:
        """Motor angles divided by the gear, shape (samples, nodes): displacement = sign * motor + offset."""
        shown = np.array([row[1:] for row in self._rows]).reshape(-1, len(self.settings))
        signs, offsets = (np.array([getattr(each, name) for each in self.settings]) for name in ("sign", "offset"))
        motors: Array = signs * (shown - offsets)
        return motors

    def at_start(self) -> Array:
        """Mean of the samples before the first motion, shape (nodes,), as in `motors`."""
        motors = self.motors[:LONGEST_STILL]
        moved = np.flatnonzero((np.abs(motors - motors[0]) > STILL_STEPS * self.steps).any(axis=1))
        mean: Array = motors[: int(moved[0]) if len(moved) else len(motors)].mean(axis=0)
        return mean


BySign = Mapping[float, StopZero]  # sign of a drive -> what its stops say about its displacement at the beginning


class Beginning:
    """Displacements and pose at the beginning of a motion, for given signs.

    Args:
        model: The plant; its task is not used.
        displacements: Of the drives in the order of the actuators, then of encoder nodes.
        start: The known pose.
        motion: What the encoders said.
        zeros: Index of each drive with stops -> what they say.
        count: Number of drives.
        tolerance: Larger differences between the known pose and an encoder node, or a stop, are said [joint unit].
    """

    def __init__(
        self,
        model: Model,
        displacements: Displacements,
        start: State,
        motion: HandMotion,
        zeros: Mapping[int, BySign],
        count: int,
        tolerance: float,
    ) -> None:
        self._model, self._displacements, self._start = model, displacements, start
        self._zeros, self._count, self._tolerance = zeros, count, tolerance
        self._by_stops = len(zeros) == count
        self._nodes = list(range(count, len(motion.settings)))
        self._names = [settings.name for settings in motion.settings]
        motors = motion.motors[0]
        self._shown = np.array([motion.settings[i].sign * motors[i] + motion.settings[i].offset for i in self._nodes])
        self._q = start.q
        if not self._by_stops:
            self._take_nodes(motion)
        self._y = displacements(model.plant, self._q)

    def _take_nodes(self, motion: HandMotion) -> None:
        """Corrects the known pose by what the encoder nodes say."""
        if not self._nodes:
            return
        self._q, _ = pose_at(self._model, self._displacements, self._start.t, self._start.q, self._nodes, self._shown)

    def __call__(self, signs: Array) -> tuple[Array, Array]:
        """Displacements, shape (nodes,), and pose, shape (n,), if the drives have these signs."""
        y = self._y.copy()
        for i, by_sign in self._zeros.items():
            y[i] = by_sign[float(signs[i])].zero
        if not self._by_stops:
            return y, self._q
        y[self._nodes] = self._shown
        drives = list(range(self._count))
        q, _ = pose_at(self._model, self._displacements, self._start.t, self._start.q, drives, y[drives])
        return y, q

    def stop_problem(self, i: int, sign: float) -> str:
        """Why the stops of a drive give no zero; empty if they do, or if it has none."""
        return self._zeros[i][sign].problem if i in self._zeros else ""

    def zero_from(self, i: int, signs: Array) -> str:
        """What the zero of a drive follows from; with what contradicts the known pose, if it follows from that."""
        if i in self._zeros:
            return "its stops"
        known = self._displacements(self._model.plant, self._start.q)
        shown = dict(zip(self._nodes, self._shown, strict=True))
        shown |= {k: by_sign[float(signs[k])].zero for k, by_sign in self._zeros.items()}
        off = {k: abs(x - known[k]) for k, x in shown.items() if not np.isnan(x)}
        worst = max(off, key=off.__getitem__, default=i)
        if not off or off[worst] <= self._tolerance:
            return "the start pose"
        name, unit = self._names[worst], self._displacements.units[worst]
        return (
            f"the start pose, although {name} was at {shown[worst]:.4g} {unit}, where initial.q says {known[worst]:.4g}"
        )

    def stop_residual(self, i: int, sign: float) -> float:
        """Largest difference between touches of the stops of a drive and its zero [joint unit]; NaN: it has none."""
        return self._zeros[i][sign].residual if i in self._zeros else float("nan")
