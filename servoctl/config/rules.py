"""Do the sections of a config fit each other? Rules between the fields of one section are in its class.

Design: the rules read the values as written, not the checked model, so that their problems are reported together with
errors of single fields. The rules skip a value of the wrong shape, because its own field reports it.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from servoctl.config.bounds import bound_problems
from servoctl.config.corrections import CorrectionConfig
from servoctl.config.document import FieldPath, Problem, given, mapping, task_entries
from servoctl.config.realism import estimation_problems, realism_problems
from servoctl.config.robot import robot_problems
from servoctl.config.schema import LawConfig
from servoctl.config.tasks import EQUATION_KINDS, FRAME_FORMS, row_count, task_problems
from servoctl.expression.suggest import remedy

CORRECTION_KINDS = tuple(CorrectionConfig.model_fields)


def check_rules(values: Mapping[str, Any]) -> list[Problem]:
    """All broken rules."""
    rules: tuple[Callable[[Mapping[str, Any]], Iterator[Problem]], ...] = (
        task_problems,
        bound_problems,
        robot_problems,
        _law,
        _terms,
        _poles,
        _corrections,
        realism_problems,
        estimation_problems,
    )
    return [problem for rule in rules for problem in rule(values)]


def _law(values: Mapping[str, Any]) -> Iterator[Problem]:
    law, task, inputs = values.get("law"), values.get("task", []), values.get("inputs")
    if isinstance(law, Mapping) and law.get("class") is not None:
        yield from _own_law(values, law)
    if isinstance(law, Mapping) and task == [] and law.get("class") is None:
        yield Problem(("task",), "no entry (a law follows at least one task; 'law: none' is an open-loop run)")
    if isinstance(law, Mapping) and inputs is not None:
        yield Problem(
            ("inputs",), "cannot be used with a law (the law computes the inputs; an open-loop run has 'law: none')"
        )


def _own_law(values: Mapping[str, Any], law: Mapping[str, Any]) -> Iterator[Problem]:
    """What a law of one's own would not see, because it makes the inputs alone; a default says nothing."""
    own = "does not go with law.class (the class makes the inputs alone: take one of the two out)"
    for key in given(law, LawConfig.model_fields):
        if key not in ("class", "parameters") and law[key] != LawConfig.model_fields[key].default:
            yield Problem(("law", key), own)
    if values.get("bounds"):
        yield Problem(("bounds",), own)
    for i, entry in task_entries(values):
        for key, default in {"correction": None, "priority": 1, "required": True}.items():
            if entry.get(key, default) not in (None, default):
                yield Problem(("task", i, key), own)


def _terms(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Terms of a law that need a period, or constant decay rates of every task."""
    law = mapping(values, "law")
    if law.get("observer") is not None and mapping(values, "run").get("period") is None and "hil" not in values:
        yield Problem(("law", "observer"), "needs a sampled law (give run.period)")
    kinds = [law.get("correction"), *(entry.get("correction") for _, entry in task_entries(values))]
    for field in given(law, ("robust", "adaptive")):
        if any(mapping(kind).get("funnel") is not None for kind in kinds):
            what = "cannot be used with a funnel, which has no constant decay rate (leave one out)"
            yield Problem(("law", field), what)


def _poles(values: Mapping[str, Any]) -> Iterator[Problem]:
    """`poles` is the one correction of law.kind input_output, and of no other law."""
    input_output = mapping(values, "law").get("kind") == "input_output"
    corrections: list[tuple[FieldPath, Any]] = [(("law", "correction"), mapping(values, "law").get("correction"))]
    corrections += [(("task", index, "correction"), entry.get("correction")) for index, entry in task_entries(values)]
    for path, correction in corrections:
        for kind in given(mapping(correction), CORRECTION_KINDS):
            if input_output and kind != "poles":
                yield Problem((*path, kind), "does not fit law.kind input_output (use poles)")
            if not input_output and kind == "poles":
                other = "baumgarte, second_order, p_feedback or funnel"
                yield Problem((*path, kind), f"needs law.kind input_output (or use {other})")


def _corrections(values: Mapping[str, Any]) -> Iterator[Problem]:
    passive: FieldPath = ("plant", "passive", "correction")
    own = mapping(values, "plant", "passive").get("correction")
    yield from _entry_correction(own, passive, rows=None)
    if mapping(own).get("funnel") is not None:
        yield Problem((*passive, "funnel"), "does not fit mechanism constraints (use baumgarte)")
    for index, entry in task_entries(values):
        yield from _entry_correction(entry.get("correction"), ("task", index, "correction"), row_count(entry))
    path: FieldPath = ("law", "correction")
    correction = mapping(values, "law").get("correction")
    entries = task_entries(values)
    common = [row_count(entry) for _, entry in entries if entry.get("correction") is None]
    rows = [count for count in common if count is not None]
    for field, gain in _gains(correction, path):
        if isinstance(gain, Mapping):
            yield from _by_name(gain, field, entries)
        elif isinstance(gain, list) and len(rows) == len(common) and not (field[-1] == "poles" and common == [1]):
            which = "" if len(common) == len(entries) else " that has no correction of its own"
            yield from _length(gain, field, sum(rows), which)


def _entry_correction(correction: Any, path: FieldPath, rows: int | None) -> Iterator[Problem]:
    """Problems of the correction of a task entry, or of the plant; rows is None if only a class knows their number."""
    for field, gain in _gains(correction, path):
        if isinstance(gain, Mapping):
            yield Problem(field, "a mapping by task name (only law.correction has one; here a number, or one per row)")
        elif isinstance(gain, list) and rows is not None and field[-1] != "poles":  # a row has several poles
            yield from _length(gain, field, rows)


def _gains(correction: Any, path: FieldPath) -> Iterator[tuple[FieldPath, Any]]:
    for kind in given(mapping(correction), CORRECTION_KINDS):
        if kind == "poles":
            yield (*path, kind), correction[kind]
            continue
        for word, gain in mapping(correction, kind).items():
            if word == "slope" and isinstance(gain, Mapping | list):
                continue  # the type of the field refuses it
            yield (*path, kind, word), gain


def _length(gains: list[Any], path: FieldPath, rows: int, which: str = "") -> Iterator[Problem]:
    if len(gains) != rows and gains:
        many = f"{len(gains)} value{'s' * (len(gains) != 1)} for {rows} row{'s' * (rows != 1)}"
        yield Problem(path, f"{many} (give one per row{which})")


def _by_name(
    gains: Mapping[str, Any], path: FieldPath, entries: list[tuple[int, Mapping[str, Any]]]
) -> Iterator[Problem]:
    names = [entry["name"] for _, entry in entries if isinstance(entry.get("name"), str)]
    for name in gains:
        if name not in names:
            yield Problem((*path, name), f"no task has this name ({remedy(name, names)})")
    for _, entry in entries:
        uncorrected = entry.get("correction") is None and given(entry, (*EQUATION_KINDS, *FRAME_FORMS))
        if uncorrected and isinstance(entry.get("name"), str) and entry["name"] not in gains:
            what = f"no value for task {entry['name']!r} (name every task that has no correction of its own)"
            yield Problem(path, what)
