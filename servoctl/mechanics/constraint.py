"""Constraints `A(q,v,t) q'' = b(q,v,t)`, derived from position or velocity equations by automatic differentiation.

    Holonomic      phi(q, t) = 0      A = phi_q   b = -(d/dq(phi_q v + phi_t) v + d/dt(phi_q v + phi_t))
    Nonholonomic   psi(q, v, t) = 0   A = psi_v   b = -(psi_q v + psi_t)
    SecondOrder    A, b as given

Design: a constraint is a function, an equation as text, or a frozen dataclass that overrides the method. It has no
name: a task is a mapping from names to constraints. Derivatives are taken on symbols only; `mechanics.model` compiles
them for numbers.

Source: Liu et al. 2015, (3)-(5), (18)-(23), where (5) is `Ahat q'' = bhat`; Zhao et al. 2018, (18), with b in R^m.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from servoctl.engine import symbol
from servoctl.engine.kernel import directional, jacobian
from servoctl.engine.parameters import makes_values, parameter_fields
from servoctl.engine.structured import places_of
from servoctl.engine.trace import trace
from servoctl.errors import TaskError
from servoctl.expression import Expression, TimeFunction, check_names, parse, unit_of
from servoctl.mechanics.plant import Plant
from servoctl.types import Array, State


@dataclass(frozen=True)
class Rows:
    """Constraints at one state: `A q'' = b`."""

    A: Array  # shape (r, n)
    b: Array  # shape (r,)
    violation: Array  # phi or psi, shape (r,); NaN for a row without one
    violation_rate: Array  # phi_q v + phi_t, shape (r,); NaN for a row without one
    # second and higher time derivatives of the violation in which no input appears, shape (r, h), 0 for rows with
    # fewer; None: there are none. Only differentiated rows (`laws.input_output`) have them
    higher: Array | None = None

    @classmethod
    def stack(cls, parts: "list[Rows]", n: int) -> "Rows":
        """The rows of several constraints on n coordinates, in order."""
        empty = cls(np.zeros((0, n)), np.zeros(0), np.zeros(0), np.zeros(0))
        every = [empty, *parts]
        width = max(0 if rows.higher is None else rows.higher.shape[1] for rows in every)
        higher = [np.zeros((len(rows.b), width), dtype=object if width else float) for rows in every]
        for padded, rows in zip(higher, every, strict=True):
            if rows.higher is not None:
                padded[:, : rows.higher.shape[1]] = rows.higher
        return cls(
            np.concatenate([rows.A for rows in every]),
            np.concatenate([rows.b for rows in every]),
            np.concatenate([rows.violation for rows in every]),
            np.concatenate([rows.violation_rate for rows in every]),
            np.concatenate(higher),
        )


class InputRows(NamedTuple):
    """Rows on the inputs at one state: `T u = rhs`, or `T u >= rhs`."""

    T: Array  # shape (k, m)
    rhs: Array  # shape (k,)
    size: Any  # pivots of T count relative to this times |L^-1 B|_F


def equation_value(equation: "str | Expression", plant: Plant, state: State) -> Any:
    """The value of an equation at a state, on numbers or symbols; it names coordinates and parameters of the plant."""
    expression = parse(equation) if isinstance(equation, str) else equation
    t, q, v = state
    values = {name: getattr(plant, name) for name in expression.names if hasattr(plant, name)}
    values |= dict(zip(plant.coordinates, q, strict=True))
    values |= {f"der({name})": rate for name, rate in zip(plant.coordinates, v, strict=True)}
    return expression.evaluate({**values, "t": t})


def _numbers(array: Array, where: str) -> Array:
    """The array; raises TaskError if it contains anything but numbers and symbols."""
    for item in array.flat:
        if not isinstance(item, (symbol.Symbol, int, float, np.number, np.bool_)):
            raise TaskError(f"{where}: expected numbers, got {item!r} (does the function return its value?)")
    return array


def _values(value: Any) -> Array:
    return np.atleast_1d(np.asarray(value, dtype=float))


class Constraint(ABC):
    """Equations that the accelerations of a plant must satisfy."""

    kind: ClassVar[str]
    singularity: ClassVar[str] = ""
    """What is wrong with a state at which the rows are not finite; empty if that is not known."""
    labels_of_rows: ClassVar[tuple[str, ...] | None] = None  # what `row_labels` gives, where it is the same for all
    units_of_rows: ClassVar[tuple[str, ...]] = ()  # the same of `row_units`; empty: that of `with_unit`

    def problems(self, plant: Plant) -> list[str]:
        """Why the constraint does not fit the plant, one sentence each, before anything is derived from it."""
        return []

    def warnings(self, violation: Array) -> list[str]:
        """Warnings about a start with this error of the rows, one sentence each."""
        return []

    def row_labels(self) -> tuple[str, ...] | None:
        """What follows the name of the constraint in the name of each row, such as `x`; None: the row's number."""
        return self.labels_of_rows

    def row_units(self, plant: Plant) -> tuple[str, ...]:
        """Unit of the error of each row, or one for all; an empty one is not known."""
        return self.units_of_rows or (self.unit,)

    def row_degrees(self) -> tuple[int, ...] | None:
        """Relative degree of each row of a constraint that a law has differentiated; None: it follows from the row."""
        return None

    @property
    def unit(self) -> str:
        """The unit that `with_unit` has given it; empty without one."""
        unit: str = getattr(self, "_unit", "")
        return unit

    def with_unit(self, unit: str) -> "Constraint":
        """This constraint with a unit for all of its rows, where they do not tell it themselves."""
        return self._with("_unit", unit)

    def _with(self, name: str, value: Any) -> "Constraint":
        """A copy with another value of an attribute; a subclass may be frozen."""
        other = copy.copy(self)
        object.__setattr__(other, name, value)
        return other

    @abstractmethod
    def rows(self, plant: Plant, t: Any, q: Array, v: Array) -> Rows:
        """The rows of the constraint as expressions of the symbols t, q and v.

        Args:
            plant: The plant that the equations refer to; its parameters may be symbols.
            t: Time [s].
            q: Generalized coordinates, shape (n,).
            v: Generalized velocities, shape (n,).

        Raises:
            TraceError: The code of the constraint cannot be traced.
            TaskError: The equation does not fit the class, or a value has the wrong shape.
        """

    def in_numpy(self, state: State) -> dict[str, Array]:
        """Field of `Rows` -> its value at a state by the user's own code, on numbers; {} if there is none."""
        return {}

    def standing(self) -> "Constraint":
        """This constraint with its time held at 0 for t <= 0, so that a path waits at its start without a rate."""
        return self._with("_stands", True)

    def with_signals(self, signals: Mapping[str, TimeFunction]) -> "Constraint":
        """This constraint with functions of time that its own equations may use by name, in `self.signals`."""
        return self._with("_signals", signals)

    @property
    def has_made_values(self) -> bool:
        """Whether the constraint has no parameters: see `makes_values`."""
        return makes_values(self, "_stands", "_signals", "_unit")

    @property
    def signals(self) -> Mapping[str, TimeFunction]:
        """Functions of time that the equations use, or may use, by name."""
        given: Mapping[str, TimeFunction] = getattr(self, "_signals", {})
        return given

    def _time(self, t: Any) -> Any:
        """The time of the constraint as a function of t; its derivative is 0 while it is held."""
        return symbol.where(t > 0.0, t, 0.0) if getattr(self, "_stands", False) else t


