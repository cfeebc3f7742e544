"""Reads values of URDF elements and collects what is wrong with them.

Design: a value that is wrong is reported and replaced by its default, so that reading goes on and all problems of a
file are shown at once. Nothing is used in the end if there is a problem.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from xml.etree.ElementTree import Element

from servoctl.expression.suggest import suggestion
from servoctl.mechanics.spatial.placement import Placement

LARGEST_NUMBER = 1e100  # larger numbers would overflow in products

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)

NAMES_IN_A_NOTE = 6


class Findings:
    """Problems and notes about one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[str] = []
        self._notes: dict[tuple[str, str], list[str]] = defaultdict(list)

    def problem(self, where: str, what: str) -> None:
        """Adds a problem of a link or joint; both are parts of the sentence `<file>: <where>: <what>`."""
        self.problems.append(f"{self.path}: {where}: {what}" if where else f"{self.path}: {what}")

    def note(self, name: str, what: str, remedy: str = "") -> None:
        """Adds a note about a link or joint; equal notes of several names become one."""
        self._notes[what, remedy].append(name)

    @property
    def notes(self) -> tuple[str, ...]:
        """One sentence per kind of note."""
        sentences = []
        for (what, remedy), names in self._notes.items():
            names = list(dict.fromkeys(names))
            more = f" and {len(names) - NAMES_IN_A_NOTE} more" if len(names) > NAMES_IN_A_NOTE else ""
            sentences.append(f"{', '.join(names[:NAMES_IN_A_NOTE])}{more}: {what}" + (f" ({remedy})" if remedy else ""))
        return tuple(sentences)


class Values:
    """Values of the elements of one link or joint.

    Args:
        findings: Where problems are collected.
        where: The link or joint, for messages.
    """

    def __init__(self, findings: Findings, where: str) -> None:
        self.findings = findings
        self.where = where

    def problem(self, what: str) -> None:
        """Adds a problem of this link or joint."""
        self.findings.problem(self.where, what)

    def child(self, parent: Element, tag: str) -> Element | None:
        """The child of this tag; None if there is none. Several are a problem."""
        children = parent.findall(tag)
        if len(children) > 1:
            self.problem(f"<{tag}> stands {len(children)} times in <{parent.tag}> (expected one)")
        return children[0] if children else None

    def attributes(self, element: Element, known: Sequence[str]) -> None:
        """Reports attributes that would be ignored though they may change the robot."""
        for key in element.attrib:
            if key not in known and not key.startswith("{"):
                hint = suggestion(key, known) or f"known: {', '.join(known)}"
                self.problem(f"{element.tag}: {key}: unknown attribute ({hint})")

    def numbers(self, element: Element, key: str, count: int, default: Sequence[float] | None = None) -> list[float]:
        """`count` numbers of an attribute, separated by blanks.

        Args:
            element: Has the attribute.
            key: Name of the attribute.
            count: How many numbers are expected.
            default: Used if the attribute is missing; None: it is a problem.
        """
        fallback = [0.0] * count if default is None else [float(x) for x in default]
        text = element.get(key)
        expected = "a number" if count == 1 else f"{count} numbers"
        if text is None:
            if default is None:
                self.problem(f"{element.tag}: {key}: missing (expected {expected})")
            return fallback
        words = text.split()
        for word in words:
            if not _NUMBER.fullmatch(word) or not abs(float(word)) <= LARGEST_NUMBER:
                self.problem(f"{element.tag}: {key}: expected {expected}, got '{word}'{_hint(word)}")
                return fallback
        if len(words) != count:
            self.problem(f"{element.tag}: {key}: expected {expected}, got {len(words)}: '{text.strip()}'")
            return fallback
        return [float(word) for word in words]

    def number(self, element: Element, key: str, default: float | None = None) -> float:
        """A number of an attribute; a missing one is a problem if there is no default."""
        return self.numbers(element, key, 1, None if default is None else [default])[0]

    def at_least_0(self, element: Element, key: str, what: str) -> float | None:
        """A number that must not be negative; None if it is 0, missing or wrong."""
        value = self.number(element, key, 0.0)
        if value < 0:
            self.problem(f"{element.tag}: {key}: expected {what} of at least 0, got {value:g}")
        return value if value > 0 else None

    def origin(self, element: Element) -> tuple[Placement, list[float]]:
        """The placement of an element's `<origin>`, the identity if it has none; and its rpy [rad]."""
        origin = self.child(element, "origin")
        if origin is None:
            return Placement(), [0.0, 0.0, 0.0]
        self.attributes(origin, ("xyz", "rpy"))
        xyz, rpy = (self.numbers(origin, key, 3, (0.0, 0.0, 0.0)) for key in ("xyz", "rpy"))
        return Placement.at(xyz, rpy), rpy


def _hint(word: str) -> str:
    if "," in word:
        return " (decimals have a point, numbers are separated by blanks)"
    if word.lower().lstrip("+-") in ("inf", "infinity", "nan"):
        return " (expected finite numbers; a limit that is left out does not exist)"
    return ""
