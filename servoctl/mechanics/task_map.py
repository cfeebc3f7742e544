"""Which task rows the actuators can accelerate: the task map `T = A Phi B`, row by row, at several states.

Design: whether an input acts on a row is decided by numbers, not by the structure of expressions, because terms cancel
under Phi. A row whose T is zero at every state has a higher relative degree than its kind suggests. A row that depends
on the rows above it adds no direction. The results name both. A row that no motion of the machine changes, as the
height of a planar arm's tip, needs no input as long as it asks for nothing.

Rows that share their inputs, and whether a dynamic extension makes them independent:

    y'' = a(q, v) + T(q) u,   rank T < r:  K T = 0, T N = 0,  K and N orthonormal bases
    integrators before the shared inputs turn these into states; then the inputs N appear
    in y'''   if  K d(a + T u)/dv G N  has the rank r - rank T,   G = Phi B
    in y''''  if  K d(a + T u)/dq G N  has that rank

This is decided by numbers too: central differences at random states and inputs, which also
serve plants without symbols. It is the first step of the dynamic extension algorithm, with one or two integrators. It
does not find extensions that need more.

Source: Isidori, Nonlinear Control Systems, 5.4 (dynamic extension); the projected form is ours.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from servoctl.engine.decomposition import decompose, frobenius
from servoctl.engine.linalg import slopes, solve_upper
from servoctl.mechanics.constraint_rows import Row
from servoctl.mechanics.model import Model
from servoctl.mechanics.terms import Terms
from servoctl.types import Array, State

VANISHES = 1e-9  # no input acts on a row of T below this times |row of A L^-T| |L^-1 B|_F


@dataclass(frozen=True)
class TaskMap:
    """How the actuators act on the rows of a task."""

    rows: tuple[Row, ...]  # the task's rows
    rank: int  # rank of T at the first state
    generic_rank: int  # largest rank of T at any state
    gain: Array  # |row of T| / (|row of A L^-T| |L^-1 B|_F) at the first state, shape (r,): from 0, no input acts, to 1
    largest_gain: Array  # the largest of these gains over all states, shape (r,)
    # rows that add no direction to the rows above them at any state. Together with `unreachable` and `idle` they are as
    # many as the generic rank lacks
    dependent: tuple[Row, ...]
    idle: tuple[Row, ...]  # rows whose A and b are zero at every state: they need no input
    pivot: float  # smallest pivot counted at the first state, relative to the scale of T
    largest_pivot: float  # largest such value over the states that have the generic rank

    @cached_property
    def unreachable(self) -> list[Row]:
        """Rows that need an input, but on whose acceleration no actuator acts at any state."""
        rows = zip(self.rows, self.largest_gain, strict=True)
        return [row for row, gain in rows if gain <= VANISHES and row not in self.idle]

    def degree(self, row: Row) -> str:
        """The relative degree of a row in words: `2`, or `above 2` where no input acts on its acceleration."""
        lowest = row.degree or 2
        return f"above {lowest}" if row in self.unreachable else str(lowest)


def sample_task_map(
    model: Model, states: Iterable[State], rank_tolerance: float, passive_rank_tolerance: float
) -> TaskMap:
    """The task map at several states; states at which a term is not finite or M not positive definite do not count.

    Args:
        states: The start first.
        rank_tolerance: A direction of T counts when its pivot exceeds this times |A L^-T|_F |L^-1 B|_F.
        passive_rank_tolerance: The same for passive rows, relative to |Ahat L^-T|_F.
    """
    terms = model.sound_terms(states, passive_rank_tolerance)
    r = len(model.task_rows)
    if not terms:
        unknown = np.full(r, np.nan)
        return TaskMap(tuple(model.task_rows), 0, 0, unknown, unknown, (), (), 0.0, 0.0)
    splits = [decompose(at.task_map, rank_tolerance, at.scale) for at in terms]
    gains = [_gains(at) for at in terms]
    ranks = [split.rank for split in splits]
    independent = np.full(r, True)
    if max(ranks) < r:  # a row that depends on those above it adds nothing to the rank of the first rows
        first_rows = range(r + 1)
        leading = [[decompose(at.task_map[:k], rank_tolerance, at.scale).rank for k in first_rows] for at in terms]
        independent = np.diff(np.max(leading, axis=0)) > 0
    largest, idle = np.max(gains, axis=0), np.all([_idle(at) for at in terms], axis=0)
    dependent = [
        row for row, adds, g in zip(model.task_rows, independent, largest, strict=True) if not adds and g > VANISHES
    ]
    pivots = [float(split.pivot_min) for split in splits if split.rank == max(ranks)]
    return TaskMap(
        tuple(model.task_rows),
        ranks[0],
        max(ranks),
        gains[0],
        largest,
        tuple(dependent),
        tuple(row for row, nothing in zip(model.task_rows, idle, strict=True) if nothing),
        float(splits[0].pivot_min),
        max(pivots),
    )


def free_inputs(terms: Terms, rank_tolerance: float) -> int:
    """Number of directions in which the inputs move the machine beyond those that the task takes."""
    moved = decompose(terms.project(terms.inputs).T, rank_tolerance, frobenius(terms.inputs)).rank
    return max(0, int(moved - decompose(terms.task_map, rank_tolerance, terms.scale).rank))


def _gains(terms: Terms) -> Array:
    inputs = frobenius(terms.inputs)
    sizes = np.linalg.norm(terms.rows, axis=1) * inputs
    gains: Array = np.linalg.norm(terms.task_map, axis=1) / np.where(sizes > 0.0, sizes, 1.0)
    return gains


def _idle(terms: Terms) -> Array:
    """Which rows have neither a coefficient nor a right-hand side at this state, shape (r,)."""
    task = terms.matrices.task
    found: Array = ~np.any(task.A, axis=1) & (task.b == 0.0)
    return found


STEP = 1e-5  # [units of q and v] step of central differences
COUNTS = 1e-5  # a singular value counts above this times its reference size
SAME = 1e-6  # two directions that differ by less are the same


@dataclass(frozen=True)
class Shared:
    """Task rows on which too few combinations of the inputs act."""

    rank: int  # number of independent rows among all required rows
    rows: tuple[int, ...]  # indices of the rows that share inputs
    combinations: int  # number of combinations of the inputs that act on them
    # actuator -> its share in the combination, the largest 1, if there is one combination and it is the same at all
    # states; else the actuators that act on the rows, all with 0
    inputs: dict[str, float]
    # number of integrators before those inputs that makes the rows independent, 1 or 2; None: neither
    integrators: int | None

    @property
    def combination(self) -> str:
        """The combination in words: `F1 + F2 - 0.5 F3`, or the names of the actuators."""
        if not any(self.inputs.values()):
            return ", ".join(self.inputs)
        text = ""
        for name, share in self.inputs.items():
            size = "" if abs(abs(share) - 1.0) < SAME else f"{abs(share):.3g} "
            sign = (" - " if share < 0 else " + ") if text else ("-" if share < 0 else "")
            text += f"{sign}{size}{name}"
        return text


def shared_inputs(
    model: Model, states: Sequence[State], rows: Sequence[int], passive_tolerance: float
) -> Shared | None:
    """The rows that share inputs at every state.

    Args:
        states: States to evaluate; those at which a term is not finite do not count.
        rows: Indices of the task rows that count.
        passive_tolerance: Rank tolerance of the passive constraints.

    Returns:
        None if the rows are independent at one of the states, or if no state has finite terms.
    """
    required = list(rows)
    terms = model.sound_terms(states, passive_tolerance)
    if not required or not terms:
        return None
    ranks = [_rank(at.task_map[required]) for at in terms]
    if max(ranks) == len(required):
        return None
    generic = [at for at, rank in zip(terms, ranks, strict=True) if rank == max(ranks)]
    members = [required[i] for i in _sharing([at.task_map[required] for at in generic])]
    if not members:
        return None
    parts = [at.task_map[members] for at in generic]
    counts = [_integrators(model, at, required, passive_tolerance) for at in generic]
    fewest = min([count for count in counts if count is not None], default=None)
    inputs = _named(parts, list(model.plant.actuators))
    return Shared(max(ranks), tuple(members), max(_rank(T) for T in parts), inputs, fewest)


def _rank(T: Array) -> int:
    sizes = np.linalg.svd(T, compute_uv=False)
    return int(np.sum(sizes > COUNTS * max(sizes.max(initial=0.0), 1e-300)))


def _sharing(matrices: Sequence[Array]) -> list[int]:
    """Rows in a dependence: those with an entry in the left null space K of T, at any state."""
    members: set[int] = set()
    for T in matrices:
        sizes = np.linalg.norm(T, axis=1)  # rows may have different units: compare their directions
        scaled = T / np.where(sizes > 0.0, sizes, 1.0)[:, None]
        U, values, _ = np.linalg.svd(scaled)
        K = U[:, int(np.sum(values > COUNTS * values.max(initial=0.0))) :]
        members |= {i for i, part in enumerate(K) if np.abs(part).max(initial=0.0) > 1e-3}
    return sorted(members)


def _named(matrices: Sequence[Array], actuators: list[str]) -> dict[str, float]:
    """The combination of inputs that all rows share, or the names of the inputs that act on them."""
    directions = []
    for T in matrices:
        _, values, Vt = np.linalg.svd(T)
        # scaled to largest entry 1; the first of equally large ones, so that the sign is the same at all states
        main = Vt[0] / Vt[0][np.argmax(np.abs(Vt[0]) > (1 - SAME) * np.abs(Vt[0]).max())]
        directions.append(main if values[1:].max(initial=0.0) <= COUNTS * values[0] else np.full(len(main), np.nan))
    acting = np.max([np.abs(T).max(axis=0) for T in matrices], axis=0)
    names = [name for name, size in zip(actuators, acting, strict=True) if size > COUNTS * acting.max()]
    if all(np.abs(one - directions[0]).max() < SAME for one in directions):
        return {name: float(directions[0][actuators.index(name)]) for name in names}
    return dict.fromkeys(names, 0.0)


def _integrators(model: Model, at: Terms, rows: list[int], passive_tolerance: float) -> int | None:
    """Number of integrators before the shared inputs with which inputs act on every row; None: not 1 or 2."""
    T = at.task_map[rows]
    U, values, Vt = np.linalg.svd(T)
    rank = int(np.sum(values > COUNTS * values.max(initial=0.0)))
    K, N, used = U[:, rank:].T, Vt[rank:].T, Vt[:rank].T
    if N.shape[1] < len(K):
        return None
    random = np.random.default_rng(3)
    size = (1.0 + float(np.abs(at.rhs[rows]).max())) / float(values[0])
    # random inputs of the size that the task needs, in the combinations that act
    u = used @ (size * (1.0 + random.random(rank)))
    motion = solve_upper(at.L, at.project(at.inputs)) @ N
    t, q, v = at.state

    def acceleration(q: Array, v: Array) -> Array:
        terms = model.terms(State(t, q, v), passive_tolerance)
        value: Array = terms.task_map[rows] @ u - terms.rhs[rows]
        return value

    rest, steps = np.zeros(len(v)), np.full(len(v), STEP)
    over_v = slopes(lambda x: acceleration(q, x), v, steps) @ motion
    over_q = slopes(lambda x: acceleration(x, rest), q, steps) @ motion
    for count, slope in enumerate((over_v, over_q), start=1):
        reached = np.linalg.svd(K @ slope, compute_uv=False) if np.isfinite(slope).all() else np.zeros(len(K))
        if int(np.sum(reached > COUNTS * (np.linalg.norm(slope) + float(values[0])))) == len(K):
            return count
    return None
