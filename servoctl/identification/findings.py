"""Findings about a log: signs, orders, units, zeros, axes and times that do not fit the plant.

Design: each finding is a hypothesis that is tested against the log. It is accepted if the plant explains clearly more
torque with it than without, by `Evidence`, on rows that the fit does not use. The best one is applied and the search
goes on, so that several are found. Hypotheses that the log cannot tell apart from the best are named with it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

import numpy as np
from scipy.optimize import minimize_scalar

from servoctl.errors import ConfigError
from servoctl.identification.evidence import Evidence, Score
from servoctl.identification.log import Log
from servoctl.identification.rows import Equations, FitRows
from servoctl.identification.solution import Fit
from servoctl.identification.unknowns import select
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.spatial.placement import Placement, rotation_to
from servoctl.mechanics.spatial.plant import Robot
from servoctl.types import Array

MOST = 4  # findings that are searched, one after the other
FITS = 0.06  # a log that leaves less than this share of every torque has a delay, a factor or a zero at most
GAIN = 0.2  # relative decrease of what stays unexplained that a finding needs, all coordinates together
NATS = 12.0  # and increase of the logarithm of the likelihood: what one hypothesis of hundreds reaches by no chance
ALIKE = 4.0  # hypotheses whose logarithms differ by less are not told apart
POOR = 0.1  # axes are tried where nothing else leaves less than this share of every torque
SCALE = 1.25  # a factor on one torque is a finding beyond this, or below one over it
COMMON = 1.5  # likewise a factor on all torques, which wrong masses in the file can cause
LATE = 0.015  # [s] smallest delay that is a finding
LEFT = 0.7  # part of the error that a delay of the fit leaves at most
WORTH = 0.005  # share of the torque that a finding explains at least, where its values are further from the plant
TURNED = 0.05  # [rad or m] smallest zero that is a finding
ROWS = 500  # rows at which hypotheses are compared, about

FACTORS = np.linspace(-10.0, 10.0, 21)  # factors on torques that are tried first, their logarithms
DELAYS = np.linspace(-1.0, 1.0, 17)  # delays that are tried first [periods of the cut-off frequency]
ZEROS = np.array([-1.0, -0.5, -0.1, 0.0, 0.1, 0.5, 1.0])  # zeros that are tried first [pi rad, or m]
NEAR = 0.1  # a parabola through 0 and its neighbours whose least value is nearer to 0 is not searched [spacings / 2]
MOST_STEPS = 8  # of a search between two of these

TIMES = (1e3, 1e-3, 1e6, 1e-6, 1e9, 1e-9, 60.0, 1 / 60, 100.0, 0.01, 10.0, 0.1, 2.0, 0.5)
"""Factors on the times: ms, us, ns and minutes, and rates that are wrong by a factor."""


@dataclass(frozen=True)
class Finding:
    """Something about a log that does not fit the plant."""

    kind: str
    where: str  # coordinate or actuator; two of an order joined by `,`; `time` for the times
    text: str  # the finding in words, with the remedy
    cost: float  # share of the torque that is explained only with it [-]


@dataclass(frozen=True)
class Hypothesis:
    """A change of the log, or of the plant's axes, that may explain more torque."""

    kind: str
    where: tuple[str, ...]  # one finding for each
    remedy: str
    # torques as sums of those logged, shape (m, m), and their delays [s], shape (m,); None: as logged
    mix: Array | None = None
    delays: Array | None = None
    change: Callable[[Log], Log] | None = None  # change of positions or times
    plant: Plant | None = None  # the plant with another axis

    def applied(self, log: Log) -> Log:
        """The log with the change."""
        if self.change is not None:
            log = self.change(log)
        u = log.u if self.delays is None else log.acting(self.delays)
        return replace(log, u=u if self.mix is None else u @ self.mix.T)


Judge = Callable[[Hypothesis], Score]  # hypothesis -> how well the log fits with it


def findings_of(
    plant: Plant, logs: Sequence[Log], cutoff: float, columns: Mapping[str, str]
) -> tuple[list[Finding], Plant, list[Log]]:
    """The findings, and plant and logs as they are when all of them are mended.

    Args:
        plant: The plant with rotors.
        logs: The logs.
        cutoff: Cut-off frequency of the positions [Hz].
        columns: Coordinate or actuator, and `time` -> column of the table.

    Raises:
        ConfigError: A log is too short.
    """
    found: list[Finding] = []
    for _ in range(MOST):
        accepted, cost = _accepted(plant, logs, cutoff, columns)
        if not accepted:
            break
        best = accepted[0]
        for one in accepted:
            alike = sorted({other.kind for other in accepted} - {one.kind})
            more = f"; this log cannot tell it from {', '.join(alike)}" if alike else ""
            found += [Finding(one.kind, name, f"{name}: {one.remedy}{more}", cost) for name in one.where]
        changed = [best.applied(log) for log in logs]
        plant, cutoff, logs = best.plant or plant, cutoff * logs[0].h / changed[0].h, changed
    unique = {(one.kind, one.where): one for one in reversed(found)}
    return list(reversed(unique.values())), plant, list(logs)


