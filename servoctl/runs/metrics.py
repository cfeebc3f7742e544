"""What the runs of a config are measured by."""

from collections.abc import Mapping
from typing import Any

from servoctl.runs.run import Run

VIOLATIONS = ("max_violation", "rms_violation", "final_violation", "drift", "settling_time")
"""Of every task, and of the worst of them."""

GREATEST = {"pivot_min"}
"""Metrics of which the greatest is best; of the others it is the least."""


def metrics_of(summary: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of a run.

    Returns:
        `status`, `error`, `engine`, `max_violation`, `rms_violation`, `final_violation`, `drift` and `settling_time`
        (of the worst task, and with `.<task>` of each), `input_rms.<actuator>`, `input_max.<actuator>`,
        `residual_max`, `pivot_min`, `saturation_time`: the share of rows in which a limit costs the task something, of
        the run's time [s].
    """
    kept: dict[str, Any] = {"status": summary["status"], "error": summary.get("error"), "engine": summary["engine"]}
    for metric in VIOLATIONS:
        own = {f"{metric}.{task}": values[metric] for task, values in summary["tasks"].items()}
        if own:
            kept[metric] = None if None in own.values() else max(own.values())
        kept |= own
    for actuator, values in summary["inputs"].items():
        sides = [abs(side) for side in (values["min"], values["max"]) if side is not None]
        kept |= {f"input_rms.{actuator}": values["rms"], f"input_max.{actuator}": max(sides, default=None)}
    kept |= {name: summary[name] for name in ("residual_max", "pivot_min") if name in summary}
    counts = summary.get("status_counts", {})
    if counts and summary.get("duration") is not None:
        kept["saturation_time"] = summary["duration"] * counts.get("SATURATED", 0) / sum(counts.values())
    return kept


def metric_names(run: Run) -> list[str]:
    """The numbers among them, for this config."""
    tasks = dict.fromkeys(row.group for row in run.system.model.task_rows)
    names = [*VIOLATIONS, *(f"{metric}.{task}" for metric in VIOLATIONS for task in tasks)] if tasks else []
    names += [f"{metric}.{name}" for metric in ("input_rms", "input_max") for name in run.system.model.plant.actuators]
    return names + (["residual_max", "pivot_min", "saturation_time"] if run.system.law is not None else [])


def metric_unit(run: Run, metric: str) -> str:
    """Its unit; nothing where it has none, or that of a task's row, which no plant knows."""
    kind, _, name = metric.partition(".")
    if kind in ("settling_time", "saturation_time"):
        return "s"
    return run.system.model.plant.actuators.get(name, "") if kind in ("input_rms", "input_max") else ""
