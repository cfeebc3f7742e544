"""Modes of a closed loop at a state: those of the constraint errors, and those of the internal dynamics.

    e' along the motion:  d(e')/dx = E J + H = L E     L: how the errors move, on the directions that the others allow
    eta' = N' J N eta,  N a basis of the null space of E
    sampled: s = ln z / period,  z of the loop from sample to sample; shares: sum over a cluster of right_i left_i

Design: the modes of the errors follow from the derivative of e' along the motion, not from the eigenvalues of J, which
on a moving state belong to a rotating frame. So they are exact at any state. A cluster of nearly equal eigenvalues is a
multiple one; its mean is well conditioned, its members are not (m of them spread by the m-th root of the rounding
error). In a sampled loop the hold couples modes that are separate in continuous time; participation factors decide
which mode is internal. Delayed commands and the controller's memory have poles of their own, which count with the task.

Source: Golub, Van Loan, Matrix Computations, 7.2.3 (a cluster's mean); Perez-Arriaga, Verghese, Schweppe 1982
(participation factors); the frame is our own account.
"""

import cmath
from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.assembly import Run
from servoctl.assembly.context import run_timing
from servoctl.linear.loop import (
    CIRCLE,
    DEADBEAT,
    RANK,
    REPEATED,
    ROUNDING,
    clusters,
    least_stable,
    local,
    means_of_clusters,
    nearest,
    null_space,
)
from servoctl.mechanics.constraint_rows import Row
from servoctl.simulation.internal_dynamics import SLOW, RowErrors, chains, neutral
from servoctl.types import Array

SHARED = 0.2  # a row is named if its participation exceeds this share of the largest
NOTHING = 1e-6  # below this participation no error takes part in a mode
COUPLED = 1e-8  # rows are coupled if their errors act on each other by more than this, relative to the largest entry


@dataclass(frozen=True)
class Mode:
    """One eigenvalue."""

    pole: complex  # [1/s] pole
    of: str  # names of the rows whose error it is; `internal`; in no error: `actuators`, or `memory` of the controller
    group: str  # `task`, `passive` or `internal`
    mostly: str = ""  # for an internal mode: the coordinates that move most
    z: complex | None = None  # for a sampled loop: the eigenvalue from sample to sample; the pole is ln z / period

    @property
    def frequency(self) -> float:
        """|pole| [rad/s]."""
        return abs(self.pole)

    @property
    def damping(self) -> float | None:
        """Damping ratio -Re / |pole|: 1 does not oscillate, below 0 grows; None for a pole at zero."""
        return None if self.stable is None and self.frequency <= SLOW else -self.pole.real / self.frequency

    @property
    def decay(self) -> float | None:
        """Time constant [s]; negative for a growing mode; None if the mode neither grows nor decays."""
        return None if self.stable is None else -1.0 / self.pole.real

    @property
    def stable(self) -> bool | None:
        """True, False, or None if the mode neither grows nor decays."""
        small = abs(self.pole.real) <= neutral(self.pole)
        small = small or (self.z is not None and abs(abs(self.z) - 1.0) <= CIRCLE)
        return None if small else self.pole.real < 0.0

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "of": self.of, "group": self.group, "pole": self.pole,
            "frequency": self.frequency, "damping": self.damping, "decay": self.decay, "stable": self.stable,
            "mostly": self.mostly, "z": self.z,
        }  # fmt: skip


def modes(run: Run, t: float, x: Array) -> list[Mode]:
    """All modes at the nearest state on the passive constraints: passive errors, task errors, internal dynamics.

    Each group has the least stable mode first. In a sampled run, task and internal modes are those of the loop from
    sample to sample, with hold, delay and lag.
    """
    # off the passive constraints, their stabilisation would act on the task as well
    x = nearest(run, t, x)
    full = local(run, t, x, "full")
    J = full.A + full.B @ full.K
    E, rate = full.E, full.E @ J + full.H
    rows, kept = chains(run.system), run.loop.memory_names  # these states move with the errors
    of_memory = [Row(name, name, "nonholonomic", has_violation=True, has_rate=False, degree=1) for name in kept]
    rows += [RowErrors("task", row, slice(len(E) + k, len(E) + k + 1)) for k, row in enumerate(of_memory)]
    first = len(x) - len(kept)
    E, rate = np.vstack([E, np.eye(len(x))[first:]]), np.vstack([rate, J[first:]])
    passive = [chain for chain in rows if chain.group == "passive"]
    task = [chain for chain in rows if chain.group == "task"]
    of_passive, of_task = _entries(passive), _entries(task)
    found = _errors(E[of_passive], rate[of_passive], np.eye(len(x)), passive)
    if run.settings.period is not None and run.system.law is not None and run.system.model.m:
        return found + _sampled(run, t, x, task[: len(task) - len(kept)])
    found += _errors(E[of_task], rate[of_task], null_space(E[of_passive]), task)
    N = null_space(E)
    free, shapes = np.linalg.eig(N.T @ J @ N) if N.size else (np.zeros(0), np.zeros((0, 0)))
    names = list(run.system.model.plant.coordinates)
    internal = [
        Mode(complex(pole), "internal", "internal", _mostly(np.abs(N @ shape)[: 2 * len(names)], names))
        for pole, shape in zip(free, shapes.T, strict=True)
    ]
    return found + sorted(internal, key=lambda mode: (-mode.pole.real, mode.pole.imag))


