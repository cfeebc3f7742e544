"""Runs a search from the problem to the result."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from servoctl.assembly.run import Run
from servoctl.errors import ClusterError, MissingPackageError
from servoctl.run_folder.files import SUMMARY
from servoctl.sweep.batch import run_all
from servoctl.sweep.metrics import Row
from servoctl.sweep.series import Processes
from servoctl.tune.evaluator import DONE, Evaluator
from servoctl.tune.problem import Point, SearchProblem
from servoctl.tune.refine import Refinement, refine
from servoctl.tune.result import Tuning
from servoctl.tune.search import search
from servoctl.tune.store import TrialStore
from servoctl.tune.trials import Trial

if TYPE_CHECKING:
    from servoctl.sweep.cluster import Cluster


def require_packages() -> None:
    """Checks that Optuna and its samplers are installed, and limits Optuna's log to warnings.

    Raises:
        MissingPackageError: A package is not installed.
    """
    try:
        import cmaes  # noqa: F401  (Optuna itself imports it only in the middle of a search)
        from optuna.logging import WARNING, set_verbosity
    except ImportError as error:
        message = f"servoctl tune: {error.name} is not installed (pip install servoctl[tune])"
        raise MissingPackageError(message) from error
    set_verbosity(WARNING)


def tune(
    problem: SearchProblem,
    folder: Path,
    jobs: int = 1,
    resume: bool = False,
    cluster: "Cluster | None" = None,
    progress: Callable[[float, str], None] | None = None,
) -> Tuning:
    """Searches. On Ctrl-C, or if a worker process dies or the cluster is lost, returns the trials made so far.

    Args:
        problem: The search.
        folder: Folder of the study; created if it is missing.
        jobs: Threads of generated C, or else processes, that work at the same time; the trials do not depend on it.
        resume: Whether to continue an existing study.
        cluster: Makes the runs instead of this machine; the trials are the same.
        progress: Called with the fraction that is done, 0 to 1, and the best objective so far in a few words.

    Raises:
        ConfigError: The folder holds a study already, or with `resume` the study of another config.
        MissingPackageError: Optuna is not installed.
        RunFolderError: The study is damaged, in use or unreachable, or a trial cannot be stored.
    """
    require_packages()
    planned = problem.tune.trials * len(problem.scenarios)
    with TrialStore(folder, problem, resume) as store, Processes(jobs) as processes:

        def runs_of(run: Run, points: Sequence[Point]) -> Iterator[Row]:
            return run_all(run, points, jobs, cluster, planned, processes)

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
            if progress is not None and problem.tune.refine:
                progress(1.0, f"{_best_so_far(problem, store)}, refining")
            refinement = _refined(problem, evaluator, store)
        except KeyboardInterrupt:
            pass  # the summary says `interrupted`
        except ClusterError as error:
            broken = str(error)
        except BrokenProcessPool:
            broken = "a worker process of the search was killed, or ran out of memory (use fewer --jobs)"
        wall_time, count = searched or (perf_counter() - began, evaluator.runs - runs)
        here, engine = len(store.trials) - before, ", ".join(sorted(evaluator.engines)) or None
        trials = tuple(store.trials)
        return Tuning(problem, trials, baseline, wall_time, here, count, engine, broken, refinement=refinement)


def _refined(problem: SearchProblem, evaluator: Evaluator, store: TrialStore) -> Refinement | None:
    """The result of a refinement of the best trial, stored if it is better. A stored result is used again.

    Raises:
        RunFolderError: The trial cannot be stored.
    """
    if not problem.tune.refine:
        return None
    best = _best(store.searched)
    if best is None:
        return Refinement(None, why="no trial is feasible")
    for trial in store.trials:
        if trial.refined == best.number:
            return Refinement(best.number, 0, (), trial.at, trial.evaluation)
    refinement = refine(problem, best, evaluator)
    if refinement.point is not None and refinement.evaluation is not None:
        store.add(Trial(len(store.trials), refinement.point, refinement.evaluation, best.number))
    return refinement


def _best(trials: Sequence[Trial]) -> Trial | None:
    """The feasible trial with the least first objective; None: there is none."""
    done = [trial for trial in trials if trial.evaluation.status == DONE]
    return min(done, key=lambda trial: trial.evaluation.values, default=None)


def _best_so_far(problem: SearchProblem, store: TrialStore) -> str:
    best = _best(store.trials)
    if problem.several:
        return f"{len(store.trials)} trials"
    return "none feasible yet" if best is None else f"best {problem.objectives[0]} {best.evaluation.values[0]:.4g}"
