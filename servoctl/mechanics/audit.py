"""The audit of a user's code before a run relies on it: a plant's methods at the start and at random states near it.

Design: what is wrong at the start is an error; all of it is reported at once. Two answers at one state, or a mass
matrix that is not symmetric, are errors wherever they occur. A mass matrix that is not positive definite, a term that
is not finite, or an exception may lie where the run never goes: each is a warning, and a run that gets there stops. A
plant counts as traced only if it equals its NumPy code at all of these states, with random parameters: a branch on the
state or a value fixed in `__post_init__` would otherwise give wrong numbers without a sign. The plant is evaluated once
at each state, and again at the first ones.
"""

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from servoctl.engine.kernel import Kernel
from servoctl.engine.parameters import annotated, parameter_values, with_parameters
from servoctl.engine.structured import asymmetry, entries, filled, smallest_eigenvalue
from servoctl.engine.trace import mismatch
from servoctl.errors import PlantError, TaskError, TraceError, in_one_line
from servoctl.mechanics import plant_values
from servoctl.mechanics.constraint import Constraint, Rows
from servoctl.mechanics.constraint_rows import Row
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.plant_values import TERMS
from servoctl.types import Array, State

T = TypeVar("T")

SINGULAR = 1e-12  # a mass matrix counts as singular if its smallest eigenvalue is below this times its largest entry
REPEATS = 1e-12  # two answers at one state may differ by this, relative to the larger
INDEFINITE = 1e-9  # an eigenvalue of the mass matrix below minus this times its largest entry is negative
SAMPLES = 20  # random states and parameter sets at which a traced plant must equal its NumPy self
AGREEMENT = 1e-6  # relative, of constraints and laws: code that takes another way differs by more, rounding by less
REPEATED = 3  # states at which the plant is evaluated again, after all others
JUST_BEFORE = 1e-4  # [s] so long before it another state is asked for: code that holds its last answer gives that one

ROUND_OFF = 1e-5
"""Least scale of a row relative to the largest: with the tolerance of 1e-10, what is left of terms that cancel."""

PASSIVE = ("passive_constraints", "passive_rates")

DEPENDS = (
    "(the answer may depend on the arguments alone: no counter, no random number, nothing kept from an earlier call)"
)


@dataclass(frozen=True)
class PlantSample:
    """A plant's values at a state."""

    plant: Plant  # the plant; its parameters may differ from the model's
    state: State
    # M, Q, B and c, with the structure that the plant gives; NaN throughout where its code raised an exception
    arrays: tuple[Any, ...]
    passive: dict[str, dict[str, Any]]  # method of `PASSIVE` -> its groups
    failure: PlantError | None = None  # that exception; None: there was none


def check_task(task: Mapping[str, Constraint], plant: Plant) -> None:
    """Raises TaskError that names every entry that is not a constraint and every unknown word in an equation."""
    problems: list[str] = []
    for name, constraint in task.items():
        if not isinstance(constraint, Constraint):
            hint = f"as in servoctl.Holonomic({constraint!r})" if isinstance(constraint, str) else "an instance"
            problems.append(f"{name}: expected a constraint, got {constraint!r} ({hint})")
            continue
        problems += [f"{name}: {sentence}" for sentence in constraint.problems(plant)]
    if problems:
        raise TaskError("\n".join(problems))


