"""The metrics that a study has of its runs: their names and units, and how they follow from a summary."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from servoctl.assembly.run import Run
from servoctl.assembly.values import Problems
from servoctl.config.load import unit_of
from servoctl.errors import remedy
from servoctl.run_folder.metrics import METRICS, TASK_METRICS, greatest_is_best, metric_of

Row = dict[str, Any]  # metric -> value, of one run


def check_metrics(run: Run) -> None:
    """Raises ConfigError for words of `tune` that are no metric of any run; `check` and `tune` look further."""
    if run.loaded is None or (tune := run.loaded.config.tune) is None:
        return
    problems = Problems(run.loaded)
    minimised = tune.objective.minimise
    named = [(name, "objective", "minimise") for name in ([minimised] if isinstance(minimised, str) else minimised)]
    named += [(name, "constraints", name) for name in tune.constraints]
    known = dict.fromkeys(metric.name for metric in METRICS)
    for name, *place in named:
        if metric_of(name) is None:
            hint = remedy(name.partition(".")[0], known)
            problems.add(f"{name}: there is no such metric ({hint})", "tune", *place)
    problems.check()


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
    for metric in [metric.name for metric in TASK_METRICS]:
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
    names = [metric.name for metric in TASK_METRICS] if tasks else []
    names += [f"{name}.{task}" for name in names for task in tasks]
    names += [f"{metric}.{name}" for metric in ("input_rms", "input_max") for name in run.system.model.plant.actuators]
    law = run.system.law
    if law is None:
        return names
    bounds = [f"bounds.{name}.{what}" for name in law.bounded for what in ("min", "active_time", "violated_time")]
    return [*names, "residual_max", "pivot_min", "saturation_time", *bounds]


OF_THE_PLANT = re.compile(r"^(units of the plant|actuator units?|its unit|unit)\b")
"""How the description of a field says that a coordinate or an actuator gives its unit."""


def path_unit(run: Run, path: str) -> str:
    """The unit of a number of the config; where it belongs to a coordinate or an actuator, in that one's unit.

    Args:
        path: As after `--set`.
    """
    plant, keys = run.system.model.plant, [key for key in path.split(".") if not key.isdigit()]
    units = {**plant.coordinates, **plant.actuators}
    unit = unit_of(path) or (unit_of(".".join(keys[:-1])) if keys[-1] in units else "")
    own = next((units[key] for key in reversed(keys) if key in units), None)
    return unit if own is None else OF_THE_PLANT.sub(own, unit).replace(" per s", "/s")


def metric_unit(run: Run, metric: str) -> str:
    """The unit of a metric; empty if it has none, or rows of several units make it."""
    found, name = metric_of(metric), metric.partition(".")[2]
    if found is None or found.unit in ("", "s"):
        return "" if found is None else found.unit
    if found.unit == "task":
        known = run.system.model.row_units[1]
        units = {known.get(row.name, "") for row in run.system.model.task_rows if name in ("", row.group)}
        return units.pop() if len(units) == 1 else ""
    if found.unit == "bound":
        return run.system.by_bound(run.system.model.row_units[2]).get(name.removesuffix(".min"), "")
    return run.system.model.plant.actuators.get(name, "")