def findings_of_files(
    plant: Plant, logs: Sequence[Log], cutoff: float, columns: Mapping[str, str]
) -> tuple[list[Finding], Plant, list[Log]]:
    """As `findings_of`; where files differ in what does not fit, each has findings of its own, which name it."""
    together = findings_of(plant, logs, cutoff, columns)
    names = dict.fromkeys(log.name for log in logs)
    if len(names) < 2:
        return together
    if not together[0] and Evidence(Equations(select(plant, None)[0]), logs, cutoff, ROWS).score().shares.max() <= FITS:
        return together
    try:
        apart = {name: findings_of(plant, [log for log in logs if log.name == name], cutoff, columns) for name in names}
    except ConfigError:  # too short alone
        return together
    kinds = [{(one.kind, one.where) for one in found} for found, _, _ in apart.values()]
    if all(each == kinds[0] for each in kinds) or any(other is not plant for _, other, _ in apart.values()):
        return together
    named = [
        replace(one, text=f"{one.where}: in {name}: {one.text.removeprefix(f'{one.where}: ')}")
        for name, (found, _, _) in apart.items()
        for one in found
    ]
    return named, plant, [log for _, _, mended in apart.values() for log in mended]


def delay_findings(fit: Fit, still: Fit, actuators: Sequence[str]) -> list[Finding]:
    """The delay of all torques that the fit has found, if it explains clearly more than the fit without a delay."""
    left = [_norm(one.rows, one.x) / np.linalg.norm(one.rows.torque) for one in (fit, still)]
    cost = float(left[1] - left[0])
    if cost < WORTH or left[0] > LEFT * left[1]:
        return []
    text = _late_text(float(fit.delays[np.argmax(np.abs(fit.delays))]))
    return [Finding("delay", name, f"{name}: {text}", min(cost, 1.0)) for name in actuators]


def _norm(rows: FitRows, x: Array) -> float:
    """Of the torques that the model does not explain at values of the unknowns."""
    return float(np.linalg.norm(rows.torque_error(x)))


def is_long(delay: float, logs: Sequence[Log]) -> bool:
    """Whether a delay would be a finding."""
    return abs(delay) >= max(LATE, 3.0 * logs[0].h)


def _late_text(delay: float) -> str:
    when = "after" if delay > 0.0 else "before"
    return (
        f"the torque acts {1e3 * abs(delay):.3g} ms {when} its row (shift its column against the positions, or log "
        "both with one clock)"
    )


def _accepted(
    plant: Plant, logs: Sequence[Log], cutoff: float, columns: Mapping[str, str]
) -> tuple[list[Hypothesis], float]:
    """The best hypothesis if it explains clearly more, with those that are as good; and its cost."""
    equations, every = Equations(select(plant, None)[0]), np.ones(len(plant.actuators))
    plain = Evidence(equations, logs, cutoff, ROWS)
    tried = []
    if is_long(delay := _delay(plain, every, cutoff, short=True), logs):
        tried += [Hypothesis("delay", tuple(plant.actuators), _late_text(delay), delays=delay * every)]
    before = plain.score()

    def judge(one: Hypothesis) -> Score:
        if one.change is None and one.plant is None:
            return plain.score(one.mix, one.delays)
        own = equations if one.plant is None else Equations(select(one.plant, None)[0])
        changed = [replace(one, mix=None, delays=None).applied(log) for log in logs]
        return Evidence(own, changed, cutoff * logs[0].h / changed[0].h, ROWS).score(one.mix, one.delays)

    tried += [*_torques(plant, columns), *_factors(plant, plain), *_delays(plant, cutoff, logs, plain)]
    tried += _zeros(plant, columns, judge, before)
    if before.shares.max() > FITS:
        tried += [*_positions(plant, columns), *_times(columns)]
    scores = [judge(one) for one in tried]
    if before.shares.max() > FITS and min(score.shares.max() for score in scores) > POOR:
        axes = list(_axes(plant))
        tried, scores = tried + axes, scores + [judge(one) for one in axes]
    ranked = sorted(zip(scores, tried, strict=True), key=lambda pair: pair[0].nats)
    score, best = ranked[0]
    # a factor on all torques explains no more of them: only the masses of the file speak for it
    common = best.kind == "torque_scale" and len(best.where) == len(plant.actuators)
    if score.far - before.far > ALIKE:  # a short delay looks like friction that drives: it may do as well
        before = min(before, plain.score(None, delay * every), key=lambda one: one.nats)
    cost = float(np.clip(before.share - score.share, 0.0, 1.0))
    if cost < WORTH and score.far - before.far > ALIKE:  # small effects turn a sign round, and all values with it
        return [], 0.0
    if not before.nats - score.nats > max(NATS, 0.0 if common else GAIN * plain.times):
        return [], 0.0
    return [one for other, one in ranked if other.nats - score.nats < ALIKE], cost


