"""The metrics of a run: name, unit, meaning, and how each follows from what a column did over time; numbers for JSON.

Design: a metric is computed from the `Figures` of one column, whether these were taken from its rows or kept while many
runs went side by side in C. Summary, tables, page, comparison, sweep, search and docs read this registry; a metric of
tasks is one row of it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any, NamedTuple

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


class Figures(NamedTuple):
    """What a column did over time; NaN where there is no number."""

    least: float
    greatest: float
    first: float
    last: float
    rms: float  # root mean square over time
    settled: float  # time after which its magnitude stays within a band [s]; NaN: it does not

    @classmethod
    def of(cls, t: Array, x: Array, band: float = math.inf) -> "Figures":
        """The figures of a column.

        Args:
            t: Times [s], shape (rows,).
            x: Values, shape (rows,).
            band: Magnitude up to which the column counts as settled [unit of x].
        """
        if not len(x) or np.isnan(x).all():
            return NOTHING
        above = np.flatnonzero(np.abs(x) > band)
        settled = 0.0
        if len(above):
            settled = t[above[-1] + 1] - t[0] if above[-1] + 1 < len(x) else math.nan
        return cls(np.nanmin(x), np.nanmax(x), x[0], x[-1], rms(t, x), settled)


NOTHING = Figures(*[math.nan] * 6)  # of a column without a number


@dataclass(frozen=True)
class Metric:
    """A row of the registry."""

    name: str  # name in a config, in a sweep and, of tasks, in a summary
    of: str  # what may follow after a dot: TASK, ACTUATOR, NAME, ROW.WHAT; empty: nothing
    unit: str  # its unit; `task`, `actuator`, `bound`: the unit of a task row, an actuator, a bound; empty: none
    meaning: str  # the explanation in `--help`
    words: str = ""  # what the axis of a picture says; empty: the name
    figure: Callable[[Figures], float] | None = None  # how it follows from the size of a task's error
    head: str = ""  # its column in a table of tasks
    greatest_is_best: bool = False  # whether the greatest value is best; else the least is
    searched: bool = False  # whether only `tune` has it, not `sweep`

    @property
    def form(self) -> str:
        """The name as a person writes it, such as `input_rms.ACTUATOR`."""
        return f"{self.name}[.{self.of}]" if self.of == "TASK" else f"{self.name}.{self.of}" if self.of else self.name

    @property
    def use(self) -> str:
        """How `tune` may use it."""
        return "constrain: at least" if self.greatest_is_best else "minimise, constrain: at most"


METRICS = (
    Metric(
        "max_violation", "TASK", "task", "largest task error; without a task's name, of the worst task",
        "largest task error", lambda x: x.greatest, "max",
    ),
    Metric(
        "rms_violation", "TASK", "task", "root mean square of the task error over time",
        "task error, rms", lambda x: x.rms, "rms",
    ),
    Metric(
        "final_violation", "TASK", "task", "task error at the end", "task error at the end", lambda x: x.last, "final"
    ),
    Metric(
        "drift", "TASK", "task", "growth of the task error over the run", "growth of the task error",
        lambda x: x.last - x.first, "drift",
    ),
    Metric(
        "settling_time", "TASK", "s", "time after which the task error stays within run.settling_band",
        "", lambda x: x.settled, "settled [s]",
    ),
    Metric("input_rms", "ACTUATOR", "actuator", "root mean square of the input", "input, rms"),
    Metric("input_max", "ACTUATOR", "actuator", "largest size of the input", "largest input"),
    Metric("residual_max", "", "", "largest part of the task that no input can produce"),
    Metric(
        "pivot_min", "", "", "smallest pivot of the task matrix: distance from losing rank", greatest_is_best=True
    ),
    Metric("saturation_time", "", "s", "time in which input limits degrade the task"),
    Metric(
        "bounds", "ROW.min", "bound", "smallest h of a bound: its distance from being violated", greatest_is_best=True
    ),
    Metric("bounds", "ROW.active_time", "s", "time in which the bound holds the inputs"),
    Metric("bounds", "ROW.violated_time", "s", "time in which h is below 0"),
    Metric("sensitivity", "NAME", "task", "change of rms_violation under tune.sensitivity.NAME", searched=True),
    Metric(
        "gain_share", "", "", "period or step as a share of the longest at which the gains are stable", searched=True
    ),
    Metric(
        "overshoot", "", "", "how far a task error swings past zero after a step, as a share of the step", searched=True
    ),
    Metric(
        "gain_margin", "", "", "factor on one actuator's gain at which the sampled loop becomes unstable",
        greatest_is_best=True, searched=True,
    ),
)  # fmt: skip
"""Every metric that `tune` can minimise or constrain; metrics that only `tune` has come last."""

TASK_METRICS = tuple(metric for metric in METRICS if metric.of == "TASK")
"""Metrics of each task, and of the worst task; those that a terminal has room for come first."""

EVIDENCE = {
    "rank_min": ("rank", "least"),
    "rank_max": ("rank", "greatest"),
    "residual_max": ("residual", "greatest"),
    "pivot_min": ("pivot_min", "least"),
}
"""Entry of a summary -> column of the law, and which of its `Figures`."""


def task_entry(x: Figures) -> dict[str, Any]:
    """The entry of a task, or of a row of a mechanism, in a summary; `x` is the size of its error."""
    entry: dict[str, Any] = plain({metric.name: metric.figure(x) for metric in TASK_METRICS if metric.figure})
    return entry


def input_entry(x: Figures) -> dict[str, Any]:
    """The entry of an input in a summary."""
    return {"min": x.least, "max": x.greatest, "rms": x.rms}


def metric_of(name: str) -> Metric | None:
    """The metric that a name such as `drift.level` or `bounds.floor.min` means; None: there is none."""
    kind, _, rest = name.partition(".")
    found = [metric for metric in METRICS if metric.name == kind]
    named = [metric for metric in found if rest.endswith(metric.of.partition(".")[2])]
    return next(iter(named or found), None)


def greatest_is_best(name: str) -> bool:
    """Whether the greatest value of a metric such as `bounds.floor.min` is best; else the least is."""
    metric = metric_of(name)
    return metric is not None and metric.greatest_is_best


SECTIONS = {"plant", "parameters", "initial", "q", "task", "law", "correction", "run", "realism", "hil"}
"""Keys of a path that its axis does not say."""


def axis_title(name: str, unit: str) -> str:
    """What the axis of a metric or a path says: `task error, rms [m]`, `baumgarte alpha [1/s]`."""
    metric, (kind, _, rest) = metric_of(name), name.partition(".")
    if metric is not None:
        words = (metric.words or kind.replace("_", " ")) + f" of {rest}" * bool(rest)
    else:
        words = " ".join(key for key in name.split(".") if key not in SECTIONS).replace("_", " ")
    return f"{words} [{unit}]" if unit else words
