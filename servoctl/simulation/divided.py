"""A closed loop whose coordinates fall into parts that do not act on each other: the law of each part on its own.

Design: factors, pseudoinverses and least squares of block diagonal matrices separate, so the inputs are those of the
undivided law. Like parts are one compiled function. What a command says about the whole is decided from all parts
together: rank, residual, smallest pivot and status. A direction counts towards the rank on the scale of its own part,
not of the whole. A law or a simulation with anything that couples the parts stays whole.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from servoctl.engine.finite import is_finite
from servoctl.engine.mapped import for_each, for_many
from servoctl.engine.parameters import parameter_values, with_parameters
from servoctl.engine.structured import Sparse
from servoctl.engine.symbol import where
from servoctl.laws.bound_following import BoundConstraintFollowing
from servoctl.laws.separation import law_of_part, separable
from servoctl.mechanics.division import Part
from servoctl.mechanics.rows import Rows
from servoctl.mechanics.terms import Matrices, Terms, assemble
from servoctl.simulation.part_totals import after_all, before_all
from servoctl.simulation.system import System
from servoctl.types import Array, Command, State, Status

_OF_LAW = ["u", "missed", "rhs", "known", "rank", "pivot", "rows", "inputs"]
_OF_MOTION = ["acceleration", "force", "passive"]


def division(system: System) -> list[Part]:
    """The parts whose laws can be separated; empty if anything couples them, or if there is one part alone."""
    model, passive = system.model, system.passive
    coupled = model.singular or passive.projection or passive.clearance or system.friction is not None
    coupled = coupled or system.estimator is not None
    if len(model.parts) < 2 or coupled or not isinstance(system.law, BoundConstraintFollowing):
        return []
    return model.parts if separable(system.law) else []


@dataclass(frozen=True)
class DividedTerms:
    """A state and its matrices, whose algebra is done part by part.

    Attributes:
        state: The state.
        matrices: Plant and constraints; M, B and A may be `Sparse`.
    """

    state: State
    matrices: Matrices


@dataclass(frozen=True)
class _Outcome:
    """Results of the parts, put together.

    Attributes:
        values: Name -> values in the order of the whole.
        total: What follows from all parts; `positive` and `finite`: whether M is positive definite, and all terms are
            finite.
    """

    values: dict[str, Array]
    total: dict[str, Any]


@dataclass(frozen=True)
class DividedSystem(System):
    """A system that is evaluated part by part, on symbols.

    Attributes:
        parts: From `division`.
        with_motion: Whether `command` also computes the motion under its inputs, so that `motion` need not.
    """

    parts: tuple[Part, ...] = ()
    with_motion: bool = False

    @classmethod
    def of(cls, system: System, parts: Sequence[Part]) -> "DividedSystem":
        """A system with these parts."""
        fields = {name: getattr(system, name) for name in System.__dataclass_fields__}
        return cls(**fields, parts=tuple(parts))

    def at_once(self) -> "DividedSystem":
        """The system for an evaluation of command and motion together."""
        other = replace(self, with_motion=True)
        object.__setattr__(other, "_moved", {})
        return other

    def terms(self, state: State, matrices: Matrices) -> Any:
        return DividedTerms(state, matrices)

    def command(self, terms: Any, memory: Array) -> Command:
        outcome = self._evaluated(terms, None, _OF_LAW + _OF_MOTION * self.with_motion)
        value, total, law = outcome.values, outcome.total, self.law
        assert isinstance(law, BoundConstraintFollowing)
        rank, r = total["rank"], len(law.rows)
        infeasible = total["missed"] > law.residual_tolerance * (1.0 + total["rhs"])
        status = where(rank < r, Status.RANK_DEFICIENT.code, Status.OK.code)
        status = where(infeasible, Status.INFEASIBLE.code, status)
        status = where(rank < 1, Status.UNREACHABLE.code, status)
        status = where(total["known"], status, Status.NON_FINITE.code)
        status = where(total["positive"], status, Status.NOT_POSITIVE.code)
        status = where(total["finite"], status, Status.NON_FINITE.code)
        nothing = status >= Status.NOT_POSITIVE.code
        size = total["rows"] * total["inputs"]  # of the whole, as for a law that is not divided
        pivots = total["pivot"] / np.sqrt(where(size > 0.0, size, 1.0))
        u, missed = _unless(nothing, value["u"]), _unless(nothing, value["missed"])
        if self.with_motion:
            moved = [_unless(nothing, value[name]) for name in ("acceleration", "force")]
            self._moved.update(u=u, moved=(*moved, total["passive"]))  # type: ignore[attr-defined]
        none = where(nothing, 1.0, where(rank < 1, 1.0, 0.0))
        return Command(u, where(nothing, 0, rank), missed, where(none, 0.0, pivots), status)

    def motion(self, terms: Any, u: Array) -> dict[str, Array]:
        task, passive = terms.matrices.task, terms.matrices.passive
        kept = getattr(self, "_moved", {})
        if kept and all(one is other for one, other in zip(u, kept["u"], strict=True)):
            acceleration, force, rank = kept["moved"]
        else:
            outcome = self._evaluated(terms, u, _OF_MOTION)
            unsound = where(where(outcome.total["finite"], outcome.total["positive"], 0.0), 0.0, 1.0)
            acceleration, force = (_unless(unsound, outcome.values[name]) for name in ("acceleration", "force"))
            rank = outcome.total["passive"]
        return {
            "acceleration": acceleration,
            "violation": task.violation,
            "violation_rate": task.violation_rate,
            "passive": passive.violation,
            "passive_rank": np.array([rank][: len(self.model.passive_rows)]),
            "passive_force": force,
            "servo_force": Sparse.of(terms.matrices.B) @ u,
        }

    def _evaluated(self, terms: DividedTerms, u: Array | None, names: Sequence[str]) -> _Outcome:
        """Evaluates all parts, like ones by one function, and puts their results in order."""
        whole, n = terms.matrices, self.model.n
        r = len(self.model.task_rows)
        sizes = {"u": self.model.m, "missed": r, "rhs": r, "acceleration": n, "force": n}
        values = {name: np.zeros(size, dtype=object) for name, size in sizes.items() if name in names}
        slices, correction = _Slices(whole), self.passive.correction(whole, self.model)
        total = before_all(names, is_finite(terms.state.t, terms.state.q, terms.state.v))
        for group in self._groups():
            work = _PartWork(self, group[0], whole, u is None, names)
            rows = for_each(work, [work.arguments(slices, part, terms.state.v, correction, u) for part in group])
            for part, row in zip(group, rows, strict=True):
                places = work.places(part)
                for name in values:
                    values[name][places[name]] = row[work.slices[name]]
            total = after_all(total, rows, work.slices)
        return _Outcome(values, total)

    def _groups(self) -> list[list[Part]]:
        """The parts that one function serves."""
        law = self.law
        assert isinstance(law, BoundConstraintFollowing)
        groups: dict[Any, list[Part]] = {}
        for part in self.parts:
            kinds = [(law.rows[j].has_violation, law.rows[j].has_rate, law.rows[j].degree) for j in part.task]
            groups.setdefault((part.size, tuple(kinds)), []).append(part)
        return list(groups.values())


def _unless(nothing: Any, values: Array) -> Array:
    """The values, NaN if there is nothing."""
    every = np.full((len(values), 1), nothing, dtype=object)
    return for_many(lambda one, without: where(without, np.nan, one), values[:, None], every)[:, 0]


def _flag(value: Any) -> Array:
    return np.array([float(value) if isinstance(value, bool) else value], dtype=object)


class _Slices:
    """Dense pieces of matrices that may be `Sparse`."""

    def __init__(self, whole: Matrices) -> None:
        self.whole = whole
        self._matrices = {
            "M": Sparse.of(whole.M), "B": Sparse.of(whole.B),
            "passive": Sparse.of(whole.passive.A), "task": Sparse.of(whole.task.A),
        }  # fmt: skip
        self._rows: dict[str, dict[int, list[int]]] = {}
        for name, matrix in self._matrices.items():
            at = self._rows[name] = {}
            for k, row in enumerate(matrix.rows.tolist()):
                at.setdefault(row, []).append(k)

    def piece(self, name: str, rows: Array, columns: Array) -> Array:
        """The entries in these rows and columns, as a dense array."""
        matrix, place = self._matrices[name], {int(j): k for k, j in enumerate(columns)}
        dense: Array = np.zeros((len(rows), len(columns)), dtype=object)
        for i, row in enumerate(rows.tolist()):
            for k in self._rows[name].get(row, []):
                dense[i, place[int(matrix.columns[k])]] = matrix.values[k]
        return dense


class _PartWork:
    """The algebra of one part as a function of one vector of arguments.

    Attributes:
        slices: Name -> place of results.
    """

    def __init__(self, system: DividedSystem, part: Part, whole: Matrices, by_law: bool, names: Sequence[str]) -> None:
        law = system.law
        assert isinstance(law, BoundConstraintFollowing)
        self._system, self._size, self._names = system, part.size, names
        self._law, self._by_law, self._symmetric = law_of_part(law, part.task, part.inputs), by_law, whole.symmetric
        self._plant = whole.plant
        n, m, p, r = part.size
        count, sizes = len(parameter_values(self._law)), {"u": m, "missed": r, "rhs": r, "acceleration": n, "force": n}
        ends = np.cumsum([0, *(sizes.get(name, 1) for name in ("positive", "finite", *names))]).tolist()
        self.slices = dict(zip(("positive", "finite", *names), map(slice, ends, ends[1:]), strict=True))
        self._shapes: list[tuple[int, ...]] = [
            (n, n), (n,), (n, m), (n,), (p, n), (p,), (p,), (r, n), (r,), (r,), (r,), (n,),
            (count,) if by_law else (m,), (1,),
        ]  # fmt: skip

    def arguments(self, slices: _Slices, part: Part, v: Array, correction: Array, u: Array | None) -> Array:
        """The arguments of a part, in the order of the shapes."""
        w, q, law = slices.whole, part.coordinates, self._system.law
        assert isinstance(law, BoundConstraintFollowing)
        if u is None:
            free = v[q] if law.has_aim else np.zeros(len(q))
            last = parameter_values(law_of_part(law, part.task, part.inputs))
        else:
            free, last = np.zeros(len(q)), u[part.inputs]
        arrays = [
            slices.piece("M", q, q), w.Q[q], slices.piece("B", q, part.inputs), w.c[q],
            slices.piece("passive", part.passive, q), w.passive.b[part.passive], correction[part.passive],
            slices.piece("task", part.task, q), w.task.b[part.task], w.task.violation[part.task],
            w.task.violation_rate[part.task], free, last, np.array([self._system.passive.rank_tolerance]),
        ]  # fmt: skip
        return np.concatenate([np.ravel(np.asarray(array, dtype=object)) for array in arrays])

    @staticmethod
    def places(part: Part) -> dict[str, Array]:
        """Name -> where results of a part belong in the whole."""
        of_task, of_motion = dict.fromkeys(("missed", "rhs"), part.task), part.coordinates
        return {"u": part.inputs, **of_task, "acceleration": of_motion, "force": of_motion}

    def __call__(self, arguments: Array) -> Array:
        pieces, at = [], 0
        for shape in self._shapes:
            size = int(np.prod(shape))
            pieces.append(arguments[at : at + size].reshape(shape))
            at += size
        M, Q, B, c, passive_A, passive_b, correction, A, b, violation, rate, v, last, tolerance = pieces
        empty = np.full(len(passive_b), np.nan)
        task = Rows(A, b, violation, rate)
        matrices = Matrices(self._plant, M, Q, B, c, Rows(passive_A, passive_b, empty, empty), task,
                            symmetric=self._symmetric)  # fmt: skip
        terms = assemble(State(0.0, np.zeros(len(Q)), v), matrices, tolerance[0])
        flags = _flag(terms.positive), _flag(terms.finite)
        if terms.finite is False or terms.positive is False:  # on numbers: there is no algebra to do
            names = [np.full(place.stop - place.start, np.nan) for place in self.slices.values()][len(flags) :]
            return np.concatenate([*flags, *names]).astype(float)
        results = self._by_the_law(terms, last) if self._by_law else {"u": last}
        if "acceleration" in self._names:
            acceleration = terms.acceleration(results["u"], correction)
            results["acceleration"] = acceleration
            results["force"] = terms.passive_force(acceleration, results["u"])
            results["passive"] = np.array([terms.passive.rank])
        parts = [np.asarray(x, dtype=object) for x in (*flags, *(results[name] for name in self._names))]
        return np.concatenate(parts)

    def _by_the_law(self, terms: Terms, parameters: Array) -> dict[str, Array]:
        law = with_parameters(self._law, parameters)
        command = law.command(terms, np.zeros(0))
        rhs = terms.rhs + law.feedback(terms)
        return {
            "u": command.u, "missed": command.residual, "rhs": rhs,
            "known": _flag(is_finite(rhs, command.u)), "rank": np.array([command.rank]),
            "pivot": np.array([command.pivot_min * terms.scale]), "rows": np.array([np.sum(terms.rows * terms.rows)]),
            "inputs": np.array([np.sum(terms.inputs * terms.inputs)]),
        }  # fmt: skip