class _FromSource(Constraint):
    """A constraint from a function or an equation; a subclass that overrides the method needs neither.

    Args:
        source: The function, the equation, or None if a subclass overrides the method.

    Raises:
        TaskError: It is neither a function nor an equation.
    """

    def __init__(self, source: str | Expression | Callable[..., Any] | None = None) -> None:
        if source is not None and not isinstance(source, (str, Expression)) and not callable(source):
            raise TaskError(f"{type(self).__name__}: expected an equation or a function, got {source!r}")
        self._source = parse(source) if isinstance(source, str) else source

    @property
    def equation(self) -> Expression | None:
        """The equation of the constraint; None if it comes from a function or a method."""
        source = getattr(self, "_source", None)
        return source if isinstance(source, Expression) else None

    def problems(self, plant: Plant) -> list[str]:
        if self.equation is None:
            return []
        return check_names(self.equation, plant.coordinates, parameter_fields(plant))

    def row_units(self, plant: Plant) -> tuple[str, ...]:
        if self.unit or self.equation is None:
            return (self.unit,)
        return (unit_of(self.equation, plant.coordinates),)

    @property
    def signals(self) -> Mapping[str, TimeFunction]:
        return super().signals if self.equation is None else dict(self.equation.signals)

    def _value(self, plant: Plant, state: State, method: Callable[..., Any], *arguments: Any) -> Array:
        if self.equation is not None:
            value = trace(equation_value, self.equation, plant, state)
        else:
            value = trace(method, *arguments)
        array = np.atleast_1d(np.asarray(value, dtype=object))
        if array.ndim != 1:
            raise TaskError(f"{type(self).__name__}: expected a scalar or a vector, got shape {array.shape}")
        return _numbers(array, type(self).__name__)

    def _call(self, *arguments: Any) -> Any:
        source = getattr(self, "_source", None)
        if source is None:
            raise TaskError(f"{type(self).__name__}: give a function or an equation, or override {self._method}")
        return source(*arguments)

    _method: ClassVar[str]


class Holonomic(_FromSource):
    """`phi(q, t) = 0`: a function, an equation such as `"x2 - x1 - 2*l"`, or a subclass that overrides `phi`."""

    kind = "holonomic"
    _method = "phi(q, t)"

    def phi(self, q: Array, t: float) -> Any:
        """The error, a scalar or shape (r,); plain NumPy."""
        return self._call(q, t)

    def in_numpy(self, state: State) -> dict[str, Array]:
        return {} if self.equation is not None else {"violation": _values(self.phi(state.q, self._time(state.t)))}

    def rows(self, plant: Plant, t: Any, q: Array, v: Array) -> Rows:
        if self.equation is not None and self.equation.velocities:
            name = sorted(self.equation.velocities)[0]
            raise TaskError(
                f"a holonomic equation cannot contain a velocity, got der({name}) (write it as nonholonomic)"
            )
        now = self._time(t)
        phi = self._value(plant, State(now, q, v), self.phi, q, now)
        rate = directional(phi, q, v) + jacobian(phi, np.array([t]))[:, 0]
        b = -(directional(rate, q, v) + jacobian(rate, np.array([t]))[:, 0])
        return Rows(jacobian(phi, q), b, phi, rate)


