"""Searches of three shipped configs and of an arm defined here, and how their best trials stand.

Design: the overshoot is measured in a simulation of its own, with the hold, delay and errors of the first scenario but
without noise: one task row starts 1 % off. The search itself computes its overshoot from the linear loop.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from servoctl.assembly.make import load
from servoctl.mechanics.plant import Plant
from servoctl.study.problem import read_problem
from servoctl.study.search import tune as search
from servoctl.types import Array

ALPHA, BETA = "law.correction.baumgarte.alpha", "law.correction.baumgarte.beta"
BOTH = f"{{{ALPHA}: {{low: 2, high: 200, scale: log}}, {BETA}: {{low: 2, high: 200, scale: log}}}}"

ARM = f"""
plant: {{class: "{Path(__file__).resolve()}:Arm"}}
initial: {{q: {{phi: 0.5}}}}
task: [{{name: angle, holonomic: "phi - 0.5*cos(t)"}}]
law: {{correction: {{baumgarte: {{alpha: 10, beta: 10}}}}}}
run: {{duration: 3, period: 0.005}}
tune:
  search: {BOTH}
  uncertainty: {{realism.parameter_error.m: [0, -0.2, 0.2], realism.delay: [5*ms], realism.noise.q: [1e-4]}}
"""

ONE_PERCENT = 0.01
"""The step: 1 % of a metre or a radian."""


@dataclass(frozen=True)
class Arm(Plant):
    """One joint lifts a load: m l^2 phi'' = u - m g l cos(phi)."""

    m: float = 2.0  # [kg]
    l: float = 0.7  # noqa: E741  # [m]
    g: float = 9.81  # [m/s^2]
    coordinates: ClassVar[dict[str, str]] = {"phi": "rad"}
    actuators: ClassVar[dict[str, str]] = {"u": "N m"}

    def mass_matrix(self, q: Array, t: float) -> Array:
        return np.array([[self.m * self.l**2]])

    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.array([-self.m * self.g * self.l * np.cos(q[0])])

    def actuation(self, q: Array, t: float) -> Array:
        return np.array([[1.0]])


@dataclass(frozen=True)
class SearchCase:
    """A search, and a step of one task row.

    Attributes:
        config: Name of a shipped config; or the text of a config.
        row: The row that steps.
        step: The setting that makes its violation 1 % at the start.
        overrides: Settings of the search.
    """

    config: str
    row: str
    step: str
    overrides: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of the shipped config, or `an arm`."""
        return "an arm" if "\n" in self.config else self.config


CASES = (
    SearchCase("two_mass_spring", "distance", "initial={q: {x1: 0, x2: 1.01}, v: 0}"),
    SearchCase("coordinated_robots", "level", f"task.level.holonomic=theta3 - {ONE_PERCENT}"),
    SearchCase("scara", "z", f"task.z.holonomic=q4 + l0 - 0.02*t - {ONE_PERCENT}", (
        f"tune={{search: {BOTH}, uncertainty: {{realism.delay: [5*ms], realism.parameter_error.m4: [0, -0.2, 0.2]}}}}",
        "run.period=0.005", "run.duration=3", "run.integrator={method: rk4, step: 0.005}", "run.output_step=",
        "law.correction={baumgarte: {alpha: 10, beta: 10}}")),
    SearchCase(ARM, "angle", f"task.angle.holonomic=phi - 0.5*cos(t) - {ONE_PERCENT}"),
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """A search that is over."""

    before: float | None  # the objective with the config's own gains; None if that run was not feasible
    after: float  # the objective of the best trial
    share: float  # of the largest stable gains
    gain_margin: float  # the least one
    overshoot: float  # of the violation in a simulation, relative to the step


def searched(case: SearchCase, folder: Path, trials: int) -> Outcome:
    """The outcome of a search with so many trials; its study lies in a folder."""
    source: str | Path = case.config
    if "\n" in case.config:
        source = folder / "config.yaml"
        source.write_text(case.config)
    tuning = search(read_problem(load(source, [*case.overrides, f"tune.trials={trials}"])), folder / "study")
    best, baseline = tuning.best, tuning.baseline
    assert best is not None, f"{case.name}: no feasible trial"
    metrics = best.evaluation.metrics
    before = float(baseline.values[0]) if baseline.status == "done" else None
    swing = overshoot(case, source, {**best.at, **tuning.problem.scenarios[0]})
    return Outcome(before, float(best.evaluation.values[0]), metrics["gain_share"], metrics["gain_margin"], swing)


def overshoot(case: SearchCase, source: str | Path, settings: dict[str, Any]) -> float:
    """How far the violation swings past zero after the step, relative to the step."""
    values = [f"{path}={value!r}" for path, value in settings.items() if "noise" not in path]
    more = ["run.duration=2", "run.output_step=null", "initial.max_violation=1"]
    run = load(source, [*case.overrides, *values, case.step, *more]).simulate()
    violation = run[f"violation.{case.row}"]
    return max(0.0, float(np.max(-violation / violation[0])))
