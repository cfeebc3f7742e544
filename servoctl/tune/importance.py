"""Computes how much each searched path matters for reaching the best trials."""

import warnings
from collections.abc import Sequence

from servoctl.config.tune import Tune
from servoctl.tune.problem import Point
from servoctl.tune.search import distributions

FEWEST = 20
"""Least number of trials for a meaningful result."""


def importance(tune: Tune, trials: Sequence[tuple[Point, float]]) -> dict[str, float]:
    """Path -> its importance, all together 1, the greatest first; empty if there are too few trials.

    Source: PED-ANOVA, Watanabe et al. 2023, in Optuna's implementation: it compares the distribution of the values of
    the best tenth of all trials with the distribution of all values.

    Args:
        tune: The search.
        trials: Values of the searched paths, and the first objective, of each trial.
    """
    from optuna import create_study
    from optuna.exceptions import ExperimentalWarning
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
    from optuna.trial import create_trial

    if len(trials) < FEWEST or len({value for _, value in trials}) < 2:
        return {}
    space = distributions(tune)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        study = create_study()
        for point, value in trials:
            study.add_trial(create_trial(value=value, params=point, distributions=space))
        return dict(get_param_importances(study, evaluator=PedAnovaImportanceEvaluator()))
