"""Constraint following: the control is the constraint force.

    T = A Phi B,  bbar = b - A a_c + correction,  u = T^+ bbar + (I - T^+ T) s

The mechanism constraints react to u, so Phi projects onto the motions that they allow. The published law computes their
reaction without u, and then violates the mechanism constraints or misses the task. The task can be met if and only if
`(I - T T^+) bbar = 0`; every command reports this residual.

Design: the status depends on rows of priority 1 only. Rows of lower priority may be missed: a run reports by how much,
but it is never infeasible, damped or stopped because of them.

Source: Chen 2009; Liu et al. 2015, (32)-(35), (71), with the reaction of the mechanism constraints to u included.

s = centre + preload - damping B^T v,   u = T^+ bbar + (I - T^+ T) s
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from servoctl.engine.parameters import parameter_fields
from servoctl.errors import TaskError
from servoctl.expression import check_names, parse
from servoctl.expression.suggest import remedy
from servoctl.laws import preload as preloads
from servoctl.laws.allocation import Allocation
from servoctl.laws.attached_following import AttachedConstraintFollowing, Equations
from servoctl.laws.bounds import Bounds
from servoctl.laws.corrections import Correction, resolve_all
from servoctl.laws.funnel import funnels
from servoctl.laws.law import Law, UserFunction, user_function
from servoctl.laws.observer import Observer
from servoctl.laws.preload import Preload
from servoctl.laws.robust import RobustTerm
from servoctl.laws.robust_design import Adaptive, Robust, decay_rates, row_units, unscaled
from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.constraint_rows import Row
from servoctl.mechanics.coordinate_bounds import limit_pair
from servoctl.mechanics.model import Model
from servoctl.mechanics.terms import Terms, assemble
from servoctl.types import State


@dataclass(frozen=True)
class Secondary:
    """Objectives of the inputs where the task leaves them free.

    Attributes:
        centre: Whether each input seeks the middle of its limits; an input without two finite limits seeks zero.
        preload: Actuator -> the input that it seeks [actuator unit], such as an internal force against backlash.
        damping: D of `-D B^T v` [actuator unit per its speed], which damps the motion that the task leaves free.
    """

    centre: bool = False
    preload: Mapping[str, float] | None = None
    damping: float = 0.0

    def problems(self, actuators: list[str], limits: Mapping[str, tuple[float, float]]) -> list[str]:
        """One sentence for each field that does not fit these actuators and limits."""
        sentences = [
            f"law.secondary.preload.{name}: there is no actuator '{name}' ({remedy(name, actuators)})"
            for name in self.preload or {}
            if name not in actuators
        ]
        if self.centre and not any(np.isfinite(limit).all() for limit in limits.values()):
            sentences.append("law.secondary.centre: there are no limits to be in the middle of (give law.limits)")
        if not (self.damping >= 0.0 and np.isfinite(self.damping)):
            sentences.append(f"law.secondary.damping: expected a number >= 0, got {self.damping}")
        return sentences

    def aim(self, actuators: list[str], limits: Mapping[str, tuple[float, float]]) -> tuple[float, ...]:
        """The constant part of s, per actuator."""
        aims = []
        for name in actuators:
            lower, upper = limits.get(name, (-np.inf, np.inf))
            middle = (lower + upper) / 2 if self.centre and np.isfinite([lower, upper]).all() else 0.0
            aims.append(float(middle + (self.preload or {}).get(name, 0.0)))
        return tuple(aims)


NEARBY = 5  # number of states near the start at which the reach of the actuators on reactions is looked at


@dataclass(frozen=True)
class ConstraintFollowing(Law):
    """The law as the user configures it.

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
    rank_tolerance: float = 1e-10
    passive_rank_tolerance: float = 1e-6
    residual_tolerance: float = 1e-8
    on_infeasible: Literal["warn", "damp", "fault"] = "warn"
    input_damping: float = 1.0
    preload: Preload | None = None
    observer: Observer | None = None
    robust: Robust | Adaptive | None = None
    bounds: Bounds | None = None

    def prepare(self, model: Model, around: State) -> Model:
        """The model itself.

        Raises:
            TaskError: A component of the preload is not unique, or the tasks of priority 1 leave no freedom for it; or
                a robust term has rows of different units without scales.
        """
        if self.robust is not None:
            rows, states = model.task_rows, [around, *model.samples(around, NEARBY)]
            A, names = [model.rows(state)[1].A for state in states], list(model.plant.coordinates.values())
            units = row_units(rows, A, names)
            wrong_units = unscaled(rows, units, self._required(rows), self.robust)
            if wrong_units is not None:
                raise TaskError(wrong_units)
        if self.preload and not preloads.problems(self.preload, model.plant):
            wanted = preloads.components(self.preload, model.passive_rows, model.plant)
            known, required = self._terms_near(model, around), self._required(model.task_rows)
            wrong = preloads.out_of_reach(model, known, wanted, required, self.rank_tolerance)
            if wrong:
                raise TaskError("\n".join(wrong))
        return model

    def _terms_near(self, model: Model, around: State) -> list[Terms]:
        """The terms of motion at the start and at states near it, without those that are not finite."""
        states = [around, *model.samples(around, NEARBY)]
        terms = [assemble(state, model.matrices(state), self.passive_rank_tolerance) for state in states]
        return [at for at in terms if at.finite and at.positive]

    @property
    def _limits(self) -> dict[str, tuple[float, float]]:
        return {name: limit_pair(limit) for name, limit in (self.limits or {}).items()}

    @property
    def bound_constraints(self) -> Mapping[str, Constraint]:
        return {} if self.bounds is None else self.bounds.constraints

    def fitted(self, model: Model, around: State) -> "ConstraintFollowing":
        if self.bounds is None or self.bounds.problems(model):
            return self
        tolerances, terms = (self.rank_tolerance, self.passive_rank_tolerance), self._terms_near(model, around)
        return replace(self, bounds=self.bounds.fitted(model, terms, self._limits, *tolerances))

    def attach(self, model: Model) -> "AttachedConstraintFollowing":
        actuators = list(model.plant.actuators)
        levels, limits = _levels(model.task_rows, self.priorities or {}), self._limits
        problems = self._problems(model, limits)
        if len(levels) > 1 and self.allocation == "unprojected":
            problems.append("law.allocation: unprojected knows no priorities (use another allocation)")
        if self.preload and "unprojected" in (self.allocation, self.feedback_allocation):
            problems.append("law.allocation: unprojected knows no preload (use another allocation)")
        try:
            gains: dict[str, Any] = self.gains_of(model.task_rows)
            term, numbers = self._robust_term(model.task_rows, gains)
            funnel = funnels(model.task_rows, self.correction, self.corrections or {})[0]
        except TaskError as error:
            problems.append(str(error))
        try:
            observer = None if self.observer is None else self.observer.attach(model.task_rows)
        except TaskError as error:
            problems.append(str(error))
        problems += [] if self.bounds is None else self.bounds.problems(model)
        if problems:
            raise TaskError("\n".join(problems))
        required = self._required(model.task_rows)
        reactions = preloads.components(self.preload, model.passive_rows, model.plant) if self.preload else ()
        lower, upper = zip(*(limits.get(name, (-np.inf, np.inf)) for name in actuators), strict=True)
        return AttachedConstraintFollowing(
            rows=tuple(model.task_rows),
            low_priority=tuple(i for i in range(len(model.task_rows)) if i not in required),
            optional=tuple(i for i, row in enumerate(model.task_rows) if _is_of(row, self.optional)),
            levels=_with_reactions(levels, len(model.task_rows), len(reactions), 1 if required else 0),
            reactions=reactions,
            preload=tuple(float(x) for values in (self.preload or {}).values() for x in values.values()),
            **gains,
            funnel=funnel,
            allocation=self.allocation,
            weights=tuple(float((self.weights or {}).get(name, 1.0)) for name in actuators),
            feedback_allocation=self.feedback_allocation or self.allocation,
            null_space=_null_space(self.null_space, model),
            has_secondary=self.secondary is not None,
            aim=(self.secondary or Secondary()).aim(actuators, limits),
            free_damping=0.0 if self.secondary is None else self.secondary.damping,
            limited=bool(limits),
            lower=lower,
            upper=upper,
            rank_tolerance=self.rank_tolerance,
            passive_rank_tolerance=self.passive_rank_tolerance,
            residual_tolerance=self.residual_tolerance,
            on_infeasible=self.on_infeasible,
            input_damping=self.input_damping,
            observer=observer,
            observer_rate=0.0 if self.observer is None else self.observer.bound_rate,
            robust=term,
            scale=() if self.robust is None else self.robust.scales(model.task_rows),
            robust_numbers=numbers,
            **({} if self.bounds is None else self.bounds.attach(model)),
        )

    def _robust_term(
        self, rows: Sequence[Row], gains: Mapping[str, tuple[float, ...]]
    ) -> tuple[RobustTerm | None, tuple[float, ...]]:
        if self.robust is None:
            return None, ()
        if gains["funnel_numbers"]:
            raise TaskError(f"law.{self.robust.name}: cannot be used with a funnel (leave one out)")
        triples = zip(rows, gains["damping"], gains["stiffness"], gains["sliding"], strict=True)
        kappa = [damping - sliding if row.has_rate else stiffness for row, damping, stiffness, sliding in triples]
        return self.robust.attach(rows, self._required(rows), kappa)

    def _required(self, rows: Sequence[Row]) -> list[int]:
        """Indices of the rows of priority 1."""
        return [i for i, row in enumerate(rows) if priority_of(row, self.priorities or {}) == 1]

    def _sliding(self, rows: Sequence[Row], gains: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
        """lambda of each row, 0 for a row of lower priority; empty without a robust or adaptive term."""
        if self.robust is None:
            return ()
        found, problems = [0.0] * len(rows), []
        for i in self._required(rows):
            try:
                found[i] = decay_rates(rows[i], gains[i][0], gains[i][1], f"law.{self.robust.name}")[0]
            except TaskError as error:
                problems.append(str(error))
        if problems:
            raise TaskError("\n".join(problems))
        return tuple(found)

    def gains_of(self, rows: Sequence[Row]) -> dict[str, tuple[float, ...]]:
        """The fields `damping`, `stiffness`, `higher`, `sliding` and `funnel_numbers` of the attached law.

        Raises:
            TaskError: A correction does not fit; the message names every such row.
        """
        gains = resolve_all(rows, self.correction, self.corrections)
        width = max([0, *(row.degree - 2 for row in rows)])  # every row gets as many, so that all fit one flat tuple
        return {
            "sliding": self._sliding(rows, gains),
            "funnel_numbers": funnels(rows, self.correction, self.corrections or {})[1],
            "damping": tuple(gain[0] for gain in gains),
            "stiffness": tuple(gain[1] for gain in gains),
            "higher": tuple(c for gain in gains for c in (gain[2:] + (0.0,) * width)[:width]),
        }

    def _problems(self, model: Model, limits: Mapping[str, tuple[float, float]]) -> list[str]:
        """One sentence for each field that does not fit this plant; corrections are checked elsewhere."""
        plant, actuators = model.plant, list(model.plant.actuators)
        problems = [] if actuators else [f"law: {type(plant).__name__} has no actuators (use `law: none`)"]
        if not model.task_rows:
            problems.append("law: there is no task to follow (give at least one)")
        feedback = self.feedback_allocation or self.allocation
        for field, word, words in (
            ("allocation", self.allocation, get_args(Allocation)),
            ("feedback_allocation", feedback, get_args(Allocation)),
            ("on_infeasible", self.on_infeasible, ("warn", "damp", "fault")),
        ):
            if word not in words:
                problems.append(f"law.{field}: expected one of {', '.join(words)}, got {word!r}")
        named = {"allocation.weighted": self.weights, "limits": self.limits, "null_space": self.null_space}
        for field, mapping in named.items():
            for wrong in [name for name in mapping if name not in actuators] if isinstance(mapping, Mapping) else []:
                problems.append(f"law.{field}.{wrong}: there is no actuator '{wrong}' ({remedy(wrong, actuators)})")
        for name, weight in (self.weights or {}).items():
            if not weight > 0.0:
                problems.append(f"law.allocation.weighted.{name}: expected a positive number, got {weight:g}")
        for name, (lower, upper) in limits.items():
            if not lower < upper:
                limit = (self.limits or {})[name]
                problems.append(f"law.limits.{name}: expected a positive number or (lower, upper), got {limit}")
        if self.preload:
            problems += preloads.problems(self.preload, plant)
        if self.secondary is not None:
            problems += self.secondary.problems(actuators, limits)
        for name, text in self.null_space.items() if isinstance(self.null_space, Mapping) else ():
            equation = parse(text) if isinstance(text, str) else text
            sentences = check_names(equation, plant.coordinates, parameter_fields(plant))
            problems += [f"law.null_space.{name}: {sentence}" for sentence in sentences]
        return problems


def _null_space(s: Equations | Callable[[State], Any] | None, model: Model) -> Equations | UserFunction | None:
    """s for the loop: a function that cannot be traced becomes an operation that calls it."""
    if s is None or isinstance(s, Mapping):
        return s
    shapes = [(1,), (model.n,), (model.n,)]

    def made() -> UserFunction:
        return user_function(lambda t, q, v: s(State(t[0], q, v)), "law: null_space", shapes, model.m)

    kept: UserFunction = model.once("null_space", s, made)
    return kept


def priority_of(row: Row, priorities: Mapping[str, int]) -> int:
    """The priority of a row's task; default 1."""
    return priorities.get(row.group, priorities.get(row.name.split(".")[0], 1))


def _is_of(row: Row, tasks: Sequence[str]) -> bool:
    """Whether a row belongs to one of these tasks; a differentiated row is a group of its own."""
    return row.group in tasks or row.name.split(".")[0] in tasks


def _levels(rows: Sequence[Row], priorities: Mapping[str, int]) -> tuple[tuple[int, ...], ...]:
    """Indices of the rows of each priority, the highest first."""
    priority = [priority_of(row, priorities) for row in rows]
    return tuple(tuple(i for i, level in enumerate(priority) if level == each) for each in sorted(set(priority)))


def _with_reactions(
    levels: tuple[tuple[int, ...], ...], rows: int, count: int, place: int
) -> tuple[tuple[int, ...], ...]:
    """The levels with one for the reactions, whose rows follow those of the task, at a place among them."""
    level = tuple(range(rows, rows + count))
    return (*levels[:place], level, *levels[place:]) if count else levels
