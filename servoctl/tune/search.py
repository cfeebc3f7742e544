"""Generations of trials: which come next, and what becomes of them.

Design: the trials of a generation are a function of the seed, the number of the generation and the trials of those
before, and of nothing else: a new sampler each time, seeded for that generation, in a study that is built from what is
stored. So a search that was killed asks again for the generation in which it was, keeps what of it is stored, and goes
on as if nothing had been; and the number of workers, who only make the runs, changes nothing.
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
from servoctl.tune.stored import REFINED, VERDICT

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial

LOST = 1e3
"""Excess that a trial without all its runs counts as, beside those that are known."""

PENALTY = 10.0
"""A sampler that knows no constraints is told an objective worse by so many times its size per unit of excess."""


def search(
    problem: SearchProblem,
    judge: Evaluator,
    store: Store,
    progress: Callable[[float], None] | None = None,
) -> None:
    """Fills a store up to the number of trials that is wanted.

    Args:
        problem: What is searched.
        judge: What makes the runs.
        store: Where finished trials go; those that are there count.
        progress: Called with the fraction that is done, 0 to 1.

    Raises:
        RunFolderError: A trial cannot be stored.
        KeyboardInterrupt: Every trial that has finished is stored.
    """
    tune = problem.tune
    while len(before := store.sought) < tune.trials:
        generation, known = divmod(len(before), tune.generation)
        first = generation * tune.generation
        count = min(tune.generation, tune.trials - first)
        asked = ask(problem, before[:first], generation, count)[known:]

        def tell(fraction: float, begun: int = first + known, size: int = len(asked)) -> None:
            if progress is not None:
                progress((begun + fraction * size) / tune.trials)

        points = [dict(trial.params) for trial in asked]
        for trial, verdict in zip(asked, judge.judge(points, tell), strict=True):
            store.add(finished(trial, verdict, tune))


def ask(problem: SearchProblem, before: Sequence["FrozenTrial"], generation: int, count: int) -> list["FrozenTrial"]:
    """The trials of a generation, not yet run.

    Args:
        problem: What is searched.
        before: The trials of all generations before.
        generation: Its number, from 0.
        count: How many; fewer are the first of more.
    """
    from optuna import create_study
    from optuna.exceptions import ExperimentalWarning

    space = distributions(problem.tune)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        study = create_study(directions=["minimize"] * len(problem.objectives), sampler=_sampler(problem, generation))
        study.add_trials(before)
        if generation == 0 and in_range(problem):
            study.enqueue_trial(problem.standing)
        for _ in range(count):
            study.ask(space)
        return list(study.get_trials(deepcopy=False)[len(before) :])


def finished(trial: "FrozenTrial", verdict: Evaluation, tune: Tune) -> "FrozenTrial":
    """A trial with what became of it, as the sampler is to see it.

    A trial that failed or was given up counts as far beyond its constraints, so that the sampler learns to avoid it.
    """
    from optuna.trial import TrialState, create_trial

    complete = verdict.status in (DONE, INFEASIBLE)
    excess = verdict.excess if complete else {**verdict.excess, "runs": LOST}
    values = [_told(value, verdict, tune) for value in verdict.values]
    return create_trial(
        state=TrialState.COMPLETE if complete else TrialState.PRUNED,
        values=values if complete else None,
        params=trial.params,
        distributions=trial.distributions,
        user_attrs={VERDICT: verdict.to_dict()},
        system_attrs=trial.system_attrs,
        constraints={name: float(x) for name, x in excess.items()},
    )


def _told(value: float, verdict: Evaluation, tune: Tune) -> float:
    if tune.sampler != "cmaes":
        return value
    beyond = sum(max(0.0, x) for x in verdict.excess.values())
    return value + PENALTY * beyond * (abs(value) or 1.0)


def refined(problem: SearchProblem, found: Refinement) -> "FrozenTrial":
    """What a descent ended at, as a trial that is marked."""
    from optuna.trial import TrialState, create_trial

    assert found.point is not None and found.verdict is not None
    return create_trial(
        state=TrialState.COMPLETE,
        values=list(found.verdict.values),
        params=found.point,
        distributions=dict(distributions(problem.tune)),
        user_attrs={VERDICT: found.verdict.to_dict(), REFINED: found.start},
        constraints={name: float(x) for name, x in found.verdict.excess.items()},
    )


def distributions(tune: Tune) -> dict[str, "BaseDistribution"]:
    """Path -> what Optuna draws from."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    found: dict[str, BaseDistribution] = {}
    for path, choice in tune.search.items():
        if isinstance(choice, Range):
            found[path] = FloatDistribution(choice.low, choice.high, log=choice.scale == "log", step=choice.step)
        else:
            found[path] = CategoricalDistribution(choice)
    return found


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
