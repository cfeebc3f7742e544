"""What the runs of a config are measured by."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from servoctl.assembly.run import Run

VIOLATIONS = ("max_violation", "rms_violation", "final_violation", "drift", "settling_time")
"""Of every task, and of the worst of them."""

GREATEST = {"pivot_min", "gain_margin"}
"""Metrics of which the greatest is best; of the others it is the least."""


@dataclass(frozen=True)
class Metric:
    """A line of the table of metrics.

    Attributes:
        name: In a config.
        of: What may stand behind it, after a dot; empty: nothing.
        unit: Its unit; `task`, `actuator`: that of a task's row, of an actuator; empty: none.
        meaning: In words.
        searched: Whether a search alone has it: a sweep does not.
    """

    name: str
    of: str
    unit: str
    meaning: str
    searched: bool = False

    @property
    def form(self) -> str:
        """As a person writes it."""
        optional = self.name in VIOLATIONS
        return f"{self.name}[.{self.of}]" if optional else f"{self.name}.{self.of}" if self.of else self.name

    @property
    def use(self) -> str:
        """What a search may do with it."""
        return "constrain: at least" if self.name in GREATEST else "minimise, constrain: at most"


METRICS = (
    Metric("max_violation", "TASK", "task", "greatest size of the violation; without a task's name, of the worst task"),
    Metric("rms_violation", "TASK", "task", "root of the mean square of the violation over time"),
    Metric("final_violation", "TASK", "task", "size of the violation at the end"),
    Metric("drift", "TASK", "task", "growth of the violation over the run"),
    Metric("settling_time", "TASK", "s", "time after which the violation stays within run.settling_band"),
    Metric("input_rms", "ACTUATOR", "actuator", "root of the mean square of the input"),
    Metric("input_max", "ACTUATOR", "actuator", "greatest size of the input"),
    Metric("residual_max", "", "", "greatest part of the task that no input can give"),
    Metric("pivot_min", "", "", "least pivot of the task's matrix: how far the machine stays from losing rank"),
    Metric("saturation_time", "", "s", "time in which an input's limit costs the task something"),
    Metric("sensitivity", "NAME", "task", "by how much rms_violation differs under tune.sensitivity.NAME", True),
    Metric("gain_share", "", "", "period or step as a share of the longest at which the gains are stable", True),
    Metric("overshoot", "", "", "how far a violation swings past zero after a step, as a share of the step", True),
    Metric("gain_margin", "", "", "factor on one actuator's gain at which the sampled loop becomes unstable", True),
)
"""Every metric that a search can minimise or constrain; those that it alone has come last."""


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
