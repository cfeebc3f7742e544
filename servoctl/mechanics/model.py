"""A plant with its constraints: the matrices of motion at a state, on numbers and on symbols.

Design: derivatives come from one compiled function of (t, q, v, p), where p contains every parameter of the plant and
of the constraints. So does the plant, if its traced form and its NumPy code agree at random states and parameters;
otherwise it is opaque, is evaluated in NumPy, and `Model.opaque` gives the reason.

Design: a part of a machine is a connected component of coordinates, inputs and rows over the structural nonzeros of M,
B and A. An entry that is zero at one state alone connects, so the parts are the same at every state. After reordering,
M, B, Ahat and A are block diagonal; so are their factors and pseudoinverses, which compiled code computes block by
block (`engine.structured.blocks`). Rank and status are those of the whole.
"""

import copy
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any

import numpy as np

from servoctl.engine.fingerprint import fingerprint, function_fingerprint, key_of, structure_fingerprint
from servoctl.engine.kernel import Kernel, inputs
from servoctl.engine.parameters import parameter_fields, parameter_values, structure, with_parameters
from servoctl.engine.structured import Diagonal, components, entries, filled, places_of, smallest_eigenvalue
from servoctl.errors import PlantError, TaskError, TraceError
from servoctl.mechanics import plant_values
from servoctl.mechanics.audit import (
    SAMPLES,
    SINGULAR,
    PlantSample,
    audited,
    check_plant,
    check_task,
    require_equal,
    require_equal_passive,
    require_equal_rows,
    variations,
)
from servoctl.mechanics.constraint import Constraint, Rows
from servoctl.mechanics.constraint_rows import compiled_rows, passive_rows, stacked_rows, units_of_rows
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.terms import Matrices, Terms, assemble, require_unique
from servoctl.mechanics.traced_plant import NumpyPlant, compiled_plant, traced_matrices
from servoctl.types import Array, State


def connected_parts(M: Array, B: Array, passive: Array, task: Array) -> list[Array]:
    """Indices of the coordinates of each part, by the first; one part if an input or a row acts on no coordinate.

    Args:
        M: Where the mass matrix may have entries, a mask of shape (n, n).
        B: The same of the actuation matrix, shape (n, m).
        passive: A of the passive rows, shape (p, n).
        task: A of the task rows, shape (r, n).
    """
    (n, m), p = B.shape, len(passive)
    of_M, of_B, of_passive, of_task = map(np.nonzero, (M, B, passive, task))
    one = np.concatenate([of_M[0], of_B[0], of_passive[1], of_task[1]])
    other = np.concatenate([of_M[1], n + of_B[1], n + m + of_passive[0], n + m + p + of_task[0]])
    count, label = components(one, other, n + m + p + len(task))
    if count > len(set(label[:n].tolist())):
        return [np.arange(n)]
    return [np.flatnonzero(label[:n] == part) for part in range(count)]


