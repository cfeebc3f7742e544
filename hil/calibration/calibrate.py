"""Signs, zeros and ranges of the drives' encoders from a motion by hand that begins at a known pose.

Design: encoder nodes on coordinates are taken as right; the known pose moves to what they say, as little as possible.
Where displacements are measured more than once, the residual judges the signs and the zeros. Where they are not, the
operator's order is the evidence: axes are moved one after another, each first in its positive direction. Nothing is
guessed: an axis that did not move, or evidence that does not decide, refuses the calibration.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor, isnan

import numpy as np

from hil.calibration.motion import HandMotion
from hil.calibration.pose import pose_at
from hil.calibration.signs import FittingSigns, fitting_signs
from hil.drives.settings import DriveSettings
from hil.sensing.sensing import Sensing
from servoctl.mechanics.model import Model
from servoctl.types import Array, State

MOVED = 0.01
"""An axis has moved when it leaves its start by this share of the range in the config."""

ALONE = 0.25
"""When an axis begins to move, others that have not moved yet may have gone this share of their own `MOVED`."""

COARSE, FINE = 12, 150
"""Samples on which all signs are tried, and on which the best ones are checked."""

CALM = 0.3
"""Share of the samples on which the signs are checked where nodes do not sample together: the slowest."""

HOPELESS = 1e3
"""Signs with so large a misfit at one sample are not tried any further."""

DECIDES = 3.0
"""The second best signs must fit this many times worse."""

CHECKED = 1e-6
"""A channel counts as checked by others above this share of its error in its own residual."""

DIGITS = 1e4
"""Ranges are rounded outward to 1 / DIGITS."""


@dataclass(frozen=True)
class Axis:
    """What was found out about one drive.

    Attributes:
        name: Name of the actuator.
        sign: 1 or -1.
        offset: Displacement where the encoder reads 0 [joint unit].
        position_limits: Range seen [joint unit].
        residual: Largest disagreement with the other encoders [steps of its own]; NaN where no other checks it.
        moved_at: When it first moved [s]; NaN: never.
        evidence: What its sign follows from.
        problem: Why it is refused; empty if it is not.
    """

    name: str
    sign: int
    offset: float
    position_limits: tuple[float, float]
    residual: float
    moved_at: float
    evidence: str
    problem: str = ""


class Calibrator:
    """Finds signs, zeros and ranges.

    Args:
        model: The plant; its task is not used.
        sensing: Solves for q: drives in the order of the actuators, then encoder nodes.
        start: The known pose.
        drives: Drives of the config.
        tolerance: Largest disagreement of redundant encoders [joint unit]; None: what their steps explain.
        start_tolerance: Largest difference between an encoder node and the known pose [joint unit].
        skew: Uncertainty of a sample's time where nodes do not sample together [s].
    """

    def __init__(
        self,
        model: Model,
        sensing: Sensing,
        start: State,
        drives: Sequence[DriveSettings],
        tolerance: float | None = None,
        start_tolerance: float = np.inf,
        skew: float = 0.0,
    ) -> None:
        self._model, self._coordinates, self._start = model, sensing.coordinates, start
        self._drives, self._tolerance, self._start_tolerance = drives, tolerance, start_tolerance
        self._displacements, self._skew = sensing.displacements, skew
        rest = np.zeros(len(self._displacements.channels))
        y = self._displacements(model.plant, start.q)
        estimate = self._coordinates(start.t, 0.0, start.q, np.zeros(model.n), y.tolist(), rest.tolist(), rest.tolist())
        self._checked = estimate.redundancy > CHECKED

    def __call__(self, motion: HandMotion) -> list[Axis]:
        """What the motion shows, for each drive."""
        motors, begin = motion.motors, motion.at_start()
        if len(motors) < COARSE:
            what = "no samples of all nodes together came (see the events)"
            return [self._unknown(drive, what) for drive in self._drives]
        count = len(self._drives)
        travel = motors - begin
        first, direction = self._first_moves(motion.t, travel[:, :count])
        q0, problem = self._known_pose(motors[0], motion)
        y0 = self._displacements(self._model.plant, q0)
        signs = np.concatenate([np.where(direction == 0.0, 1.0, direction), self._given_signs(motion)])
        judged = [i for i in range(count) if self._checked[i] and not isnan(first[i])]
        fit, residual, excess = self._fit(motion, travel, y0, q0, signs, judged)
        together = self._moved_together(motion.t, travel[:, :count], first, judged)
        axes = []
        for i, drive in enumerate(self._drives):
            sign = float(fit.signs[i])
            y = y0[i] + sign * travel[:, i]
            axes.append(
                Axis(
                    drive.name, int(sign), float(y0[i] - sign * begin[i]),
                    (floor(float(y.min()) * DIGITS) / DIGITS, ceil(float(y.max()) * DIGITS) / DIGITS),
                    float(residual[i] / motion.steps[i]) if self._checked[i] else np.nan, float(first[i]),
                    "the other encoders" if i in judged else "the first move, counted as positive",
                    problem or together.get(i) or self._problem(i, drive, travel[:, i], fit, excess, first, judged),
                )
            )  # fmt: skip
        return axes

    def _given_signs(self, motion: HandMotion) -> Array:
        return np.array([float(each.sign) for each in motion.settings[len(self._drives) :]])

    def _unknown(self, drive: DriveSettings, why: str) -> Axis:
        return Axis(drive.name, drive.sign, drive.offset, drive.position_limits, np.nan, np.nan, "", why)

    def _first_moves(self, t: Array, travel: Array) -> tuple[Array, Array]:
        """Time of each drive's first move [s], NaN if it never moved, and the direction of its motor then."""
        beyond = np.abs(travel) > self._least_move
        index = beyond.argmax(axis=0)
        moved = beyond.any(axis=0)
        direction = np.where(moved, np.sign(travel[index, np.arange(travel.shape[1])]), 0.0)
        return np.where(moved, t[index], np.nan), direction

    @property
    def _least_move(self) -> Array:
        """Displacement of each drive that counts as a move [joint unit]."""
        return np.array([MOVED * (upper - lower) for lower, upper in (drive.position_limits for drive in self._drives)])

    def _moved_together(self, t: Array, travel: Array, first: Array, judged: Sequence[int]) -> dict[int, str]:
        """Axis -> why its first move tells no sign: another axis that the residual does not judge moved with it."""
        alone = [i for i in range(len(first)) if i not in judged and not isnan(first[i])]
        problems: dict[int, str] = {}
        for i in alone:
            gone = np.abs(travel[int(np.searchsorted(t, first[i]))]) / self._least_move
            for j in alone:
                if j != i and first[j] >= first[i] and gone[j] > ALONE:
                    for one, other in ((i, j), (j, i)):
                        name = self._drives[other].name
                        problems.setdefault(
                            one, f"moved together with {name}: its first move does not tell its sign (hold the other "
                            "joints and move one at a time)"
                        )  # fmt: skip
        return problems

    def _known_pose(self, motors: Array, motion: HandMotion) -> tuple[Array, str]:
        """The known pose as the encoder nodes correct it, and why they contradict it."""
        count = len(self._drives)
        nodes = list(range(count, len(motion.settings)))
        if not nodes:
            return self._start.q, ""
        shown = np.array([motion.settings[i].sign * motors[i] + motion.settings[i].offset for i in nodes])
        expected = self._displacements(self._model.plant, self._start.q)[nodes]
        worst = int(np.argmax(np.abs(shown - expected)))
        if not abs(shown[worst] - expected[worst]) <= self._start_tolerance:
            name, unit = motion.settings[nodes[worst]].name, self._displacements.units[nodes[worst]]
            return self._start.q, (
                f"the known pose is not that of the machine: encoder {name} says {shown[worst]:.5g} {unit}, initial.q "
                f"{expected[worst]:.5g} {unit} (put the machine at initial.q, or correct it)"
            )
        q, _ = pose_at(self._model, self._displacements, self._start.t, self._start.q, nodes, shown)
        return q, ""

    def _fit(
        self, motion: HandMotion, travel: Array, y0: Array, q0: Array, signs: Array, judged: Sequence[int]
    ) -> tuple[FittingSigns, Array, float]:
        """The signs that fit best, the largest residual of each node, and the misfit over the whole motion."""
        spread = np.linspace(0, len(travel) - 1, COARSE, dtype=int)
        rates = np.gradient(travel, motion.t, axis=0)
        skew = 0.0 if motion.synced else self._skew
        slack = np.abs(rates) * skew + np.abs(np.gradient(rates, motion.t, axis=0)) * skew**2
        slack += np.maximum(0.0, motion.steps - self._displacements.errors)  # an encoder coarser than its wire
        # the residual of a large motion tells most: the sample farthest from the start in each part of the motion
        size = np.abs(travel / motion.steps).max(axis=1)
        far = np.array([a + int(np.argmax(size[a:b])) for a, b in pairwise(spread)])

        def misfit(signs: Array) -> float:
            return self._misfit(y0 + signs * travel[far], slack[far], q0)[0]

        fit = fitting_signs(misfit, signs, judged)
        # where nodes do not sample together, only slow samples tell more than the times of the others
        loose = (slack / motion.steps).max(axis=1)
        edges = np.unique(np.linspace(0, len(travel), FINE + 1, dtype=int))
        calm = np.array([a + int(np.argmin(loose[a:b])) for a, b in pairwise(edges)])
        if not motion.synced:
            calm = np.sort(calm[np.argsort(loose[calm])[: max(COARSE, round(CALM * len(calm)))]])
        excess, residual = self._misfit(y0 + fit.signs * travel[calm], slack[calm], q0)
        return fit, residual, excess

    def _misfit(self, y: Array, slack: Array, q: Array) -> tuple[float, Array]:
        """Largest residual relative to its bound, and the largest residual of each node [joint unit]."""
        rest, worst, largest = np.zeros(len(y[0])).tolist(), 0.0, np.zeros(len(y[0]))
        still = np.zeros(self._model.n)
        for row, more in zip(y, slack, strict=True):
            for _ in range(3):
                estimate = self._coordinates(self._start.t, 0.0, q, still, row.tolist(), rest, more.tolist())
                if not np.isfinite(estimate.q).all():
                    return np.inf, np.full(len(row), np.inf)
                settled = np.abs(estimate.q - q).max() < 1e-9
                q = estimate.q
                if settled:
                    break
            residual = np.abs(estimate.residual)
            bound = estimate.bound if self._tolerance is None else np.full(len(row), self._tolerance)
            ratio = residual / np.maximum(bound, 1e-3 * self._displacements.errors)
            largest, worst = np.maximum(largest, residual), max(worst, float(ratio.max()))
            if not worst < HOPELESS:
                break
        return worst, largest

    def _problem(
        self, i: int, drive: DriveSettings, travel: Array, fit: FittingSigns, excess: float, first: Array,
        judged: Sequence[int],
    ) -> str:  # fmt: skip
        """Why a drive's calibration is refused; empty if it is not."""
        if isnan(first[i]):
            span = drive.position_limits[1] - drive.position_limits[0]
            return (
                f"did not move: its encoder went {np.ptp(travel):.3g} from end to end, at least {MOVED * span:.3g} to "
                "one side is needed (move this axis; is it the right node?)"
            )
        if i in judged:
            if not excess <= 1.0:
                return (
                    f"the encoders disagree by {excess:.3g} times what their steps explain, with the signs that fit "
                    "best (was the machine at initial.q? are gear and the plant's lengths right? else set "
                    "hil.safety.residual_tolerance)"
                )
            if i in fit.unclear and not fit.rival > DECIDES * max(1.0, fit.misfit):
                return "the motion does not tell its sign (move the machine farther)"
            return ""
        others = [j for j in range(len(first)) if j not in judged and not isnan(first[j])]
        order = sorted(others, key=lambda j: (first[j], j))
        if order != others:
            names = [", ".join(self._drives[j].name for j in each) for each in (order, others)]
            return (
                f"moved in the order {names[0]}, expected {names[1]} (move one axis after another in this order; if "
                "you did, nodes are swapped)"
            )
        return ""
