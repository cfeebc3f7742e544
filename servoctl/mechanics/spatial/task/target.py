"""Targets of tasks on frames: numbers, equations or functions of time, with exact first and second derivatives."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np

from servoctl.engine.kernel import jacobian
from servoctl.engine.parameters import parameter_fields
from servoctl.engine.symbol import Symbol, plain
from servoctl.engine.trace import trace
from servoctl.errors import ExpressionError, TaskError, counted
from servoctl.expression import Expression, TimeFunction, check_names, constant, parse
from servoctl.mechanics.constraint import Constraint, equation_value
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.spatial.dynamics import quaternion_rotation
from servoctl.mechanics.spatial.kinematics import PointMotion
from servoctl.mechanics.spatial.placement import rotation_rpy, snapped
from servoctl.mechanics.spatial.rotation import vee
from servoctl.types import Array, State

TargetValue = float | str | Expression | Callable[[Any], Any]
"""A number, an equation of t and the plant's parameters, or a function of t that returns a number."""

TargetValues = Sequence[TargetValue] | Callable[[Any], Any]
"""Several of them, or one function of t that returns all values."""


def read(given: Any, count: int) -> TargetValues:
    """The values with every equation parsed.

    Raises:
        TaskError: There are not `count` of them, or one is not a number, an equation or a function.
    """
    if callable(given) and not isinstance(given, Expression):
        return given  # type: ignore[no-any-return]
    if isinstance(given, (str, Expression)) or not isinstance(given, (Sequence, np.ndarray)):
        raise TaskError(f"expected {counted(count, 'value')}, got {given!r}")
    if len(given) != count:
        raise TaskError(
            f"expected {counted(count, 'value')}, got {len(given)} ({', '.join(map(str, given)) or 'none'})"
        )
    return tuple(read_one(value) for value in given)


def read_one(value: Any) -> TargetValue:
    """A number as a float, an equation parsed, or the function as it is.

    Raises:
        TaskError: It is none of them.
    """
    if isinstance(value, Expression) or callable(value):
        return value  # type: ignore[no-any-return]
    try:
        return parse(value) if isinstance(value, str) else constant(value)
    except ExpressionError as error:
        raise TaskError(f"{value!r}: {error}" if isinstance(value, str) else str(error)) from error


def name_problems(values: TargetValues, plant: Plant) -> list[str]:
    """One sentence for each word of an equation that is not a parameter of the plant."""
    found = []
    for value in values if isinstance(values, Sequence) else ():
        if not isinstance(value, Expression):
            continue
        moving = sorted(value.names & set(plant.coordinates))
        found += [f"'{name}' is a coordinate (a target may use t and parameters only)" for name in moving]
        if not moving:
            found += check_names(value, (), parameter_fields(plant))
    return list(dict.fromkeys(found))


def numbers(values: Any) -> list[float] | None:
    """The values of a result of `read` if all are numbers, else None."""
    known = isinstance(values, tuple) and all(isinstance(value, float) for value in values)
    return list(values) if known else None


def values_at(values: TargetValues, count: int, plant: Plant, now: Any) -> Array:
    """The values at a time, numbers or symbols, shape (count,).

    Args:
        values: Result of `read`.
        count: How many there are.
        now: The time of the task [s], a number or an expression of the symbol of time.

    Raises:
        TaskError: A function does not return that many numbers.
        TraceError: A function cannot be traced.
    """
    if callable(values):
        items: Any = trace(values, now)
    else:
        items = [_value(value, plant, now) for value in values]
    array = np.asarray(items, dtype=object)
    if array.shape != (count,):
        raise TaskError(f"a function of t returned shape {array.shape} (expected {count} numbers)")
    for item in array:
        if not isinstance(item, (Symbol, int, float, np.number)):
            raise TaskError(f"a function of t returned {item!r} (expected numbers)")
    return array


def with_signals(value: Any, signals: Mapping[str, TimeFunction]) -> Any:
    """A target, a tuple or a mapping of targets, in whose equations these names stand for functions of time."""
    if isinstance(value, Expression):
        return value.with_signals(signals)
    if isinstance(value, Mapping):
        return {name: with_signals(item, signals) for name, item in value.items()}
    return tuple(with_signals(item, signals) for item in value) if isinstance(value, tuple) else value


def signals_of(value: Any) -> dict[str, TimeFunction]:
    """Name -> function of time of all equations in a target, a tuple or a mapping of targets."""
    if isinstance(value, Expression):
        return dict(value.signals)
    value = tuple(value.values()) if isinstance(value, Mapping) else value
    return {name: each for item in value for name, each in signals_of(item).items()} if isinstance(value, tuple) else {}


