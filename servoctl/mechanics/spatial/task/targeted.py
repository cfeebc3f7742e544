"""The base of tasks whose dataclass fields are targets: functions of time that are read, checked and differentiated."""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from servoctl.errors import TaskError
from servoctl.expression import TimeFunction
from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.spatial.task.target import (
    Course,
    course,
    name_problems,
    read,
    read_one,
    signals_of,
    with_signals,
)


@contextmanager
def naming(field: str) -> Iterator[None]:
    """Puts the name of a field in front of a TaskError."""
    try:
        yield
    except TaskError as error:
        raise TaskError(f"{field}: {error}") from error


class Targeted(Constraint):
    """A constraint with targets in some of its fields; subclass it with `@dataclass(frozen=True)`."""

    kind = "holonomic"
    # name of each such field -> how many values it has, None for one value that is not in a list. A field that is None
    # has no target
    target_fields: ClassVar[Mapping[str, int | None]] = {}

    def __post_init__(self) -> None:
        """Raises TaskError that names every field that is wrong."""
        wrong = []
        for field, count in self.target_fields.items():
            if not self.is_target(field):
                continue
            given = getattr(self, field)
            try:
                object.__setattr__(self, field, read_one(given) if count is None else read(given, count))
            except TaskError as error:
                wrong.append(f"{field}: {error}")
        wrong = wrong or self.field_problems()
        if wrong:
            raise TaskError("\n".join(f"{type(self).__name__}: {problem}" for problem in wrong))

    def problems(self, plant: Plant) -> list[str]:
        found = super().problems(plant)
        for field, count in self.target_fields.items():
            value = getattr(self, field)
            values = (value,) if count is None else value
            if self.is_target(field):
                found += [f"{field}: {problem}" for problem in name_problems(values, plant)]
        return found

    def with_signals(self, signals: Mapping[str, TimeFunction]) -> "Targeted":
        other = copy.copy(self)
        for field in self.target_fields:
            object.__setattr__(other, field, with_signals(getattr(self, field), signals))
        return other

    @property
    def signals(self) -> Mapping[str, TimeFunction]:
        return {name: each for field in self.target_fields for name, each in signals_of(getattr(self, field)).items()}

    def course(self, field: str, plant: Plant, t: Any) -> Course:
        """A target and its derivatives, shape (count,), or (1,) for a single value.

        Args:
            field: One of `target_fields`.
            plant: Its parameters may be symbols.
            t: The symbol of time [s].
        """
        count, value = self.target_fields[field], getattr(self, field)
        with naming(field):
            return course((value,) if count is None else value, count or 1, plant, t, self._time(t))

    def is_target(self, field: str) -> bool:
        """Whether this one of `target_fields` holds a target; by default, if it is not None."""
        return getattr(self, field) is not None

    def field_problems(self) -> list[str]:
        """What else is wrong with the fields, `<field>: <problem>`."""
        return []
