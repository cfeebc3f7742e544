"""Keeps every finished trial of a study on disk, so that `--resume` can continue.

Design: only finished trials are stored, each in one transaction, so a study that is killed holds complete trials and
nothing else. The config is stored with them: only the same config can continue a study.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from servoctl.assembly.files import hashes_of
from servoctl.errors import ConfigError, RunFolderError, WriteError, in_one_line
from servoctl.run_folder.files import CONFIG
from servoctl.sweep.store import difference
from servoctl.tune.evaluator import DONE, Evaluation
from servoctl.tune.problem import SearchProblem
from servoctl.tune.stored import BEGAN_WITH, EVALUATION, REFINED, REMEDY, check_study, check_trial
from servoctl.version import VERSION

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial

FILE = "study.db"

PATIENCE = 10.0
"""Longest wait for another program that has locked the file [s]."""


class Store:
    """The finished trials of a study.

    Args:
        url: URL of an Optuna storage.
        name: Name of the study.
        config: The result of `identity` for the config.
        objectives: Number of objectives.
        resume: Whether to continue an existing study; False: an existing study is an error.
        space: Path -> distribution that the search draws from.

    Attributes:
        trials: All trials, in order.
        url: URL of the storage.

    Raises:
        ConfigError: There is a study without `resume`, or the study is of another config, or it was altered.
        RunFolderError: The storage is damaged, locked by another program, or unreachable.
    """

    def __init__(
        self,
        url: str,
        name: str,
        config: dict[str, Any],
        objectives: int,
        resume: bool,
        space: "dict[str, BaseDistribution]",
    ) -> None:
        self.url = url
        from optuna import create_study

        with self._guarded(), self._unaltered():
            self._study = create_study(
                storage=_open(url), study_name=name, directions=["minimize"] * objectives, load_if_exists=True
            )
            trials = sorted(self._study.get_trials(deepcopy=False), key=lambda trial: trial.number)
            before = self._study.user_attrs.get(BEGAN_WITH)
            if before is None and not trials:
                self._study.set_user_attr(BEGAN_WITH, config)
        self.trials: list[FrozenTrial] = list(trials)
        if any(EVALUATION not in trial.user_attrs for trial in trials):
            raise ConfigError(f"{self.place}: the study {name!r} is not from servoctl (choose another storage)")
        if trials and not resume:
            raise ConfigError(
                f"{self.place}: holds {len(trials)} trials of a study (continue with --resume, or choose another --out)"
            )
        check_study(self._study, trials, objectives, self.place)
        if trials and (change := difference(before or {}, config)) is not None:
            raise ConfigError(
                f"{self.place}: the study is of another config: {change.removeprefix('config.')} (use {CONFIG} of the "
                "study's folder, or choose another --out)"
            )
        with self._unaltered():
            for trial in trials:
                check_trial(trial, space, objectives, len(trials), self.place)

    @property
    def searched(self) -> list["FrozenTrial"]:
        """The trials that the search chose; without the results of a descent."""
        return [trial for trial in self.trials if REFINED not in trial.user_attrs]

    @property
    def least(self) -> float | None:
        """The least first objective of a feasible trial; None: no trial is feasible."""
        evaluations = [evaluation_of(trial) for trial in self.trials]
        return min((evaluation.values[0] for evaluation in evaluations if evaluation.status == DONE), default=None)

    @property
    def place(self) -> str:
        """The storage in messages: the file, or the URL without its password."""
        return self.url.removeprefix("sqlite:///").split("@")[-1]

    def add(self, trial: "FrozenTrial") -> None:
        """Stores a trial.

        Raises:
            RunFolderError: The trial cannot be stored; the trials before it are kept.
        """
        with self._guarded():
            self._study.add_trial(trial)
        trial.number = len(self.trials)
        self.trials.append(trial)

    @contextmanager
    def _unaltered(self) -> Iterator[None]:
        """Turns errors of Optuna on a readable database into ConfigError: another program altered the data."""
        from optuna.exceptions import StorageInternalError

        try:
            yield
        except (ConfigError, StorageInternalError):
            raise
        except (LookupError, TypeError, AssertionError, AttributeError, ValueError) as error:
            raise ConfigError(f"{self.place}: altered: {in_one_line(error)} {REMEDY}") from error

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Turns errors of the database into RunFolderError."""
        from optuna.exceptions import OptunaError, StorageInternalError
        from sqlalchemy.exc import SQLAlchemyError

        try:
            yield
        except ConfigError:
            raise
        except (SQLAlchemyError, StorageInternalError, OptunaError, OSError, RuntimeError, ValueError) as error:
            why = _why(error)
            raised = RunFolderError if why.startswith("damaged") else WriteError
            raise raised(f"{self.place}: {why}") from error


def _open(url: str) -> "BaseStorage":
    """Opens a storage; an SQLite file is waited for while another program has locked it."""
    from optuna.storages import RDBStorage, get_storage
    from sqlalchemy import event

    if not url.startswith("sqlite"):
        return get_storage(url)
    storage = RDBStorage(url, engine_kwargs={"connect_args": {"timeout": PATIENCE}})
    storage.engine.dispose()  # connections opened before the listener lack its settings
    event.listen(storage.engine, "connect", _set_pragmas)
    return storage


def _set_pragmas(connection: Any, _: Any) -> None:
    """Makes commits return before the disk is synchronised.

    A killed process loses nothing; a power failure may lose the last trials.
    """
    for pragma in ("journal_mode = WAL", "synchronous = NORMAL"):
        connection.execute(f"PRAGMA {pragma}")


def _why(error: BaseException) -> str:
    """The problem of a storage and its remedy, from the chain of exceptions."""
    texts = [str(error)]
    while error.__cause__ is not None or error.__context__ is not None:
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
        texts.append(str(error))
    text = " ".join(texts)
    if "locked" in text:
        return "another program has locked the study (stop it and continue with --resume; finished trials are kept)"
    if any(word in text for word in ("not a database", "malformed", "disk image")):
        return "damaged: not an Optuna study (move it away, or choose another --out; trials.parquet stays)"
    if "readonly" in text or "unable to open" in text or "full" in text:
        return f"cannot be written: {texts[-1].splitlines()[0]} (free disk space, then --resume; trials are kept)"
    return f"the storage failed: {texts[-1].splitlines()[0]} (continue with --resume; finished trials are kept)"


def identity(problem: SearchProblem) -> dict[str, Any]:
    """What identifies a study: version, hashes of its files, and the config without the numbers of trials and steps."""
    assert problem.run.loaded is not None
    values = problem.run.loaded.config.model_dump(mode="json", by_alias=True, exclude_none=True)
    for name in ("trials", "refine"):
        values["tune"].pop(name)
    found = {"servoctl": VERSION, "files": hashes_of(problem.run.loaded), "config": values}
    return dict(json.loads(json.dumps(found)))


def evaluation_of(trial: "FrozenTrial") -> Evaluation:
    """The evaluation of a stored trial."""
    return Evaluation.of_dict(trial.user_attrs[EVALUATION])


def in_folder(folder: Path) -> str:
    """URL of the study in a folder."""
    return f"sqlite:///{folder.resolve() / FILE}"
