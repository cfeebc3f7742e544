"""The words with a fixed meaning in every equation: functions, units, `pi`."""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

UNITS: Mapping[str, float] = MappingProxyType(
    {"deg": math.pi / 180, "rad": 1.0, "ms": 1e-3, "us": 1e-6, "rpm": 2 * math.pi / 60, "mm": 1e-3}
)
"""Unit word -> its value in rad, s, rad/s or m."""

CONSTANTS: Mapping[str, float] = MappingProxyType({"pi": math.pi, **UNITS})  # every word that stands for a number

NUMPY_FUNCTIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "sin": np.sin,
        "cos": np.cos,
        "tan": np.tan,
        "asin": np.arcsin,
        "acos": np.arccos,
        "atan": np.arctan,
        "atan2": np.arctan2,
        "sinh": np.sinh,
        "cosh": np.cosh,
        "tanh": np.tanh,
        "exp": np.exp,
        "log": np.log,
        "sqrt": np.sqrt,
        "abs": np.abs,
        "min": np.minimum,
        "max": np.maximum,
    }
)
"""Function word -> NumPy function, for numbers and arrays of numbers."""

ARITY: Mapping[str, int] = MappingProxyType(
    {word: 2 if word in {"atan2", "min", "max"} else 1 for word in NUMPY_FUNCTIONS}
)
"""Function word -> number of arguments."""

KINKED = frozenset({"abs", "min", "max"})  # functions whose derivative jumps

RESERVED = frozenset({"t", "der", *CONSTANTS, *ARITY})
"""Words that cannot be names of coordinates, actuators or parameters."""
