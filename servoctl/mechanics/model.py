"""A plant with its constraints: the matrices of motion at a state, on numbers and on symbols.

Design: derivatives come from one compiled function of (t, q, v, p), where p contains every parameter of the plant and
of the constraints. The plant itself is evaluated in NumPy. Its traced form is used only if both agree at random states
and parameters; otherwise the plant is opaque and `Model.opaque` gives the reason.
"""

import copy
import dataclasses
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from servoctl.engine import stored
from servoctl.engine.fingerprint import fingerprint, function_fingerprint, structure_fingerprint
from servoctl.engine.kernel import Kernel, inputs
from servoctl.engine.parameters import parameter_fields, parameter_names, parameter_values, structure, with_parameters
from servoctl.engine.structured import Sparse, entries, entries_of, smallest_eigenvalue, with_entries
from servoctl.engine.symbol import is_symbolic
from servoctl.engine.trace import mismatch, trace
from servoctl.errors import PlantError, TaskError, TraceError
from servoctl.expression import parse
from servoctl.mechanics import plant_values
from servoctl.mechanics.checks import SINGULAR, check_plant, check_task
from servoctl.mechanics.complex_step import ComplexStep, by_complex_step
from servoctl.mechanics.constraint import LARGE, Constraint, Rows
from servoctl.mechanics.division import Part, connected_parts
from servoctl.mechanics.passive import PassiveGroup, passive_groups, plant_arrays
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.sampled import METHODS, Sample, sample
from servoctl.mechanics.singular_mass import require_unique
from servoctl.mechanics.symmetry import certainly_symmetric
from servoctl.mechanics.terms import Matrices
from servoctl.types import Array, State

SAMPLES = 20
"""Random states and parameter sets at which a traced plant must equal its NumPy self."""


@dataclass(frozen=True)
class Row:
    """One scalar row of a task or of the passive constraints.

    Attributes:
        name: `object_x`, or `mine.0`, `mine.1` where a constraint has several rows.
        group: The constraint's name.
        kind: `holonomic`, `nonholonomic` or `second_order`.
        has_violation: Whether the row has a violation at position or velocity level.
        has_rate: Whether the row has a violation rate.
        degree: Order of the derivative of the violation that the row prescribes: 2 for holonomic rows, 1 for
            nonholonomic ones, the relative degree for differentiated rows, 0 without a violation.
    """

    name: str
    group: str
    kind: str
    has_violation: bool
    has_rate: bool
    degree: int


