"""Wrong values -> a config all the same, so that what does not hang on them can be checked beside them.

Design: a wrong value is left out, and where its field has no default something stands in for it. What is said of the
result counts only as far as it lies off the fields that were wrong; it must never run.
"""

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from servoctl.config.document import FieldPath
from servoctl.config.fields import LIST, MAPPING, SCALAR
from servoctl.config.schema import Config

ROUNDS = 4
"""Times that what is left is looked at again: to leave a value out can show what it hid."""

_LARGE = 1e300
_STAND_INS: dict[str, Any] = {
    "name": "nameless", "q": 0.0, "law": "none", "duration": 1.0, "initial": {"q": 0.0}, "run": {"duration": 1.0},
    "fix": [], "actuator": "nothing", "coordinate": "nothing", "bus": "nothing", "protocol": "nothing", "node": 0,
    "torque_limit": _LARGE, "torque_rate_limit": _LARGE, "speed_limit": _LARGE, "position_limits": [-_LARGE, _LARGE],
    "period": 0.001, "buses": {}, "drives": [],
}  # fmt: skip
"""Field without a default -> a value that fits it."""


def mended(values: Mapping[str, Any], wrong: Iterable[FieldPath]) -> Config | None:
    """The config that values make without those that are wrong; None where too little is left.

    Args:
        values: Top level of a config.
        wrong: Fields that are known to be wrong, those that break a rule included.
    """
    left = copy.deepcopy(dict(values))
    for path in sorted(set(wrong), key=len, reverse=True):
        _leave_out(left, path)
    for _ in range(ROUNDS):
        try:
            return Config.model_validate(left)
        except ValidationError as errors:
            for error in errors.errors(include_url=False):
                path = tuple(part for part in error["loc"] if part not in (SCALAR, LIST, MAPPING))
                if error["type"] == "missing":
                    _stand_in(left, path)
                else:
                    _leave_out(left, (*path, *error.get("ctx", {}).get("at", ())))
    return None


def _leave_out(values: Any, path: FieldPath) -> None:
    """Takes a value out; entries of a list keep their places."""
    node = values
    for part in path[:-1]:
        node = _under(node, part)
    if path and isinstance(node, dict):
        node.pop(path[-1], None)
    elif path and isinstance(node, list) and isinstance(path[-1], int) and path[-1] < len(node):
        node[path[-1]] = {}


def _stand_in(values: Any, path: FieldPath) -> None:
    node = values
    for part in path[:-1]:
        node = _under(node, part)
    if isinstance(node, dict) and path[-1] in _STAND_INS:
        node[path[-1]] = copy.deepcopy(_STAND_INS[str(path[-1])])
    elif len(path) > 1:
        _leave_out(values, path[:-1])


def _under(node: Any, part: str | int) -> Any:
    if isinstance(node, dict):
        return node.get(part)
    return node[part] if isinstance(node, list) and isinstance(part, int) and part < len(node) else None
