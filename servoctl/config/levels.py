"""Levels of passive constraints: checks of their groups and their order, and the order itself."""

import graphlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from servoctl.config.document import Problem
from servoctl.expression.suggest import remedy


def level_problems(levels: Any) -> Iterator[Problem]:
    """Problems of `plant.passive.levels` that do not depend on the plant; paths start below it."""
    if not isinstance(levels, Mapping):
        return
    if not levels:
        yield Problem((), "no level (name at least one, or leave levels out)")
    for name in levels:
        if not name.isidentifier():
            yield Problem((name,), f"expected a name of letters, digits and _, got {name!r} (as in legs)")
        if _field(levels, name, "groups") == []:
            yield Problem((name, "groups"), "no group (give the level a passive group, or take it out)")
    yield from _repeated(levels)
    after = {name: _words(levels, name, "after") for name in levels}
    for name, words in after.items():
        for i, word in words:
            if word not in levels:
                yield Problem((name, "after", i), f"there is no level {word!r} ({remedy(word, levels)})")
    for cycle in _cycles({name: [word for _, word in words if word in levels] for name, words in after.items()}):
        yield Problem((cycle[0], "after"), f"levels after each other: {' -> '.join(cycle)} (take one 'after' out)")


def in_order(after: Mapping[str, Collection[str]]) -> list[str]:
    """Levels sorted so that each comes after its predecessors; otherwise in the order of the config.

    Args:
        after: Level -> its predecessors; a cycle, which `level_problems` reports, is broken at its first level.
    """
    left, ordered = dict(after), list[str]()
    while left:
        free = (name for name, before in left.items() if not any(other in left for other in before))
        ordered.append(next(free, next(iter(left))))
        del left[ordered[-1]]
    return ordered


def _field(levels: Mapping[str, Any], name: str, field: str) -> Any:
    level = levels[name]
    return level.get(field) if isinstance(level, Mapping) else None


def _words(levels: Mapping[str, Any], name: str, field: str) -> list[tuple[int, str]]:
    """The texts in a list of a level, with their indices; the field's own type refuses other values."""
    value = _field(levels, name, field)
    return [(i, word) for i, word in enumerate(value) if isinstance(word, str)] if isinstance(value, list) else []


def _repeated(levels: Mapping[str, Any]) -> Iterator[Problem]:
    level_of: dict[str, str] = {}
    for name in levels:
        for i, group in _words(levels, name, "groups"):
            if group in level_of:
                first = level_of[group]
                yield Problem((name, "groups", i), f"{group!r} is in level {first!r} already (keep it in one place)")
            level_of.setdefault(group, name)


def _cycles(after: Mapping[str, Sequence[str]]) -> Iterator[list[str]]:
    """Cycles without common levels, each as a path from its first level in the config back to it."""
    left, order = dict(after), list(after)
    while True:
        try:
            graphlib.TopologicalSorter(left).prepare()
            return
        except graphlib.CycleError as error:
            ring = error.args[1][:0:-1]  # from each level to one that it comes after
            start = ring.index(min(ring, key=order.index))
            yield [*ring[start:], *ring[: start + 1]]
            left = {name: [] if name in ring else before for name, before in left.items()}
