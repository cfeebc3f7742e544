"""A config with wrong values -> a usable config, so that its other values can be checked too.

Design: a wrong value is removed; a field without a default gets a substitute. Problems found in the result are reported
only for fields that were not wrong. The result must never run.
"""

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from servoctl.config.document import FieldPath
from servoctl.config.fields import LIST, MAPPING, SCALAR
from servoctl.config.schema import Config

ROUNDS = 4  # repeated checks: removing a value can uncover another problem

_LARGE = 1e300
_SUBSTITUTES: dict[str, Any] = {
    "name": "nameless", "q": 0.0, "law": "none", "duration": 1.0, "initial": {"q": 0.0}, "run": {"duration": 1.0},
    "fix": [], "actuator": "nothing", "coordinate": "nothing", "bus": "nothing", "protocol": "nothing", "node": 0,
    "torque_limit": _LARGE, "torque_rate_limit": _LARGE, "speed_limit": _LARGE, "position_limits": [-_LARGE, _LARGE],
    "period": 0.001, "buses": {}, "drives": [],
}  # fmt: skip
"""Field without a default -> a valid value."""


def repaired(values: Mapping[str, Any], wrong: Iterable[FieldPath]) -> Config | None:
    """The config without its wrong values; None if too little is left.

    Args:
        values: Top level of a config.
        wrong: Fields that are known to be wrong, including those that break a rule.
    """
    left = copy.deepcopy(dict(values))
    for path in sorted(set(wrong), key=len, reverse=True):
        _remove(left, path)
    for _ in range(ROUNDS):
        try:
            return Config.model_validate(left)
        except ValidationError as errors:
            for error in errors.errors(include_url=False):
                path = tuple(part for part in error["loc"] if part not in (SCALAR, LIST, MAPPING))
                if error["type"] == "missing":
                    _substitute(left, path)
                else:
                    _remove(left, (*path, *error.get("ctx", {}).get("at", ())))
    return None


def _remove(values: Any, path: FieldPath) -> None:
    """Removes a value; an entry of a list becomes an empty mapping, so that the others keep their index."""
    node = values
    for part in path[:-1]:
        node = _under(node, part)
    if path and isinstance(node, dict):
        node.pop(path[-1], None)
    elif path and isinstance(node, list) and isinstance(path[-1], int) and path[-1] < len(node):
        node[path[-1]] = {}


def _substitute(values: Any, path: FieldPath) -> None:
    """Fills a missing field, or removes its section if there is no substitute."""
    node = values
    for part in path[:-1]:
        node = _under(node, part)
    if isinstance(node, dict) and path[-1] in _SUBSTITUTES:
        node[path[-1]] = copy.deepcopy(_SUBSTITUTES[str(path[-1])])
    elif len(path) > 1:
        _remove(values, path[:-1])


def _under(node: Any, part: str | int) -> Any:
    if isinstance(node, dict):
        return node.get(part)
    return node[part] if isinstance(node, list) and isinstance(part, int) and part < len(node) else None
