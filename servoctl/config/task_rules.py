"""Rules of task entries: each has exactly one kind, and the keys that belong to it."""

from collections.abc import Iterator, Mapping
from typing import Any

from servoctl.config.document import FieldPath, Problem, given, has_robot, task_entries
from servoctl.config.references import wrong_rates
from servoctl.config.robot_rules import NEEDS_ROBOT
from servoctl.config.tasks import EQUATION_KINDS, FRAME_FORMS, TASK_KINDS, Task
from servoctl.expression.suggest import remedy

_TASK_KEYS = {field.alias or name for name, field in Task.model_fields.items()}
_WORDS = tuple(dict.fromkeys(word for form in FRAME_FORMS.values() for word in form.words))

MISSING = {
    "xyz": "position [m], [x, y, z]; or reference: NAME, with columns x, y, z",
    "rpy": "roll, pitch, yaw [rad]; or reference: NAME, with columns qx, qy, qz, qw",
    "along": "direction, [x, y, z]",
    "value": "value [m], a number or an equation",
    "reference": "name of a reference, with columns named as joints",
}


def task_problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Problems of the task entries."""
    first_with: dict[str, int] = {}
    for index, entry in task_entries(values):
        path: FieldPath = ("task", index)
        kinds = given(entry, TASK_KINDS)
        yield from _one_kind(entry, kinds, path)
        if entry.get("parameters") is not None and kinds and "class" not in kinds:
            yield Problem((*path, "parameters"), "needs a class (an equation uses the plant's parameters)")
        if entry.get("unit") is not None and any(kind in FRAME_FORMS for kind in kinds):
            yield Problem((*path, "unit"), "does not fit a task on frames (its rows have units: m and rad)")
        for rate in wrong_rates(entry.get("holonomic"), values.get("references"))[:1]:
            what = f"der({rate}) in a holonomic equation (write it under 'nonholonomic')"
            yield Problem((*path, "holonomic"), what)
        name = entry.get("name")
        if isinstance(name, str) and first_with.setdefault(name, index) != index:
            first = first_with[name] + 1
            yield Problem((*path, "name"), f"{name!r} is the name of entry {first} already (rename entry {index + 1})")
        yield from _reference(entry, values.get("references"), path)
        if len(kinds) == 1:
            yield from _words(entry, kinds[0], path)
            if kinds[0] in FRAME_FORMS and not has_robot(values):
                yield Problem((*path, kinds[0]), f"{NEEDS_ROBOT} (for a class, give holonomic or nonholonomic)")


def row_count(entry: Mapping[str, Any]) -> int | None:
    """Number of rows of a task entry; None if the entry alone does not tell."""
    kinds = given(entry, TASK_KINDS)
    if len(kinds) != 1:
        return None
    (kind,) = kinds
    if kind in EQUATION_KINDS:
        return 1
    if kind == "com":
        return len(entry[kind]) if isinstance(entry[kind], list) else None
    if kind == "posture":
        return len(entry[kind]) if isinstance(entry[kind], Mapping) else None
    return FRAME_FORMS[kind].rows if kind in FRAME_FORMS else None


def _one_kind(entry: Mapping[str, Any], kinds: list[str], path: FieldPath) -> Iterator[Problem]:
    for other in kinds[1:]:
        yield Problem((*path, other), f"cannot be used with {kinds[0]} (a task entry has exactly one of them)")
    if not kinds and entry.keys() <= _TASK_KEYS:
        yield Problem(path, f"no equation (give exactly one of {', '.join(TASK_KINDS)})")


def _words(entry: Mapping[str, Any], kind: str, path: FieldPath) -> Iterator[Problem]:
    """Keys that do not fit the kind, and those that it lacks."""
    allowed = FRAME_FORMS[kind].words if kind in FRAME_FORMS else ()
    for word in given(entry, _WORDS):
        if word not in allowed:
            fitting = f"it takes {', '.join(allowed)}" if allowed else "it belongs to tasks on frames"
            yield Problem((*path, word), f"does not fit {kind} ({fitting})")
    if kind == "posture":
        yield from _posture(entry, path)
        return
    yield from _target(entry, [word for word in ("xyz", "rpy") if word in allowed], path)
    for word in ("along", "value"):
        if word in allowed and entry.get(word) is None:
            yield Problem((*path, word), f"missing ({MISSING[word]})")
    for axis in _repeated(entry["com"]) if kind == "com" else []:
        yield Problem((*path, "com"), f"has {axis} twice (name each coordinate once)")
    if kind in ("com", "distance") and entry.get("value") is not None:
        yield from _values(entry, kind, path)


def _target(entry: Mapping[str, Any], words: list[str], path: FieldPath) -> Iterator[Problem]:
    """Position and rotation come from xyz and rpy, or from a reference."""
    left_out = [word for word in words if entry.get(word) is None]
    if entry.get("reference") is None:
        for word in left_out:
            yield Problem((*path, word), f"missing ({MISSING[word]})")
    elif words and not left_out:
        yield Problem((*path, "reference"), f"cannot be used with {' and '.join(words)} (leave one of them out)")


def _reference(entry: Mapping[str, Any], references: Any, path: FieldPath) -> Iterator[Problem]:
    """The reference of an entry is one of the config's."""
    name, known = entry.get("reference"), references if isinstance(references, Mapping) else {}
    if isinstance(name, str) and name not in known:
        yield Problem((*path, "reference"), f"there is no reference {name!r} ({remedy(name, known)})")


def _repeated(axes: Any) -> list[str]:
    """Texts that a list has more than once."""
    words = [axis for axis in axes if isinstance(axis, str)] if isinstance(axes, list) else []
    return [word for word in dict.fromkeys(words) if words.count(word) > 1]


def _values(entry: Mapping[str, Any], kind: str, path: FieldPath) -> Iterator[Problem]:
    value, rows = entry["value"], row_count(entry)
    count = len(value) if isinstance(value, list) else 1
    if rows and count != rows:
        many = "1 value" if count == 1 else f"{count} values"
        what = "a distance is one number" if kind == "distance" else f"give one per coordinate: {rows}"
        yield Problem((*path, "value"), f"{many} for {kind} ({what})")


def _posture(entry: Mapping[str, Any], path: FieldPath) -> Iterator[Problem]:
    posture = entry["posture"]
    if isinstance(posture, Mapping) and not posture:
        yield Problem((*path, "posture"), "no joint (give initial, reference, or joint -> coordinate)")
    if posture == "reference" and entry.get("reference") is None:
        yield Problem((*path, "reference"), f"missing ({MISSING['reference']})")
    if posture != "reference" and entry.get("reference") is not None:
        yield Problem((*path, "reference"), "does not fit this posture (write posture: reference)")
