"""Chooses and evaluates trials, one generation after the other.

Design: the trials of a generation depend only on the seed, the number of the generation, and the trials of earlier
generations. Each generation uses a new sampler with its own seed, and a study rebuilt from the stored trials. So a
search that was killed asks for the same generation again, keeps its stored trials, and continues with the same result.
The number of workers does not matter: they only make the runs.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from servoctl.tune.evaluator import Evaluator
from servoctl.tune.problem import SearchProblem, in_range
from servoctl.tune.store import TrialStore
from servoctl.tune.trials import Trial, distributions, frozen

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial


def search(
    problem: SearchProblem,
    evaluator: Evaluator,
    store: TrialStore,
    progress: Callable[[float], None] | None = None,
) -> None:
    """Adds trials to a store up to `tune.trials`.

    Args:
        problem: The search.
        evaluator: Evaluates the trials.
        store: Receives finished trials; trials that it already holds count.
        progress: Called with the fraction that is done, 0 to 1.

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
            store.add(Trial(len(store.trials), point, evaluation, None, trial.system_attrs))


def ask(problem: SearchProblem, before: Sequence[Trial], generation: int, count: int) -> list["FrozenTrial"]:
    """The trials of a generation, not yet evaluated.

    Args:
        problem: The search.
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
            study.enqueue_trial(problem.baseline)
        for _ in range(count):
            study.ask(space)
        return list(study.get_trials(deepcopy=False)[len(before) :])


def _sampler(problem: SearchProblem, generation: int) -> "BaseSampler":
    from optuna import samplers

    tune = problem.tune
    seed = int(np.random.SeedSequence([tune.seed, generation]).generate_state(1)[0])
    kind = tune.sampler or ("nsga2" if problem.several else "tpe")
    if kind == "cmaes":
        return samplers.CmaEsSampler(seed=seed, popsize=max(2, tune.generation), warn_independent_sampling=False)
    if kind == "nsga2":
        return samplers.NSGAIISampler(seed=seed, population_size=max(2, tune.generation))
    if kind == "random":
        return samplers.RandomSampler(seed=seed)
    return samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)
