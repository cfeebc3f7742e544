"""Writes the folder of a search: the best config, the table of all trials, the pictures, the summary."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from servoctl.config import dump
from servoctl.config.load import moved
from servoctl.config.tune import Range
from servoctl.report.scales import scale_of
from servoctl.report.style import PALETTE, QUIET, blank, drawing_style, log_scale, show_scale, write
from servoctl.run_folder.files import Writer, save_study
from servoctl.run_folder.metrics import axis_title
from servoctl.study.problem import DONE
from servoctl.study.trials import Trial, Tuning
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
            figure, (axes,) = _figure(tuning, f"importance for {_label(tuning, objectives[0])}", 1)
            _draw_shares(axes, shares)
            yield "importance.png", figure
        if tuning.problem.several:
            figure, panels = _figure(tuning, "Pareto front", len(objectives) - 1)
            for objective, axes in enumerate(panels, 1):
                _draw_front(axes, tuning, objective)
            yield "front.png", figure


def _figure(tuning: Tuning, title: str, count: int) -> tuple["Figure", list["Axes"]]:
    across, down = min(count, ACROSS), -(-count // ACROSS)
    figure = blank(max(6.4, 3.6 * across), max(4.0, 3.2 * down), f"{tuning.problem.run.name}: {title}")
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
    if isinstance(choice, Range) and choice.scale == "log":
        log_scale(axes)
    elif not isinstance(choice, Range):
        axes.set_xticks(range(len(choice)), [str(value) for value in choice])
    show_scale(axes, scale_of(values))
    axes.set_xlabel(_label(tuning, path), parse_math=False)
    axes.set_ylabel(_label(tuning, tuning.problem.objectives[0]), parse_math=False)
    axes.legend(fontsize=7)


def _draw_shares(axes: "Axes", shares: dict[str, float]) -> None:
    names = list(shares)[::-1]
    axes.barh([axis_title(name, "") for name in names], [shares[name] for name in names], height=0.5, color=PALETTE[0])
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
    """A path or a metric in words, with its unit."""
    return axis_title(name, tuning.unit(name))


def _values(tuning: Tuning, objective: int) -> Array:
    """Values of an objective, shape (trials,); NaN where a trial has none."""
    values = [trial.evaluation.values for trial in tuning.trials]
    return np.array([each[objective] if each else np.nan for each in values], dtype=float)


def _feasible(tuning: Tuning) -> Array:
    return np.array([trial.evaluation.status == DONE for trial in tuning.trials], dtype=bool)


BEST, TABLE, FRONT = "best.yaml", "trials.parquet", "front"


def save(tuning: Tuning, folder: Path) -> list[str]:
    """Writes `config.yaml`, `best.yaml`, `trials.parquet`, the pictures and, last, `summary.json`.

    Args:
        tuning: The result of the search.
        folder: An existing folder.

    Returns:
        Names of the files, best first; without `config.yaml`.

    Raises:
        RunFolderError: A file cannot be written. Each file is written in full or not at all.
    """
    loaded = tuning.problem.run.loaded
    assert loaded is not None
    return save_study(folder, loaded.text, tuning.summary(), _files(tuning, folder))


def _files(tuning: Tuning, folder: Path) -> Iterator[tuple[str, Writer]]:
    """Yields the name of each file of a search, best first, and what writes it."""
    if tuning.best is not None:
        yield BEST, partial(_write_config, tuning, tuning.best, folder)
    else:
        (folder / BEST).unlink(missing_ok=True)
    yield TABLE, partial(_write_table, tuning)
    for trial in tuning.front if tuning.problem.several else ():
        yield f"{FRONT}/{trial.number}.yaml", partial(_write_config, tuning, trial, folder / FRONT)
    for name, figure in pictures(tuning):
        yield name, partial(write, figure)


def config_of(tuning: Tuning, trial: Trial, folder: Path) -> str:
    """The config with the values of a trial, without its `tune:` section, for a file in this folder."""
    loaded = tuning.problem.run.loaded
    assert loaded is not None
    config = loaded.with_values(trial.at).config
    config = moved(config, loaded.folder, folder).model_copy(update={"tune": None})
    values = zip(tuning.problem.objectives, trial.evaluation.values, strict=True)
    results = ", ".join(f"{name} {value:.6g}" for name, value in values)
    return f"# trial {trial.number} of servoctl tune {loaded.name}: {results}\n{dump(config)}"


def _write_config(tuning: Tuning, trial: Trial, folder: Path, file: BinaryIO) -> None:
    file.write(config_of(tuning, trial, folder).encode())


def _write_table(tuning: Tuning, file: BinaryIO) -> None:
    """Writes one row per trial: number, status, values, objectives, metrics, excess over constraints."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    problem, evaluations = tuning.problem, [trial.evaluation for trial in tuning.trials]
    columns: dict[str, Any] = {
        "trial": [trial.number for trial in tuning.trials],
        "status": [evaluation.status for evaluation in evaluations],
        "reason": pa.array([evaluation.reason for evaluation in evaluations], pa.string()),
        "runs": [evaluation.runs for evaluation in evaluations],
        "refined": pa.array([trial.refined for trial in tuning.trials], pa.int64()),
    }
    columns |= {path: _of_one_kind([trial.at[path] for trial in tuning.trials]) for path in problem.tune.search}
    for i, name in enumerate(problem.objectives):
        values = [evaluation.values[i] if evaluation.values else None for evaluation in evaluations]
        columns[f"objective.{name}"] = pa.array(values, pa.float64())
    for name in problem.metrics:
        columns[name] = pa.array([evaluation.metrics.get(name) for evaluation in evaluations], pa.float64())
    for name in problem.bounds:
        columns[f"excess.{name}"] = pa.array([evaluation.excess.get(name) for evaluation in evaluations], pa.float64())
    pq.write_table(pa.table(columns), file)


def _of_one_kind(values: list[Any]) -> list[Any]:
    """The values of a path as a column takes them: as text where some are numbers and others are not."""
    numbers = [isinstance(value, int | float) and not isinstance(value, bool) for value in values]
    return values if all(numbers) or not any(numbers) else [str(value) for value in values]