class Nonholonomic(_FromSource):
    """`psi(q, v, t) = 0`: a function, an equation such as `"der(x)*sin(a) - der(y)"`, or an override of `psi`."""

    kind = "nonholonomic"
    _method = "psi(q, v, t)"

    def psi(self, q: Array, v: Array, t: float) -> Any:
        """The error, a scalar or shape (r,); plain NumPy."""
        return self._call(q, v, t)

    def in_numpy(self, state: State) -> dict[str, Array]:
        t, q, v = state
        return {} if self.equation is not None else {"violation": _values(self.psi(q, v, self._time(t)))}

    def rows(self, plant: Plant, t: Any, q: Array, v: Array) -> Rows:
        now = self._time(t)
        psi = self._value(plant, State(now, q, v), self.psi, q, v, now)
        A = jacobian(psi, v)
        for i, acts in enumerate(map(np.any, places_of(A))):
            if not acts:
                where = f"row {i}" if len(psi) > 1 else "it"
                raise TaskError(
                    f"a nonholonomic equation must contain a velocity, {where} has none (write it as holonomic)"
                )
        b = -(directional(psi, q, v) + jacobian(psi, np.array([t]))[:, 0])
        return Rows(A, b, psi, np.full(len(psi), np.nan))


class SecondOrder(Constraint):
    """`A(q, v, t) q'' = b(q, v, t)`, by functions of (q, v, t) or by a subclass that overrides `A` and `b`.

    Args:
        A: Returns shape (r, n); None: a subclass overrides it.
        b: Returns shape (r,); None: a subclass overrides it.
        violation: Returns shape (r,); None: there is no violation, so no correction fits.
        violation_rate: Returns the time derivative of the violation, shape (r,); None: there is none.
    """

    kind = "second_order"

    def __init__(
        self,
        A: Callable[[Array, Array, float], Any] | None = None,
        b: Callable[[Array, Array, float], Any] | None = None,
        violation: Callable[[Array, Array, float], Any] | None = None,
        violation_rate: Callable[[Array, Array, float], Any] | None = None,
    ) -> None:
        self._A, self._b, self._violation, self._violation_rate = A, b, violation, violation_rate

    def A(self, q: Array, v: Array, t: float) -> Any:
        """The constraint matrix, shape (r, n); plain NumPy."""
        return self._function("_A")(q, v, t)

    def b(self, q: Array, v: Array, t: float) -> Any:
        """The constraint vector, shape (r,); plain NumPy."""
        return self._function("_b")(q, v, t)

    def _function(self, name: str) -> Callable[[Array, Array, float], Any]:
        source: Callable[[Array, Array, float], Any] | None = getattr(self, name, None)
        if source is None:
            raise TaskError(f"{type(self).__name__}: give functions A and b of (q, v, t), or override both")
        return source

    def violation(self, q: Array, v: Array, t: float) -> Any:
        """The quantity that the constraint keeps at zero, shape (r,); None: there is none."""
        source = getattr(self, "_violation", None)
        return None if source is None else source(q, v, t)

    def violation_rate(self, q: Array, v: Array, t: float) -> Any:
        """The time derivative of the violation, shape (r,); None: there is none."""
        source = getattr(self, "_violation_rate", None)
        return None if source is None else source(q, v, t)

    def in_numpy(self, state: State) -> dict[str, Array]:
        at = state.q, state.v, self._time(state.t)
        functions = (self.A, self.b, self.violation, self.violation_rate)
        values = {function.__name__: function(*at) for function in functions}
        return {name: _values(value) for name, value in values.items() if value is not None}

    def rows(self, plant: Plant, t: Any, q: Array, v: Array) -> Rows:
        name, t = type(self).__name__, self._time(t)
        A = _numbers(np.atleast_2d(np.asarray(trace(self.A, q, v, t), dtype=object)), f"{name}.A")
        b = _numbers(np.atleast_1d(np.asarray(trace(self.b, q, v, t), dtype=object)), f"{name}.b")
        if b.ndim != 1:
            raise TaskError(f"{type(self).__name__}: b has shape {b.shape}, expected a vector")
        if A.shape != (len(b), len(q)):
            raise TaskError(f"{type(self).__name__}: A has shape {A.shape}, expected {(len(b), len(q))} to fit b and q")
        parts = []
        for function in (self.violation, self.violation_rate):
            value = trace(function, q, v, t)
            array = np.full(len(b), np.nan) if value is None else np.atleast_1d(np.asarray(value, dtype=object))
            if array.shape != b.shape:
                raise TaskError(f"{type(self).__name__}.{function.__name__}: shape {array.shape}, expected {b.shape}")
            parts.append(array)
        return Rows(A, b, *parts)
