"""Kinds of constraints: whether time appears, and whether a velocity constraint is the rate of a position constraint.

For one Pfaffian row `a(q) v = 0` in three coordinates the published test is `a . curl a = 0`. Frobenius' theorem
generalises it: rows `a_i(x) x' = 0`, x = (q, t), are integrable together if and only if `d a_i(X, Y) = 0` for all X, Y
that satisfy them, `d a(X, Y) = X^T (da/dx - (da/dx)^T) Y`.

Time appears in a velocity constraint psi(q, v, t) = 0 where `psi(q, 0, t)` is not zero, or where its matrix depends on
time: a constant rate such as `x' + 2 y y' + z' - 1 = 0` integrates to `x + y^2 + z - t + c = 0`, a surface that moves.

Design: decided by numbers at random states. A failure is certain; success holds for the sampled states. Rows that are
not affine in the velocities are outside the theorem and reported as undecided.

Source: Zhao et al. 2018, Lemma 1, (10)-(17), where the value of (17) is 2, not 1, and (14), (15) for time; Frobenius'
theorem for several rows.
"""

from dataclasses import dataclass

import casadi as ca
import numpy as np

from servoctl.engine.decomposition import pinv
from servoctl.engine.kernel import Kernel, directional, inputs, jacobian
from servoctl.engine.parameters import parameter_values, with_parameters
from servoctl.engine.symbol import to_sx
from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.rows import Rows
from servoctl.types import Array, State

SAMPLES = 12
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Classification:
    """The kind of a constraint."""

    time: str  # `scleronomic` (time appears neither in the constraint nor in its rate form) or `rheonomic`
    integrable: bool | None  # true, False, or None if undecided
    reason: str  # the reason in one sentence


def classify(constraint: Constraint, plant: Plant, around: State) -> Classification:
    """Classifies the rows of a constraint together.

    Args:
        constraint: The constraint.
        plant: The plant whose coordinates it uses.
        around: The random states are near this state.
    """
    n = len(plant.coordinates)
    symbols = inputs({"t": (1,), "q": (n,), "v": (n,)})
    t, q, v = symbols["t"], symbols["q"], symbols["v"]
    bound = with_parameters(plant, parameter_values(plant))
    rows = constraint.rows(bound, t[0], q, v)
    samples = _samples(around, n)
    time = "rheonomic" if _moves(constraint.kind, rows, symbols, samples) else "scleronomic"
    if constraint.kind == "holonomic":
        return Classification(time, True, "given at position level")
    if constraint.kind != "nonholonomic":
        return Classification(time, None, "given at acceleration level: integrability is not decided")
    if ca.depends_on(to_sx(rows.A.ravel()), to_sx(v)):
        return Classification(time, None, "not affine in the velocities: integrability is not decided")
    zero = directional(rows.violation, v, v) - rows.violation
    # psi = A v - zero is affine in v, so [A, -zero] (q', t') = 0 is the Pfaffian form of the rows
    form = np.concatenate([rows.A, -zero[:, None]], axis=1)
    kernel = Kernel.compile("form", symbols, _curls(form, np.concatenate([q, t])) | {"form": form})
    worst = 0.0
    for state in samples:
        *curls, matrix = kernel(state.t, state.q, state.v)
        if not np.isfinite(matrix).all():
            continue
        # X and Y run over the null space of the form
        tangent = np.eye(n + 1) - pinv(matrix) @ matrix
        size = max(1.0, float(np.abs(matrix).max()), *[float(np.abs(curl).max()) for curl in curls])
        worst = max(worst, *[float(np.abs(tangent @ curl @ tangent).max()) / size for curl in curls])
    if worst > TOLERANCE:
        return Classification(time, False, f"not integrable: Frobenius' form is {worst:.1e}, not 0")
    return Classification(time, True, f"integrable: Frobenius' form vanishes at {SAMPLES} states")


def _moves(kind: str, rows: Rows, symbols: dict[str, Array], samples: list[State]) -> bool:
    """Whether time appears: in the position form, or as a rate at zero velocity."""
    forms = [rows.violation] if kind == "holonomic" else [rows.A.ravel()]
    forms += [rows.b] if kind == "second_order" else []
    held = np.concatenate(forms)
    slope = jacobian(held, symbols["t"])[:, 0]
    rest = rows.violation if kind == "nonholonomic" else np.zeros(0)
    kernel = Kernel.compile("time", symbols, {"held": held, "slope": slope, "rest": rest})
    for t, q, v in samples:
        value, change, _ = kernel(t, q, v)
        speed = kernel(t, q, np.zeros(len(v)))[2]
        for size, reference in ((change, value), (speed, np.ones(1))):
            known = np.abs(size[np.isfinite(size)])
            scale = max(1.0, float(np.abs(reference[np.isfinite(reference)]).max(initial=0.0)))
            if known.max(initial=0.0) > TOLERANCE * scale:
                return True
    return False


def _curls(form: Array, x: Array) -> dict[str, Array]:
    slopes = [jacobian(row, x) for row in form]
    return {f"curl{i}": slope - slope.T for i, slope in enumerate(slopes)}


def _samples(around: State, n: int) -> list[State]:
    random = np.random.default_rng(2)
    return [
        State(around.t + random.random(), around.q + random.standard_normal(n), random.standard_normal(n))
        for _ in range(SAMPLES)
    ]
