"""Internal dynamics: the linearised motion of a closed loop while every violation stays at zero.

    e(x, t) = 0: all violations and their derivatives below the relative degree, passive and servo
    modes: eigenvalues of W^T J W,  J = df/dx,  W an orthonormal basis of the null space of de/dx

Design: where the errors obey a linear equation of their own, the null space of de/dx is invariant under J. The modes of
the remaining motion are then exact and separate from the chosen poles, however often these repeat. While the task is
met an estimator knows the state and a term with states rests, so the law stands here without the estimator and with its
memory held. For a task that moves with time the modes are those of the motion frozen at an instant; they decide
stability only for slow motions, and the report says so.

Source: Isidori, Nonlinear Control Systems, 4.3, 5.3 (zero dynamics); the basis is our own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from servoctl.engine.decomposition import decompose
from servoctl.engine.kernel import Kernel, directional, inputs, jacobian
from servoctl.laws.user_code import AttachedOwnTerm
from servoctl.mechanics.constraint_rows import Row
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.system import System
from servoctl.simulation.traced_loop import once_per_loop
from servoctl.types import Array, State

MARGINAL = 1e-6  # a mode's real part below this share of |mode| counts as zero
SLOW = 1e-5  # [1/s] so does one below this: it takes a day to grow by e
NEAR = 0.02  # poles this close to each other, relative, may be one that repeats


def poles_text(poles: Iterable[complex]) -> str:
    """Poles [1/s] with four digits, without what is rounding."""
    known = np.array(list(poles), dtype=complex)
    return ", ".join(pole_text(_repeated(pole, known)) for pole in known)


def pole_text(pole: complex) -> str:
    """A pole [1/s] with four digits; parts that count as zero are left out."""
    least = neutral(pole)
    real, imag = (part if abs(part) > least else 0.0 for part in (pole.real, pole.imag))
    return f"{real:.4g}{imag:+.4g}j" if imag else f"{real:.4g}"


def _repeated(pole: complex, poles: Array) -> complex:
    """The mean of the poles around one if rounding alone spreads them, as it does k equal roots by eps^(1/k)."""
    near = poles[np.abs(poles - pole) <= NEAR * abs(pole)]
    mean = complex(near.mean())
    spread = 10.0 * np.finfo(float).eps ** (1.0 / len(near)) * abs(mean)
    return mean if np.abs(near - mean).max() <= spread else pole


def neutral(mode: Any) -> Any:
    """Real part up to which a mode, or each of several, neither grows nor decays [1/s]."""
    return SLOW + MARGINAL * abs(mode)


@dataclass(frozen=True)
class InternalDynamics:
    """The motion that the task leaves free."""

    dimension: int  # number of its states
    modes: tuple[complex, ...]  # its eigenvalues [1/s], the least stable first
    time_varying: bool  # whether the task or the plant depends on time

    @property
    def stable(self) -> bool | None:
        """True, False, or None if the linearisation does not decide."""
        if not self.modes:
            return True
        worst = self.modes[0]
        return None if abs(worst.real) <= neutral(worst) else worst.real < 0.0

    @property
    def growing(self) -> int:
        """How many modes grow."""
        return sum(mode.real > neutral(mode) for mode in self.modes)

    @property
    def verdict(self) -> str:
        """The result in words."""
        if not self.dimension:
            return "the task fixes the whole motion"
        instant = " at this instant" if self.time_varying else ""
        if self.stable is None:
            return f"no mode grows or decays by itself in the linearisation{instant}: the motion swings on, or drifts"
        return f"decaying{instant}" if self.stable else f"unstable{instant}: they grow while the task is met"


def internal_dynamics(loop: Loop, start: State) -> InternalDynamics | None:
    """The internal dynamics at the state nearest to the start at which every violation is zero.

    Returns:
        None if the loop is not compiled and cannot be differentiated, or a derivative is not finite; or if a term of
        the user's own has states, which may act on this motion.
    """
    if loop.system.estimator is not None:
        loop = _of_known_state(loop).of(replace(loop.system, estimator=None))
    if not loop.differentiable or _own_states(loop):
        return None
    errors, slopes = error_kernel(loop), loop.slopes_kernel
    p, t, still = loop.parameters, start.t, np.zeros(loop.size)
    x, moving = loop.x_at(start), slice(0, 2 * loop.system.model.n)
    for _ in range(20):  # Gauss-Newton onto the constraints
        e, E, _ = errors(t, x, p, still)
        if not np.isfinite(e).all() or np.abs(e).max(initial=0.0) < 1e-12:
            break
        x[moving] -= decompose(E[:, moving], 1e-9).solve(e)
    E = errors(t, x, p, still)[1][:, moving]
    J, slope = (slopes.derivative(by)(t, x, p)[0][moving] for by in ("x", "t"))
    J = J[:, moving]
    if not (np.isfinite(E).all() and np.isfinite(J).all()):
        return None
    rank = decompose(E, 1e-9).rank
    W = np.linalg.svd(E)[2][rank:].T if len(E) else np.eye(len(J))
    modes = np.linalg.eigvals(W.T @ J @ W) if W.size else np.zeros(0)
    ordered = tuple(complex(mode) for mode in sorted(modes, key=lambda mode: -mode.real))
    return InternalDynamics(W.shape[1], ordered, bool(np.abs(slope).max(initial=0.0) > 0.0))


@once_per_loop
def _of_known_state(loop: Loop) -> Loop:
    """The loop of a law that is told the state."""
    return Loop(replace(loop.system, estimator=None))


def _own_states(loop: Loop) -> list[str]:
    """States of a law, or of terms, of the user's own."""
    law = loop.system.following
    own = [] if law is None else [term for term in law.terms if isinstance(term, AttachedOwnTerm)]
    return loop.memory_names if law is None else [name for term in own for name in term.memory]