def _torques(plant: Plant, columns: Mapping[str, str]) -> Iterator[Hypothesis]:
    """Signs and orders of torques."""
    names = list(plant.actuators)
    for at in _each_and_all(len(names)):
        signs = np.ones(len(names))
        signs[at] = -1.0
        text = "the torque has the other sign than in the plant (multiply log.scale of its column by -1)"
        yield Hypothesis("torque_sign", tuple(names[j] for j in at), text, mix=np.diag(signs))
    for i, j in combinations(range(len(names)), 2):
        text = f"the columns {columns[names[i]]} and {columns[names[j]]} are exchanged (exchange them under log.u)"
        yield Hypothesis("torque_order", (f"{names[i]},{names[j]}",), text, mix=_swapped(len(names), i, j))


def _swapped(count: int, i: int, j: int) -> Array:
    matrix = np.eye(count)
    matrix[[i, j]] = matrix[[j, i]]
    return matrix


def _factors(plant: Plant, evidence: Evidence) -> Iterator[Hypothesis]:
    """Factors on one torque, and on all."""
    names = list(plant.actuators)
    for at in _each_and_all(len(names)):
        share = np.isin(np.arange(len(names)), at).astype(float)
        found = _least(lambda x, share=share: evidence.score(np.diag(np.exp(x * share)), held_out=False).nats, FACTORS)  # type: ignore[misc]
        # at the ends of the factors no torque at all fits best, or an endless one: no unit explains that
        if np.log(COMMON if len(at) > 1 else SCALE) < abs(found) < 0.99 * FACTORS[-1]:
            also = ", or masses of the file that are wrong by it" if len(at) > 1 else ""
            text = (
                f"the torque is {np.exp(found):.3g} times the column (multiply log.scale of the column by it: unit, "
                f"torque per current, gear{also})"
            )
            yield Hypothesis("torque_scale", tuple(names[j] for j in at), text, mix=np.diag(np.exp(found * share)))


def _delays(plant: Plant, cutoff: float, logs: Sequence[Log], evidence: Evidence) -> Iterator[Hypothesis]:
    """A delay of one torque against the others."""
    for name, share in zip(plant.actuators, np.eye(len(plant.actuators)), strict=True):
        if len(share) > 1 and is_long(delay := _delay(evidence, share, cutoff), logs):
            yield Hypothesis("delay", (name,), _late_text(delay), delays=delay * share)


def _delay(evidence: Evidence, share: Array, cutoff: float, short: bool = False) -> float:
    """The delay [s] of these torques that explains most; `short`: also one that is far below what is a finding."""
    return _least(lambda x: evidence.score(None, x * share, held_out=False).nats, DELAYS / cutoff, near=not short)


def _each_and_all(count: int) -> list[list[int]]:
    """Indices of each alone, and of all together."""
    return [[j] for j in range(count)] + ([list(range(count))] if count > 1 else [])


def _least(function: Callable[[float], float], grid: Array, near: bool = True) -> float:
    """Where a function is least: the best of a grid, and then between its neighbours.

    `near`: whether 0 will do where a parabola is least near it.
    """
    values = np.array([function(float(x)) for x in grid])
    best = int(np.argmin(values))
    around = slice(max(best - 1, 0), best + 2)
    if near and grid[best] == 0.0 and len(values[around]) == 3:  # a parabola through the three
        slope, bend = values[best + 1] - values[best - 1], values[best + 1] + values[best - 1] - 2 * values[best]
        if abs(slope) < NEAR * bend:
            return 0.0
    low, *_, high = grid[around]
    done = minimize_scalar(function, bounds=(low, high), method="bounded", options={"maxiter": MOST_STEPS})
    return float(done.x if done.fun < values[best] else grid[best])


