"""Numbers that are given by name: one for all, a list in order, or a mapping; and the problems found in them."""

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any, Protocol, TypeVar, cast

import numpy as np

from servoctl.errors import counted, no_such
from servoctl.types import Array


class Notes(Protocol):
    """Collects problems, so that all are reported at once."""

    def add(self, what: object, *path: str | int) -> None:
        """Notes what is wrong at a field; each line is a problem."""


def one_per_name(
    given: Any,
    names: Iterable[str],
    kind: str,
    problems: Notes,
    *path: str | int,
    default: float | None = 0.0,
) -> Array:
    """One number per name, shape (names,), from one number for all, a list in order, or a mapping.

    Args:
        given: The number, list or mapping.
        names: In the plant's order.
        kind: What is named, for messages: `coordinate` or `actuator`.
        problems: Takes what is wrong; the result is zero then.
        path: Field that holds the numbers.
        default: For names that a mapping leaves out; None if it must have all.
    """
    names = list(names)
    if isinstance(given, Mapping):
        for wrong in [name for name in given if name not in names]:
            problems.add(no_such(kind, wrong, names), *path, wrong)
        missing = [name for name in names if name not in given]
        if missing and default is None:
            problems.add(f"no value for {', '.join(missing)} (give every {kind})", *path)
        given = [given.get(name, default or 0.0) for name in names]
    try:
        values = np.asarray(given, dtype=float)
    except (TypeError, ValueError):
        problems.add(f"expected numbers, got {given!r}", *path)
        return np.zeros(len(names))
    if values.shape not in ((), (len(names),)):
        got = len(values) if values.ndim == 1 else f"shape {values.shape}"
        problems.add(f"expected {counted(len(names), 'value')} ({', '.join(names)}), got {got}", *path)
        return np.zeros(len(names))
    if not np.isfinite(values).all():
        problems.add(f"expected finite numbers, got {values.tolist()}", *path)
    return np.broadcast_to(values, len(names)).copy()


S = TypeVar("S")


def spread(section: S, names: Iterable[str], kind: str, problems: Notes, *path: str | int) -> S:
    """A section whose fields all take numbers by name, with a tuple of one number per name in each field.

    Args:
        section: A dataclass; the default of a field is that of a name that a mapping leaves out.
        names: In the plant's order.
        kind: As of `one_per_name`.
        path: Field that holds the section.
    """
    given: Any = section
    numbers: dict[str, tuple[float, ...]] = {}
    for field in fields(given):
        value, default = getattr(given, field.name), float(cast(Any, field.default))
        each = one_per_name(value, names, kind, problems, *path, field.name, default=default)
        numbers[field.name] = tuple(each.tolist())
    ready: S = replace(given, **numbers)
    return ready
