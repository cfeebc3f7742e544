"""Keeps every finished trial of a study on disk, so that `--resume` can continue.

Design: the file is that of a sweep (`sweep.store`), a line per trial. Only the same config can continue a study.
"""

import json
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from servoctl.assembly.files import hashes_of
from servoctl.sweep.metrics import Row
from servoctl.sweep.store import RowStore, Stored
from servoctl.tune.evaluator import DONE, INFEASIBLE
from servoctl.tune.problem import SearchProblem
from servoctl.tune.trials import Trial, frozen
from servoctl.version import VERSION

STUDY = Stored("study.jsonl", "study", "trials")


class TrialStore:
    """The finished trials of a study; a context manager that closes the file.

    Args:
        folder: The folder of the study; created if it is missing.
        problem: The search.
        resume: Whether to continue an existing study; False: an existing study is an error.

    Raises:
        ConfigError: There is a study without `resume`, or with it none or that of another config.
        RunFolderError: The file is damaged, in use by another search, or cannot be written.
    """

    def __init__(self, folder: Path, problem: SearchProblem, resume: bool) -> None:
        self._problem = problem
        self._rows = RowStore(folder, identity(problem), None, resume, STUDY, self._valid)
        self.trials = [Trial.of_row(number, row) for number, row in enumerate(self._rows.rows)]  # all trials, in order

    @property
    def searched(self) -> list[Trial]:
        """The trials that the search chose; without those of a refinement."""
        return [trial for trial in self.trials if trial.refined is None]

    def add(self, trial: Trial) -> None:
        """Stores a trial.

        Raises:
            RunFolderError: The trial cannot be stored; the trials before it are kept.
        """
        self._rows.add(trial.row)
        self.trials.append(trial)

    def _valid(self, row: Row) -> bool:
        """Whether a search could have written this row."""
        try:
            trial = Trial.of_row(0, row)
            frozen(trial, self._problem.tune)
        except (ValueError, TypeError, LookupError):
            return False
        complete = trial.evaluation.status in (DONE, INFEASIBLE)
        return len(trial.evaluation.values) == complete * len(self._problem.objectives)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._rows.__exit__(kind, error, at)


def identity(problem: SearchProblem) -> dict[str, Any]:
    """What identifies a study: version, hashes of its files, and the config without the numbers of trials."""
    assert problem.run.loaded is not None
    values = problem.run.loaded.config.model_dump(mode="json", by_alias=True, exclude_none=True)
    for name in ("trials", "refine"):
        values["tune"].pop(name)
    found = {"servoctl": VERSION, "files": hashes_of(problem.run.loaded), "config": values}
    return dict(json.loads(json.dumps(found)))
