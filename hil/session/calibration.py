"""Signs, zeros and ranges of the drives' encoders from a motion by hand that begins at a known pose.

Design: encoder nodes on coordinates are taken as right; the known pose moves to what they say, as little as possible.
Joints with mechanical stops at known displacements get their zeros there; if all have, the pose need not be known.
Where displacements are measured more than once, the residual judges the signs and the zeros. Where they are not, the
operator's order is the evidence: axes are moved one after another, each first in its positive direction. Nothing is
guessed: an axis that did not move, or evidence that does not decide, refuses the calibration.

    y_i(k) = y_i(0) + s_i (r_i(k) - r_i(0)),  s_i = 1 or -1          minimise max_k |y(k) - h(q(k))|

Design: all signs are tried as long as there are few, because a mechanism that is mirrored as a whole fits to first
order, and only the full nonlinear constraints tell it from the true one. Ours.

Design: encoder nodes and stops are right. A known pose that they contradict refuses nothing, but zeros that rest on it
say so.

A stop, against which a hand pushes the joint, is at a known displacement:

    displacement = sign * motor + zero,   zero = stop - sign * motor at the stop

Design: that a joint was at its stop must be proven: by both of its stops, which must be as far apart as the config
says, or by one stop that it touched twice at the same place. Ours.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import ceil, floor, isfinite, isnan
from typing import Any

import numpy as np

from hil.assembly.setup import RigSetup
from hil.drives.base import Feedback
from hil.loop import SECOND
from hil.sensing.coordinates import pose_at
from servoctl.types import Array

NEAR = 0.01  # a joint is near its stop within this share of its range; farther than twice that, it has left it
AGREE = 1e-3  # touches agree within this share of the joint's range: a stop gives way a little under a hand
TOUCHES = 3.0  # touches within so many steps of the encoder always agree


@dataclass(frozen=True)
class StopZero:
    """What the stops of a joint say about its zero."""

    zero: float  # [joint unit] displacement where the motor coordinate is 0
    residual: float  # [joint unit] largest difference of a touch from that
    problem: str = ""  # why it is refused; empty if it is not


def zero_by_stops(
    motor: Array,  # motor angle divided by the gear, over the whole motion, shape (samples,) [joint unit]
    sign: float,  # 1 or -1
    # displacement at the lower and at the upper stop [joint unit]; infinite: that one is not known
    stops: tuple[float, float],
    span: float,  # range of the joint [joint unit]
    step: float,  # smallest visible step of the encoder [joint unit]
    # largest difference between touches [joint unit]; None: `AGREE` of the range, or `TOUCHES` steps
    tolerance: float | None = None,
) -> StopZero:
    """The zero that fits all touches best."""
    lower, upper = stops
    y, touched = sign * motor, []
    if isfinite(upper):
        touched.append([upper - touch for touch in touches(y, NEAR * span)])
    if isfinite(lower):
        touched.append([lower + touch for touch in touches(-y, NEAR * span)])
    zeros = [zero for each in touched for zero in each]
    spread, problem = max(zeros) - min(zeros), ""
    if len(zeros) < 2:
        where = lower if isfinite(lower) else upper
        problem = f"touched its stop at {where:.4g} only once (push it there twice, and move it away in between)"
    elif spread > (max(AGREE * span, TOUCHES * step) if tolerance is None else tolerance):
        problem = f"its ends near the stop differ by {spread:.3g} (push it firmly against the stop each time)"
        if len(touched) == 2:
            problem = (
                f"moved over {float(np.ptp(y)):.5g} from end to end, but its stops are {upper - lower:.5g} apart (push "
                "it against both stops; are gear and stops right?)"
            )
    return StopZero((max(zeros) + min(zeros)) / 2, spread / 2, problem)


def touches(y: Array, near: float) -> Sequence[float]:
    """The largest value of each visit to the upper end of a motion."""
    end = float(y.max())
    found: list[float] = []
    away = True
    # only samples near the end or well away from it matter
    for value in y[(y > end - near) | (y < end - 2 * near)].tolist():
        if value < end - 2 * near:
            away = True
        elif away:
            found.append(value)
            away = False
        else:
            found[-1] = max(found[-1], value)
    return found


MOST_TRIED = 12
"""Up to so many drives every combination is tried; beyond, signs are turned alone and in pairs while that helps."""

Misfit = Callable[[Array], float]
"""Signs, shape (nodes,) -> largest residual relative to what the encoders' steps explain; infinite if none fits."""