def _positions(plant: Plant, columns: Mapping[str, str]) -> Iterator[Hypothesis]:
    """Signs, units and orders of positions."""
    names, units = list(plant.coordinates), list(plant.coordinates.values())
    for j, name in enumerate(names):
        text = "the position counts the other way round than in the plant (multiply log.scale of its column by -1)"
        yield Hypothesis("position_sign", (name,), text, change=_scaled(len(names), [j], -1.0))
    for unit, words in (
        ("rad", {"deg": np.pi / 180, "turns": 2 * np.pi, "rad": 180 / np.pi}),
        ("m", {"mm": 1e-3, "m": 1e3}),
    ):
        every = [j for j, own in enumerate(units) if own == unit]
        groups = [[j] for j in every] + ([every] if len(every) > 1 else [])
        for at, (word, factor) in product(groups, words.items()):
            text = f"the position is in {word} (give log.scale of its column so that {unit} comes out)"
            change = _scaled(len(names), at, factor)
            yield Hypothesis("position_unit", tuple(names[j] for j in at), text, change=change)
    for i, j in combinations(range(len(names)), 2):
        text = f"the columns {columns[names[i]]} and {columns[names[j]]} are exchanged (exchange them under log.q)"
        change = _mixed(_swapped(len(names), i, j))
        yield Hypothesis("position_order", (f"{names[i]},{names[j]}",), text, change=change)


def _scaled(count: int, at: list[int], factor: float) -> Callable[[Log], Log]:
    return _mixed(np.diag(np.where(np.isin(np.arange(count), at), factor, 1.0)))


def _mixed(matrix: Array) -> Callable[[Log], Log]:
    return lambda log: replace(log, q=log.q @ matrix)


def _zeros(plant: Plant, columns: Mapping[str, str], judge: Judge, before: Score) -> Iterator[Hypothesis]:
    """Zeros of positions that are elsewhere."""
    for j, (name, unit) in enumerate(plant.coordinates.items()):

        def moved(offset: float, j: int = j, name: str = name, unit: str = unit) -> Hypothesis:
            text = (
                f"the zero of the position is elsewhere: the plant's coordinate is the column plus {offset:.4g} {unit} "
                f"(add it to column {columns[name]}, or turn the joint's frame in the file by it)"
            )
            return Hypothesis("position_zero", (name,), text, change=lambda log: _plus(log, j, offset))

        grid = (ZEROS if before.shares.max() > FITS else ZEROS[2:5]) * (np.pi if unit == "rad" else 1.0)
        offset = _least(lambda x, moved=moved: judge(moved(x)).nats, grid)  # type: ignore[misc]
        if abs(offset) > TURNED:
            yield moved(offset)


def _plus(log: Log, j: int, offset: float) -> Log:
    q = log.q.copy()
    q[:, j] += offset
    return replace(log, q=q)


def _times(columns: Mapping[str, str]) -> Iterator[Hypothesis]:
    """Units of the times, or a rate that is wrong by a factor."""
    for factor in TIMES:
        where = f"column {columns['time']}: log.scale" if "time" in columns else "log.rate"
        text = f"the log takes {factor:.4g} times as long as its times say ({where})"
        yield Hypothesis("time_unit", ("time",), text, change=lambda log, factor=factor: replace(log, h=log.h * factor))  # type: ignore[misc]


def _axes(plant: Plant) -> Iterator[Hypothesis]:
    """Other axes of a robot's joints."""
    if not isinstance(plant, Robot):
        return
    for i, joint in enumerate(plant.tree.joints):
        if not joint.leads:
            continue
        for axis in ((0.0, 0.0, -1.0), (1.0, 0.0, 0.0), (-1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, -1.0, 0.0)):
            text = "the joint moves along another axis than in the file (correct its axis there)"
            if axis[2] < 0.0:
                text = "the joint's axis points the other way than in the file (reverse it there: position and torque)"
            yield Hypothesis("axis", (joint.name,), text, plant=_with_axis(plant, i, axis))


def _with_axis(plant: Robot, i: int, axis: tuple[float, float, float]) -> Plant:
    """The robot with another axis of joint i, given in the joint's own axes; its links stay where they are at q = 0."""
    turn = Placement.of(rotation_to(axis), (0.0, 0.0, 0.0))
    back, tree = turn.inverse, plant.tree

    def turned(parts: tuple) -> tuple:  # type: ignore[type-arg]
        return tuple(replace(x, placement=back.then(x.placement)) if x.body == i else x for x in parts)

    joints = [replace(x, placement=back.then(x.placement)) if x.parent == i else x for x in tree.joints]
    joints[i] = replace(joints[i], placement=tree.joints[i].placement.then(turn))
    other = replace(tree, joints=tuple(joints), links=turned(tree.links), frames=turned(tree.frames))
    return replace(plant, tree=other)
