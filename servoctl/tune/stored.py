"""Whether what a study on disk holds is what a search has put there.

Design: a store is a file that anybody can edit, and Optuna believes what it reads. So every trial is made again from
its own parts before it counts: what differs is said by its trial and field, and nothing of the study is touched.
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

VERDICT, REFINED, BEGAN_WITH = "verdict", "refined", "config"

REMEDY = "(restore it, or choose another --out)"


def check_study(study: "Study", trials: Sequence["FrozenTrial"], objectives: int, place: str) -> None:
    """Raises ConfigError where a study with trials is not one that a search could have left.

    Args:
        study: The study.
        trials: Its trials, in order.
        objectives: How many there are.
        place: The storage as a person knows it.
    """
    from optuna.study import StudyDirection

    if not trials:
        return
    if [*study.directions] != [StudyDirection.MINIMIZE] * objectives:
        raise ConfigError(f"{place}: altered: the study does not minimise {objectives} objectives {REMEDY}")
    if not isinstance(study.user_attrs.get(BEGAN_WITH), dict):
        raise ConfigError(f"{place}: altered: the config that the study began with is missing {REMEDY}")
    for number, trial in enumerate(trials):
        if trial.number != number:
            raise ConfigError(f"{place}: altered: trial {number} is missing, or there twice {REMEDY}")


def check_trial(
    trial: "FrozenTrial", space: "dict[str, BaseDistribution]", objectives: int, count: int, place: str
) -> None:
    """Raises ConfigError where a trial is not one that a search could have left.

    Args:
        trial: The trial.
        space: Path -> what is drawn from.
        objectives: How many there are.
        count: Number of trials.
        place: The storage as a person knows it.
    """
    wrong = _wrong_point(trial, space) or _wrong_verdict(trial.user_attrs[VERDICT], objectives)
    wrong = wrong or _wrong_end(trial, trial.user_attrs[VERDICT])
    refined = trial.user_attrs.get(REFINED, 0)
    if wrong is None and not (type(refined) is int and 0 <= refined < count):
        wrong = f"{REFINED}: expected the number of a trial, got {refined!r}"
    if wrong is not None:
        raise ConfigError(f"{place}: altered: trial {trial.number}: {wrong} {REMEDY}")


def _wrong_point(trial: "FrozenTrial", space: "dict[str, BaseDistribution]") -> str | None:
    """What is wrong with the values that were tried."""
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


def _wrong_verdict(said: Any, objectives: int) -> str | None:
    """What is wrong with what became of the trial."""
    fields = list(Evaluation.__dataclass_fields__)
    if not isinstance(said, dict) or sorted(said) != sorted(fields):
        return f"{VERDICT}: expected a mapping of {', '.join(fields)}"
    if said["status"] not in (DONE, INFEASIBLE, PRUNED, FAILED):
        return f"{VERDICT}.status: expected {DONE}, {INFEASIBLE}, {PRUNED} or {FAILED}, got {said['status']!r}"
    if said["reason"] is not None and not isinstance(said["reason"], str):
        return f"{VERDICT}.reason: expected a text, got {said['reason']!r}"
    if type(said["runs"]) is not int:
        return f"{VERDICT}.runs: expected an integer, got {said['runs']!r}"
    expected = objectives if said["status"] in (DONE, INFEASIBLE) else 0
    values = said["values"]
    if not isinstance(values, list) or len(values) != expected or not all(_is_number(x) for x in values):
        return f"{VERDICT}.values: expected {expected} numbers, got {values!r}"
    for name in ("metrics", "excess"):
        if not isinstance(said[name], dict) or not all(map(_is_number, said[name].values())):
            return f"{VERDICT}.{name}: expected a mapping of numbers, got {said[name]!r}"
    missing = sorted(set(said["excess"]) - set(said["metrics"])) if expected else []
    return f"{VERDICT}.metrics: {missing[0]} is missing" if missing else None


def _wrong_end(trial: "FrozenTrial", said: dict[str, Any]) -> str | None:
    """Whether Optuna is told the same as we are."""
    from optuna.trial import TrialState

    complete = said["status"] in (DONE, INFEASIBLE)
    if trial.state != (TrialState.COMPLETE if complete else TrialState.PRUNED):
        return f"state: {trial.state.name} of a trial that is {said['status']}"
    if complete and (trial.values is None or not all(map(math.isfinite, trial.values))):
        return f"values: expected numbers, got {trial.values}"
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
