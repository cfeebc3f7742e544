"""Where a motion by hand begins: at the known pose, or where the stops of the joints say."""

from collections.abc import Mapping

import numpy as np

from hil.calibration.motion import HandMotion
from hil.calibration.pose import pose_at
from hil.calibration.stops import StopZero
from hil.sensing.channels import Displacements
from servoctl.mechanics.model import Model
from servoctl.types import Array, State

BySign = Mapping[float, StopZero]
"""Sign of a drive -> what its stops say about its displacement at the beginning."""


class Beginning:
    """Displacements and pose at the beginning of a motion, for given signs.

    Args:
        model: The plant; its task is not used.
        displacements: Of the drives in the order of the actuators, then of encoder nodes.
        start: The known pose.
        motion: What the encoders said.
        zeros: Index of each drive with stops -> what they say.
        count: Number of drives.
        tolerance: Largest difference between the known pose and an encoder node, or a stop [joint unit].

    Attributes:
        problem: Why an encoder node contradicts the known pose; empty if none does.
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
        self._zeros, self._count, self._tolerance, self.problem = zeros, count, tolerance, ""
        self._by_stops = len(zeros) == count
        self._nodes = list(range(count, len(motion.settings)))
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
        shown, expected = self._shown, self._displacements(self._model.plant, self._start.q)[self._nodes]
        worst = int(np.argmax(np.abs(shown - expected)))
        if not abs(shown[worst] - expected[worst]) <= self._tolerance:
            node = self._nodes[worst]
            name, unit = motion.settings[node].name, self._displacements.units[node]
            self.problem = (
                f"the known pose is not that of the machine: encoder {name} says {shown[worst]:.5g} {unit}, initial.q "
                f"{expected[worst]:.5g} {unit} (put the machine at initial.q, or correct it)"
            )
            return
        self._q, _ = pose_at(self._model, self._displacements, self._start.t, self._start.q, self._nodes, shown)

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
        if i not in self._zeros:
            return ""
        found = self._zeros[i][sign]
        if found.problem or self._by_stops or abs(found.zero - self._y[i]) <= self._tolerance:
            return found.problem
        unit = self._displacements.units[i]
        return (
            f"by its stops it began at {found.zero:.4g} {unit}, initial.q says {self._y[i]:.4g} {unit} (put the "
            "machine at initial.q, correct the stops, or give every drive its stops)"
        )

    def stop_residual(self, i: int, sign: float) -> float:
        """Largest difference between touches of the stops of a drive and its zero [joint unit]; NaN: it has none."""
        return self._zeros[i][sign].residual if i in self._zeros else float("nan")
