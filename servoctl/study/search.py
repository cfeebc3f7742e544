"""Runs a search from the problem to the result.

Design: the trials of a generation depend only on the seed, the number of the generation, and the trials of earlier
generations. Each generation uses a new sampler with its own seed, and a study rebuilt from the stored trials. So a
search that was killed asks for the same generation again, keeps its stored trials, and continues with the same result.
The number of workers does not matter: they only make the runs.

The best trial is refined by a descent without derivatives on the same runs, within the ranges of the search:

    minimise J(x)   subject to   excess_j(x) <= 0 for every bound j

Design: COBYQA (Ragonneau 2022, in SciPy) fits quadratic models to the trials that it makes. Each is evaluated as any
trial is, the worst of all plants included. The best feasible one becomes a trial of the study if it is better than the
start. No random numbers are used, so a resumed search comes to the same end.
"""

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from servoctl.config.tune import Range
from servoctl.errors import MissingPackageError
from servoctl.study.batch import Workers, run_all, until_broken
from servoctl.study.points import Point, at_share
from servoctl.study.problem import DONE, INFEASIBLE, Evaluation, Evaluator, SearchProblem, in_range
from servoctl.study.trials import Refinement, Trial, TrialStore, Tuning, distributions, frozen
from servoctl.types import Array

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial

FIRST, LAST = 0.1, 1e-5  # radius of the models at the start, and at which the descent ends, in widths of the ranges

WALL, BEYOND = 10.0, 1.0
"""Objective, in units of that of the start, and excess over each bound of a trial that has none."""

MARGIN = 1e-6  # distance that is kept from a bound, relative to it, so that round-off does not cross it


def search(
    problem: SearchProblem,
    evaluator: Evaluator,
    store: TrialStore,
    progress: Callable[[float], None] | None = None,
) -> None:
    """Adds trials to a store up to `tune.trials`.

    Args:
        store: Receives finished trials; trials that it already holds count.

    Raises:
        RunFolderError: A trial cannot be stored.
        KeyboardInterrupt: The user interrupted; every finished trial is stored.
    """
    tune = problem.tune
    while len(before := store.searched) < tune.trials:
        generation, known = divmod(len(before), tune.generation)
        first = generation * tune.generation
        count = min(tune.generation, tune.trials - first)
        asked = ask(problem, before[:first], generation, count)[known:]

        def tell(fraction: float, begun: int = first + known, size: int = len(asked)) -> None:
            if progress is not None:
                progress((begun + fraction * size) / tune.trials)

        points = [dict(trial.params) for trial in asked]
        evaluations = evaluator.evaluate(points, tell)
        for trial, point, evaluation in zip(asked, points, evaluations, strict=True):
            store.add_trial(Trial(len(store.trials), point, evaluation, None, trial.system_attrs))


def ask(problem: SearchProblem, before: Sequence[Trial], generation: int, count: int) -> list["FrozenTrial"]:
    """The trials of a generation, not yet evaluated.

    Args:
        before: The trials of all earlier generations.
        generation: Number of the generation, from 0.
        count: Number of trials; a smaller count gives the first of the same trials.
    """
    from optuna import create_study
    from optuna.exceptions import ExperimentalWarning

    space = distributions(problem.tune)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        study = create_study(directions=["minimize"] * len(problem.objectives), sampler=_sampler(problem, generation))
        study.add_trials([frozen(trial, problem.tune) for trial in before])
        if generation == 0 and in_range(problem):
            study.enqueue_trial(dict(problem.baseline))
        for _ in range(count):
            study.ask(space)
        return list(study.get_trials(deepcopy=False)[len(before) :])


def _sampler(problem: SearchProblem, generation: int) -> "BaseSampler":
    from optuna import samplers

    tune = problem.tune
    seed = int(np.random.SeedSequence([tune.seed, generation]).generate_state(1)[0])
    kind = problem.sampler
    if kind == "cmaes":
        return samplers.CmaEsSampler(seed=seed, popsize=max(2, tune.generation), warn_independent_sampling=False)
    if kind == "nsga2":
        return samplers.NSGAIISampler(seed=seed, population_size=max(2, tune.generation))
    if kind == "random":
        return samplers.RandomSampler(seed=seed)
    return samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)


def require_packages() -> None:
    """Checks that Optuna and its samplers are installed, and limits Optuna's log to warnings.

    Raises:
        MissingPackageError: A package is not installed.
    """
    try:
        import cmaes  # noqa: F401  (Optuna itself imports it only in the middle of a search)
        from optuna.logging import WARNING, set_verbosity
    except ImportError as error:
        message = f"servoctl tune: {error.name} is not installed (pip install 'servoctl[tune]')"
        raise MissingPackageError(message) from error
    set_verbosity(WARNING)


