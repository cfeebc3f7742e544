"""What is wrong with a config, collected with its lines before any of it is raised."""

from servoctl.config.document import FieldPath, Problem
from servoctl.config.load import LoadedConfig
from servoctl.errors import ConfigError


class Problems:
    """What is wrong with a config so far, its grammar included.

    Design: a field that is wrong by its grammar was mended, so whatever is said of it later, of what it is part of or
    of its parts, is said of nothing that a person wrote: it is dropped.
    """

    def __init__(self, loaded: LoadedConfig) -> None:
        """Begins with what is wrong with the grammar."""
        self._document, self._refused = loaded.document, loaded.refused
        self._mended = [problem.path for problem in loaded.wrong]
        self._all = list(loaded.wrong)

    @property
    def found(self) -> list[str]:
        """One sentence each, with its place, in order of lines."""
        return [*self._document.report(self._all), *self._refused]

    def add(self, what: object, *path: str | int) -> None:
        """Notes every line of what is wrong at a field."""
        path = self._document.indexed(path)
        if not any(_along(path, mended) for mended in self._mended):
            self._all += [Problem(path, line) for line in str(what).splitlines()]

    def touch(self, *fields: str) -> bool:
        """Whether one of these fields, with dots between their keys, has a problem, or a part of it, or the whole."""
        return any(_along(tuple(field.split(".")), problem.path) for field in fields for problem in self._all)

    def check(self) -> None:
        """Raises ConfigError with all problems, if there are any."""
        if self._all or self._refused:
            raise ConfigError(self.found)


def _along(path: FieldPath, other: FieldPath) -> bool:
    """Whether one of two paths leads to the other."""
    shorter = min(len(path), len(other))
    return path[:shorter] == other[:shorter]
