"""Which of the paths matter for reaching the best trials."""

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from servoctl.tune.problem import SearchProblem
from servoctl.tune.search import distributions

if TYPE_CHECKING:
    from servoctl.tune.result import Trial

FEWEST = 20
"""Trials with a value, of which something can be said."""


def importance(problem: SearchProblem, trials: Sequence["Trial"]) -> dict[str, float]:
    """Path -> its share, all together 1, the greatest first; of the first objective where there are several.

    Source: PED-ANOVA, Watanabe et al. 2023, as Optuna has it: how far the values of the best tenth are from those of
    all.
    """
    from optuna import create_study
    from optuna.exceptions import ExperimentalWarning
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
    from optuna.trial import create_trial

    counted = [trial for trial in trials if trial.verdict.values and trial.refined is None]
    if len(counted) < FEWEST or len({trial.verdict.values[0] for trial in counted}) < 2:
        return {}
    space = distributions(problem.tune)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        study = create_study()
        for trial in counted:
            study.add_trial(create_trial(value=trial.verdict.values[0], params=trial.at, distributions=space))
        return dict(get_param_importances(study, evaluator=PedAnovaImportanceEvaluator()))