class Model:
    """A plant, its passive constraints and a task, ready to be evaluated.

    Attributes:
        plant: The plant.
        task: Name -> constraint, in order.
        task_rows: The task's rows.
        passive_rows: The plant's own rows.
        opaque: Why the plant's NumPy code cannot be compiled; None if it is compiled.
        symmetric: Whether the mass matrix is known to be symmetric at every state.
        forms: M, B, A of the passive rows and A of the task as `Sparse`: the places where an entry may not be zero.
        parts: The parts of the machine that do not act on each other; one part where nothing separates.
        stepped: Task -> its rows by complex steps, where a task is too large to trace; empty: it is traced.
        doubts: Warnings about the plant at random states near `around`, one sentence each.
        plain: The model with the task as configured; itself unless a law differentiated the task's rows.
    """

    def __init__(
        self, plant: Plant, task: Mapping[str, Constraint], around: State, plain: "Model | None" = None
    ) -> None:
        """Traces and checks plant and constraints.

        Args:
            plant: A frozen dataclass.
            task: Name -> constraint; may be empty.
            around: A state, usually the initial one, at which all terms must be finite and have the right shape.
            plain: The model with the task as configured; None: this one.

        Raises:
            PlantError: A method of the plant fails or has a wrong value at `around`, gives two answers at one state, or
                the motion is not unique.
            TaskError: A constraint does not fit the plant.
            TraceError: The code of a constraint cannot be traced.
        """
        self.plant, self.task = plant, dict(task)
        self.n, self.m = len(plant.coordinates), len(plant.actuators)
        self.plain: Model = plain or self
        self._kept: dict[str, tuple[Hashable, Any]] = {}
        self._valued: tuple[Plant, dict[str, Constraint], Array] | None = None
        check_plant(plant, around)
        check_task(self.task, plant)
        holonomic = plant_values.passive_groups(plant, "passive_constraints", None, around.q, around.t)
        rates = plant_values.passive_groups(plant, "passive_rates", None, around.q, around.v, around.t)
        for twice in [name for name in rates if name in holonomic]:
            raise PlantError(
                f"{type(plant).__name__}.passive_rates: '{twice}' is also in passive_constraints (rename one of them)"
            )
        self._passive = passive_groups(holonomic, rates)
        symbols = self._symbols()
        self.stepped: dict[str, ComplexStep] = {} if self.n <= LARGE else by_complex_step(self.task, around)
        self._key = stored.key_of(
            partial(fingerprint, list(task)),
            *(partial(structure_fingerprint, part) for part in (plant, *task.values())),
        )
        if self.n > LARGE or any(isinstance(x, Sparse) for x in plant_values.terms(plant, around)):
            self._key = None  # the structure of M, B and A would have to be kept too
        self.rows_kernel, self.passive_rows, self.task_rows, of_rows = self._traced_rows(symbols)
        self.task_rows += [Row(*row) for name, rows in self.stepped.items() for row in rows.named(name)]
        self.singular = self._is_singular(around)
        self.opaque: str | None = None
        self.plant_kernel: Kernel | None = None
        self.symmetric = False
        plants = zip(_variations(plant), [around, *self.samples(around)], strict=False)
        samples, self.doubts = sample(plants)
        of_plant = [_opaque_form(x) for x in (samples[0].arrays[0], samples[0].arrays[2])]
        try:
            self.plant_kernel, symmetric, of_plant = self._traced_plant(symbols)
            self._verify(samples)
            self.symmetric = symmetric
        except (TraceError, PlantError) as error:
            self.opaque, self.plant_kernel = str(error), None
            of_plant = [_opaque_form(x) for x in (samples[0].arrays[0], samples[0].arrays[2])]
        if self.stepped:
            of_rows[1] = self._together([rows.form(self.n) for rows in self.stepped.values()]).A
        self.forms: tuple[Any, ...] = (*of_plant, *of_rows)
        self.parts: list[Part] = connected_parts(*self.forms)

    def retuned(self, plant: Plant, task: Mapping[str, Constraint], around: State) -> "Model | None":
        """This model with other parameters, without tracing again; None if more than parameters differs.

        Args and errors are those of the constructor.
        """
        if self.plain is not self or structure(plant) != structure(self.plant) or list(task) != list(self.task):
            return None
        if any(structure(constraint) != structure(self.task[name]) for name, constraint in task.items()):
            return None
        if (plant.coordinates, plant.actuators) != (self.plant.coordinates, self.plant.actuators):
            return None
        check_plant(plant, around)
        check_task(task, plant)
        return self._with(plant, task, None, around)

    def retuned_to(self, plain: "Model", around: State) -> "Model | None":
        """This model with differentiated rows and the parameters of another plain model, without tracing again.

        Args:
            plain: This model's `plain`, or a model `retuned` from it.
            around: See the constructor.
        """
        return self._with(plain.plant, self.task, plain, around)

    def _with(
        self, plant: Plant, task: Mapping[str, Constraint], plain: "Model | None", around: State
    ) -> "Model | None":
        other = copy.copy(self)
        other.plant, other.task, other.plain = plant, dict(task), plain or other
        other.singular = other._is_singular(around)
        return other if other.singular == self.singular else None

    def once(self, name: str, key: Hashable, make: Callable[[], Any]) -> Any:
        """A result that a law keeps with this model under a name; it is computed again when the key changes.

        Models that are `retuned` from one another share it, so it must not contain values of parameters.
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
        return fingerprint(traced, *facts, self.task_rows, self.singular, self.symmetric)

    def named(self, equations: Any) -> dict[str, Any]:
        """What equations read from the plant by name, parameters and coordinates apart: name -> value.

        Args:
            equations: Name -> equation; anything else reads nothing.
        """
        names: set[str] = set()
        for equation in equations.values() if isinstance(equations, Mapping) else ():
            names |= (parse(equation) if isinstance(equation, str) else equation).names
        known = {*self.plant.coordinates, *parameter_fields(self.plant)}
        return {name: getattr(self.plant, name) for name in sorted(names - known) if hasattr(self.plant, name)}

    @property
    def parameters(self) -> Array:
        """Values of every parameter: the plant's, then each constraint's in order."""
        if self._valued is None or self._valued[0] is not self.plant or self._valued[1] is not self.task:
            values = [parameter_values(self.plant), *[parameter_values(c) for c in self.task.values()]]
            self._valued = self.plant, self.task, np.concatenate(values)
        return self._valued[2].copy()

    @property
    def parameter_names(self) -> list[str]:
        """Names in the order of `parameters`: `m1`, `m[0]`, `mine.radius`."""
        names = parameter_names(self.plant)
        for group, constraint in self.task.items():
            names += [f"{group}.{name}" for name in parameter_names(constraint)]
        return names

    def matrices(self, state: State) -> Matrices:
        """The matrices at a state: the plant in NumPy, constraints by their compiled derivatives.

        Raises:
            PlantError: The plant's code failed, or did not return real numbers; the message names the state.
        """
        return _dense(self.structured_matrices(state))

    def structured_matrices(self, state: State) -> Matrices:
        """The matrices of `matrices`, where M, B and A keep the structure that they have."""
        passive, task = self._rows(state)
        M, Q, B, c = plant_values.terms(self.plant, state)
        return Matrices(self.plant, M, Q, B, c, passive, task, self.singular, self.symmetric)  # type: ignore[arg-type]

    def compiled_matrices(self, state: State) -> Matrices:
        """The matrices at a state by compiled functions; the plant must not be opaque."""
        assert self.plant_kernel is not None
        passive, task = self.rows(state)
        M, Q, B, c = self.plant_kernel(state.t, state.q, state.v, self.parameters)
        M, B = (with_entries(form, values) for form, values in zip(self._plant_forms, (M, B), strict=True))
        return _dense(Matrices(self.plant, M, Q, B, c, passive, task, self.singular, self.symmetric))

    def rows(self, state: State) -> tuple[Rows, Rows]:
        """The passive rows and the task's rows at a state."""
        passive, task = self._rows(state)
        return _dense_rows(passive), _dense_rows(task)

    def passive_rows_at(self, t: Any, q: Array, v: Array, p: Array) -> Rows:
        """The passive rows on numbers or symbols; p has all parameters."""
        A, *others = self.rows_kernel(t, q, v, p)[:5]
        return _dense_rows(Rows(with_entries(self._row_forms[0], A), *others))

    def _rows(self, state: State) -> tuple[Rows, Rows]:
        """The same, where A keeps its structure."""
        parts = self.rows_kernel(state.t, state.q, state.v, self.parameters)
        passive, task = (
            Rows(with_entries(form, A), *others)
            for form, (A, *others) in zip(self._row_forms, (parts[:5], parts[5:]), strict=True)
        )
        if self.stepped:
            task = self._together([rows.at(self.task[name], state) for name, rows in self.stepped.items()])
        return passive, task

    def symbolic_matrices(self, symbols: Mapping[str, Array], structured: bool = False) -> Matrices:
        """The matrices as expressions of the symbols t (1,), q, v and p from `symbols()`.

        Args:
            symbols: The symbols.
            structured: Whether M, B and A keep the structure that they have; else they are arrays.
        """
        plant = with_parameters(self.plant, symbols["p"][: len(parameter_values(self.plant))])
        passive, _ = self._stack(self._passive, symbols)
        task, _ = self._stack(self.task, symbols)
        M, Q, B, c = self._plant_matrices(symbols).values()
        matrices = Matrices(plant, M, Q, B, c, passive, task, self.singular, self.symmetric)
        return matrices if structured else _dense(matrices)

    def symbols(self) -> dict[str, Array]:
        """Fresh symbols t (1,), q (n,), v (n,), p."""
        return self._symbols()

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
        known = {name: constraint.singularity for name, constraint in self.task.items() if name in groups}
        return {name: sentence for name, sentence in known.items() if sentence}

    def samples(self, around: State, count: int = SAMPLES) -> Iterator[State]:
        """Random states near a state, the same in every call."""
        random = np.random.default_rng(0)
        for _ in range(count):
            q = around.q + 0.3 * random.standard_normal(self.n) * np.maximum(1.0, 0.2 * np.abs(around.q))
            yield State(around.t + random.random(), q, around.v + random.standard_normal(self.n))

    def _symbols(self) -> dict[str, Array]:
        return inputs({"t": (1,), "q": (self.n,), "v": (self.n,), "p": (len(self.parameters),)})

    def _plant_matrices(self, symbols: Mapping[str, Array]) -> dict[str, Any]:
        t, q, v, p = symbols["t"][0], symbols["q"], symbols["v"], symbols["p"]
        plant = with_parameters(self.plant, p[: len(parameter_values(self.plant))])
        M, Q, B, c = trace(plant_arrays, plant, t, q, v)
        return {"M": M, "Q": Q, "B": B, "c": c}

    def _traced_rows(self, symbols: Mapping[str, Array]) -> tuple[Kernel, list[Row], list[Row], list[Any]]:
        """The derivatives of all constraints, their rows and the forms of A, passive ones first."""
        self._row_forms: tuple[Any, Any] = None, None
        found = stored.find_with_facts(self._key, "rows")
        if found is not None:
            kernel, (facts, places) = found
            passive_rows, task_rows = ([Row(*values) for values in group] for group in facts)
            return kernel, passive_rows, task_rows, [Sparse.at(*each) for each in places]
        passive, passive_rows = self._stack(self._passive, symbols)
        servo, task_rows = self._stack({} if self.stepped else self.task, symbols)
        kernel = Kernel.compile("rows", symbols, {**_fields("passive", passive), **_fields("task", servo)})
        self._row_forms = passive.A, servo.A
        forms = [Sparse.of(rows.A) for rows in (passive, servo)]
        if self._key is not None:
            groups = [[dataclasses.astuple(row) for row in rows] for rows in (passive_rows, task_rows)]
            stored.keep_kernel(self._key, "rows", kernel, [groups, [form.places() for form in forms]])
        return kernel, passive_rows, task_rows, forms

    def _traced_plant(self, symbols: Mapping[str, Array]) -> tuple[Kernel, bool, list[Any]]:
        """The plant's matrices, whether M is symmetric for certain, and the forms of M and B.

        Raises:
            TraceError, PlantError: The plant cannot be traced.
        """
        self._plant_forms: tuple[Any, Any] = None, None
        found = stored.find_with_facts(self._key, "plant")
        if found is not None:
            kernel, (symmetric, places) = found
            return kernel, bool(symmetric), [Sparse.at(*each) for each in places]
        matrices = self._plant_matrices(symbols)
        kernel = Kernel.compile("plant", symbols, {name: entries_of(x) for name, x in matrices.items()})
        symmetric = certainly_symmetric(matrices["M"])
        self._plant_forms = matrices["M"], matrices["B"]
        for form in self._plant_forms:
            if isinstance(form, Sparse):
                form.constant = not is_symbolic(form.values)
        forms = [Sparse.of(form) for form in self._plant_forms]
        if self._key is not None:
            stored.keep_kernel(self._key, "plant", kernel, [symmetric, [form.places() for form in forms]])
        return kernel, symmetric, forms

    def _together(self, parts: list[Rows]) -> Rows:
        return parts[0] if len(parts) == 1 else Rows.stack(parts, self.n)

    def _stack(self, groups: Mapping[str, Constraint], symbols: Mapping[str, Array]) -> tuple[Rows, list[Row]]:
        p, parts, rows = symbols["p"], [], []
        position = len(parameter_values(self.plant))
        plant = with_parameters(self.plant, p[:position])
        for name, constraint in groups.items():
            count = len(parameter_values(constraint))
            bound = with_parameters(constraint, p[position : position + count])
            position += count
            try:
                part = bound.rows(plant, symbols["t"][0], symbols["q"], symbols["v"])
            except (TaskError, TraceError) as error:
                hint = " (a constraint must be traceable, because it is differentiated on symbols)"
                sentence = f"{error}{hint if isinstance(error, TraceError) else ''}"
                if isinstance(constraint, PassiveGroup):
                    raise PlantError(f"{type(self.plant).__name__}.{constraint.method}: {name}: {sentence}") from error
                raise type(error)(f"{name}: {sentence}") from error
            parts.append(part)
            labels = constraint.row_labels() or range(len(part.b))
            for i, row_label in zip(range(len(part.b)), labels, strict=True):
                label = name if len(part.b) == 1 else f"{name}.{row_label}"
                known = [not _is_nan(values[i]) for values in (part.violation, part.violation_rate)]
                higher = 0 if part.higher is None else part.higher.shape[1]
                rows.append(Row(label, name, constraint.kind, known[0], known[1], sum(known) + higher))
        return Rows.stack(parts, self.n), rows

    def _is_singular(self, around: State) -> bool:
        """Whether M is singular at a state; the passive constraints must then make the motion unique.

        Raises:
            PlantError: They do not; the message names the direction.
        """
        M = plant_values.matrix(self.plant, "mass_matrix", None, (self.n, self.n), around.q, around.t)
        if smallest_eigenvalue(M) > SINGULAR * np.abs(entries(M)).max(initial=0.0):
            return False
        M = np.asarray(M)
        try:
            require_unique(M, self.rows(around)[0].A, coordinates=list(self.plant.coordinates))
        except PlantError as error:
            raise PlantError(f"{type(self.plant).__name__}.{str(error).replace(' ', '_', 1)}") from error
        return True

    def _verify(self, samples: Sequence[Sample]) -> None:
        """Raises TraceError unless the traced plant equals the NumPy plant at all samples."""
        assert self.plant_kernel is not None
        pairs = []
        for at in samples:
            p, values = self.parameters, parameter_values(at.plant)
            p[: len(values)] = values
            M, Q, B, c = at.arrays
            for form, found in zip(self._plant_forms, (M, B), strict=True):
                if isinstance(found, Sparse) and not (isinstance(form, Sparse) and found.same_places(form)):
                    raise TraceError(f"{type(self.plant).__name__}: the structure of M or B depends on the state")
            expected = (entries_of(M), Q, entries_of(B), c)
            pairs.append((at.state, expected, self.plant_kernel(at.state.t, at.state.q, at.state.v, p)))
        for i, name in enumerate(METHODS):
            scale = _scale([expected for _, expected, _ in pairs], i)
            for state, expected, actual in pairs:
                difference = mismatch(expected[i], actual[i], scale)
                if difference is not None:
                    raise TraceError(
                        f"{type(self.plant).__name__}.{name}: symbols and NumPy differ by {difference:.1e} relative "
                        f"at q={np.round(state.q, 3)} (a branch on the state, or a value fixed in __post_init__?)"
                    )


