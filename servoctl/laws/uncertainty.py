"""How far a law's model may be wrong: the error of its task map, and the disturbance that this makes, at their worst.

    on the true plant   beta' = v + E v + d,   E = T Tn^+ - I,   d = T u_n - (b - A a_c)
    rho_E               smallest eigenvalue of (E + E^T) / 2 over all machines and states; feedback needs > -1

T is the task map of the true plant, Tn^+ the law's right inverse, u_n its input without violations. Rows of priority 1
count, each divided by its scale.

Design: no matching condition is needed. A wrong mass of a coordinate without actuator is a part of d too. The condition
on rho_E is that of Chen's papers, W >= -1, in the law's own variables.

Source: derived here; the condition is that of Chen, Zhang 2010.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from servoctl.errors import PlantError
from servoctl.laws.bound_following import BoundConstraintFollowing
from servoctl.mechanics.model import Model
from servoctl.mechanics.terms import assemble
from servoctl.types import Array, State


@dataclass(frozen=True)
class ModelError:
    """The worst error of a model over some machines and states.

    Attributes:
        rho: rho_E [-].
        at: State and machine at which rho is: time [s], index of the machine.
        upper: Largest eigenvalue of (E + E^T) / 2 [-].
        decay: mu: smallest eigenvalue of ((I + E) K + K (I + E)^T) / 2 [1/s], K the decay rates of the rows.
        disturbance: Largest |d| [acceleration of the rows, scaled].
        rows: Largest |d| of each row of priority 1, not scaled.
        reached: Whether the task map has full rank everywhere.
    """

    rho: float
    at: tuple[float, int]
    upper: float
    decay: float
    disturbance: float
    rows: Array
    reached: bool


def model_error(
    law: BoundConstraintFollowing, model: Model, machines: Sequence[Model], states: Iterable[State]
) -> ModelError:
    """The worst error of a law's model.

    Args:
        law: The law.
        model: The model that it knows.
        machines: The same with other parameters.
        states: States of the task, without violations.

    Raises:
        PlantError: A machine has no motion at a state.
    """
    members = law.required
    scale = np.array(law.scale)[members] if law.scale else np.ones(len(members))
    K = np.diag([law.decay(i) for i in members]) if law.sliding else np.eye(len(members))
    worst = ModelError(np.inf, (0.0, 0), -np.inf, np.inf, 0.0, np.zeros(len(members)), True)
    for state in states:
        terms = assemble(state, model.matrices(state), law.passive_rank_tolerance)
        u, inverse = law.right_inverse(terms)
        known = terms.task_map[members] @ inverse[:, members]
        worst = replace(worst, reached=worst.reached and bool(np.allclose(known, np.eye(len(members)), atol=1e-6)))
        for index, machine in enumerate(machines):
            true = assemble(state, machine.matrices(state), law.passive_rank_tolerance)
            if not (true.finite and true.positive):
                raise PlantError(f"the machine has no motion at t = {state.t:.4g} s (its mass matrix, or a number)")
            worst = _worse(worst, state.t, index, task_map_error(true.task_map, inverse, members, scale), K,
                           (true.task_map @ u - true.rhs)[members], scale)  # fmt: skip
    return worst


def task_map_error(task_map: Array, inverse: Array, members: Sequence[int], scale: Array) -> Array:
    """E of some rows, divided by their scales, shape (rows, rows).

    Args:
        task_map: T of the true plant, shape (r, m).
        inverse: Tn^+, shape (m, r).
        members: Indices of the rows.
        scale: Of these rows.
    """
    chosen = list(members)
    E: Array = (task_map[chosen] @ inverse[:, chosen]) * scale / scale[:, None] - np.eye(len(chosen))
    return E


def _worse(worst: ModelError, t: float, index: int, E: Array, K: Array, d: Array, scale: Array) -> ModelError:
    eigenvalues = np.linalg.eigvalsh((E + E.T) / 2.0)
    loop = (np.eye(len(E)) + E) @ K
    found = replace(
        worst,
        upper=max(worst.upper, float(eigenvalues[-1])),
        decay=min(worst.decay, float(np.linalg.eigvalsh((loop + loop.T) / 2.0)[0])),
        disturbance=max(worst.disturbance, float(np.linalg.norm(d / scale))),
        rows=np.maximum(worst.rows, np.abs(d)),
    )
    return replace(found, rho=float(eigenvalues[0]), at=(t, index)) if eigenvalues[0] < worst.rho else found
