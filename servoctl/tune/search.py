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

from servoctl.config.tune import Range, Tune
from servoctl.tune.evaluator import DONE, INFEASIBLE, Evaluation, Evaluator
from servoctl.tune.problem import SearchProblem, in_range
from servoctl.tune.refine import Refinement
from servoctl.tune.store import Store
from servoctl.tune.stored import EVALUATION, REFINED

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial

LOST = 1e3
"""Excess that the sampler is told for a trial that failed or was pruned."""

PENALTY = 10.0
"""For a sampler without constraints, the objective grows by this many times its size per unit of excess."""


def search(
    problem: SearchProblem,
    evaluator: Evaluator,
    store: Store,
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
        for trial, evaluation in zip(asked, evaluator.evaluate(points, tell), strict=True):
            store.add(finished(trial, evaluation, tune))


def ask(problem: SearchProblem, before: Sequence["FrozenTrial"], generation: int, count: int) -> list["FrozenTrial"]:
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
        study.add_trials(before)
        if generation == 0 and in_range(problem):
            study.enqueue_trial(problem.baseline)
        for _ in range(count):
            study.ask(space)
        return list(study.get_trials(deepcopy=False)[len(before) :])


def finished(trial: "FrozenTrial", evaluation: Evaluation, tune: Tune) -> "FrozenTrial":
    """A trial with its result in the form that the sampler reads.

    A trial that failed or was pruned counts as far beyond its constraints, so that the sampler avoids its region.
    """
    from optuna.trial import TrialState, create_trial

    complete = evaluation.status in (DONE, INFEASIBLE)
    excess = evaluation.excess if complete else {**evaluation.excess, "runs": LOST}
    values = [_penalised(value, evaluation, tune) for value in evaluation.values]
    return create_trial(
        state=TrialState.COMPLETE if complete else TrialState.PRUNED,
        values=values if complete else None,
        params=trial.params,
        distributions=trial.distributions,
        user_attrs={EVALUATION: evaluation.to_dict()},
        system_attrs=trial.system_attrs,
        constraints={name: float(x) for name, x in excess.items()},
    )


def _penalised(value: float, evaluation: Evaluation, tune: Tune) -> float:
    """The objective, with a penalty for violated constraints if the sampler (CMA-ES) knows none."""
    if tune.sampler != "cmaes":
        return value
    beyond = sum(max(0.0, x) for x in evaluation.excess.values())
    return value + PENALTY * beyond * (abs(value) or 1.0)


def refined(problem: SearchProblem, refinement: Refinement) -> "FrozenTrial":
    """The end of a descent, as a marked trial."""
    from optuna.trial import TrialState, create_trial

    assert refinement.point is not None and refinement.evaluation is not None
    return create_trial(
        state=TrialState.COMPLETE,
        values=list(refinement.evaluation.values),
        params=refinement.point,
        distributions=dict(distributions(problem.tune)),
        user_attrs={EVALUATION: refinement.evaluation.to_dict(), REFINED: refinement.start},
        constraints={name: float(x) for name, x in refinement.evaluation.excess.items()},
    )


def distributions(tune: Tune) -> dict[str, "BaseDistribution"]:
    """Path -> the distribution that Optuna draws from."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    space: dict[str, BaseDistribution] = {}
    for path, choice in tune.search.items():
        if isinstance(choice, Range):
            space[path] = FloatDistribution(choice.low, choice.high, log=choice.scale == "log", step=choice.step)
        else:
            space[path] = CategoricalDistribution(choice)
    return space


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
