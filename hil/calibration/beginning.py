"""Where a motion by hand begins: where encoder nodes and stops say, and for the rest at the known pose.

Design: nodes and stops are right. A known pose that they contradict refuses nothing, but zeros that rest on it say so.
"""

from collections.abc import Mapping

import numpy as np

from hil.calibration.motion import HandMotion
from hil.calibration.pose import pose_at
from hil.calibration.stops import StopZero
from hil.sensing.channels import Displacements
from servoctl.mechanics.model import Model
from servoctl.types import Array, State

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