def _sampled(run: Run, t: float, x: Array, task: list[RowErrors]) -> list[Mode]:
    """Task and internal modes of a sampled loop, without those at z = 0, which vanish after one sample."""
    around = local(run, t, x)
    timing = run_timing(run.system, run.settings)
    assert timing.period is not None
    z, right = np.linalg.eig(least_stable(around, timing).matrix)
    size, names = len(around.A), list(run.system.model.plant.coordinates)
    errors, kept = around.S[: around.errors], around.W[2 * around.n :]
    free_motion = null_space(np.vstack([errors, kept])).T  # of q and v, not of what the controller remembers
    S, end = np.vstack([errors, free_motion, kept]), len(errors) + len(free_motion)
    shares = np.real((S @ right[:size]) * (np.linalg.pinv(right)[:, :size] @ np.linalg.pinv(S)).T)
    together = clusters(z, REPEATED)
    offset = task[0].place.start if task else 0
    free = {i: rank - k for one in together for rank in [float(shares[len(errors) : end, one].sum())]
            for k, i in enumerate(one)}  # fmt: skip
    internal = set(sorted(free, key=lambda i: -min(free[i], 1.0))[: len(free_motion)])
    found = []
    for one in together:
        mean = complex(z[one].mean())
        mean = complex(mean.real, 0.0) if abs(mean.imag) <= 1e-12 else mean
        if abs(mean) <= DEADBEAT:
            continue
        pole, moved = cmath.log(mean) / timing.period, np.abs(around.W @ right[:size, one]).sum(axis=1)
        rows = {c.row.name: float(shares[c.place.start - offset : c.place.stop - offset, one].sum()) for c in task}
        largest = max((abs(share) for share in rows.values()), default=0.0)
        other = "memory" if shares[end:, one].sum() > 0.5 * len(one) else "actuators"
        name = ", ".join(row for row, share in rows.items() if abs(share) > SHARED * largest) or other
        for i in one:
            if i in internal:
                mostly = _mostly(moved[: 2 * len(names)], names)
                found.append(Mode(pole, "internal", "internal", mostly, mean))
            else:
                found.append(Mode(pole, name if largest > NOTHING else other, "task", "", mean))
    return sorted(found, key=lambda mode: (mode.group != "task", -mode.pole.real, mode.pole.imag))


def _mostly(sizes: Array, names: list[str]) -> str:
    """Up to three coordinates that move at least half as much as the largest, in q or v."""
    motion = np.maximum(sizes[: len(names)], sizes[len(names) :])
    order = np.argsort(-motion, kind="stable")[:3]
    return ", ".join(names[i] for i in order if motion[i] >= 0.5 * motion[order[0]])


def _entries(rows: list[RowErrors]) -> list[int]:
    return [i for chain in rows for i in range(chain.place.start, chain.place.stop)]


def _errors(E: Array, rate: Array, W: Array, rows: list[RowErrors]) -> list[Mode]:
    """Modes of the errors e of some rows, with `de = E dx` and `de' = rate dx`, for dx in the span of W."""
    if not rows:
        return []
    E, rate = E @ W, rate @ W
    U, sizes, Vt = np.linalg.svd(E, full_matrices=False)
    rank = int(np.sum(sizes > RANK * max(1.0, sizes.max(initial=0.0))))
    back = Vt[:rank].T / sizes[:rank]
    offset, spread = rows[0].place.start, ROUNDING * float(sizes[0] / sizes[rank - 1])
    if rank < len(E):  # dependent rows share their modes
        reduced = U[:, :rank].T @ rate @ back
        return _of(reduced, ", ".join(dict.fromkeys(c.row.group for c in rows)), rows[0].group, len(E), spread)
    L = rate @ back @ U.T
    found: list[Mode] = []
    for together in _coupled(L, rows, offset):
        entries = [i - offset for i in _entries(together)]
        degree = max(chain.place.stop - chain.place.start for chain in together)
        name = ", ".join(chain.row.name for chain in together)
        found += _of(L[np.ix_(entries, entries)], name, rows[0].group, degree, spread)
    return found


def _coupled(L: Array, rows: list[RowErrors], offset: int) -> list[list[RowErrors]]:
    """Sets of rows that do not act on each other."""

    def act(one: RowErrors, other: RowErrors) -> bool:
        a, b = (slice(c.place.start - offset, c.place.stop - offset) for c in (one, other))
        return bool(max(np.abs(L[a, b]).max(), np.abs(L[b, a]).max()) > COUPLED * np.abs(L).max())

    sets: list[list[RowErrors]] = []
    for chain in rows:
        near = [members for members in sets if any(act(chain, other) for other in members)]
        sets = [members for members in sets if members not in near]
        sets.append([*(other for members in near for other in members), chain])
    return sets


def _of(L: Array, name: str, group: str, degree: int, rounding: float) -> list[Mode]:
    poles = means_of_clusters(np.linalg.eigvals(L), degree, rounding)
    return [Mode(pole, name, group) for pole in poles]