def check_plant(plant: Plant, state: State) -> PlantSample:
    """The plant's values at the start; raises PlantError that lists everything that is wrong with its methods there."""
    name = type(plant).__name__
    if not dataclasses.is_dataclass(plant):
        raise PlantError(f"{name}: not a dataclass (decorate the class with @dataclass(frozen=True))")
    for kind in type(plant).__mro__[:-1]:
        fields = [key for key, hint in inspect.get_annotations(kind).items() if "ClassVar" not in str(hint)]
        if fields and "__dataclass_fields__" not in vars(kind):
            raise PlantError(
                f"{kind.__name__}: its fields ({', '.join(fields)}) are not parameters: "
                "the class is not a dataclass itself (decorate it with @dataclass(frozen=True), as its base)"
            )
    for key, (many, _) in annotated(type(plant)).items():
        if not many and np.ndim(value := getattr(plant, key)):
            raise PlantError(f"{name}.{key}: expected a number, got {value!r} (several are a tuple[float, ...])")
    problems: list[str] = []
    _, q, v = state

    def attempt(work: Callable[[], T]) -> T | None:
        try:
            return work()
        except PlantError as error:
            problems.append(str(error))
            return None

    values = {method: attempt(partial(plant_values.value, plant, method, state, True)) for method in TERMS}
    for method, value in values.items():
        if value is not None and not np.isfinite(entries(value)).all():
            shown = np.asarray(value).tolist()
            problems.append(f"{name}.{method}: not finite at q={np.round(q, 4)}, v={np.round(v, 4)}: {shown}")
    passive = {
        method: attempt(partial(plant_values.passive_groups, plant, method, state, True)) or {} for method in PASSIVE
    }
    problems += [
        f"{name}.passive_rates: '{twice}' is also in passive_constraints (rename one of them)"
        for twice in passive["passive_rates"]
        if twice in passive["passive_constraints"]
    ]
    attempt(lambda: plant_values.value(plant, "energy", state, True))
    attempt(lambda: plant_values.links(plant, state, True))
    M = values["mass_matrix"]
    if M is not None and np.isfinite(entries(M)).all():
        largest, smallest = float(np.abs(entries(M)).max(initial=0.0)), smallest_eigenvalue(M)
        if pair := asymmetry(M, 1e-12 * max(1.0, largest)):
            skew = abs(np.asarray(M)[pair] - np.asarray(M).T[pair])
            problems.append(f"{name}.mass_matrix: not symmetric at q={np.round(q, 4)} (M - M^T up to {skew:.1e})")
        # a singular mass matrix may be completed by the passive constraints: `Model` decides that
        elif smallest < -SINGULAR * largest or (smallest <= 0.0 and not any(passive.values())):
            problems.append(
                f"{name}.mass_matrix: not positive definite at q={np.round(q, 4)} "
                f"(smallest eigenvalue {smallest:.1e}; check masses and inertias)"
            )
    if problems:
        raise PlantError("\n".join(problems))
    return PlantSample(plant, state, tuple(values.values()), passive)


def audited(start: PlantSample, plants: Iterable[tuple[Plant, State]]) -> tuple[list[PlantSample], list[str]]:
    """Evaluates plants at further states, and again at the first ones.

    Args:
        start: Of the model's own plant.
        plants: Plants of its class with the state of each.

    Returns:
        The samples, that of the start first, and one warning for each thing that may stop a run.

    Raises:
        PlantError: A plant gives two answers at one state, or a mass matrix is not symmetric.
    """
    with np.errstate(all="ignore"):
        samples = [start, *(_sample(plant, state) for plant, state in plants)]
        sound = [at for at in samples if at.failure is None]
        for i, at in enumerate(sound[:REPEATED]):
            _sample(at.plant, sound[i - 1].state._replace(t=at.state.t - JUST_BEFORE))
            _require_one_answer(at, _sample(at.plant, at.state))
    return samples, _warnings(samples)


def variations(plant: Plant) -> Iterator[Any]:
    """The plant by turns itself and with other parameters, as far as its own checks allow them."""
    random = np.random.default_rng(1)
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
        passive = {method: plant_values.passive_groups(plant, method, state) for method in PASSIVE}
    except PlantError as error:
        n, m = len(plant.coordinates), len(plant.actuators)
        return PlantSample(plant, state, tuple(np.full(shape, np.nan) for shape in ((n, n), n, (n, m), n)), {}, error)
    result = PlantSample(plant, state, arrays, passive)
    _require_symmetry(result)
    return result


def _require_one_answer(one: PlantSample, other: PlantSample) -> None:
    """Raises PlantError unless two samples of a plant at a state are equal."""
    if other.failure is not None:
        raise other.failure
    for method in (*TERMS, *PASSIVE):
        before, again = (_of_method(at, method) for at in (one, other))
        differ = before.shape != again.shape or ~_equal(before, again)
        if np.any(differ):
            first, second = (x[differ][0] if before.shape == again.shape else x.shape for x in (before, again))
            raise PlantError(
                f"{type(one.plant).__name__}.{method}: two answers at one state, {first!s} and {second!s} at "
                f"{_in_words(one.state)} {DEPENDS}"
            )


def _of_method(at: PlantSample, method: str) -> Array:
    if method in TERMS:
        return entries(at.arrays[TERMS.index(method)])
    values = [value for value in at.passive[method].values() if not isinstance(value, Constraint)]
    return np.concatenate([np.zeros(0), *map(np.ravel, values)])


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
        for method, array in zip(TERMS, at.arrays, strict=True):
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


