"""A config as it was written: plain values, and where each of them stands."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

FieldPath = tuple[str | int, ...]
"""Keys and list indices from the top of a config to a value, such as ("task", 0, "holonomic")."""


class Problem(NamedTuple):
    """One thing that is wrong with a config.

    Attributes:
        path: The field that is meant; () is the config as a whole.
        what: What is wrong, with the value, and in parentheses what is expected.
    """

    path: FieldPath
    what: str


def in_words(value: Any) -> str:
    """A value as a message shows it: short, and as it is written in YAML."""
    if value is None or isinstance(value, bool):
        return {None: "nothing", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return f"a mapping ({', '.join(map(str, value))})"[:80] if value else "an empty mapping"
    shown = repr(value) if not isinstance(value, list | tuple) else f"[{', '.join(map(in_words, value[:8]))}]"
    return shown if len(shown) <= 80 else f"{shown[:77]}..."


@dataclass(frozen=True)
class Document:
    """Values as YAML gives them, before any check, and their places.

    Attributes:
        file: The file's path as it is shown to a person.
        values: The top-level mapping.
        lines: Path -> line in the file, counted from 1.
        settings: Path -> what wrote the value there: `--set PATH=VALUE`, or file and line of a `--set-file`.
        problems: What was wrong already when the text was read.
    """

    file: str
    values: Mapping[str, Any]
    lines: Mapping[FieldPath, int]
    settings: Mapping[FieldPath, str]
    problems: tuple[Problem, ...] = ()

    def where(self, *path: str | int) -> str:
        """`file.yaml:12: law.correction`, or `--set law.correction=...: law.correction`."""
        place, _ = self._place(path)
        field = self.field(path)
        return f"{place}: {field}" if field else place

    def field(self, path: FieldPath) -> str:
        """Dotted name of a field; a task entry is called by its name."""
        shown = ""
        for index, part in enumerate(path):
            name = self._task_name(part) if path[:index] == ("task",) else part
            shown += f"[{name}]" if isinstance(name, int) else f".{name}"
        return shown.removeprefix(".")

    def report(self, problems: Iterable[Problem]) -> list[str]:
        """Each problem as the sentence that a person reads, in order of lines, what overrides wrote last."""
        ordered = sorted(dict.fromkeys(problems), key=lambda problem: self._place(problem.path)[1])
        return [f"{self.where(*path)}: {what}" for path, what in ordered]

    def indexed(self, path: FieldPath) -> FieldPath:
        """The path, with a task entry that it calls by name by its index."""
        entries = self.values.get("task")
        if path[:1] == ("task",) and len(path) > 1 and isinstance(path[1], str) and isinstance(entries, list):
            names = [entry.get("name") if isinstance(entry, dict) else None for entry in entries]
            return ("task", names.index(path[1]), *path[2:]) if path[1] in names else path
        return path

    def _place(self, path: FieldPath) -> tuple[str, float]:
        """Place of the nearest field above that has one, and its rank in a report."""
        for length in range(len(path), 0, -1):
            if setting := self.settings.get(path[:length]):
                return setting, float("inf")
            if line := self.lines.get(path[:length]):
                return f"{self.file}:{line}", line
        return self.file, 0

    def _task_name(self, index: str | int) -> str | int:
        entries = self.values.get("task")
        if isinstance(index, int) and isinstance(entries, list) and index < len(entries):
            name = entries[index].get("name") if isinstance(entries[index], dict) else None
            if isinstance(name, str) and name.isidentifier():
                return name
        return index
