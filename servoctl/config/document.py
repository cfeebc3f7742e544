"""A config as written: plain values, and file and line of each."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from servoctl.finding import Finding
from servoctl.tree.rules import FieldPath

NAMED_LISTS: tuple[FieldPath, ...] = (("task",), ("bounds",))  # lists whose entries are addressed by `name`


class Problem(NamedTuple):
    """One problem of a config."""

    path: FieldPath  # the wrong field; () is the whole config
    what: str  # what is wrong, with the value; in parentheses what is expected or what to do


@dataclass(frozen=True)
class Document:
    """Unchecked values of a config and the lines they come from."""

    file: str  # path of the file, as messages show it
    values: Mapping[str, Any]  # the top-level mapping
    # path -> line in the file, counted from 1; what stands below an overridden value is not there any more
    lines: Mapping[FieldPath, int]
    # path -> source of an overridden value: `--set PATH=VALUE`, or file and line of a `--set-file`
    settings: Mapping[FieldPath, str]
    problems: tuple[Problem, ...] = ()  # problems found while reading the YAML

    def field(self, path: FieldPath) -> str:
        """Dotted name of a field, with the name of an entry of `NAMED_LISTS` instead of its index."""
        dotted = ""
        for index, part in enumerate(path):
            name = self._entry_name(path[0], part) if path[:index] in NAMED_LISTS else part
            dotted += f"[{name}]" if isinstance(name, int) else f".{name}"
        return dotted.removeprefix(".")

    def report(self, problems: Iterable[Problem]) -> list[Finding]:
        """One finding per problem, in order of lines; problems of overrides come last."""
        ordered = sorted(dict.fromkeys(problems), key=lambda problem: self._source(problem.path)[1])
        return [Finding(self.field(path), what, "error", self._source(path)[0]) for path, what in ordered]

    def indexed(self, path: FieldPath) -> FieldPath:
        """The path with the index of an entry of `NAMED_LISTS` instead of its name."""
        entries = self.values.get(str(path[0])) if path else None
        if path[:1] in NAMED_LISTS and len(path) > 1 and isinstance(path[1], str) and isinstance(entries, list):
            names = [entry.get("name") if isinstance(entry, dict) else None for entry in entries]
            return (path[0], names.index(path[1]), *path[2:]) if path[1] in names else path
        return path

    def _source(self, path: FieldPath) -> tuple[str, float]:
        """Source of the field, or of the nearest section around it; and its position in a report."""
        around = [path[:length] for length in range(len(path), 0, -1)]
        if setting := next((self.settings[each] for each in around if each in self.settings), None):
            return setting, float("inf")
        if line := next((self.lines[each] for each in around if each in self.lines), None):
            return f"{self.file}:{line}", line
        return self.file, 0

    def _entry_name(self, field: str | int, index: str | int) -> str | int:
        entries = self.values.get(str(field))
        if isinstance(index, int) and isinstance(entries, list) and index < len(entries):
            name = entries[index].get("name") if isinstance(entries[index], dict) else None
            if isinstance(name, str) and name.isidentifier():
                return name
        return index