def require_equal(kernel: Kernel, places: Sequence[Array], parameters: Array, samples: Sequence[PlantSample]) -> None:
    """Raises TraceError unless the traced plant equals the NumPy plant at all samples.

    Args:
        kernel: The traced plant, see `traced_plant`.
        places: Where it gives entries of M and B.
        parameters: All parameters of the model, the plant's first; each sample puts in those of its own plant.
        samples: The NumPy plant at states and with parameters.
    """
    pairs = []
    for at in samples:
        p, values = parameters.copy(), parameter_values(at.plant)
        p[: len(values)] = values
        actual = kernel(at.state.t, at.state.q, at.state.v, p)
        actual[0], actual[2] = (filled(mask, actual[i]) for i, mask in zip((0, 2), places, strict=True))
        pairs.append((at, actual))
    arrays = [[np.asarray(array) for array in at.arrays] for at in samples]
    for i, (name, scale) in enumerate(zip(TERMS, _scales(arrays), strict=True)):
        for (at, actual), expected in zip(pairs, arrays, strict=True):
            difference = mismatch(expected[i], actual[i], scale)
            if difference is not None:
                raise TraceError(
                    f"{type(samples[0].plant).__name__}.{name}: symbols and NumPy differ by {difference:.1e} relative "
                    f"at q={np.round(at.state.q, 3)} (a branch on the state, or a value fixed in __post_init__?)"
                )


def require_equal_rows(
    functions: Mapping[str, Callable[[State], Mapping[str, Array]]],
    rows: Sequence[Row],
    compiled: Callable[[State], Rows],
    states: Sequence[State],
) -> None:
    """Raises TaskError unless compiled rows equal what the user's code gives on numbers, at all states that it takes.

    Args:
        functions: Name of a constraint -> what its code gives: see `Constraint.in_numpy`.
        rows: What each compiled row is.
        compiled: The compiled rows at a state.
        states: Where to compare.
    """
    for name, function in functions.items():
        for state in states:
            try:
                one, other = function(state), function(state)
            except (Exception, SystemExit):  # the state may lie where the run never goes
                continue
            for field, values in one.items():
                if not np.all(_equal(values, other[field])):
                    answers = f"{values} and {other[field]} at {_in_words(state)}"
                    raise TaskError(f"{name}: two answers at one state, {answers} {DEPENDS}")
                _compare(name, values, getattr(compiled(state), field), rows, state)


def require_equal_passive(
    samples: Sequence[PlantSample], rows: Sequence[Row], compiled: Callable[[State], Rows]
) -> None:
    """Raises PlantError unless the compiled violations of a plant's own constraints are those of its code.

    Args:
        samples: The plant at states; those with other parameters are passed over.
        rows: What each compiled row is.
        compiled: The compiled rows at a state.
    """
    plant = samples[0].plant
    for at in (at for at in samples if at.plant is plant):
        actual = compiled(at.state).violation
        for method, groups in at.passive.items():
            values = {name: np.ravel(value) for name, value in groups.items() if not isinstance(value, Constraint)}
            try:
                for name, value in values.items():
                    _compare(name, value, actual, rows, at.state)
            except TaskError as error:
                raise PlantError(f"{type(plant).__name__}.{method}: {error}") from error


def _compare(name: str, values: Array, actual: Array, rows: Sequence[Row], state: State) -> None:
    """Raises TaskError unless a constraint's values are those of its compiled rows."""
    members = [i for i, row in enumerate(rows) if row.group == name]
    size = np.abs(values, where=np.isfinite(values), out=np.zeros(values.shape)).max(initial=1.0)
    if difference := mismatch(values, actual[members].reshape(values.shape), size, AGREEMENT):
        where = f"relative at {_in_words(state)} (the code takes another way on symbols)"
        raise TaskError(f"{name}: symbols and NumPy differ by {difference:.1e} {where}")


def _scales(samples: Sequence[Sequence[Array]]) -> list[Array]:
    """What each entry of M, Q, B and c is compared relative to: the largest one of its row over the samples.

    Of Q and c also the row of M, that is the force of a unit acceleration, because terms that cancel leave round-off;
    and never less than `ROUND_OFF` of the whole array.
    """
    sizes = [np.max([_row_sizes(arrays[i]) for arrays in samples], axis=0) for i in range(len(TERMS))]
    M, Q, B, c = (np.maximum(each, ROUND_OFF * each.max(initial=0.0)) for each in sizes)
    force = np.maximum(np.maximum(Q, c), M)
    return [np.where(each > 0.0, each, 1.0) for each in (M[:, None], force, B[:, None], force)]


def _row_sizes(array: Array) -> Array:
    """The largest finite magnitude in each row of a matrix, or each entry of a vector."""
    sizes: Array = np.nan_to_num(np.abs(array), nan=0.0, posinf=0.0)
    return sizes if sizes.ndim == 1 else np.asarray(sizes.max(axis=1, initial=0.0))


def _in_words(state: State) -> str:
    return f"t={state.t:.4g}, q={np.round(state.q, 4)}, v={np.round(state.v, 4)}"
