"""What the report of `servoctl check` is made of."""

from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from servoctl.errors import Finding
from servoctl.run_folder.metrics import plain

SHOWN = 10  # largest number of printed lines of one kind; JSON has all


@dataclass
class Section:
    """A part of the report."""

    title: str = ""  # printed above its lines
    key: str = ""  # of its values in JSON; empty: it has none
    lines: list[str] = field(default_factory=list)  # to print; without any the title is not printed either
    values: Any = None  # the same for JSON: dataclasses, arrays and numbers too
    findings: list[Finding] = field(default_factory=list)  # what a person should know


@dataclass
class CheckReport:
    """The findings, as text and as values."""

    sections: list[tuple[str, list[str]]] = field(default_factory=list)  # (title, lines) to print
    values: dict[str, Any] = field(default_factory=dict)  # the same as plain values, for JSON
    findings: list[Finding] = field(default_factory=list)  # what a person should know, of all parts

    def add(self, section: Section) -> None:
        """Adds a part at the end."""
        if section.lines:
            self.sections.append((section.title, section.lines))
        if section.key:
            self.values[section.key] = plain(section.values)
        self.findings += section.findings

    @property
    def warnings(self) -> list[str]:
        """Warnings, one sentence each; the run is possible."""
        return [str(finding) for finding in self.findings if finding.severity == "warning"]

    @property
    def errors(self) -> list[str]:
        """Reasons why the run is refused, one sentence each."""
        return [str(finding) for finding in self.findings if finding.severity == "error"]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            **self.values, "findings": plain(self.findings), "warnings": self.warnings, "errors": self.errors,
        }  # fmt: skip


FEW = 3  # up to so many neighbours with the same text have a line each


def together(lines: list[str]) -> list[str]:
    """Lines `name: text`; neighbours with the same text become one line, with the first and the last name."""
    found: list[str] = []
    for text, group in groupby((line.partition(": ") for line in lines), key=lambda parts: parts[2]):
        names = [name for name, _, _ in group]
        if len(names) > FEW:
            found.append(f"{names[0]} to {names[-1]} ({len(names)} rows): {text}")
        else:
            found += [f"{name}: {text}" for name in names]
    return found


def shortened(lines: list[str]) -> list[str]:
    """The first lines, if there are many."""
    return lines if len(lines) <= SHOWN + 2 else [*lines[:SHOWN], f"... and {len(lines) - SHOWN} more"]
