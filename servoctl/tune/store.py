"""The study on disk: every finished trial, in order, from the moment that it is finished.

Design: only finished trials are stored, each in one transaction, so a study that was killed at any instant holds whole
trials and nothing else. The config stands beside them: a study goes on only with the config that it began with.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from servoctl.errors import ConfigError, RunFolderError, in_one_line
from servoctl.run_folder.files import CONFIG
from servoctl.tune.evaluator import DONE, Evaluation
from servoctl.tune.problem import Point, SearchProblem
from servoctl.tune.stored import BEGAN_WITH, REFINED, REMEDY, VERDICT, check_study, check_trial

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial

FILE = "study.db"

PATIENCE = 10.0
"""Time for which another program may hold the file [s]."""


class Store:
    """Finished trials.

    Attributes:
        trials: In order.
        url: Where they are.
    """

    def __init__(
        self,
        url: str,
        name: str,
        said: dict[str, Any],
        objectives: int,
        resume: bool,
        space: "dict[str, BaseDistribution]",
    ) -> None:
        """Opens a study, or begins one.

        Args:
            url: Of an Optuna storage.
            name: Of the study.
            said: The config, as `identity` has it.
            objectives: How many there are.
            resume: Whether a study that is there goes on; else it is in the way.
            space: Path -> what is drawn from.

        Raises:
            ConfigError: There is a study and `resume` is not wanted, or it is of another config, or was altered.
            RunFolderError: The storage is damaged, held by another program, or out of reach.
        """
        self.url = url
        from optuna import create_study

        with self._guarded(), self._unaltered():
            self._study = create_study(
                storage=_open(url), study_name=name, directions=["minimize"] * objectives, load_if_exists=True
            )
            found = sorted(self._study.get_trials(deepcopy=False), key=lambda trial: trial.number)
            before = self._study.user_attrs.get(BEGAN_WITH)
            if before is None and not found:
                self._study.set_user_attr(BEGAN_WITH, said)
        self.trials: list[FrozenTrial] = list(found)
        if any(VERDICT not in trial.user_attrs for trial in found):
            raise ConfigError(f"{self.place}: a study {name!r} that servoctl did not make (choose another storage)")
        if found and not resume:
            raise ConfigError(
                f"{self.place}: holds {len(found)} trials of a study (--resume goes on with it; or another --out)"
            )
        check_study(self._study, found, objectives, self.place)
        if found:
            _check_same(before or {}, said, self.place)
        with self._unaltered():
            for trial in found:
                check_trial(trial, space, objectives, len(found), self.place)

    @property
    def sought(self) -> list["FrozenTrial"]:
        """Those of the search; without those that a descent ended at."""
        return [trial for trial in self.trials if REFINED not in trial.user_attrs]

    @property
    def least(self) -> float | None:
        """The least first objective of a feasible trial; None where there is none."""
        verdicts = [verdict_of(trial) for trial in self.trials]
        return min((verdict.values[0] for verdict in verdicts if verdict.status == DONE), default=None)

    @property
    def place(self) -> str:
        """The storage as a person knows it."""
        return self.url.removeprefix("sqlite:///").split("@")[-1]

    def add(self, trial: "FrozenTrial") -> None:
        """Keeps a trial.

        Raises:
            RunFolderError: It cannot; those before are kept.
        """
        with self._guarded():
            self._study.add_trial(trial)
        trial.number = len(self.trials)
        self.trials.append(trial)

    @contextmanager
    def _unaltered(self) -> Iterator[None]:
        """What Optuna cannot make sense of, though the data base is whole, was put there by somebody else."""
        from optuna.exceptions import StorageInternalError

        try:
            yield
        except (ConfigError, StorageInternalError):
            raise
        except (LookupError, TypeError, AssertionError, AttributeError, ValueError) as error:
            raise ConfigError(f"{self.place}: altered: {in_one_line(error)} {REMEDY}") from error

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Errors of a data base as those that a person reads."""
        from optuna.exceptions import OptunaError, StorageInternalError
        from sqlalchemy.exc import SQLAlchemyError

        try:
            yield
        except ConfigError:
            raise
        except (SQLAlchemyError, StorageInternalError, OptunaError, OSError, RuntimeError, ValueError) as error:
            raise RunFolderError(f"{self.place}: {_why(error)}") from error


def _open(url: str) -> "BaseStorage":
    """The storage; a file of SQLite waits for who holds it."""
    from optuna.storages import RDBStorage, get_storage
    from sqlalchemy import event

    if not url.startswith("sqlite"):
        return get_storage(url)
    storage = RDBStorage(url, engine_kwargs={"connect_args": {"timeout": PATIENCE}})
    storage.engine.dispose()  # what it has opened is set otherwise
    event.listen(storage.engine, "connect", _quick)
    return storage


def _quick(connection: Any, _: Any) -> None:
    """Commits that wait for no disk: a killed process loses nothing, a machine without power its last trials."""
    for pragma in ("journal_mode = WAL", "synchronous = NORMAL"):
        connection.execute(f"PRAGMA {pragma}")


def _why(error: BaseException) -> str:
    """What is wrong with a storage, and what to do."""
    texts = [str(error)]
    while error.__cause__ is not None or error.__context__ is not None:
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
        texts.append(str(error))
    said = " ".join(texts)
    if "locked" in said:
        return "another program holds the study (end it and go on with --resume; finished trials are kept)"
    if any(word in said for word in ("not a database", "malformed", "disk image")):
        return "damaged: it is no study of Optuna's (move it away, or choose another --out; trials.parquet stays)"
    if "readonly" in said or "unable to open" in said or "full" in said:
        return f"cannot be written: {texts[-1].splitlines()[0]} (free the place; finished trials are kept, --resume)"
    return f"the storage failed: {texts[-1].splitlines()[0]} (finished trials are kept; go on with --resume)"


def identity(problem: SearchProblem) -> dict[str, Any]:
    """What a study must agree in to go on: the config, but for how long it goes on."""
    assert problem.run.loaded is not None
    values = problem.run.loaded.config.model_dump(mode="json", by_alias=True, exclude_none=True)
    for name in ("trials", "refine"):
        values["tune"].pop(name)
    return dict(json.loads(json.dumps(values)))


def _check_same(before: Any, now: dict[str, Any], place: str) -> None:
    old, new = dict(_flat(before)), dict(_flat(now))
    for path in [*old, *new]:
        if old.get(path) != new.get(path):
            raise ConfigError(
                f"{place}: the study is of another config: {path} was {old.get(path, 'not there')}, is "
                f"{new.get(path, 'not there')} (take {CONFIG} beside the study, or another --out)"
            )


def _flat(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _flat(value, f"{path}.{key}" if path else str(key))
    else:
        yield path, node


def verdict_of(trial: "FrozenTrial") -> Evaluation:
    """What became of a stored trial."""
    return Evaluation.of_dict(trial.user_attrs[VERDICT])


def point_of(trial: "FrozenTrial") -> Point:
    """Its values."""
    return dict(trial.params)


def refined_from(trial: "FrozenTrial") -> int | None:
    """Number of the trial from which a descent came there; None for one of the search."""
    return trial.user_attrs.get(REFINED)


def in_folder(folder: Path) -> str:
    """The URL of the study in a folder."""
    return f"sqlite:///{folder.resolve() / FILE}"