def _scale(samples: list[tuple[Array, ...]], i: int) -> float:
    """Largest magnitude of the i-th array, at least 1e-6 of that of all arrays: terms that cancel leave round-off."""
    sizes = [np.max([_largest(arrays[j]) for arrays in samples]) for j in range(len(samples[0]))]
    return float(max(sizes[i], 1e-6 * max(sizes))) or 1.0


def _largest(array: Array) -> float:
    values = np.abs(np.asarray(array, dtype=float))
    return float(np.max(values, where=np.isfinite(values), initial=0.0))


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value


def _fields(prefix: str, rows: Rows) -> dict[str, Array]:
    return {f"{prefix}_{field.name}": entries_of(getattr(rows, field.name)) for field in dataclasses.fields(rows)}


def _opaque_form(matrix: Any) -> Sparse:
    """The form of a matrix of a plant that is not traced: an array may have any entry at another state."""
    return matrix if isinstance(matrix, Sparse) else Sparse.of(np.ones(matrix.shape))


def _dense_rows(rows: Rows) -> Rows:
    return dataclasses.replace(rows, A=np.asarray(rows.A))


def _dense(m: Matrices) -> Matrices:
    passive, task = _dense_rows(m.passive), _dense_rows(m.task)
    return dataclasses.replace(m, M=np.asarray(m.M), B=np.asarray(m.B), passive=passive, task=task)


def _variations(plant: Plant) -> Iterator[Any]:
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
