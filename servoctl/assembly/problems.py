"""Collects the problems of a config with their lines, so that all are reported at once."""

from collections.abc import Iterable

from servoctl.config.document import FieldPath, Problem
from servoctl.config.load import LoadedConfig
from servoctl.errors import ConfigError


class Problems:
    """Problems of a config so far: names, files and classes that do not fit, or a start that is impossible.

    Args:
        loaded: The config.
    """

    def __init__(self, loaded: LoadedConfig) -> None:
        self._document = loaded.document
        self._all: list[Problem] = []

    @property
    def found(self) -> list[str]:
        """One sentence per problem, with file and line, in order of lines."""
        return self._document.report(self._all)

    def add(self, what: object, *path: str | int) -> None:
        """Notes what is wrong at a field; each line is a problem."""
        path = self._document.indexed(path)
        self._all += [Problem(path, line) for line in str(what).splitlines()]

    def extend(self, found: Iterable[Problem]) -> None:
        """Notes several problems."""
        for problem in found:
            self.add(problem.what, *problem.path)

    def touch(self, *fields: str) -> bool:
        """Whether one of these fields (keys joined by dots), a part of it or its section has a problem."""
        return any(_along(tuple(field.split(".")), problem.path) for field in fields for problem in self._all)

    def check(self) -> None:
        """Raises ConfigError with all problems, if there are any."""
        if self._all:
            raise ConfigError(self.found)


def _along(path: FieldPath, other: FieldPath) -> bool:
    """Whether one of two paths is the start of the other."""
    shorter = min(len(path), len(other))
    return path[:shorter] == other[:shorter]
