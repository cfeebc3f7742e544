"""Writes the folder of a search: the best config, the table of all trials, the pictures, the summary."""

import json
from pathlib import Path
from typing import Any, BinaryIO

from servoctl.config import dump
from servoctl.config.files import moved
from servoctl.config.overrides import setting
from servoctl.errors import WriteError
from servoctl.report.style import write
from servoctl.run_folder.files import CONFIG, SUMMARY, replace
from servoctl.tune.pictures import pictures
from servoctl.tune.result import Tuning
from servoctl.tune.trials import Trial

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
    summary, names = json.dumps(tuning.summary(), indent=2) + "\n", [TABLE]
    try:
        replace(folder / CONFIG, lambda file: file.write(loaded.text.encode()))
        replace(folder / TABLE, lambda file: _write_table(tuning, file))
        if tuning.best is None:
            (folder / BEST).unlink(missing_ok=True)
        else:
            _write_config(tuning, tuning.best, folder / BEST)
            names.insert(0, BEST)
        if tuning.problem.several and tuning.front:
            (folder / FRONT).mkdir(exist_ok=True)
            for trial in tuning.front:
                _write_config(tuning, trial, folder / FRONT / f"{trial.number}.yaml")
            names.append(f"{FRONT}/")
        for name, figure in pictures(tuning):
            replace(folder / name, lambda file, figure=figure: write(figure, file))  # type: ignore[misc]
            names.append(name)
        replace(folder / SUMMARY, lambda file: file.write(summary.encode()))
    except OSError as error:
        why = f"{folder}: cannot be written: {error.strerror or error}"
        raise WriteError(f"{why} (free disk space; the study is kept: continue with --resume)") from error
    return [*names, SUMMARY]


def config_of(tuning: Tuning, trial: Trial, folder: Path) -> str:
    """The config with the values of a trial, without its `tune:` section, for a file in this folder."""
    loaded = tuning.problem.run.loaded
    assert loaded is not None
    config = loaded.overridden([setting(path, value) for path, value in trial.at.items()]).config
    config = moved(config, loaded.folder, folder).model_copy(update={"tune": None})
    values = zip(tuning.problem.objectives, trial.evaluation.values, strict=True)
    results = ", ".join(f"{name} {value:.6g}" for name, value in values)
    return f"# trial {trial.number} of servoctl tune {loaded.name}: {results}\n{dump(config)}"


def _write_config(tuning: Tuning, trial: Trial, path: Path) -> None:
    text = config_of(tuning, trial, path.parent)
    replace(path, lambda file: file.write(text.encode()))


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
    columns |= {path: [trial.at[path] for trial in tuning.trials] for path in problem.tune.search}
    for i, name in enumerate(problem.objectives):
        values = [evaluation.values[i] if evaluation.values else None for evaluation in evaluations]
        columns[f"objective.{name}"] = pa.array(values, pa.float64())
    for name in problem.metrics:
        columns[name] = pa.array([evaluation.metrics.get(name) for evaluation in evaluations], pa.float64())
    for name in problem.bounds:
        columns[f"excess.{name}"] = pa.array([evaluation.excess.get(name) for evaluation in evaluations], pa.float64())
    pq.write_table(pa.table(columns), file)
