"""Constraint following as the user configures it: the control is the constraint force.

Source: as of `laws.constraint_following`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from servoctl.engine.parameters import parameter_fields
from servoctl.errors import TaskError, no_such
from servoctl.expression import check_names, parse
from servoctl.laws import preload as preloads
from servoctl.laws.allocation import Allocation, Kind, unprojected_ranks
from servoctl.laws.bounds import Bounds
from servoctl.laws.bounds_term import BoundsTerm
from servoctl.laws.constraint_following import AttachedConstraintFollowing
from servoctl.laws.corrections import Correction, CorrectionTerm, corrections_of
from servoctl.laws.funnel import funnels
from servoctl.laws.law import Law
from servoctl.laws.observer import Observer
from servoctl.laws.preload import Preload, PreloadTerm, preload_term
from servoctl.laws.robust import Adaptive, Robust, row_units, unscaled
from servoctl.laws.secondary import Equations, Secondary, SecondaryTerm, null_space_of
from servoctl.laws.term import AttachedTerm, TermTimings
from servoctl.laws.user_code import Term
from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.constraint_rows import Row
from servoctl.mechanics.coordinate_bounds import limit_pair
from servoctl.mechanics.model import Model
from servoctl.mechanics.terms import Terms
from servoctl.tree.fields import NotNegative, Positive, Share, wrong_kinds, wrong_numbers
from servoctl.types import State

OnInfeasible = Literal["warn", "damp", "fault"]

NEARBY = 5  # number of states near the start at which a law is looked at: reactions, relative degrees


@dataclass(frozen=True)
class ConstraintFollowing(Law):
    """The law as the user configures it.

    Design: `law` of a config is `config.schema.LawConfig`, because what is written there differs from this object: a
    class by its path, a null space as text, `robot` in place of limits, weights within `allocation`, corrections and
    priorities at the tasks. Sections within (`Observer`, `Robust`, `Secondary`, corrections) are one class. Defaults
    and words stand here alone.

    Attributes:
        correction: Correction of every task without its own; None: none is added to b.
        corrections: Task name -> its own correction.
        priorities: Task name -> level; 1, the default, is the highest. A lower level never changes a higher one and is
            missed without an effect on the status.
        optional: Tasks of priority 1 that a run may miss and still end `done`.
        allocation: See `laws.allocation`.
        weights: Actuator -> weight, positive, default 1. For `weighted` only.
        feedback_allocation: Allocation of the correction's part; None: `allocation`.
        null_space: s: actuator -> equation (default zero), or a function of the state that returns shape (m,).
        secondary: Named aims, added to s.
        preload: Loop of a robot -> component (`x`, `y`, `z` [N], `rx`, `ry`, `rz` [N m]) -> its value: components of
            the wrench on the loop's second frame, at that frame's origin, in the axes of the first. The tasks of
            priority 1 come before them.
        limits: Actuator -> (lower, upper), or one number for both sides, in actuator units; default: no limit.
        rank_tolerance: A direction counts when its pivot exceeds this times |A L^-T|_F |L^-1 B|_F.
        passive_rank_tolerance: The same for mechanism rows, relative to |Ahat L^-T|_F.
        residual_tolerance: Infeasible: |residual|_inf above this times (1 + |bbar|_inf), over rows of priority 1.
        on_infeasible: `warn`: least squares with a warning; `damp`: u = -D B^T v; `fault`: least squares, and the run
            stops.
        input_damping: D for `damp` [actuator unit per generalized velocity along the actuator].
        observer: Disturbance observer of the task rows; None: none.
        robust: Robust or adaptive term against disturbances of the rows of priority 1; None: none.
        bounds: Bounds h >= 0, after the limits of inputs and before every task; None: none.
        terms: Name -> a term of one's own.
        timings: Of the loop, as its terms count on it; `simulate` gives it.
    """

    correction: Correction | None = None
    corrections: Mapping[str, Correction] | None = None
    priorities: Mapping[str, int] | None = None
    optional: Sequence[str] = ()
    allocation: str = "minimum_norm"
    weights: Mapping[str, float] | None = None
    feedback_allocation: str | None = None
    null_space: Equations | Callable[[State], Any] | None = None
    secondary: Secondary | None = None
    limits: Mapping[str, float | tuple[float, float]] | None = None
    rank_tolerance: Share = 1e-10
    passive_rank_tolerance: Share = 1e-6
    residual_tolerance: Positive = 1e-8
    on_infeasible: OnInfeasible = "warn"
    input_damping: NotNegative = 1.0
    preload: Preload | None = None
    observer: Observer | None = None
    robust: Robust | Adaptive | None = None
    bounds: Bounds | None = None
    terms: Mapping[str, Term] | None = None
    timings: TermTimings = field(default_factory=TermTimings)

    def __post_init__(self) -> None:
        if wrong := [f"law.{sentence}" for sentence in wrong_kinds(self)]:
            raise TaskError("\n".join(wrong))

    def prepare(self, model: Model) -> Model:
        """The model itself.

        Raises:
            TaskError: A component of the preload is not unique, or the tasks of priority 1 leave no freedom for it; or
                a robust term has rows of different units without scales; or an allocation does not reach the task.
        """
        if self.allocation == "unprojected" and model.task_rows and model.m:
            ranks = [unprojected_ranks(at, self.rank_tolerance) for at in self._terms_near(model)]
            if ranks and all(reached < rank for reached, rank in ranks):
                reached, rank = max(ranks)
                raise TaskError(
                    f"law.allocation: unprojected reaches {reached} of {rank} directions of the task: the inputs act "
                    "on it through the mechanism constraints (use another allocation)"
                )
        if self.robust is not None:
            rows = model.task_rows
            A = [model.rows(state)[1].A for state in model.near(model.around, NEARBY)]
            units = row_units(rows, A, list(model.plant.coordinates.values()))
            wrong_units = unscaled(rows, units, self._required(rows), self.robust)
            if wrong_units is not None:
                raise TaskError(wrong_units)
        if self.preload and not preloads.problems(self.preload, model.plant):
            wanted = preload_term(self.preload, model.passive_rows, model.plant)
            known, required = self._terms_near(model), self._required(model.task_rows)
            wrong = preloads.out_of_reach(model, known, wanted, required, self.rank_tolerance)
            if wrong:
                raise TaskError("\n".join(wrong))
        return model

    def _terms_near(self, model: Model) -> list[Terms]:
        """The terms of motion at the start and at states near it, without those that are not finite."""
        return model.sound_terms(model.near(model.around, NEARBY), self.passive_rank_tolerance)

    @property
    def _limits(self) -> dict[str, tuple[float, float]]:
        return {name: limit_pair(limit) for name, limit in (self.limits or {}).items()}

    @property
    def bound_constraints(self) -> Mapping[str, Constraint]:
        return {} if self.bounds is None else self.bounds.constraints

    def _bounds_term(self, bounds: Bounds, model: Model, limits: Mapping[str, tuple[float, float]]) -> BoundsTerm:
        problems = bounds.problems(model)
        if problems:
            raise TaskError("\n".join(problems))
        tolerances = self.rank_tolerance, self.passive_rank_tolerance
        return bounds.attach(model, self._terms_near(model), limits, *tolerances)

    def attach(self, model: Model) -> AttachedConstraintFollowing:
        rows, limits, required = model.task_rows, self._limits, self._required(model.task_rows)
        terms = self._attached_terms(model, limits, self._problems(model, limits))
        preload = next((term for term in terms if isinstance(term, PreloadTerm)), None)
        low_priority = tuple(i for i in range(len(rows)) if i not in required)
        optional = tuple(i for i, row in enumerate(rows) if i in low_priority or row.group in self.optional)
        bounded = any(isinstance(term, BoundsTerm) for term in terms)
        return AttachedConstraintFollowing(
            passive_rank_tolerance=self.passive_rank_tolerance,
            rows=tuple(rows),
            low_priority_rows=low_priority,
            optional_rows=optional,
            relaxed_rows=tuple(range(len(rows))) if bounded else low_priority,
            terms=terms,
            allocation=self._allocation(model, limits, 0 if preload is None else len(preload.components)),
            residual_tolerance=self.residual_tolerance,
            on_infeasible=self.on_infeasible,
            input_damping=self.input_damping,
        )

    def _attached_terms(
        self, model: Model, limits: Mapping[str, tuple[float, float]], problems: Sequence[str]
    ) -> tuple[AttachedTerm, ...]:
        """All terms.

        Args:
            problems: What is wrong with other fields.

        Raises:
            TaskError: There are problems, or a term does not fit; the message has all of them.
        """
        rows, actuators, observed = model.task_rows, list(model.plant.actuators), self.timings.observer
        own_terms = {name: own for name, own in (self.terms or {}).items() if isinstance(own, Term)}
        makers: list[Callable[[], Sequence[AttachedTerm | None]]] = [
            lambda: self.terms_of_rows(rows),
            lambda: [None if self.observer is None else self.observer.attach(rows, observed)],
            lambda: [own.attach(name, model, observed) for name, own in own_terms.items()],
            lambda: [self._bounds_term(self.bounds, model, limits)] if self.bounds and rows and actuators else [],
        ]
        terms, wrong = list[AttachedTerm | None](), list(problems)
        for made in makers:
            try:
                terms += made()
            except TaskError as error:
                wrong.append(str(error))
        if wrong:
            raise TaskError("\n".join(wrong))
        if self.preload:
            terms.append(preload_term(self.preload, model.passive_rows, model.plant))
        secondary, null_space = self.secondary or Secondary(), null_space_of(self.null_space, model)
        if self.secondary is not None or null_space is not None:
            terms.append(SecondaryTerm(null_space, secondary.aim(actuators, limits), secondary.damping))
        return tuple(term for term in terms if term is not None)

    def _allocation(self, model: Model, limits: Mapping[str, tuple[float, float]], prescribed: int) -> Allocation:
        """The allocation; the prescribed rows, as many as given, come after the tasks of priority 1."""
        rows, actuators = model.task_rows, list(model.plant.actuators)
        lower, upper = zip(*(limits.get(name, (-np.inf, np.inf)) for name in actuators), strict=True)
        levels, place = _levels(rows, self.priorities or {}), 1 if self._required(rows) else 0
        return Allocation(
            levels=_with_reactions(levels, len(rows), prescribed, place),
            kind=self.allocation,
            feedback_kind=self.feedback_allocation or self.allocation,
            weights=tuple(float((self.weights or {}).get(name, 1.0)) for name in actuators),
            limited=bool(limits),
            lower=lower,
            upper=upper,
            rank_tolerance=self.rank_tolerance,
        )

    def terms_of_rows(self, rows: Sequence[Row]) -> list[AttachedTerm | None]:
        """The terms that follow from corrections: their gains, funnels, and a robust or adaptive term.

        Raises:
            TaskError: A correction does not fit; the message names every such row.
        """
        correction = CorrectionTerm(tuple(rows), tuple(corrections_of(rows, self.correction, self.corrections or {})))
        funnel = funnels(rows, self.correction, self.corrections or {}, self.timings.correction)
        if self.robust is None:
            return [correction, funnel]
        if funnel is not None:
            raise TaskError(f"law.{self.robust.name}: cannot be used with a funnel (leave one out)")
        return [correction, funnel, self.robust.attach(correction, self._required(rows), self.timings.robust)]

    def unknown_actuators(self, actuators: Sequence[str]) -> list[str]:
        """One sentence for each name that is no actuator."""
        named = {
            "limits": self.limits,
            "allocation.weighted": self.weights,
            "secondary.preload": None if self.secondary is None else self.secondary.preload,
            "null_space": self.null_space,
        }
        return [
            f"law.{key}.{name}: {no_such('actuator', name, actuators)}"
            for key, mapping in named.items()
            for name in (mapping if isinstance(mapping, Mapping) else ())
            if name not in actuators
        ]

    def _required(self, rows: Sequence[Row]) -> list[int]:
        """Indices of the rows of priority 1."""
        return [i for i, row in enumerate(rows) if (self.priorities or {}).get(row.group, 1) == 1]

    def _problems(self, model: Model, limits: Mapping[str, tuple[float, float]]) -> list[str]:
        """One sentence for each field that does not fit this plant; corrections are checked elsewhere."""
        plant, actuators = model.plant, list(model.plant.actuators)
        problems = [] if actuators else [f"law: {type(plant).__name__} has no actuators (use `law: none`)"]
        if not model.task_rows:
            problems.append("law: there is no task to follow (give at least one)")
        problems += [*self._wrong_words(), *(f"law.{sentence}" for sentence in wrong_numbers(self))]
        problems += [*self._wrong_tasks(model), *self.unknown_actuators(actuators), *self._wrong_entries(limits)]
        problems += preloads.problems(self.preload, plant) if self.preload else []
        problems += self.secondary.problems(limits) if self.secondary is not None else []
        for name, text in self.null_space.items() if isinstance(self.null_space, Mapping) else ():
            equation = parse(text) if isinstance(text, str) else text
            sentences = check_names(equation, plant.coordinates, parameter_fields(plant))
            problems += [f"law.null_space.{name}: {sentence}" for sentence in sentences]
        if self.allocation == "unprojected" and len(_levels(model.task_rows, self.priorities or {})) > 1:
            problems.append("law.allocation: unprojected knows no priorities (use another allocation)")
        if self.preload and "unprojected" in (self.allocation, self.feedback_allocation):
            problems.append("law.allocation: unprojected knows no preload (use another allocation)")
        return problems

    def _wrong_words(self) -> Iterator[str]:
        for key, word, words in (
            ("allocation", self.allocation, get_args(Kind)),
            ("feedback_allocation", self.feedback_allocation, get_args(Kind)),
            ("on_infeasible", self.on_infeasible, get_args(OnInfeasible)),
        ):
            if word is not None and word not in words:
                yield f"law.{key}: expected one of {', '.join(words)}, got {word!r}"
        if self.weights and "weighted" not in (self.allocation, self.feedback_allocation):
            yield f"law.weights: allocation {self.allocation} has none (use allocation weighted, or leave them out)"

    def _wrong_tasks(self, model: Model) -> Iterator[str]:
        for key, names in (("priorities", self.priorities or {}), ("optional", self.optional)):
            yield from (f"law.{key}: {no_such('task', name, model.task)}" for name in names if name not in model.task)
        for name, priority in (self.priorities or {}).items():
            if not (isinstance(priority, int | np.integer) and priority >= 1):
                yield f"law.priorities.{name}: expected an integer >= 1, got {priority!r}"

    def _wrong_entries(self, limits: Mapping[str, tuple[float, float]]) -> Iterator[str]:
        for name, own in (self.terms or {}).items():
            if not (isinstance(own, Term) and name.isidentifier()):
                yield f"law.terms.{name}: expected a name and an instance of a servoctl.Term, got {own!r}"
        for name, weight in (self.weights or {}).items():
            if not 0.0 < weight < np.inf:
                yield f"law.allocation.weighted.{name}: expected a positive number, got {weight:g}"
        for name, (lower, upper) in limits.items():
            if not lower < upper:
                limit = (self.limits or {})[name]
                yield f"law.limits.{name}: expected a positive number or (lower, upper), got {limit}"


def _levels(rows: Sequence[Row], priorities: Mapping[str, int]) -> tuple[tuple[int, ...], ...]:
    """Indices of the rows of each priority, the highest first."""
    priority = [priorities.get(row.group, 1) for row in rows]
    return tuple(tuple(i for i, level in enumerate(priority) if level == each) for each in sorted(set(priority)))


def _with_reactions(
    levels: tuple[tuple[int, ...], ...], rows: int, count: int, place: int
) -> tuple[tuple[int, ...], ...]:
    """The levels with one for the reactions, whose rows follow those of the task, at a place among them."""
    level = tuple(range(rows, rows + count))
    return (*levels[:place], level, *levels[place:]) if count else levels