@dataclass(frozen=True)
class RowErrors:
    """The errors of one row in e."""

    group: str  # `task` or `passive`
    row: Row
    place: slice  # slice of e with its violation and the derivatives below its relative degree


def chains(system: System) -> list[RowErrors]:
    """The rows that have errors, in the order of e; those of a task that no law follows have no motion of their own."""
    listed, position = [], 0
    for group, rows in (("passive", system.model.passive_rows), ("task", _followed(system))):
        for row in rows:
            length = int(row.has_violation) + int(row.has_rate) + max(0, row.degree - 2)
            if length:
                listed.append(RowErrors(group, row, slice(position, position + length)))
            position += length
    return listed


def _followed(system: System) -> Sequence[Row]:
    return () if system.following is None else system.model.task_rows


@once_per_loop
def error_kernel(loop: Loop) -> Kernel:
    """(t, x, p, f) -> e, E = de/dx, and H = d/dx (E f + de/dt) at a fixed f, so that `E J + H = d(e')/dx`."""
    model, given = loop.system.model, {**loop.inputs("t", "x", "p"), **inputs({"f": (loop.size,)})}
    n, count, (t, x, p, f) = model.n, len(model.parameters), given.values()
    matrices = model.symbolic_matrices({"t": t, "q": x[:n], "v": x[n : 2 * n], "p": p[:count]})
    parts: list[Array] = []
    for rows, group in ((model.passive_rows, matrices.passive), (_followed(loop.system), matrices.task)):
        for i, row in enumerate(rows):
            chain = [group.violation[i]] if row.has_violation else []
            chain += [group.violation_rate[i]] if row.has_rate else []
            chain += list(group.higher[i][: row.degree - 2]) if group.higher is not None else []
            parts.append(np.array(chain, dtype=object))
    e = np.concatenate([np.zeros(0), *parts])
    rate = directional(e, x, f) + jacobian(e, t)[:, 0]
    return Kernel.compile("errors", given, {"e": e, "E": jacobian(e, x), "H": jacobian(rate, x)})
