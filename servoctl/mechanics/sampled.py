"""A plant's matrices at the start and at random states near it, checked before a run relies on them.

Design: two answers at one state, or a mass matrix that is not symmetric, are errors wherever they occur. A mass matrix
that is not positive definite, a term that is not finite, or an exception may lie where the run never goes: each is a
warning, and a run that gets there stops.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.engine.parameters import parameter_values, with_parameters
from servoctl.engine.structured import entries, smallest_eigenvalue
from servoctl.errors import PlantError, in_one_line
from servoctl.mechanics import plant_values
from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.symmetry import asymmetry
from servoctl.types import Array, State

METHODS = ("mass_matrix", "force", "actuation", "nonideal_force")

REPEATS = 1e-12  # two answers at one state may differ by this, relative to the larger
INDEFINITE = 1e-9  # an eigenvalue of the mass matrix below minus this times its largest entry is negative
SAMPLES = 20  # random states and parameter sets at which a traced plant must equal its NumPy self

Arrays = tuple[Any, ...]


@dataclass(frozen=True)
class PlantSample:
    """A plant's matrices at a state."""

    plant: Plant  # the plant; its parameters may differ from the model's
    state: State
    # M, Q, B and c, with the structure that the plant gives; NaN throughout where its code raised an exception
    arrays: Arrays
    failure: PlantError | None = None  # that exception; None: there was none


def sample(plants: Iterable[tuple[Plant, State]]) -> tuple[list[PlantSample], list[str]]:
    """Evaluates plants at states.

    Args:
        plants: Plants of one class with the state of each, the model's own plant first.

    Returns:
        The samples, and one warning for each thing that may stop a run.

    Raises:
        PlantError: A plant gives two answers at one state, or a mass matrix is not symmetric.
    """
    with np.errstate(all="ignore"):
        samples = [_sample(plant, state) for plant, state in plants]
        answered = next((each for each in samples if each.failure is None), None)
        if answered is not None:
            _require_one_answer(answered)  # again, now that the plant has been evaluated elsewhere
    return samples, _warnings(samples)


def variations(plant: Plant) -> Iterator[Any]:
    """The plant itself, then by turns with other parameters, as far as its own checks allow them, and itself."""
    random = np.random.default_rng(1)
    yield plant
    for i in range(SAMPLES):
        base = parameter_values(plant)
        if not i % 2:
            yield plant
            continue
        values = base * random.uniform(0.8, 1.2, len(base))
        trial = with_parameters(plant, [float(x) for x in values])
        try:
            yield dataclasses.replace(trial)
        except (Exception, SystemExit):  # its own checks may raise anything
            yield plant


def _sample(plant: Plant, state: State) -> PlantSample:
    try:
        arrays = plant_values.terms(plant, state)
    except PlantError as error:
        n, m = len(plant.coordinates), len(plant.actuators)
        return PlantSample(plant, state, tuple(np.full(shape, np.nan) for shape in ((n, n), n, (n, m), n)), error)
    result = PlantSample(plant, state, arrays)
    _require_one_answer(result)
    _require_symmetry(result)
    return result


def _require_one_answer(before: PlantSample) -> None:
    """Raises PlantError unless the plant gives the same matrices again, and the same constraints twice."""
    plant, (t, q, v) = before.plant, before.state
    again = plant_values.terms(plant, before.state)
    pairs = zip(before.arrays, again, strict=True)
    answers = {method: (entries(one), entries(other)) for method, (one, other) in zip(METHODS, pairs, strict=True)}
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
                f"{_in_words(before.state)} (the answer may depend on the arguments alone: no counter, no random "
                "number, nothing kept from an earlier call)"
            )


def _joined(groups: Mapping[str, Any]) -> Array:
    values = [value for value in groups.values() if not isinstance(value, Constraint)]
    parts = [np.ravel(np.asarray(value, dtype=float)) for value in values]
    return np.concatenate([np.zeros(0), *parts])


def _equal(one: Array, other: Array) -> Array:
    scale = np.maximum(np.abs(one), np.abs(other))
    # equal infinities have no difference, and NaN equals NaN here
    equal: Array = (one == other) | (np.abs(one - other) <= REPEATS * scale) | (np.isnan(one) & np.isnan(other))
    return equal


def _require_symmetry(at: PlantSample) -> None:
    M = at.arrays[0]
    pair = asymmetry(M) if np.isfinite(entries(M)).all() else None
    if pair is not None:
        i, j = pair
        raise PlantError(
            f"{type(at.plant).__name__}.mass_matrix: not symmetric at {_in_words(at.state)}: [{i}, {j}] is "
            f"{np.asarray(M)[i, j]:.6g} and [{j}, {i}] is {np.asarray(M)[j, i]:.6g} (fill both triangles)"
        )


def _warnings(samples: Sequence[PlantSample]) -> list[str]:
    """What goes wrong at states that a run may never reach."""
    states: dict[str, list[State]] = {}
    for at in samples:
        M = at.arrays[0]
        if at.failure is not None:
            # the cause alone: the error itself names the state, so no two failures would be alike
            states.setdefault(f": failed ({in_one_line(at.failure.__cause__ or at.failure)})", []).append(at.state)
            continue
        for method, array in zip(METHODS, at.arrays, strict=True):
            if not np.isfinite(entries(array)).all():
                states.setdefault(f".{method}: not finite", []).append(at.state)
        known = at.plant is samples[0].plant and np.isfinite(entries(M)).all()
        if known and smallest_eigenvalue(M) < -INDEFINITE * np.abs(entries(M)).max(initial=0.0):
            states.setdefault(".mass_matrix: not positive definite", []).append(at.state)
    return [
        f"{type(samples[0].plant).__name__}{problem} at {len(where)} of {len(samples)} states near the start, first at "
        f"{_in_words(where[0])} (a run that gets there stops)"
        for problem, where in states.items()
    ]


def _in_words(state: State) -> str:
    return f"t={state.t:.4g}, q={np.round(state.q, 4)}, v={np.round(state.v, 4)}"
