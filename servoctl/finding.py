"""What a check has found about a config or a run: every warning and every refusal is one."""

from dataclasses import dataclass
from typing import Any, Literal

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