def tune(
    problem: SearchProblem,
    folder: Path,
    workers: Workers | None = None,
    resume: bool = False,
    progress: Callable[[float, str], None] | None = None,
) -> Tuning:
    """Searches. On Ctrl-C, or if a worker process dies or the cluster is lost, returns the trials made so far.

    Args:
        folder: Folder of the study; created if it is missing.
        workers: Make the runs, as of `run_all`; the trials do not depend on them.
        resume: Whether to continue an existing study.
        progress: Called with the fraction that is done, 0 to 1, and the best objective so far in a few words.

    Raises:
        ConfigError: The folder holds a study already, or with `resume` the study of another config.
        MissingPackageError: Optuna is not installed.
        RunFolderError: The study is damaged, in use or unreachable, or a trial cannot be stored.
    """
    require_packages()
    planned = problem.tune.trials * len(problem.scenarios)
    with TrialStore(folder, problem, resume) as store:
        evaluator = Evaluator(problem, lambda run, points: run_all(run, points, workers, planned))
        before = len(store.trials)
        baseline = evaluator.evaluate([{}])[0]  # compiles, so that the search is timed without it
        runs, began = evaluator.runs, perf_counter()

        def tell(fraction: float) -> None:
            if progress is not None:
                progress(fraction, _best_so_far(problem, store))

        refinement, searched = None, None
        with until_broken("search") as broken:
            search(problem, evaluator, store, tell)
            searched = perf_counter() - began, evaluator.runs - runs
            if progress is not None and problem.tune.refine:
                progress(1.0, f"{_best_so_far(problem, store)}, refining")
            refinement = _refined(problem, evaluator, store)
        wall_time, count = searched or (perf_counter() - began, evaluator.runs - runs)
        here, engine = len(store.trials) - before, ", ".join(sorted(evaluator.engines)) or None
        trials = tuple(store.trials)
        return Tuning(problem, trials, baseline, wall_time, here, count, engine, broken.why, refinement=refinement)


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
            return Refinement(best.number)
    refinement, better = refine(problem, best, evaluator)
    if better is not None:
        store.add_trial(Trial(len(store.trials), *better, best.number))
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


def refine(
    problem: SearchProblem, start: Trial, evaluator: Evaluator
) -> tuple[Refinement, tuple[Point, Evaluation] | None]:
    """Makes at most `tune.refine` trials near a feasible one; returns the best of them too, if it is better.

    Args:
        problem: The search, of a single objective.
        start: The trial.
    """
    from scipy import optimize

    ranges = {
        path: choice
        for path, choice in problem.tune.search.items()
        if isinstance(choice, Range) and choice.step is None and choice.low < choice.high
    }
    held = tuple(path for path in problem.tune.search if path not in ranges)
    if not ranges:
        return Refinement(start.number, held=held, why="no path of search has a range without steps"), None
    first = np.array([_share(choice, float(start.at[path])) for path, choice in ranges.items()])
    made = {first.tobytes(): (start.at, start.evaluation)}
    unit = abs(start.evaluation.values[0]) or 1.0

    def evaluated(x: Array) -> Evaluation:
        inside = np.clip(x, 0.0, 1.0)
        if inside.tobytes() not in made:
            values = {path: _value(choice, x) for (path, choice), x in zip(ranges.items(), inside, strict=True)}
            at = {**start.at, **values}
            made[inside.tobytes()] = at, evaluator.evaluate([at])[0]
        return made[inside.tobytes()][1]

    def objective(x: Array) -> float:
        values = evaluated(x).values
        return values[0] / unit if values else WALL

    def excess(x: Array) -> list[float]:
        evaluation = evaluated(x)
        missing = -MARGIN if evaluation.status in (DONE, INFEASIBLE) else BEYOND
        return [min(evaluation.excess.get(name, missing), BEYOND) for name in problem.bounds]

    solve: Any = optimize.minimize  # its type stubs reject these arguments
    solve(
        objective, first, method="COBYQA", bounds=optimize.Bounds(np.zeros(len(first)), np.ones(len(first))),
        constraints=[optimize.NonlinearConstraint(excess, -np.inf, -MARGIN)] if problem.bounds else [],
        options={"maxfev": problem.tune.refine, "initial_tr_radius": FIRST, "final_tr_radius": LAST},
    )  # fmt: skip
    steps = len(made) - 1
    best = min((each for each in made.values() if each[1].status == DONE), key=lambda each: each[1].values)
    if best[1].values >= start.evaluation.values:
        return Refinement(start.number, steps, held, why="no trial near it is better"), None
    return Refinement(start.number, steps, held), best


def _share(choice: Range, value: float) -> float:
    """Where a value lies in a range, 0 to 1, on its scale."""
    low, high, x = (
        np.log([choice.low, choice.high, value]) if choice.scale == "log" else (choice.low, choice.high, value)
    )
    return float(np.clip((x - low) / (high - low), 0.0, 1.0))


def _value(choice: Range, share: float) -> float:
    """The inverse of `_share`."""
    return float(np.clip(at_share(choice.low, choice.high, choice.scale == "log", share), choice.low, choice.high))