def direction_course(values: TargetValues, plant: Plant, t: Any, now: Any) -> PointMotion:
    """The unit vector along three values and its derivatives by the symbol t of time; see `values_at`."""
    along = plain(values_at(values, 3, plant, now))
    if along.dtype == float:
        along = along / (np.abs(along).max() or 1.0)  # the square of 1e308 is no number
    return _derived(along / np.sqrt(along @ along), t)


def rotation_course(angles: TargetValues, kind: str, plant: Plant, t: Any, now: Any) -> tuple[Array, Array, Array]:
    """The rotation of angles or quaternion components, its angular velocity and acceleration [rad/s, rad/s^2].

    Both are in the axes of the reference; see `values_at`.

    Args:
        angles: Result of `read`.
        kind: `rpy` [rad], or `quaternion` (x, y, z, w), which is normalised here.
    """
    value = values_at(angles, 4 if kind == "quaternion" else 3, plant, now)
    R = quaternion_rotation(np.roll(value, 1)) if kind == "quaternion" else trace(rotation_rpy, *value)
    R = plain(R)
    if R.dtype == float:
        return snapped(R), np.zeros(3), np.zeros(3)
    rate = _by_time(R.ravel(), t)
    second = _by_time(rate, t).reshape(3, 3)
    # R' R^T = [w]x, and the skew-symmetric part of R'' R^T is [w']x
    return R, vee(rate.reshape(3, 3) @ R.T), vee(second @ R.T)


def _value(value: TargetValue, plant: Plant, now: Any) -> Any:
    if isinstance(value, Expression):
        n = len(plant.coordinates)
        return trace(equation_value, value, plant, State(now, np.zeros(n), np.zeros(n)))
    return trace(value, now) if callable(value) else value


def _derived(value: Array, t: Any) -> PointMotion:
    rate = _by_time(value, t)
    return PointMotion(value, 0.0, rate, _by_time(rate, t))


def _by_time(values: Array, t: Any) -> Array:
    return jacobian(values, np.array([t]))[:, 0]


@contextmanager
def naming(field: str) -> Iterator[None]:
    """Puts the name of a field in front of a TaskError."""
    try:
        yield
    except TaskError as error:
        raise TaskError(f"{field}: {error}") from error


class Targeted(Constraint):
    """A constraint with targets in some of its fields; subclass it with `@dataclass(frozen=True)`."""

    kind = "holonomic"
    # name of each such field -> how many values it has, None for one value that is not in a list, or a mapping of them.
    # A field that is None has no target
    target_fields: ClassVar[Mapping[str, int | None]] = {}

    def __post_init__(self) -> None:
        """Raises TaskError that names every field that is wrong."""
        wrong = []
        for field, count in self.target_fields.items():
            if not self.is_target(field):
                continue
            given = getattr(self, field)
            try:
                object.__setattr__(self, field, read_one(given) if count is None else read(given, count))
            except TaskError as error:
                wrong.append(f"{field}: {error}")
        wrong = wrong or self.field_problems()
        if wrong:
            raise TaskError("\n".join(f"{type(self).__name__}: {problem}" for problem in wrong))

    def problems(self, plant: Plant) -> list[str]:
        found = super().problems(plant)
        for field, count in self.target_fields.items():
            value = getattr(self, field)
            values = (value,) if count is None else value
            if self.is_target(field):
                found += [f"{field}: {problem}" for problem in name_problems(values, plant)]
        return found

    def with_signals(self, signals: Mapping[str, TimeFunction]) -> "Targeted":
        other = copy.copy(self)
        for field in self.target_fields:
            object.__setattr__(other, field, with_signals(getattr(self, field), signals))
        return other

    @property
    def signals(self) -> Mapping[str, TimeFunction]:
        return {name: each for field in self.target_fields for name, each in signals_of(getattr(self, field)).items()}

    def course(self, field: str, plant: Plant, t: Any) -> PointMotion:
        """A target and its derivatives, shape (count,), or one for each of a single value or a mapping.

        Args:
            field: One of `target_fields`.
            t: The symbol of time [s].
        """
        return _derived(self.values(field, plant, self._time(t)), t)

    def values(self, field: str, plant: Plant, now: Any) -> Array:
        """A target at a time of the task [s], shape (count,), or one for each of a single value or a mapping."""
        count, value = self.target_fields[field], getattr(self, field)
        if count is None:
            value = tuple(value.values()) if isinstance(value, Mapping) else (value,)
        with naming(field):
            return values_at(value, count or len(value), plant, now)

    def is_target(self, field: str) -> bool:
        """Whether this one of `target_fields` holds a target; by default, if it is not None."""
        return getattr(self, field) is not None

    def field_problems(self) -> list[str]:
        """What else is wrong with the fields, `<field>: <problem>`."""
        return []