class Model:
    """A plant, its mechanism constraints and a task, ready to be evaluated.

    Attributes:
        plant: The plant.
        task: Name -> constraint, in order.
        task_rows: The task's rows.
        passive_rows: The plant's own rows.
        bounds: Name -> constraint whose violation h a law keeps at 0 or above.
        bound_rows: The rows of the bounds.
        around: A state near which it was made, usually the initial one.
        opaque: Why the plant's NumPy code cannot be compiled; None if it is compiled.
        symmetric: Whether the mass matrix is known to be symmetric at every state.
        doubts: Warnings about the plant at random states near `around`, one sentence each.
        plain: The model with the task as configured; itself unless a law differentiated the task's rows.
    """

    def __init__(
        self,
        plant: Plant,
        task: Mapping[str, Constraint],
        around: State,
        plain: "Model | None" = None,
        bounds: Mapping[str, Constraint] = MappingProxyType({}),
    ) -> None:
        """Traces and checks plant and constraints.

        Args:
            plant: A frozen dataclass.
            task: Name -> constraint; may be empty.
            around: A state, usually the initial one, at which all terms must be finite and have the right shape.
            plain: The model with the task as configured; None: this one.
            bounds: Name -> constraint whose violation h is a bound h >= 0; may be empty.

        Raises:
            PlantError: A method of the plant fails or has a wrong value at `around`, gives two answers at one state, or
                the motion is not unique.
            TaskError: A constraint does not fit the plant.
            TraceError: The code of a constraint cannot be traced.
        """
        self.plant, self.task, self.bounds, self.around = plant, dict(task), dict(bounds), around
        self.n, self.m = len(plant.coordinates), len(plant.actuators)
        self.plain: Model = plain or self
        self._kept: dict[str, tuple[Hashable, Any]] = {}
        self._valued: tuple[Plant, dict[str, Constraint], Array] | None = None
        start = check_plant(plant, around)
        check_task(self.task, plant)
        check_task(self.bounds, plant)
        self._passive = {name: value for groups in start.passive.values() for name, value in groups.items()}
        if clashing := [name for name in self.task if name in self._passive]:
            sentences = [
                f"{name}: a constraint of the plant itself has this name (rename the task)" for name in clashing
            ]
            raise TaskError("\n".join(sentences))
        symbols = self.symbols()
        self._key = key_of(
            partial(fingerprint, [list(task), list(bounds)]),
            *(partial(structure_fingerprint, part) for part in (plant, *task.values(), *bounds.values())),
        )
        of_rows, rows = compiled_rows(self._key, plant, self.task, self.bounds, symbols)
        self.rows_kernel, self._row_places = of_rows.kernel, of_rows.places
        self.passive_rows, self.task_rows, self.bound_rows = rows
        self.singular = self._is_singular(start.arrays[0], around)
        self._plant_places = self._trace_plant(start, symbols)
        self._check_rows(around)

    def _trace_plant(self, start: PlantSample, symbols: Mapping[str, Array]) -> list[Array]:
        """Traces the plant if its traced form equals its NumPy code; returns where M and B may have entries."""
        self.opaque: str | None = None
        self.plant_kernel: Kernel | None = None
        self.symmetric = False
        samples, self.doubts = audited(start, zip(variations(self.plant), self.samples(start.state), strict=True))
        require_equal_passive(samples, self.passive_rows, lambda state: self.rows(state)[0])
        try:
            compiled = compiled_plant(self._key, self.plant, symbols)
            require_equal(compiled.kernel, compiled.places, self.parameters, samples)
        except (TraceError, PlantError) as error:
            self.opaque = str(error)
            # an array may have any entry at another state
            M, B = start.arrays[0], start.arrays[2]
            return [places_of(x if isinstance(x, Diagonal) else np.ones(x.shape)) for x in (M, B)]
        self.plant_kernel, self.symmetric = compiled.kernel, bool(compiled.facts)
        return compiled.places

    def _check_rows(self, start: State) -> None:
        """Raises TaskError unless the compiled rows of task and bounds equal the user's code."""
        states = [start, *self.samples(start)]
        for i, (constraints, rows) in enumerate(((self.task, self.task_rows), (self.bounds, self.bound_rows)), 1):
            functions = {name: constraint.in_numpy for name, constraint in constraints.items()}
            require_equal_rows(functions, rows, lambda state, i=i: self.rows(state)[i], states)  # type: ignore[misc]

    def of(
        self,
        plant: Plant,
        task: Mapping[str, Constraint],
        around: State,
        bounds: Mapping[str, Constraint] | None = None,
    ) -> "Model":
        """This model with other values of parameters, and nothing else, without tracing again.

        Args and errors are those of the constructor; `structure_of` must be equal.
        """
        bounds = self.bounds if bounds is None else bounds
        M = check_plant(plant, around).arrays[0]
        check_task(task, plant)
        check_task(bounds, plant)
        return self._with(plant, task, None, around, bounds, M)

    def of_plain(self, plain: "Model") -> "Model":
        """This model with differentiated rows and the parameters of another plain model, without tracing again.

        Args:
            plain: A model made by `of` from this model's `plain`, or that one.
        """
        M = plant_values.value(plain.plant, "mass_matrix", plain.around, True)
        return self._with(plain.plant, self.task, plain, plain.around, plain.bounds, M)

    def _with(
        self,
        plant: Plant,
        task: Mapping[str, Constraint],
        plain: "Model | None",
        around: State,
        bounds: Mapping[str, Constraint],
        M: Any,
    ) -> "Model":
        other = copy.copy(self)
        other.plant, other.task, other.plain, other.bounds = plant, dict(task), plain or other, dict(bounds)
        other.around = around
        other.singular = other._is_singular(M, around)
        if other.singular != self.singular:  # functions that laws keep were traced for the other kind of M
            other._kept = {}
            other.__dict__.pop("fingerprint", None)
        return other

    def once(self, name: str, key: Hashable, make: Callable[[], Any]) -> Any:
        """A result that a law keeps with this model under a name; it is computed again when the key changes.

        Models that are made from one another by `of` share it, so it must not contain values of parameters.
        """
        kept = self._kept.get(name)
        if kept is None or kept[0] != key:
            kept = self._kept[name] = (key, make())
        return kept[1]

    @cached_property
    def fingerprint(self) -> str:
        """A short text for everything that functions of this model depend on, except values of parameters.

        Raises:
            NoFingerprintError: There is none.
        """
        assert self.plant_kernel is not None
        facts = (self.plant.coordinates, self.plant.actuators, parameter_fields(self.plant), self.passive_rows)
        traced = self._key or [function_fingerprint(each.function) for each in (self.plant_kernel, self.rows_kernel)]
        return fingerprint(traced, *facts, self.task_rows, self.bound_rows, self.singular, self.symmetric)

    @property
    def parameters(self) -> Array:
        """Values of every parameter: the plant's, then each constraint's in order, those of the bounds last."""
        if self._valued is None or self._valued[0] is not self.plant or self._valued[1] is not self.task:
            constraints = (*self.task.values(), *self.bounds.values())
            values = [parameter_values(self.plant), *[parameter_values(c) for c in constraints]]
            self._valued = self.plant, self.task, np.concatenate(values)
        return self._valued[2].copy()

    @property
    def parts(self) -> list[list[str]]:
        """Coordinates of each part of the machine that acts on no other; all in one where nothing separates."""
        names, parts = list(self.plant.coordinates), connected_parts(*self._plant_places, *self._row_places[:2])
        return [[names[i] for i in part] for part in parts]

    @property
    def row_units(self) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
        """Row -> unit of its violation, of mechanism constraints, the task and bounds; those not known are left out."""
        of = partial(units_of_rows, self.plant)
        passive = {name: value for name, value in self._passive.items() if isinstance(value, Constraint)}
        return of(passive, self.passive_rows), of(self.task, self.task_rows), of(self.bounds, self.bound_rows)

    def matrices(self, state: State) -> Matrices:
        """The matrices at a state, by compiled functions; those of an opaque plant by its own code.

        Raises:
            PlantError: The plant's code failed, or did not return real numbers; the message names the state.
        """
        passive, task, bounds = self.rows(state)
        if self.plant_kernel is None:
            M, Q, B, c = plant_values.terms(self.plant, state)
        else:
            M, Q, B, c = self.plant_kernel(state.t, state.q, state.v, self.parameters)
            M, B = (filled(mask, values) for mask, values in zip(self._plant_places, (M, B), strict=True))
        M, B = np.asarray(M), np.asarray(B)
        return Matrices(self.plant, M, Q, B, c, passive, task, bounds, self.singular, self.symmetric)

    def terms(self, state: State, rank_tolerance: float) -> Terms:
        """The equations of motion at a state, by compiled functions of its matrices.

        Args:
            rank_tolerance: A passive direction counts when its pivot exceeds this times |Ahat L^-T|_F.
        """
        return assemble(state, self.matrices(state), rank_tolerance)

    def sound_terms(self, states: Iterable[State], rank_tolerance: float) -> list[Terms]:
        """Those at several states, without the states at which a term is not finite or M not positive definite."""
        found = [self.terms(state, rank_tolerance) for state in states]
        return [terms for terms in found if terms.sound]

    def rows(self, state: State, p: Array | None = None) -> list[Rows]:
        """The rows of the mechanism, of the task and of the bounds at a state, on numbers or symbols.

        Args:
            p: All parameters; None: those of this model.
        """
        parts = self.rows_kernel(*state, self.parameters if p is None else p)
        count = len(parts) // len(self._row_places)
        groups = [(mask, *parts[i * count : (i + 1) * count]) for i, mask in enumerate(self._row_places)]
        return [Rows(filled(mask, A), *others) for mask, A, *others in groups]

    def rows_of_bounds(self, state: State) -> Rows:
        """The rows of the bounds at a state."""
        return self.rows(state)[2]

    def symbolic_matrices(self, symbols: Mapping[str, Array], in_numpy: bool = False) -> Matrices:
        """The matrices as expressions of the symbols t (1,), q, v and p from `symbols()`.

        Args:
            symbols: Name -> array.
            in_numpy: Whether M, Q, B and c come from the plant's NumPy code; they do anyway if it is opaque.
        """
        plant = with_parameters(self.plant, symbols["p"][: len(parameter_values(self.plant))])
        passive, task = passive_rows(self.plant, symbols)[0], stacked_rows(self.plant, self.task, symbols)[0]
        bounds = stacked_rows(self.plant, self.bounds, symbols, last=True)[0]
        if in_numpy or self.opaque is not None:
            M, Q, B, c = self.numpy_plant(symbols)
        else:
            M, Q, B, c = traced_matrices(self.plant, symbols).values()
        M = np.asarray(M)
        if self.symmetric:
            M = np.where(np.tri(self.n, dtype=bool), M, M.T)  # the same numbers from fewer expressions
        return Matrices(plant, M, Q, np.asarray(B), c, passive, task, bounds, self.singular, self.symmetric)

    @property
    def numpy_plant(self) -> NumpyPlant:
        """The plant's NumPy code as an operation of compiled functions."""
        made: NumpyPlant = self.once("numpy_plant", None, lambda: NumpyPlant(self.plant, *self._plant_places))
        return made

    def symbols(self) -> dict[str, Array]:
        """Fresh symbols t (1,), q (n,), v (n,), p."""
        return inputs({"t": (1,), "q": (self.n,), "v": (self.n,), "p": (len(self.parameters),)})

    def singularities(self, task: Rows) -> dict[str, str]:
        """Name of a constraint -> what is wrong with the state, for those whose rows are not finite and that know it.

        Args:
            task: The task's rows at the state.
        """
        groups = [
            row.group
            for row, A, b in zip(self.task_rows, task.A, task.b, strict=True)
            if not np.isfinite([*A, b]).all()
        ]
        known = {name: constraint.singularity for name, constraint in self.plain.task.items() if name in groups}
        return {name: sentence for name, sentence in known.items() if sentence}

    def samples(self, around: State, count: int = SAMPLES) -> Iterator[State]:
        """Random states near a state, the same in every call."""
        random = np.random.default_rng(0)
        for _ in range(count):
            q = around.q + 0.3 * random.standard_normal(self.n) * np.maximum(1.0, 0.2 * np.abs(around.q))
            yield State(around.t + random.random(), q, around.v + random.standard_normal(self.n))

    def near(self, start: State, count: int) -> list[State]:
        """A state, and random ones near it."""
        return [start, *self.samples(start, count)]

    def _is_singular(self, M: Any, around: State) -> bool:
        """Whether M, the mass matrix at a state, is singular; mechanism constraints must then make the motion unique.

        Raises:
            PlantError: They do not; the message names the direction.
        """
        if smallest_eigenvalue(M) > SINGULAR * np.abs(entries(M)).max(initial=0.0):
            return False
        M = np.asarray(M)
        try:
            require_unique(M, self.rows(around)[0].A, coordinates=list(self.plant.coordinates))
        except PlantError as error:
            raise PlantError(f"{type(self.plant).__name__}.{str(error).replace(' ', '_', 1)}") from error
        return True


def structure_of(plant: Plant, task: Mapping[str, Constraint], bounds: Mapping[str, Constraint]) -> tuple[Any, ...]:
    """Everything that the functions of a model depend on, except the values of parameters."""
    constraints = [(name, structure(each)) for group in (task, bounds) for name, each in group.items()]
    return structure(plant), plant.coordinates, plant.actuators, len(task), constraints
