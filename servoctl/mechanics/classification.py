"""Kinds of constraints: whether time appears, and whether a velocity constraint is the rate of a position constraint.

For one Pfaffian row `a(q) v = 0` in three coordinates the published test is `a . curl a = 0`. Its generalisation is
Frobenius' theorem: rows `a_i(x) x' = 0`, x = (q, t), are integrable together iff `d a_i(X, Y) = 0` for all X, Y that
satisfy them, `d a(X, Y) = X^T (da/dx - (da/dx)^T) Y`.

Time appears in a velocity constraint psi(q, v, t) = 0 where `psi(q, 0, t)` is not zero, or where its matrix depends on
time: a constant rate such as `x' + 2 y y' + z' - 1 = 0` integrates to `x + y^2 + z - t + c = 0`, a surface that moves.

Design: decided by numbers at random states, which finds a failure for certain and success up to the samples. Rows that
are not affine in the velocities are outside the theorem, and said to be undecided.

Source: Zhao et al. 2018, Lemma 1, (10)-(17), where (17) is 2, and (14), (15) for time; the generalisation is Frobenius'
theorem.
"""

from dataclasses import dataclass

import casadi as ca
import numpy as np

from servoctl.engine.decomposition import pinv
from servoctl.engine.kernel import Kernel, directional, inputs, jacobian
from servoctl.engine.parameters import parameter_values, with_parameters
from servoctl.engine.symbol import to_sx
from servoctl.mechanics.constraint import Constraint, Rows
from servoctl.mechanics.plant import Plant
from servoctl.types import Array, State

SAMPLES = 12
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Classification:
    """What kind of constraint it is.

    Attributes:
        time: `scleronomic` (time does not appear, in the rate form neither) or `rheonomic`.
        integrable: True, False, or None where it is not decidable.
        reason: One sentence for a person.
    """

    time: str
    integrable: bool | None
    reason: str


def classify(constraint: Constraint, plant: Plant, around: State) -> Classification:
    """Classifies a constraint of a plant.

    Args:
        constraint: Its rows are judged together.
        plant: Whose coordinates it names.
        around: A state near which to sample.
    """
    n = len(plant.coordinates)
    given = inputs({"t": (1,), "q": (n,), "v": (n,)})
    t, q, v = given["t"], given["q"], given["v"]
    bound = with_parameters(plant, parameter_values(plant))
    rows = constraint.rows(bound, t[0], q, v)
    samples = _samples(around, n)
    time = "rheonomic" if _moves(constraint.kind, rows, given, samples) else "scleronomic"
    if constraint.kind == "holonomic":
        return Classification(time, True, "given at position level")
    if constraint.kind != "nonholonomic":
        return Classification(time, None, "given at acceleration level: integrability is not decided")
    if _depends(rows.A.ravel(), v):
        return Classification(time, None, "not affine in the velocities: integrability is not decided")
    zero = directional(rows.violation, v, v) - rows.violation
    form = np.concatenate([rows.A, -zero[:, None]], axis=1)
    kernel = Kernel.compile("form", given, _curls(form, np.concatenate([q, t])) | {"form": form})
    worst = 0.0
    for state in samples:
        *curls, matrix = kernel(state.t, state.q, state.v)
        if not np.isfinite(matrix).all():
            continue
        tangent = np.eye(n + 1) - pinv(matrix) @ matrix
        size = max(1.0, float(np.abs(matrix).max()), *[float(np.abs(curl).max()) for curl in curls])
        worst = max(worst, *[float(np.abs(tangent @ curl @ tangent).max()) / size for curl in curls])
    if worst > TOLERANCE:
        return Classification(time, False, f"not integrable: Frobenius' form is {worst:.1e}, not 0")
    return Classification(time, True, f"integrable: Frobenius' form vanishes at {SAMPLES} states")


def _moves(kind: str, rows: Rows, given: dict[str, Array], samples: list[State]) -> bool:
    """Whether time appears: in the position form, or as a rate that is wanted of a state at rest."""
    forms = [rows.violation] if kind == "holonomic" else [rows.A.ravel()]
    forms += [rows.b] if kind == "second_order" else []
    held = np.concatenate(forms)
    slope = jacobian(held, given["t"])[:, 0]
    rest = rows.violation if kind == "nonholonomic" else np.zeros(0)
    kernel = Kernel.compile("time", given, {"held": held, "slope": slope, "rest": rest})
    for t, q, v in samples:
        value, change, _ = kernel(t, q, v)
        speed = kernel(t, q, np.zeros(len(v)))[2]
        for size, of in ((change, value), (speed, np.ones(1))):
            known = np.abs(size[np.isfinite(size)])
            scale = max(1.0, float(np.abs(of[np.isfinite(of)]).max(initial=0.0)))
            if known.max(initial=0.0) > TOLERANCE * scale:
                return True
    return False


def _depends(expressions: Array, variables: Array) -> bool:
    return bool(ca.depends_on(to_sx(expressions), to_sx(variables)))


def _curls(form: Array, x: Array) -> dict[str, Array]:
    slopes = [jacobian(row, x) for row in form]
    return {f"curl{i}": slope - slope.T for i, slope in enumerate(slopes)}


def _samples(around: State, n: int) -> list[State]:
    random = np.random.default_rng(2)
    return [
        State(around.t + random.random(), around.q + random.standard_normal(n), random.standard_normal(n))
        for _ in range(SAMPLES)
    ]
