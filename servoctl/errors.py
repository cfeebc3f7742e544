"""The exception tree, and what a check finds about a config or a run: every warning and every refusal is a finding.

ServoctlError
+-- ConfigError        (ValueError)    a config, flag or file is wrong; carries every problem at once
+-- ExpressionError    (ValueError)    an equation or number cannot be read
+-- PlantError         (ValueError)    a plant's matrices have the wrong shape, sign or value
+-- TaskError          (ValueError)    a task, its corrections or its start do not fit the plant
+-- TraceError         (TypeError)     NumPy code that symbols cannot follow
+-- IntegrationError   (ArithmeticError) an adaptive method fails, or makes no progress
+-- CompileError       (RuntimeError)  C code cannot be compiled or loaded
+-- RunFolderError     (OSError)       a run folder cannot be read, or is not free to be written
|   +-- WriteError     (OSError)       a file cannot be written: the disk is full, or allows no writing
+-- RigError           (RuntimeError)  a bus is down, or a drive refuses or does not answer
+-- ClusterError       (ConnectionError) a cluster is lost during its work
+-- ColumnError        (KeyError)      a trajectory has no such column, task or row
+-- MissingPackageError (ImportError)  an optional package is not installed
"""

import difflib
import sysconfig
import traceback
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

_OWN = str(Path(__file__).parent)
_LIBRARY = sysconfig.get_path("stdlib")

Severity = Literal["warning", "error"]  # `error`: the run is refused


@dataclass(frozen=True)
class Finding:
    """A fact that a person should know, with its remedy; `str` is the line to print."""

    path: str  # what it is about, as a config names it: `task.level`; empty: the run as a whole
    sentence: str  # what is so, with numbers; in parentheses the remedy
    severity: Severity = "warning"
    place: str = ""  # where the field is written: `c.yaml:7`, or `--set ...`; empty: not in a file
    kind: str = ""  # which check found it, where programs ask for it: `dependent_rows`
    rows: tuple[str, ...] = ()  # names of the task rows that it is about

    def __str__(self) -> str:
        return ": ".join(part for part in (self.place, self.path, self.sentence) if part)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        more = {"kind": self.kind, "rows": list(self.rows)} if self.kind else {}
        return {"severity": self.severity, "path": self.path, "place": self.place, "text": str(self), **more}


class ServoctlError(Exception):
    """Base of every error that servoctl raises on purpose."""


class ConfigError(ServoctlError, ValueError):
    """A config, a flag or a file is wrong."""

    def __init__(self, problems: str | Sequence[str | Finding]) -> None:
        # one sentence per problem, `<where>: <field>: <what> (<remedy>)`
        given = [problems] if isinstance(problems, str) else problems
        self.findings = [each if isinstance(each, Finding) else Finding("", each, "error") for each in given]
        self.problems = [str(finding) for finding in self.findings]
        super().__init__("\n".join(self.problems))


class ExpressionError(ServoctlError, ValueError):
    """An equation or a constant expression cannot be read."""

    def __init__(self, message: str, position: int = 0) -> None:
        self.position = position  # index in the text of the first character that is wrong
        super().__init__(message)


class PlantError(ServoctlError, ValueError):
    """A plant's matrices have the wrong shape, sign or value."""


class TaskError(ServoctlError, ValueError):
    """A task, its corrections or its initial state do not fit the plant."""


class TraceError(ServoctlError, TypeError):
    """NumPy code met an operation that symbols cannot follow."""

    def __init__(self, message: str, location: str | None = None) -> None:
        self.location = location  # `file:line` of the user's code; None if it is not known
        super().__init__(message if location is None else f"{location}: {message}")


class IntegrationError(ServoctlError, ArithmeticError):
    """An adaptive method fails, or makes no progress; the run ends there."""


class CompileError(ServoctlError, RuntimeError):
    """C code cannot be compiled or loaded; most callers continue without C."""


class RunFolderError(ServoctlError, OSError):
    """A run folder cannot be read, or is not free to be written."""


class WriteError(RunFolderError):
    """A file cannot be written: the disk is full, allows no writing, or the process that writes has died."""


class RigError(ServoctlError, RuntimeError):
    """A bus is down, or a drive refuses, does not answer in time, or is not what the config says it is."""


class ClusterError(ServoctlError, ConnectionError):
    """A cluster is lost during its work, or its workers cannot do it."""


class ColumnError(ServoctlError, KeyError):
    """A trajectory has no column, task or row of this name."""

    def __init__(self, name: str, names: Iterable[str]) -> None:
        names = list(names)
        close = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"there are: {', '.join(names) or 'none'}"
        super().__init__(f"trajectory: {name}: no such name ({hint})")

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would show the repr


class MissingPackageError(ServoctlError, ImportError):
    """An optional package is not installed."""


def in_one_line(error: BaseException) -> str:
    """One line about an error that user code raised: its class, message, and line in that code."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _foreign(frame.filename)]
    where = f" (line {frames[-1].lineno} of {Path(frames[-1].filename).name})" if frames else ""
    message = str(error).strip()
    return f"{type(error).__name__}: {message}{where}" if message else f"{type(error).__name__}{where}"


def _foreign(filename: str) -> bool:
    """Whether a file is the user's: not part of servoctl, NumPy or Python's own library."""
    if filename.startswith(("<", _OWN)) or "numpy" in Path(filename).parts:
        return False
    return "site-packages" in filename or not filename.startswith(_LIBRARY)


def suggestion(word: str, known: Iterable[str]) -> str:
    """The hint "did you mean 'theta'?" for the known word nearest to this one; empty if none is similar.

    Of words that look alike, such as those with a micro sign and with the mu that Python makes of it, it has the codes.
    """
    candidates = list(dict.fromkeys(known))
    if not word.isascii() and (same := unicodedata.normalize("NFKC", word)) != word and same in candidates:
        return f"did you mean {same!r} ({_codes(same)})? {word!r} has {_codes(word)}"
    lowered = {candidate.lower(): candidate for candidate in reversed(candidates)}
    near = difflib.get_close_matches(word, candidates, n=1, cutoff=0.6)
    near = near or difflib.get_close_matches(word.lower(), lowered, n=1, cutoff=0.6)
    return f"did you mean {lowered.get(near[0], near[0])!r}?" if near else ""


def _codes(word: str) -> str:
    return ", ".join(f"U+{ord(character):04X}" for character in word if not character.isascii())


def remedy(word: str, known: Iterable[str]) -> str:
    """The suggestion, or the list of the known words if there is none."""
    words = list(dict.fromkeys(known))
    return suggestion(word, words) or (f"known: {', '.join(words)}" if words else "none is known here")


def no_such(kind: str, name: object, known: Iterable[str]) -> str:
    """The sentence about a name that stands for nothing: what it names, and the nearest known name."""
    return f"there is no {kind} {name!r} ({remedy(str(name), known)})"


def counted(number: int, word: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def listed(words: Iterable[str], most: int, separator: str = ", ") -> str:
    """The first words in a row, and how many more there are: `a, b and 3 more`."""
    words = list(words)
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return separator.join(words[:most]) + more
