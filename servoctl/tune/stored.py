"""Checks that a study on disk holds what a search wrote there.

Design: anybody can edit the file, and Optuna does not check it. So every trial is checked field by field before it
counts; the error names the trial and the field, and the study is not changed.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from servoctl.errors import ConfigError
from servoctl.tune.evaluator import DONE, FAILED, INFEASIBLE, PRUNED, Evaluation

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study
    from optuna.trial import FrozenTrial

EVALUATION, REFINED, BEGAN_WITH = "verdict", "refined", "config"

REMEDY = "(restore it, or choose another --out)"


def check_study(study: "Study", trials: Sequence["FrozenTrial"], objectives: int, storage: str) -> None:
    """Raises ConfigError unless a search could have written this study.

    Args:
        study: The study.
        trials: Its trials, in order.
        objectives: Number of objectives.
        storage: Name of the storage for messages.
    """
    from optuna.study import StudyDirection

    if not trials:
        return
    if [*study.directions] != [StudyDirection.MINIMIZE] * objectives:
        raise ConfigError(f"{storage}: altered: the study does not minimise {objectives} objectives {REMEDY}")
    if not isinstance(study.user_attrs.get(BEGAN_WITH), dict):
        raise ConfigError(f"{storage}: altered: the config that the study began with is missing {REMEDY}")
    for number, trial in enumerate(trials):
        if trial.number != number:
            raise ConfigError(f"{storage}: altered: trial {number} is missing or occurs twice {REMEDY}")


def check_trial(
    trial: "FrozenTrial", space: "dict[str, BaseDistribution]", objectives: int, count: int, storage: str
) -> None:
    """Raises ConfigError unless a search could have written this trial.

    Args:
        trial: The trial.
        space: Path -> distribution that the search draws from.
        objectives: Number of objectives.
        count: Number of trials in the study.
        storage: Name of the storage for messages.
    """
    wrong = _wrong_point(trial, space) or _wrong_evaluation(trial.user_attrs[EVALUATION], objectives)
    wrong = wrong or _wrong_end(trial, trial.user_attrs[EVALUATION])
    refined = trial.user_attrs.get(REFINED, 0)
    if wrong is None and not (type(refined) is int and 0 <= refined < count):
        wrong = f"{REFINED}: expected the number of a trial, got {refined!r}"
    if wrong is not None:
        raise ConfigError(f"{storage}: altered: trial {trial.number}: {wrong} {REMEDY}")


def _wrong_point(trial: "FrozenTrial", space: "dict[str, BaseDistribution]") -> str | None:
    """The problem with the values of a trial; None: there is none."""
    for path in {**space, **trial.params}:
        if path not in space:
            return f"{path}: the search has no such path"
        if path not in trial.params:
            return f"{path}: the value is missing"
        if trial.distributions.get(path) != space[path]:
            return f"{path}: the range is not that of the search"
        if not space[path]._contains(space[path].to_internal_repr(trial.params[path])):
            return f"{path}: {trial.params[path]!r} is out of range"
    return None


def _wrong_evaluation(fields: Any, objectives: int) -> str | None:
    """The problem with the evaluation of a trial; None: there is none."""
    names = list(Evaluation.__dataclass_fields__)
    if not isinstance(fields, dict) or sorted(fields) != sorted(names):
        return f"{EVALUATION}: expected a mapping of {', '.join(names)}"
    if fields["status"] not in (DONE, INFEASIBLE, PRUNED, FAILED):
        return f"{EVALUATION}.status: expected {DONE}, {INFEASIBLE}, {PRUNED} or {FAILED}, got {fields['status']!r}"
    if fields["reason"] is not None and not isinstance(fields["reason"], str):
        return f"{EVALUATION}.reason: expected a text, got {fields['reason']!r}"
    if type(fields["runs"]) is not int:
        return f"{EVALUATION}.runs: expected an integer, got {fields['runs']!r}"
    expected = objectives if fields["status"] in (DONE, INFEASIBLE) else 0
    values = fields["values"]
    if not isinstance(values, list) or len(values) != expected or not all(_is_number(x) for x in values):
        return f"{EVALUATION}.values: expected {expected} numbers, got {values!r}"
    for name in ("metrics", "excess"):
        if not isinstance(fields[name], dict) or not all(map(_is_number, fields[name].values())):
            return f"{EVALUATION}.{name}: expected a mapping of numbers, got {fields[name]!r}"
    missing = sorted(set(fields["excess"]) - set(fields["metrics"])) if expected else []
    return f"{EVALUATION}.metrics: {missing[0]} is missing" if missing else None


def _wrong_end(trial: "FrozenTrial", fields: dict[str, Any]) -> str | None:
    """The problem with what Optuna reads of a trial, compared with our evaluation; None: there is none."""
    from optuna.trial import TrialState

    complete = fields["status"] in (DONE, INFEASIBLE)
    if trial.state != (TrialState.COMPLETE if complete else TrialState.PRUNED):
        return f"state: {trial.state.name} of a trial that is {fields['status']}"
    if complete and (trial.values is None or not all(map(math.isfinite, trial.values))):
        return f"values: expected numbers, got {trial.values}"
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
