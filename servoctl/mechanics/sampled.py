"""What a plant's own code answers at the start and at random states near it, before anything is believed of it.

Design: two answers at one state and a mass matrix that is not symmetric are wrong wherever they are met, so they are
errors. A mass matrix that is not positive definite, or a term that is not finite, may lie where no run ever gets: that
is a doubt, which a run that gets there turns into a stop.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.errors import PlantError, in_one_line
from servoctl.mechanics import plant_values
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.symmetry import asymmetry
from servoctl.types import Array, State

METHODS = ("mass_matrix", "force", "actuation", "nonideal_force")

REPEATS = 1e-12
"""Two answers at one state may differ by this, relative to the larger."""

INDEFINITE = 1e-9
"""An eigenvalue of the mass matrix below minus this times its largest entry is negative."""

Arrays = tuple[Array, ...]


@dataclass(frozen=True)
class Sample:
    """A plant's answer at a state.

    Attributes:
        plant: The plant, which may have other parameters than the model's.
        state: The state.
        arrays: M, Q, B and c.
    """

    plant: Plant
    state: State
    arrays: Arrays


def sample(plants: Iterable[tuple[Plant, State]]) -> tuple[list[Sample], list[str]]:
    """Asks plants at states.

    Args:
        plants: Plants of one class, the model's own first, each with the state at which it is asked.

    Returns:
        The answers that came, and what is to be doubted, one sentence each.

    Raises:
        PlantError: A state has two answers, or a mass matrix is not symmetric.
    """
    found: list[Sample] = []
    failures: list[tuple[State, Exception]] = []
    asked = list(plants)
    with np.errstate(all="ignore"):
        for plant, state in asked:
            try:
                arrays = _ask(plant, state)
            except Exception as error:  # a user's code may raise anything where it was never meant to be asked
                failures.append((state, error))
                continue
            _require_one_answer(plant, state, arrays)
            _require_symmetry(plant, state, arrays[0])
            found.append(Sample(plant, state, arrays))
        if found:
            _require_one_answer(found[0].plant, found[0].state, found[0].arrays)  # after all the others
    return found, _doubts(asked[0][0], found, failures, len(asked))


def _ask(plant: Plant, state: State) -> Arrays:
    return plant_values.terms(plant, state)


def _require_one_answer(plant: Plant, state: State, before: Arrays) -> None:
    """Raises PlantError where the plant now answers otherwise than before, or its constraints do so from call to call.

    Constraints have no answer to compare with from before: they are asked twice.
    """
    t, q, v = state
    answers = dict(zip(METHODS, zip(before, _ask(plant, state), strict=True), strict=True))
    calls: Mapping[str, Callable[[], Any]] = {
        "passive_constraints": lambda: plant.passive_constraints(q.copy(), t),
        "passive_rates": lambda: plant.passive_rates(q.copy(), v.copy(), t),
    }
    for method, call in calls.items():
        answers[method] = (_joined(call()), _joined(call()))
    for method, (one, other) in answers.items():
        differ = one.shape != other.shape or ~_equal(one, other)
        if np.any(differ):
            first, second = (x[differ][0] if one.shape == other.shape else x.shape for x in (one, other))
            raise PlantError(
                f"{type(plant).__name__}.{method}: two answers at one state, {first!s} and {second!s} at "
                f"{_place(state)} (the answer may depend on the arguments alone: no counter, no random number, nothing "
                "kept from an earlier call)"
            )


def _joined(groups: Mapping[str, Any]) -> Array:
    parts = [np.ravel(np.asarray(value, dtype=float)) for value in groups.values()]
    return np.concatenate([np.zeros(0), *parts])


def _equal(one: Array, other: Array) -> Array:
    scale = np.maximum(np.abs(one), np.abs(other))
    equal: Array = (one == other) | (np.abs(one - other) <= REPEATS * scale) | (np.isnan(one) & np.isnan(other))
    return equal


def _require_symmetry(plant: Plant, state: State, M: Array) -> None:
    pair = asymmetry(M) if np.isfinite(M).all() and M.ndim == 2 and len(set(M.shape)) == 1 else None
    if pair is not None:
        i, j = pair
        raise PlantError(
            f"{type(plant).__name__}.mass_matrix: not symmetric at {_place(state)}: [{i}, {j}] is {M[i, j]:.6g} and "
            f"[{j}, {i}] is {M[j, i]:.6g} (fill both triangles)"
        )


def _doubts(own: Plant, found: list[Sample], failures: list[tuple[State, Exception]], asked: int) -> list[str]:
    """What may be wrong at states that a run may never reach."""
    doubts: dict[str, list[State]] = {}
    for at in found:
        M = at.arrays[0]
        for method, array in zip(METHODS, at.arrays, strict=True):
            if not np.isfinite(array).all():
                doubts.setdefault(f"{method}: not finite", []).append(at.state)
        if at.plant is own and np.isfinite(M).all():
            least = np.linalg.eigvalsh((M + M.T) / 2)[0]
            if least < -INDEFINITE * np.abs(M).max():
                doubts.setdefault("mass_matrix: not positive definite", []).append(at.state)
    for state, error in failures:
        cause = error.__cause__ or error  # the same exception at other states counts as one
        doubts.setdefault(f"failed ({in_one_line(cause)})", []).append(state)
    name = type(own).__name__
    return [
        f"{name}{'' if what.startswith('failed') else '.'}{': ' if what.startswith('failed') else ''}{what} at "
        f"{len(states)} of {asked} states near the start, first at {_place(states[0])} (a run that gets there stops)"
        for what, states in doubts.items()
    ]


def _place(state: State) -> str:
    return f"t={state.t:.4g}, q={np.round(state.q, 4)}, v={np.round(state.v, 4)}"
