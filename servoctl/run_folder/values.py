"""Numbers of a summary: of a column over time, and in types of strict JSON."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any

import numpy as np

from servoctl.types import Array


def rms(t: Array, x: Array) -> float:
    """Root mean square over time by the trapezoidal rule; rows need not be equidistant, NaN intervals are left out.

    If the time span is zero, the root mean square of the samples.

    Args:
        t: Times [s], shape (rows,).
        x: Values, shape (rows,).
    """
    scale = np.max(np.abs(x), initial=0.0, where=~np.isnan(x))  # scaled, so that squares neither overflow nor vanish
    if not np.isfinite(scale) or np.all(np.isnan(x)):
        return math.nan
    if scale == 0.0:
        return 0.0
    square = np.square(x / scale)
    area = np.diff(t) * (square[1:] + square[:-1]) / 2
    span = np.sum(np.diff(t), where=~np.isnan(area))
    mean = np.nansum(area) / span if span > 0 else np.nanmean(square)
    return float(scale * np.sqrt(mean))


def time_where(t: Array, condition: Array) -> float:
    """Time in which a condition holds [s]; each row is valid until the next one.

    Args:
        t: Times [s], shape (rows,).
        condition: Whether it holds, shape (rows,).
    """
    return float(np.sum(np.diff(t)[condition[:-1]]))


def plain(value: Any) -> Any:
    """The value in types of strict JSON: built-in types only, None for NaN and infinity.

    A dataclass is a mapping of its fields, unless it has a `to_dict`; a complex number is its two parts.
    """
    if type(value) is float:  # most are
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, complex):
        return plain([value.real, value.imag])
    if is_dataclass(value) and not isinstance(value, type):
        return plain(value.to_dict() if hasattr(value, "to_dict") else vars(value))
    return value if value is None or isinstance(value, bool | int | str) else str(value)


ROUND_OFF = 1e-12  # numbers below this share of the largest beside them are rounding


def without_round_off(numbers: Sequence[float | None]) -> list[float | None]:
    """Numbers to be shown beside each other, 0 for those that are rounding."""
    largest = max((abs(x) for x in numbers if x is not None and math.isfinite(x)), default=0.0)
    return [0.0 if x is not None and abs(x) < ROUND_OFF * largest else x for x in numbers]
