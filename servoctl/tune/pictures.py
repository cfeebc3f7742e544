"""Draws a search: convergence, the trials over each path, the importance of the paths, the Pareto front."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from servoctl.config.tune import Range
from servoctl.report.scales import scale_of
from servoctl.report.style import PALETTE, QUIET, blank, drawing_style, show_scale
from servoctl.tune.evaluator import DONE
from servoctl.tune.result import Tuning
from servoctl.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ACROSS = 3  # largest number of panels side by side


def pictures(tuning: Tuning) -> Iterator[tuple[str, "Figure"]]:
    """Yields file name and figure of each picture that the trials allow."""
    if not any(trial.evaluation.values for trial in tuning.trials):
        return
    objectives = tuning.problem.objectives
    with drawing_style():
        figure, panels = _figure(tuning, "best so far", len(objectives))
        for objective, axes in enumerate(panels):
            _draw_convergence(axes, tuning, objective)
        yield "convergence.png", figure
        paths = list(tuning.problem.tune.search)
        figure, panels = _figure(tuning, "trials", len(paths))
        for axes, path in zip(panels, paths, strict=True):
            _draw_trials(axes, tuning, path)
        yield "trials.png", figure
        shares = tuning.importance()
        if len(shares) > 1:
            figure, (axes,) = _figure(tuning, f"importance for {objectives[0]}", 1)
            _draw_shares(axes, shares)
            yield "importance.png", figure
        if tuning.problem.several:
            figure, panels = _figure(tuning, "Pareto front", len(objectives) - 1)
            for objective, axes in enumerate(panels, 1):
                _draw_front(axes, tuning, objective)
            yield "front.png", figure


def _figure(tuning: Tuning, title: str, count: int) -> tuple["Figure", list["Axes"]]:
    across, down = min(count, ACROSS), -(-count // ACROSS)
    figure = blank(max(6.4, 3.6 * across), max(4.0, 3.2 * down))
    figure.suptitle(f"{tuning.problem.run.name}: {title}", x=0.012, ha="left", fontweight="bold", parse_math=False)
    return figure, [figure.add_subplot(down, across, number + 1) for number in range(count)]


def _draw_convergence(axes: "Axes", tuning: Tuning, objective: int) -> None:
    """Draws the values of an objective over the trials, and the best so far."""
    values = _values(tuning, objective)
    number, feasible = np.arange(len(values)), _feasible(tuning)
    axes.plot(number[feasible], values[feasible], ".", color=QUIET, markersize=4, label="feasible")
    axes.plot(number[~feasible], values[~feasible], "x", color=PALETTE[1], markersize=4, label="not feasible")
    axes.step(number, tuning.convergence(objective), where="post", color=PALETTE[0], linewidth=1.6, label="best so far")
    refined = np.array([trial.refined is not None for trial in tuning.trials])
    if refined.any():
        axes.plot(number[refined], values[refined], "v", color=PALETTE[0], markersize=6, label="refined")
    if tuning.baseline.values:
        axes.axhline(tuning.baseline.values[objective], color=PALETTE[2], linewidth=1.0, label="baseline")
    show_scale(axes, scale_of(values))
    axes.set_xlabel("trial")
    axes.set_ylabel(_label(tuning, tuning.problem.objectives[objective]), parse_math=False)
    axes.legend(fontsize=7)


def _draw_trials(axes: "Axes", tuning: Tuning, path: str) -> None:
    """Draws the first objective over a path; trials without a value are marks on the axis."""
    at = [trial.at[path] for trial in tuning.trials]
    choice = tuning.problem.tune.search[path]
    x = np.array(at if isinstance(choice, Range) else [choice.index(value) for value in at], dtype=float)
    values, feasible = _values(tuning, 0), _feasible(tuning)
    none = np.isnan(values)
    other = ~feasible & ~none
    axes.plot(x[feasible], values[feasible], ".", color=PALETTE[0], markersize=5, label="feasible")
    axes.plot(x[other], values[other], "x", color=PALETTE[1], markersize=4, label="not feasible")
    axes.plot(x[none], np.full(none.sum(), 0.02), "|", color=PALETTE[1], transform=axes.get_xaxis_transform(),
              label="failed or pruned")  # fmt: skip
    if tuning.best is not None:
        best = [trial.number for trial in tuning.trials].index(tuning.best.number)
        axes.plot(x[best], values[best], "*", color=PALETTE[4], markersize=12, label="best")
    if isinstance(choice, Range):
        axes.set_xscale(choice.scale)
    else:
        axes.set_xticks(range(len(choice)), [str(value) for value in choice])
    show_scale(axes, scale_of(values))
    axes.set_xlabel(_label(tuning, path), parse_math=False)
    axes.set_ylabel(_label(tuning, tuning.problem.objectives[0]), parse_math=False)
    axes.legend(fontsize=7)


def _draw_shares(axes: "Axes", shares: dict[str, float]) -> None:
    names = list(shares)[::-1]
    axes.barh(names, [shares[name] for name in names], height=0.5, color=PALETTE[0])
    axes.set_xlabel("share (PED-ANOVA)")
    axes.set_xlim(0.0, 1.0)


def _draw_front(axes: "Axes", tuning: Tuning, objective: int) -> None:
    """Draws an objective over the first one, with the Pareto front."""
    first, second = _values(tuning, 0), _values(tuning, objective)
    feasible = _feasible(tuning)
    values = [trial.evaluation.values for trial in tuning.front]
    front = np.array(sorted((each[0], each[objective]) for each in values)).reshape(-1, 2)
    axes.plot(first[~feasible], second[~feasible], "x", color=PALETTE[1], markersize=4, label="not feasible")
    axes.plot(first[feasible], second[feasible], ".", color=QUIET, markersize=4, label="feasible")
    axes.plot(*front.T, "o-", color=PALETTE[0], markersize=4, linewidth=1.0, label="front")
    if tuning.best is not None:
        best = tuning.best.evaluation.values
        axes.plot(best[0], best[objective], "*", color=PALETTE[4], markersize=12, label="best.yaml")
    if tuning.baseline.values:
        axes.plot(tuning.baseline.values[0], tuning.baseline.values[objective], "D", color=PALETTE[2], markersize=5,
                  label="baseline")  # fmt: skip
    show_scale(axes, scale_of(second))
    show_scale(axes, scale_of(first), "x")
    axes.set_xlabel(_label(tuning, tuning.problem.objectives[0]), parse_math=False)
    axes.set_ylabel(_label(tuning, tuning.problem.objectives[objective]), parse_math=False)
    axes.legend(fontsize=7)


def _label(tuning: Tuning, name: str) -> str:
    """The name of a path or a metric with its unit, if it has one."""
    unit = tuning.unit(name)
    return f"{name} [{unit}]" if unit else name


def _values(tuning: Tuning, objective: int) -> Array:
    """Values of an objective, shape (trials,); NaN where a trial has none."""
    values = [trial.evaluation.values for trial in tuning.trials]
    return np.array([each[objective] if each else np.nan for each in values], dtype=float)


def _feasible(tuning: Tuning) -> Array:
    return np.array([trial.evaluation.status == DONE for trial in tuning.trials], dtype=bool)
