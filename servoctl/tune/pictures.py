"""Pictures of a search: how the best came, which paths matter, where the trials lie, the Pareto front."""

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

ACROSS = 3
"""Panels beside each other."""


def pictures(tuning: Tuning) -> Iterator[tuple[str, "Figure"]]:
    """File name -> figure, of what there is to see."""
    if not any(trial.verdict.values for trial in tuning.trials):
        return
    objectives = tuning.problem.objectives
    with drawing_style():
        figure, panels = _figure(tuning, "best so far", len(objectives))
        for place, axes in enumerate(panels):
            _draw_convergence(axes, tuning, place)
        yield "convergence.png", figure
        paths = list(tuning.problem.tune.search)
        figure, panels = _figure(tuning, "trials", len(paths))
        for axes, path in zip(panels, paths, strict=True):
            _draw_trials(axes, tuning, path)
        yield "trials.png", figure
        shares = tuning.importance()
        if len(shares) > 1:
            figure, (axes,) = _figure(tuning, f"what {objectives[0]} depends on", 1)
            _draw_shares(axes, shares)
            yield "importance.png", figure
        if tuning.problem.several:
            figure, panels = _figure(tuning, "Pareto front", len(objectives) - 1)
            for place, axes in enumerate(panels, 1):
                _draw_front(axes, tuning, place)
            yield "front.png", figure


def _figure(tuning: Tuning, title: str, count: int) -> tuple["Figure", list["Axes"]]:
    across, down = min(count, ACROSS), -(-count // ACROSS)
    figure = blank(max(6.4, 3.6 * across), max(4.0, 3.2 * down))
    figure.suptitle(f"{tuning.problem.run.name}: {title}", x=0.012, ha="left", fontweight="bold", parse_math=False)
    return figure, [figure.add_subplot(down, across, place + 1) for place in range(count)]


def _draw_convergence(axes: "Axes", tuning: Tuning, place: int) -> None:
    """The values of the trials, and the best so far."""
    values = _values(tuning, place)
    number, feasible = np.arange(len(values)), _feasible(tuning)
    axes.plot(number[feasible], values[feasible], ".", color=QUIET, markersize=4, label="feasible")
    axes.plot(number[~feasible], values[~feasible], "x", color=PALETTE[1], markersize=4, label="not feasible")
    axes.step(number, tuning.convergence(place), where="post", color=PALETTE[0], linewidth=1.6, label="best so far")
    refined = np.array([trial.refined is not None for trial in tuning.trials])
    if refined.any():
        axes.plot(number[refined], values[refined], "v", color=PALETTE[0], markersize=6, label="refined")
    if tuning.standing.values:
        axes.axhline(tuning.standing.values[place], color=PALETTE[2], linewidth=1.0, label="as it stands")
    show_scale(axes, scale_of(values))
    axes.set_xlabel("trial")
    axes.set_ylabel(_label(tuning, tuning.problem.objectives[place]), parse_math=False)
    axes.legend(fontsize=7)


def _draw_trials(axes: "Axes", tuning: Tuning, path: str) -> None:
    """The first objective against a path; what has no value stands on the axis."""
    at = [trial.at[path] for trial in tuning.trials]
    choice = tuning.problem.tune.search[path]
    x = np.array(at if isinstance(choice, Range) else [choice.index(value) for value in at], dtype=float)
    values, feasible = _values(tuning, 0), _feasible(tuning)
    none = np.isnan(values)
    other = ~feasible & ~none
    axes.plot(x[feasible], values[feasible], ".", color=PALETTE[0], markersize=5, label="feasible")
    axes.plot(x[other], values[other], "x", color=PALETTE[1], markersize=4, label="not feasible")
    axes.plot(x[none], np.full(none.sum(), 0.02), "|", color=PALETTE[1], transform=axes.get_xaxis_transform(),
              label="failed or given up")  # fmt: skip
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


def _draw_front(axes: "Axes", tuning: Tuning, place: int) -> None:
    first, second = _values(tuning, 0), _values(tuning, place)
    feasible = _feasible(tuning)
    front = np.array(sorted((t.verdict.values[0], t.verdict.values[place]) for t in tuning.front)).reshape(-1, 2)
    axes.plot(first[~feasible], second[~feasible], "x", color=PALETTE[1], markersize=4, label="not feasible")
    axes.plot(first[feasible], second[feasible], ".", color=QUIET, markersize=4, label="feasible")
    axes.plot(*front.T, "o-", color=PALETTE[0], markersize=4, linewidth=1.0, label="front")
    if tuning.best is not None:
        values = tuning.best.verdict.values
        axes.plot(values[0], values[place], "*", color=PALETTE[4], markersize=12, label="best.yaml")
    if tuning.standing.values:
        axes.plot(tuning.standing.values[0], tuning.standing.values[place], "D", color=PALETTE[2], markersize=5,
                  label="as it stands")  # fmt: skip
    show_scale(axes, scale_of(second))
    show_scale(axes, scale_of(first), "x")
    axes.set_xlabel(_label(tuning, tuning.problem.objectives[0]), parse_math=False)
    axes.set_ylabel(_label(tuning, tuning.problem.objectives[place]), parse_math=False)
    axes.legend(fontsize=7)


def _label(tuning: Tuning, name: str) -> str:
    """A path or a metric, with its unit where it has one."""
    unit = tuning.unit(name)
    return f"{name} [{unit}]" if unit else name


def _values(tuning: Tuning, place: int) -> Array:
    """An objective, NaN where a trial has none."""
    return np.array([t.verdict.values[place] if t.verdict.values else np.nan for t in tuning.trials], dtype=float)


def _feasible(tuning: Tuning) -> Array:
    return np.array([trial.verdict.status == DONE for trial in tuning.trials], dtype=bool)