@dataclass(frozen=True)
class FittingSigns:
    signs: Array  # one per node, shape (nodes,)
    misfit: float
    rival: float  # the second best misfit
    unclear: tuple[int, ...]  # indices of the nodes whose signs the second best combination turns


def fitting_signs(
    misfit: Misfit,  # what is minimised
    start: Array,  # signs to begin with; nodes that are not judged keep them
    judged: Sequence[int],  # indices of the nodes whose sign the residual judges
) -> FittingSigns:
    """The signs with the smallest misfit."""
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


STILL_STEPS = 2.0  # encoders count as still while they stay within so many steps of their first value
LONGEST_STILL = 200  # largest number of samples of which the start is the mean

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

    def as_dict(self) -> dict[str, Any]:
        """Entry of `summary.json`; what is not known is None."""
        numbers = {"residual_steps": self.residual, "moved_at": self.moved_at}
        return {
            "sign": self.sign, "offset": self.offset, "position_limits": list(self.position_limits),
            **{key: number if isfinite(number) else None for key, number in numbers.items()},
            "sign_from": self.evidence, "zero_from": self.zero_from, "problem": self.problem,
        }  # fmt: skip


class Calibration:
    """Collects one sample of every node per tick while a hand moves the machine; then finds signs, zeros and ranges."""

    def __init__(self, setup: RigSetup) -> None:
        self._model, self._start, self._nodes = setup.model.plain, setup.start, setup.nodes
        self._displacements, self._coordinates = setup.sensing.displacements, setup.sensing.coordinates
        self._drives, self._period = [drive.settings for drive in setup.drives], setup.settings.values.period
        # largest disagreement of redundant encoders [joint unit]; None: what their steps explain
        self._tolerance = setup.settings.values.safety.residual_tolerance
        self._steps = np.array([node.visible() for node in setup.nodes])  # smallest visible ones, shape (nodes,)
        self._spans = [upper - lower for lower, upper in (drive.position_limits for drive in self._drives)]
        self._least_move = MOVED * np.array(self._spans)
        # whether all nodes sample at the same instant
        self._synced = all(node.feedback is Feedback.SYNC for node in setup.nodes)
        self._rows: list[list[float]] = []
        self.axes: list[CalibratedAxis] = []  # what was found about each drive; empty before `judge`

    def take(self, now: int) -> None:
        """Takes the newest sample of every node, moved on to now [ns] at its own speed; nothing before all have one."""
        row = [now / SECOND]
        for node in self._nodes:
            sample = node.sample
            if sample is None:
                return
            moving = sample.velocity == sample.velocity and node.feedback is not Feedback.SYNC
            age = (now - sample.time) / SECOND
            row.append(sample.position + (sample.velocity * age if moving else 0.0))
        self._rows.append(row)

    def judge(self) -> list[tuple[str, str]]:
        """Finds signs, zeros and ranges; drive and reason for each drive whose calibration is refused."""
        if len(self._rows) < COARSE:
            why = "no samples of all nodes together came (see the events)"
            self.axes = [
                CalibratedAxis(drive.name, drive.sign, drive.offset, drive.position_limits, np.nan, np.nan, "", why)
                for drive in self._drives
            ]
        else:
            self._take_motion()
            self._take_beginning()
            self.axes = self._found()
        return [(axis.name, axis.problem) for axis in self.axes if axis.problem]

    def _take_motion(self) -> None:
        """Times, shape (samples,) [s], and motions since the beginning as motor angles divided by the gear.

        displacement = sign * motor + offset; the beginning is the mean of the samples before the first motion.
        """
        table = np.array(self._rows)
        signs, offsets = np.array([(node.settings.sign, node.settings.offset) for node in self._nodes]).T
        self._t, motors = table[:, 0], signs * (table[:, 1:] - offsets)
        early = motors[:LONGEST_STILL]
        moved = np.flatnonzero((np.abs(early - early[0]) > STILL_STEPS * self._steps).any(axis=1))
        self._begin = early[: moved[0] if len(moved) else None].mean(axis=0)
        self._travel = motors - self._begin

    def _take_beginning(self) -> None:
        """What encoder nodes and stops say of the beginning, and the known pose, moved to what these nodes say."""
        count, start = len(self._drives), self._start
        encoders = range(count, len(self._nodes))
        # index of each encoder node -> its displacement there
        self._shown = {i: self._rows[0][1 + i] for i in encoders}
        # index of each drive with stops -> sign -> what they say about its displacement there
        self._zeros = {
            i: {
                sign: zero_by_stops(
                    self._travel[:, i], sign, drive.stops, self._spans[i], float(self._steps[i]), self._tolerance
                )
                for sign in (1.0, -1.0)
            }
            for i, drive in enumerate(self._drives)
            if drive.has_stops
        }
        self._by_stops = len(self._zeros) == count
        self._q = start.q
        if encoders and not self._by_stops:
            shown = np.array(list(self._shown.values()))
            self._q, _ = pose_at(self._model, self._displacements, start.t, start.q, encoders, shown)
        self._y = self._displacements(self._model.plant, self._q)

    def _beginning(self, signs: Array) -> tuple[Array, Array]:
        """Displacements, shape (nodes,), and pose, shape (n,), at the beginning if the drives have these signs."""
        y, start, count = self._y.copy(), self._start, len(self._drives)
        for i, by_sign in self._zeros.items():
            y[i] = by_sign[float(signs[i])].zero
        if not self._by_stops:
            return y, self._q
        for i, shown in self._shown.items():
            y[i] = shown
        q, _ = pose_at(self._model, self._displacements, start.t, start.q, range(count), y[:count])
        return y, q

    def _zero_from(self, i: int, signs: Array) -> str:
        """What the zero of a drive follows from; with what contradicts the known pose, if it follows from that."""
        if i in self._zeros:
            return "its stops"
        known = self._displacements(self._model.plant, self._start.q)
        shown = self._shown | {k: by_sign[float(signs[k])].zero for k, by_sign in self._zeros.items()}
        off = {k: abs(x - known[k]) for k, x in shown.items() if not isnan(x)}
        worst = max(off, key=off.__getitem__, default=i)
        if not off or off[worst] <= min(node.settings.start_tolerance for node in self._nodes):
            return "the start pose"
        name, unit = self._nodes[worst].settings.name, self._displacements.units[worst]
        return (
            f"the start pose, although {name} was at {shown[worst]:.4g} {unit}, where initial.q says {known[worst]:.4g}"
        )

    def _found(self) -> list[CalibratedAxis]:
        """What the motion shows, for each drive."""
        count, start, rest = len(self._drives), self._start, [0.0] * len(self._nodes)
        y = self._displacements(self._model.plant, start.q)
        estimate = self._coordinates(start.t, 0.0, start.q, np.zeros(self._model.n), y.tolist(), rest, rest)
        checked = estimate.redundancy > CHECKED
        first, direction = self._first_moves()
        signs = np.array([*np.where(direction == 0.0, 1.0, direction), *(n.settings.sign for n in self._nodes[count:])])
        moved = [i for i in range(count) if not isnan(first[i])]
        judged = [i for i in moved if checked[i]]
        fit, residual, excess = self._fit(signs, judged)
        y0, _ = self._beginning(fit.signs)
        by_stops = {i: by_sign[float(fit.signs[i])] for i, by_sign in self._zeros.items()}
        wrong_stops = {i: by_stops[i].problem for i in moved if i in by_stops and by_stops[i].problem}
        together = self._moved_together(first, [i for i in moved if i not in judged])
        axes = []
        for i, drive in enumerate(self._drives):
            sign, travel = float(fit.signs[i]), self._travel[:, i]
            problem = together.get(i) or wrong_stops.get(i, "")
            if not problem and not (wrong_stops and i in judged):  # a wrong zero makes all encoders disagree
                problem = self._problem(i, fit, excess, first, judged)
            seen, touched = residual[i] if checked[i] else np.nan, by_stops[i].residual if i in by_stops else np.nan
            axes.append(
                CalibratedAxis(
                    drive.name, int(sign), float(y0[i] - sign * self._begin[i]), self._range(i, y0[i] + sign * travel),
                    float(np.fmax(seen, touched) / self._steps[i]), float(first[i]),
                    "the other encoders" if i in judged else "the first move, counted as positive", problem,
                    self._zero_from(i, fit.signs),
                )
            )  # fmt: skip
        return axes

    def _range(self, i: int, y: Array) -> tuple[float, float]:
        """The range of a drive that was seen, clear of the stops."""
        (lower, upper), room = self._drives[i].stops, CLEAR * self._spans[i]
        least, most = max(float(y.min()), lower + room), min(float(y.max()), upper - room)
        return floor(least * DIGITS) / DIGITS, ceil(most * DIGITS) / DIGITS

    def _first_moves(self) -> tuple[Array, Array]:
        """Time of each drive's first move [s], NaN if it never moved, and the direction of its motor then."""
        travel = self._travel[:, : len(self._drives)]
        beyond = np.abs(travel) > self._least_move
        index, moved = beyond.argmax(axis=0), beyond.any(axis=0)
        direction = np.where(moved, np.sign(travel[index, np.arange(travel.shape[1])]), 0.0)
        return np.where(moved, self._t[index], np.nan), direction

    def _moved_together(self, first: Array, alone: Sequence[int]) -> dict[int, str]:
        """Axis -> why its first move tells no sign: another of those that the residual does not judge moved with it."""
        problems: dict[int, str] = {}
        for i in alone:
            now = self._travel[int(np.searchsorted(self._t, first[i])), : len(first)]
            gone = np.abs(now) / self._least_move
            for j in alone:
                if j != i and first[j] >= first[i] and gone[j] > ALONE:
                    for one, other in ((i, j), (j, i)):
                        name = self._drives[other].name
                        problems.setdefault(
                            one, f"moved together with {name}: its first move does not tell its sign (hold the other "
                            "joints and move one at a time)"
                        )  # fmt: skip
        return problems

    def _fit(self, signs: Array, judged: Sequence[int]) -> tuple[FittingSigns, Array, float]:
        """The signs that fit best, the largest residual of each node, and the misfit over the whole motion."""
        travel, t, steps = self._travel, self._t, self._steps
        spread = np.linspace(0, len(travel) - 1, COARSE, dtype=int)
        rates = np.gradient(travel, t, axis=0)
        skew = 0.0 if self._synced else self._period  # uncertainty of a sample's time
        slack = np.abs(rates) * skew + np.abs(np.gradient(rates, t, axis=0)) * skew**2
        slack += np.maximum(0.0, steps - self._displacements.errors)  # an encoder coarser than its wire
        # the residual of a large motion tells most: the sample farthest from the start in each part of the motion
        size = np.abs(travel / steps).max(axis=1)
        far = np.array([a + int(np.argmax(size[a:b])) for a, b in pairwise(spread)])

        def misfit(signs: Array) -> float:
            y0, q0 = self._beginning(signs)
            return self._misfit(y0 + signs * travel[far], slack[far], q0)[0]

        fit = fitting_signs(misfit, signs, judged)
        # where nodes do not sample together, only slow samples tell more than the times of the others
        loose = (slack / steps).max(axis=1)
        edges = np.unique(np.linspace(0, len(travel), FINE + 1, dtype=int))
        calm = np.array([a + int(np.argmin(loose[a:b])) for a, b in pairwise(edges)])
        if not self._synced:
            calm = np.sort(calm[np.argsort(loose[calm])[: max(COARSE, round(CALM * len(calm)))]])
        y0, q0 = self._beginning(fit.signs)
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

    def _problem(self, i: int, fit: FittingSigns, excess: float, first: Array, judged: Sequence[int]) -> str:
        """Why a drive's calibration is refused; empty if it is not."""
        if isnan(first[i]):
            return (
                f"did not move: its encoder went {np.ptp(self._travel[:, i]):.3g} from end to end, at least "
                f"{self._least_move[i]:.3g} to one side is needed (move this axis; is it the right node?)"
            )
        if i in judged:
            if not excess <= 1.0:
                return (
                    f"the encoders disagree by {excess:.3g} times what their steps explain, with the signs that fit "
                    "best (was the machine at initial.q? are gear and the plant's lengths right? else set "
                    "hil.safety.residual_tolerance)"
                )
            if i in fit.unclear and not fit.rival > DECIDES * max(1.0, fit.misfit):
                turned = " and ".join(self._drives[j].name for j in fit.unclear)
                return (
                    f"the motion does not tell its sign: it fits with {turned} the other way round, too (move the "
                    "machine farther; if these always move together no motion tells: set their signs by hand)"
                )
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
