"""Runs a search from the problem to the result, and locks its folder meanwhile."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from servoctl.assembly.run import Run
from servoctl.errors import ClusterError, WriteError
from servoctl.run_folder.files import SUMMARY, study_folder, unwritable
from servoctl.sweep.batch import run_all
from servoctl.sweep.metrics import Row
from servoctl.sweep.series import Processes
from servoctl.tune.evaluator import DONE, Evaluator
from servoctl.tune.packages import require
from servoctl.tune.problem import Point, SearchProblem
from servoctl.tune.refine import Descent, Refinement
from servoctl.tune.result import Tuning, trials_of
from servoctl.tune.search import distributions, refined, search
from servoctl.tune.store import Store, identity, in_folder

if TYPE_CHECKING:
    from servoctl.sweep.cluster import Cluster

LOCK = "study.lock"


def tune(
    problem: SearchProblem,
    folder: Path,
    jobs: int = 1,
    resume: bool = False,
    storage: str | None = None,
    cluster: "Cluster | None" = None,
    progress: Callable[[float, str], None] | None = None,
) -> Tuning:
    """Searches. On Ctrl-C, or if a worker process dies or the cluster is lost, returns the trials made so far.

    Args:
        problem: The search.
        folder: Folder of the study; created if it is missing.
        jobs: Threads of generated C, or else processes, that work at the same time; the trials do not depend on it.
        resume: Whether to continue an existing study.
        storage: URL of an Optuna storage; None: an SQLite file in the folder.
        cluster: Makes the runs instead of this machine; the trials are the same.
        progress: Called with the fraction that is done, 0 to 1, and the best objective so far in a few words.

    Raises:
        ConfigError: The folder holds a study already, or with `resume` the study of another config.
        MissingPackageError: Optuna is not installed.
        RunFolderError: The study is damaged, in use or unreachable, or a trial cannot be stored.
    """
    require()
    descent = Descent(problem) if problem.tune.refine else None
    planned = problem.tune.trials * len(problem.scenarios)
    with _locked(study_folder(folder)), Processes(jobs) as processes:

        def runs_of(run: Run, points: Sequence[Point]) -> Iterator[Row]:
            return run_all(run, points, jobs, cluster, planned, processes)

        url = in_folder(folder) if storage is None else storage
        name, count = f"servoctl.{problem.run.name}", len(problem.objectives)
        store = Store(url, name, identity(problem), count, resume, distributions(problem.tune))
        (folder / SUMMARY).unlink(missing_ok=True)  # an earlier summary would contradict the new files
        evaluator, before, broken = Evaluator(problem, runs_of), len(store.trials), None
        baseline = evaluator.evaluate([{}])[0]  # compiles, so that the search is timed without it
        runs, began = evaluator.runs, perf_counter()

        def tell(fraction: float) -> None:
            if progress is not None:
                progress(fraction, _best_so_far(problem, store))

        refinement, searched = None, None
        try:
            search(problem, evaluator, store, tell)
            searched = perf_counter() - began, evaluator.runs - runs
            if progress is not None and descent is not None:
                progress(1.0, f"{_best_so_far(problem, store)}, refining")
            refinement = _refined(problem, descent, evaluator, store)
        except KeyboardInterrupt:
            pass  # the summary says `interrupted`
        except ClusterError as error:
            broken = str(error)
        except BrokenProcessPool:
            broken = "a worker process of the search was killed, or ran out of memory (use fewer --jobs)"
        wall_time, count = searched or (perf_counter() - began, evaluator.runs - runs)
        here, engine = len(store.trials) - before, ", ".join(sorted(evaluator.engines)) or None
        trials = trials_of(store.trials)
        return Tuning(problem, trials, baseline, wall_time, here, count, engine, broken, refinement=refinement)


def _refined(problem: SearchProblem, descent: Descent | None, evaluator: Evaluator, store: Store) -> Refinement | None:
    """The result of a descent from the best trial, stored if it is better. A stored result is used again.

    Raises:
        RunFolderError: The trial cannot be stored.
    """
    if descent is None:
        return None
    done = [trial for trial in trials_of(store.searched) if trial.evaluation.status == DONE]
    if not done:
        return Refinement(None, why="no trial is feasible")
    best = min(done, key=lambda trial: trial.evaluation.values)
    for trial in trials_of(store.trials):
        if trial.refined == best.number:
            return Refinement(best.number, 0, (), trial.at, trial.evaluation)
    refinement = descent(best.number, best.at, best.evaluation, evaluator)
    if refinement.point is not None:
        store.add(refined(problem, refinement))
    return refinement


def _best_so_far(problem: SearchProblem, store: Store) -> str:
    if problem.several:
        return f"{len(store.trials)} trials"
    return "none feasible yet" if store.least is None else f"best {problem.objectives[0]} {store.least:.4g}"


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Locks a folder with SQLite, whose lock ends with the process, however that ends.

    Raises:
        RunFolderError: Another search has locked the folder, or it cannot be written.
    """
    try:
        lock = sqlite3.connect(folder / LOCK, timeout=0.0, isolation_level=None)
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.Error as error:
        if "locked" in str(error):
            raise WriteError(f"{folder}: another search works here (wait for it, or choose --out)") from error
        raise unwritable(folder, OSError(0, str(error))) from error
    try:
        yield
    finally:
        lock.close()
        (folder / LOCK).unlink(missing_ok=True)
