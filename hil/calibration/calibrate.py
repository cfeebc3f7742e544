"""Signs, zeros and ranges of the drives' encoders from a motion by hand that begins at a known pose.

Design: encoder nodes on coordinates are taken as right; the known pose moves to what they say, as little as possible.
Joints with mechanical stops at known displacements get their zeros there; if all have, the pose need not be known.
Where displacements are measured more than once, the residual judges the signs and the zeros. Where they are not, the
operator's order is the evidence: axes are moved one after another, each first in its positive direction. Nothing is
guessed: an axis that did not move, or evidence that does not decide, refuses the calibration.

    y_i(k) = y_i(0) + s_i (r_i(k) - r_i(0)),  s_i = 1 or -1          minimise max_k |y(k) - h(q(k))|

Design: all signs are tried as long as there are few, because a mechanism that is mirrored as a whole fits to first
order, and only the full nonlinear constraints tell it from the true one. Ours.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import ceil, floor, isnan

import numpy as np

from hil.calibration.beginning import Beginning, HandMotion
from hil.calibration.stops import zero_by_stops
from hil.drives.settings import DriveSettings
from hil.sensing.sensing import Sensing
from servoctl.mechanics.model import Model
from servoctl.types import Array, State

MOST_TRIED = 12
"""Up to so many drives every combination is tried; beyond, signs are turned alone and in pairs while that helps."""

Misfit = Callable[[Array], float]
"""Signs, shape (nodes,) -> largest residual relative to what the encoders' steps explain; infinite if none fits."""


@dataclass(frozen=True)
class FittingSigns:
    """The signs that fit best."""

    signs: Array  # one per node, shape (nodes,)
    misfit: float
    rival: float  # the second best misfit
    unclear: tuple[int, ...]  # indices of the nodes whose signs the second best combination turns


def fitting_signs(misfit: Misfit, start: Array, judged: Sequence[int]) -> FittingSigns:
    """The signs with the smallest misfit.

    Args:
        misfit: What is minimised.
        start: Signs to begin with; nodes that are not judged keep them.
        judged: Indices of the nodes whose sign the residual judges.
    """
    tried = {tuple(signs.tolist()): misfit(signs) for signs in _combinations(misfit, start, judged)}
    order = sorted(tried, key=lambda signs: tried[signs])
    best = order[0]
    if len(order) == 1:
        return FittingSigns(np.array(best), tried[best], np.inf, ())
    unclear = tuple(i for i, (a, b) in enumerate(zip(best, order[1], strict=True)) if a != b)
    return FittingSigns(np.array(best), tried[best], tried[order[1]], unclear)


def _combinations(misfit: Misfit, start: Array, judged: Sequence[int]) -> Iterator[Array]:
    if len(judged) <= MOST_TRIED:
        for turns in product((1.0, -1.0), repeat=len(judged)):
            signs = start.copy()
            signs[list(judged)] *= turns
            yield signs
        return
    best, least = start.copy(), misfit(start)
    yield best
    pairs = [(i,) for i in judged] + [(i, j) for i in judged for j in judged if i < j]
    better = True
    while better:
        better = False
        for turned in pairs:
            signs = best.copy()
            signs[list(turned)] *= -1.0
            yield signs
            if (value := misfit(signs)) < least:
                best, least, better = signs, value, True


MOVED = 0.01  # an axis has moved when it leaves its start by this share of the range in the config

ALONE = 0.25
"""When an axis begins to move, others that have not moved yet may have gone this share of their own `MOVED`."""

COARSE, FINE = 12, 150  # samples on which all signs are tried, and on which the best ones are checked
CALM = 0.3  # share of the samples on which the signs are checked where nodes do not sample together: the slowest
HOPELESS = 1e3  # signs with so large a misfit at one sample are not tried any further
DECIDES = 3.0  # the second best signs must fit this many times worse
CHECKED = 1e-6  # a channel counts as checked by others above this share of its error in its own residual
DIGITS = 1e4  # ranges are rounded outward to 1 / DIGITS
CLEAR = 0.01  # position limits stay clear of a stop by this share of the range in the config


@dataclass(frozen=True)
class CalibratedAxis:
    """What was found out about one drive."""

    name: str  # name of the actuator
    sign: int  # 1 or -1
    offset: float  # [joint unit] displacement where the encoder reads 0
    position_limits: tuple[float, float]  # [joint unit] range seen
    # largest disagreement with the other encoders, and between touches of its stops [steps of its own]; NaN where
    # nothing checks it
    residual: float
    moved_at: float  # when it first moved [s]; NaN: never
    evidence: str  # what its sign follows from
    problem: str = ""  # why it is refused; empty if it is not
    zero_from: str = "the start pose"  # what its offset follows from


