"""Vectors and matrices of three scalars, in which exact zeros and ones vanish.

Design: the recursions run on plain scalars, numbers or symbols, because most entries of a robot's structure are 0, 1 or
-1. An operation with such a float is never carried out, so compiled code contains only what depends on the state or on
a parameter. NumPy arrays would carry every zero along.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.engine.symbol import Symbol
from servoctl.types import Array


def scalars(values: Sequence[Any] | Array) -> list[Any]:
    """The values as symbols, arrays of many states, or Python's own floats."""
    return [value if isinstance(value, (Symbol, np.ndarray)) else float(value) for value in values]


def plus(a: Any, b: Any) -> Any:
    """a + b."""
    if a.__class__ is float:
        return b if a == 0.0 else a + b
    return a if b.__class__ is float and b == 0.0 else a + b


def minus(a: Any, b: Any) -> Any:
    """a - b."""
    if a.__class__ is float:
        return -b if a == 0.0 else a - b
    return a if b.__class__ is float and b == 0.0 else a - b


def times(a: Any, b: Any) -> Any:
    """a b."""
    if a.__class__ is float:
        return a * b if b.__class__ is float else _scaled(b, a)
    return _scaled(a, b) if b.__class__ is float else a * b


def _scaled(symbol: Any, number: float) -> Any:
    if number == 0.0:
        return 0.0
    if number == 1.0:
        return symbol
    return -symbol if number == -1.0 else symbol * number


def sine_cosine(angle: Any) -> tuple[Any, Any]:
    """sin and cos of an angle [rad]."""
    if angle.__class__ is float:
        return float(np.sin(angle)), float(np.cos(angle))
    return np.sin(angle), np.cos(angle)


@dataclass(frozen=True, slots=True)
class Triple:
    """Three scalars."""

    x: Any = 0.0
    y: Any = 0.0
    z: Any = 0.0

    @classmethod
    def of(cls, values: Sequence[Any] | Array) -> "Triple":
        """From a sequence of three."""
        return cls(*scalars(values))

    def __add__(self, other: "Triple") -> "Triple":
        return Triple(plus(self.x, other.x), plus(self.y, other.y), plus(self.z, other.z))

    def __sub__(self, other: "Triple") -> "Triple":
        return Triple(minus(self.x, other.x), minus(self.y, other.y), minus(self.z, other.z))

    def __mul__(self, scale: Any) -> "Triple":
        return Triple(times(self.x, scale), times(self.y, scale), times(self.z, scale))

    def dot(self, other: "Triple") -> Any:
        """The scalar product."""
        return plus(plus(times(self.x, other.x), times(self.y, other.y)), times(self.z, other.z))

    def cross(self, other: "Triple") -> "Triple":
        """The vector product, this vector first."""
        return Triple(
            minus(times(self.y, other.z), times(self.z, other.y)),
            minus(times(self.z, other.x), times(self.x, other.z)),
            minus(times(self.x, other.y), times(self.y, other.x)),
        )

    def turned(self, sine: Any, cosine: Any) -> "Triple":
        """The vector turned about z by an angle with this sine and cosine."""
        return Triple(
            minus(times(cosine, self.x), times(sine, self.y)), plus(times(sine, self.x), times(cosine, self.y)), self.z
        )

    def turned_back(self, sine: Any, cosine: Any) -> "Triple":
        """The vector turned about z by minus that angle."""
        return Triple(
            plus(times(cosine, self.x), times(sine, self.y)), minus(times(cosine, self.y), times(sine, self.x)), self.z
        )

    @property
    def array(self) -> Array:
        """Shape (3,), of floats or of symbols."""
        return as_array([self.x, self.y, self.z])


ZERO = Triple()


@dataclass(frozen=True, slots=True)
class Matrix:
    """Three rows."""

    x: Triple = Triple(1.0, 0.0, 0.0)
    y: Triple = Triple(0.0, 1.0, 0.0)
    z: Triple = Triple(0.0, 0.0, 1.0)

    @classmethod
    def of(cls, rows: Sequence[Sequence[Any]] | Array) -> "Matrix":
        """From three rows of three."""
        return cls(*(Triple.of(row) for row in rows))

    @property
    def T(self) -> "Matrix":
        """The transpose."""
        a, b, c = self.x, self.y, self.z
        return Matrix(Triple(a.x, b.x, c.x), Triple(a.y, b.y, c.y), Triple(a.z, b.z, c.z))

    def __call__(self, vector: Triple) -> Triple:
        """The product with a vector."""
        return Triple(self.x.dot(vector), self.y.dot(vector), self.z.dot(vector))

    def __matmul__(self, other: "Matrix") -> "Matrix":
        columns = other.T
        return Matrix(columns(self.x), columns(self.y), columns(self.z))

    @property
    def array(self) -> Array:
        """Shape (3, 3), of floats or of symbols."""
        return np.array([self.x.array, self.y.array, self.z.array])


UNIT = Matrix()


def as_array(values: Sequence[Any]) -> Array:
    """An array of floats, or of objects where a symbol is among the values."""
    return np.array(values, dtype=object if any(isinstance(value, Symbol) for value in values) else float)
