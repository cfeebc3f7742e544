"""The metrics of a run: names, units, and how they follow from its summary."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from servoctl.assembly.run import Run
from servoctl.expression.suggest import remedy

Row = dict[str, Any]  # metric -> value, of one run

VIOLATIONS = ("max_violation", "rms_violation", "final_violation", "drift", "settling_time")
"""Metrics of each task, and of the worst task."""

GREATEST = {"pivot_min", "gain_margin", "bounds"}
"""Metrics of which the greatest value is best; of all others the least is."""

TIMES = (".active_time", ".violated_time")  # [s] ends of the metrics of a bound that are times


def greatest_is_best(metric: str) -> bool:
    """Whether a metric, such as `pivot_min` or `bounds.floor.min`, is one of `GREATEST`."""
    return metric.partition(".")[0] in GREATEST and not metric.endswith(TIMES)


@dataclass(frozen=True)
class Metric:
    """A line of the table of metrics."""

    name: str  # name in a config
    of: str  # what may follow after a dot: TASK, ACTUATOR, NAME, ROW.WHAT; empty: nothing
    unit: str  # its unit; `task`, `actuator`, `bound`: the unit of a task row, an actuator, a bound; empty: none
    meaning: str  # the explanation in `--help`
    searched: bool = False  # whether only `tune` has it, not `sweep`

    @property
    def form(self) -> str:
        """The name as a person writes it, such as `input_rms.ACTUATOR`."""
        optional = self.name in VIOLATIONS
        return f"{self.name}[.{self.of}]" if optional else f"{self.name}.{self.of}" if self.of else self.name

    @property
    def use(self) -> str:
        """How `tune` may use it."""
        return "constrain: at least" if greatest_is_best(self.form) else "minimise, constrain: at most"


METRICS = (
    Metric("max_violation", "TASK", "task", "largest task error; without a task's name, of the worst task"),
    Metric("rms_violation", "TASK", "task", "root mean square of the task error over time"),
    Metric("final_violation", "TASK", "task", "task error at the end"),
    Metric("drift", "TASK", "task", "growth of the task error over the run"),
    Metric("settling_time", "TASK", "s", "time after which the task error stays within run.settling_band"),
    Metric("input_rms", "ACTUATOR", "actuator", "root mean square of the input"),
    Metric("input_max", "ACTUATOR", "actuator", "largest size of the input"),
    Metric("residual_max", "", "", "largest part of the task that no input can produce"),
    Metric("pivot_min", "", "", "smallest pivot of the task matrix: distance from losing rank"),
    Metric("saturation_time", "", "s", "time in which input limits degrade the task"),
    Metric("bounds", "ROW.min", "bound", "smallest h of a bound: its distance from being violated"),
    Metric("bounds", "ROW.active_time", "s", "time in which the bound holds the inputs"),
    Metric("bounds", "ROW.violated_time", "s", "time in which h is below 0"),
    Metric("sensitivity", "NAME", "task", "change of rms_violation under tune.sensitivity.NAME", True),
    Metric("gain_share", "", "", "period or step as a share of the longest at which the gains are stable", True),
    Metric("overshoot", "", "", "how far a task error swings past zero after a step, as a share of the step", True),
    Metric("gain_margin", "", "", "factor on one actuator's gain at which the sampled loop becomes unstable", True),
)
"""Every metric that `tune` can minimise or constrain; metrics that only `tune` has come last."""


IN_WORDS = {
    "max_violation": "largest task error",
    "rms_violation": "task error, rms",
    "final_violation": "task error at the end",
    "drift": "growth of the task error",
    "input_rms": "input, rms",
    "input_max": "largest input",
}
"""Metric -> what the axis of a picture says; others are said by their name."""

SECTIONS = {"plant", "parameters", "initial", "q", "task", "law", "correction", "run", "realism", "hil"}
"""Keys of a path that its axis does not say."""


def axis_title(name: str, unit: str) -> str:
    """What the axis of a metric or a path says: `task error, rms [m]`, `baumgarte alpha [1/s]`."""
    kind, _, rest = name.partition(".")
    if kind in {metric.name for metric in METRICS}:
        words = IN_WORDS.get(kind, kind.replace("_", " ")) + f" of {rest}" * bool(rest)
    else:
        words = " ".join(key for key in name.split(".") if key not in SECTIONS).replace("_", " ")
    return f"{words} [{unit}]" if unit else words


def unknown_metrics(run: Run) -> list[str]:
    """Words of the section `tune` that are no metric of any run, one sentence each; `check` and `tune` look further."""
    tune = None if run.loaded is None else run.loaded.config.tune
    if run.loaded is None or tune is None:
        return []
    minimised = tune.objective.minimise
    named = [(name, "objective", "minimise") for name in ([minimised] if isinstance(minimised, str) else minimised)]
    named += [(name, "constraints", name) for name in tune.constraints]
    known = dict.fromkeys(metric.name for metric in METRICS)
    return [
        f"{run.loaded.where('tune', *place)}: {name}: there is no such metric ({remedy(name.partition('.')[0], known)})"
        for name, *place in named
        if name.partition(".")[0] not in known
    ]


def no_such_metric(name: str, known: Sequence[str]) -> str:
    """The sentence about a name that is no metric."""
    hint = remedy(name, known)
    listed = "" if hint.startswith("known") else f"; known: {', '.join(known)}"
    return f"{name}: there is no such metric ({hint}{listed})"


def excess_of(name: str, value: float, bound: float) -> float:
    """How far a metric is beyond its bound, relative to the bound; <= 0: the bound holds."""
    beyond = (value - bound) / (abs(bound) or 1.0)
    return max(-1.0, -beyond) if greatest_is_best(name) else beyond


def metrics_of(summary: Mapping[str, Any]) -> Row:
    """The metrics of a run, from its `summary.json`.

    Returns:
        `status`, `error`, `engine`, `max_violation`, `rms_violation`, `final_violation`, `drift` and `settling_time`
        (of the worst of the tasks that have a violation, and with `.<task>` of each), `input_rms.<actuator>`,
        `input_max.<actuator>`, `residual_max`, `pivot_min`, `saturation_time` [s]: the time in which limits degrade the
        task, `bounds.<row>.min`, `.active_time` and `.violated_time`.
    """
    row: Row = {"status": summary["status"], "error": summary.get("error"), "engine": summary["engine"]}
    judged = [task for task, values in summary["tasks"].items() if values["max_violation"] is not None]
    for metric in VIOLATIONS:
        by_task = {task: values[metric] for task, values in summary["tasks"].items()}
        of_judged = [by_task[task] for task in judged]
        if by_task:
            row[metric] = None if None in of_judged else max(of_judged, default=None)
        row |= {f"{metric}.{task}": value for task, value in by_task.items()}
    for actuator, values in summary["inputs"].items():
        sides = [abs(side) for side in (values["min"], values["max"]) if side is not None]
        row |= {f"input_rms.{actuator}": values["rms"], f"input_max.{actuator}": max(sides, default=None)}
    row |= {name: summary[name] for name in ("residual_max", "pivot_min", "saturation_time") if name in summary}
    bounds = summary.get("bounds", {})
    return row | {f"bounds.{name}.{what}": value for name, of in bounds.items() for what, value in of.items()}


def metric_names(run: Run) -> list[str]:
    """Names of the numeric metrics that runs of this config have."""
    tasks = dict.fromkeys(row.group for row in run.system.model.task_rows if row.has_violation)
    names = [*VIOLATIONS, *(f"{metric}.{task}" for metric in VIOLATIONS for task in tasks)] if tasks else []
    names += [f"{metric}.{name}" for metric in ("input_rms", "input_max") for name in run.system.model.plant.actuators]
    law = run.system.law
    if law is None:
        return names
    bounds = [f"bounds.{name}.{what}" for name in law.bounded for what in ("min", "active_time", "violated_time")]
    return [*names, "residual_max", "pivot_min", "saturation_time", *bounds]


def metric_unit(run: Run, metric: str) -> str:
    """The unit of a metric; empty if it has none, or rows of several units make it."""
    kind, _, name = metric.partition(".")
    if kind in ("settling_time", "saturation_time") or metric.endswith(TIMES):
        return "s"
    if kind in VIOLATIONS:
        known = run.system.model.row_units[1]
        units = {known.get(row.name, "") for row in run.system.model.task_rows if name in ("", row.group)}
        return units.pop() if len(units) == 1 else ""
    if kind == "bounds":
        return run.system.by_bound(run.system.model.row_units[2]).get(name.removesuffix(".min"), "")
    return run.system.model.plant.actuators.get(name, "") if kind in ("input_rms", "input_max") else ""