class Calibrator:
    """Finds signs, zeros and ranges.

    Args:
        model: The plant; its task is not used.
        sensing: Solves for q: drives in the order of the actuators, then encoder nodes.
        start: The known pose.
        drives: Drives of the config.
        tolerance: Largest disagreement of redundant encoders [joint unit]; None: what their steps explain.
        start_tolerance: Larger differences of an encoder node, or a stop, from the known pose are said [joint unit].
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

    def __call__(self, motion: HandMotion) -> list[CalibratedAxis]:
        """What the motion shows, for each drive."""
        motors, begin = motion.motors, motion.at_start()
        if len(motors) < COARSE:
            what = "no samples of all nodes together came (see the events)"
            return [self._unknown(drive, what) for drive in self._drives]
        count = len(self._drives)
        travel = motors - begin
        first, direction = self._first_moves(motion.t, travel[:, :count])
        begins = self._beginning(motion, travel)
        signs = np.concatenate([np.where(direction == 0.0, 1.0, direction), self._given_signs(motion)])
        judged = [i for i in range(count) if self._checked[i] and not isnan(first[i])]
        fit, residual, excess = self._fit(motion, travel, begins, signs, judged)
        y0, _ = begins(fit.signs)
        by_stops = {i: begins.stop_problem(i, float(fit.signs[i])) for i in range(count) if not isnan(first[i])}
        together = self._moved_together(motion.t, travel[:, :count], first, judged)
        axes = []
        for i, drive in enumerate(self._drives):
            sign = float(fit.signs[i])
            problem = together.get(i) or by_stops.get(i, "")
            if not problem and not (any(by_stops.values()) and i in judged):  # a wrong zero makes all encoders disagree
                problem = self._problem(i, drive, travel[:, i], fit, excess, first, judged)
            seen = residual[i] if self._checked[i] else np.nan
            axes.append(
                CalibratedAxis(
                    drive.name, int(sign), float(y0[i] - sign * begin[i]),
                    self._range(drive, y0[i] + sign * travel[:, i]),
                    float(np.fmax(seen, begins.stop_residual(i, sign)) / motion.steps[i]), float(first[i]),
                    "the other encoders" if i in judged else "the first move, counted as positive", problem,
                    begins.zero_from(i, fit.signs),
                )
            )  # fmt: skip
        return axes

    def _beginning(self, motion: HandMotion, travel: Array) -> Beginning:
        zeros = {
            i: {
                sign: zero_by_stops(
                    travel[:, i], sign, drive.stops, _span(drive), float(motion.steps[i]), self._tolerance
                )
                for sign in (1.0, -1.0)
            }
            for i, drive in enumerate(self._drives)
            if drive.has_stops
        }
        return Beginning(
            self._model, self._displacements, self._start, motion, zeros, len(self._drives), self._start_tolerance
        )

    def _range(self, drive: DriveSettings, y: Array) -> tuple[float, float]:
        """The range seen, clear of the stops."""
        lower, upper = drive.stops
        room = CLEAR * _span(drive)
        least, most = max(float(y.min()), lower + room), min(float(y.max()), upper - room)
        return floor(least * DIGITS) / DIGITS, ceil(most * DIGITS) / DIGITS

    def _given_signs(self, motion: HandMotion) -> Array:
        return np.array([float(each.sign) for each in motion.settings[len(self._drives) :]])

    def _unknown(self, drive: DriveSettings, why: str) -> CalibratedAxis:
        return CalibratedAxis(drive.name, drive.sign, drive.offset, drive.position_limits, np.nan, np.nan, "", why)

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
        return np.array([MOVED * _span(drive) for drive in self._drives])

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

    def _fit(
        self, motion: HandMotion, travel: Array, begins: Beginning, signs: Array, judged: Sequence[int]
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
            y0, q0 = begins(signs)
            return self._misfit(y0 + signs * travel[far], slack[far], q0)[0]

        fit = fitting_signs(misfit, signs, judged)
        # where nodes do not sample together, only slow samples tell more than the times of the others
        loose = (slack / motion.steps).max(axis=1)
        edges = np.unique(np.linspace(0, len(travel), FINE + 1, dtype=int))
        calm = np.array([a + int(np.argmin(loose[a:b])) for a, b in pairwise(edges)])
        if not motion.synced:
            calm = np.sort(calm[np.argsort(loose[calm])[: max(COARSE, round(CALM * len(calm)))]])
        y0, q0 = begins(fit.signs)
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
            return (
                f"did not move: its encoder went {np.ptp(travel):.3g} from end to end, at least "
                f"{MOVED * _span(drive):.3g} to one side is needed (move this axis; is it the right node?)"
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


def _span(drive: DriveSettings) -> float:
    """Range of a drive in the config [joint unit]."""
    lower, upper = drive.position_limits
    return upper - lower
