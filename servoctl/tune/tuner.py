"""A search from a problem to what came of it, in a folder that no other search works in."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from servoctl.assembly.run import Run
from servoctl.errors import ClusterError, RunFolderError
from servoctl.run_folder.files import SUMMARY, study_folder, unwritable
from servoctl.sweep.batch import Processes, Row, run_all
from servoctl.tune.evaluator import DONE, Evaluator
from servoctl.tune.packages import require
from servoctl.tune.problem import Point, SearchProblem
from servoctl.tune.refine import Descent, Refinement
from servoctl.tune.result import Tuning, trials_of
from servoctl.tune.search import distributions, refined, search
from servoctl.tune.store import Store, identity, in_folder, point_of, refined_from, verdict_of

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
    """Searches; interrupted, or where a process of its own dies or the cluster is lost, what there is.

    Args:
        problem: What is searched.
        folder: For the study; made where it is missing.
        jobs: Threads of generated C, or else processes, that work at the same time; the trials do not depend on it.
        resume: Whether a study that is there goes on.
        storage: URL of an Optuna storage; None: a file of SQLite in the folder.
        cluster: What makes the runs instead of this machine; the trials are the same.
        progress: Called with the fraction that is done, 0 to 1, and the best so far in a few words.

    Raises:
        ConfigError: There is a study already, or it is of another config.
        MissingPackageError: Optuna is not installed.
        RunFolderError: The study is damaged, in use or out of reach, or a trial cannot be stored.
    """
    require()
    descent = Descent(problem) if problem.tune.refine else None
    planned = problem.tune.trials * len(problem.members)
    with _held(study_folder(folder)), Processes(jobs) as processes:

        def runs_of(run: Run, points: Sequence[Point]) -> Iterator[Row]:
            return run_all(run, points, jobs, cluster, planned, processes)

        url = in_folder(folder) if storage is None else storage
        name, count = f"servoctl.{problem.run.name}", len(problem.objectives)
        store = Store(url, name, identity(problem), count, resume, distributions(problem.tune))
        (folder / SUMMARY).unlink(missing_ok=True)  # it would belie the files to come
        judge, before, broken = Evaluator(problem, runs_of), len(store.trials), None
        standing = judge.judge([{}])[0]  # compiles what is to be compiled
        runs, began = judge.runs, perf_counter()

        def tell(fraction: float) -> None:
            if progress is not None:
                progress(fraction, _best_so_far(problem, store))

        refinement, searched = None, None
        try:
            search(problem, judge, store, tell)
            searched = perf_counter() - began, judge.runs - runs
            if progress is not None and descent is not None:
                progress(1.0, f"{_best_so_far(problem, store)}, refining")
            refinement = _refined(problem, descent, judge, store)
        except KeyboardInterrupt:
            pass  # the summary says so
        except ClusterError as error:
            broken = str(error)
        except BrokenProcessPool:
            broken = "a process that worked for the search was killed, or ran out of memory (take fewer --jobs)"
        wall_time, count = searched or (perf_counter() - began, judge.runs - runs)
        here, engine = len(store.trials) - before, ", ".join(sorted(judge.engines)) or None
        trials = trials_of(store.trials)
        return Tuning(problem, trials, standing, wall_time, here, count, engine, broken, refinement=refinement)


def _refined(problem: SearchProblem, descent: Descent | None, judge: Evaluator, store: Store) -> Refinement | None:
    """What a descent from the best trial of the search comes to, stored where it is better; what is stored stays.

    Raises:
        RunFolderError: The trial cannot be stored.
    """
    if descent is None:
        return None
    done = [trial for trial in store.sought if verdict_of(trial).status == DONE]
    if not done:
        return Refinement(None, why="no trial is feasible")
    best = min(done, key=lambda trial: verdict_of(trial).values)
    before = [trial for trial in store.trials if refined_from(trial) == best.number]
    if before:
        return Refinement(best.number, 0, (), point_of(before[0]), verdict_of(before[0]))
    found = descent(best.number, point_of(best), verdict_of(best), judge)
    if found.point is not None:
        store.add(refined(problem, found))
    return found


def _best_so_far(problem: SearchProblem, store: Store) -> str:
    if problem.several:
        return f"{len(store.trials)} trials"
    return "none feasible yet" if store.least is None else f"best {problem.objectives[0]} {store.least:.4g}"


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Nobody else searches in this folder meanwhile: a lock of SQLite, which ends with the process, however it ends.

    Raises:
        RunFolderError: Somebody does.
    """
    try:
        lock = sqlite3.connect(folder / LOCK, timeout=0.0, isolation_level=None)
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.Error as error:
        if "locked" in str(error):
            raise RunFolderError(f"{folder}: another search works here (wait for its end, or choose --out)") from error
        raise unwritable(folder, OSError(0, str(error))) from error
    try:
        yield
    finally:
        lock.close()
        (folder / LOCK).unlink(missing_ok=True)
