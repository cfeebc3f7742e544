"""What a benchmark is asked for, and what it hands back."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Progress = Callable[[float], None]
"""Is told how much is done, from 0 to 1."""


@dataclass(frozen=True)
class Effort:
    """How much a benchmark may cost.

    Attributes:
        quick: A reduced set that takes seconds; the report says what was left out.
        jobs: Processes that work at the same time, at least 1.
        cap: Wall time [s] after which one run is cut short.
    """

    quick: bool = False
    jobs: int = 1
    cap: float = 20.0


@dataclass(frozen=True)
class TextTable:
    """Texts in columns.

    Attributes:
        title: What all rows have in common.
        header: One title per column.
        rows: One text per column.
        left: How many of the first columns stand to the left; the others hold numbers.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1


@dataclass(frozen=True)
class Comparison:
    """One line of the summary: how we stand beside another.

    Attributes:
        work: What was done.
        peer: Beside whom, or beside what.
        ours: Our median [s].
        theirs: Theirs [s].
        aim: Ratio theirs / ours that is aimed at; None: none.
    """

    work: str
    peer: str
    ours: float
    theirs: float
    aim: float | None

    @property
    def ratio(self) -> float:
        """How many times as long they took."""
        return self.theirs / self.ours


@dataclass(frozen=True)
class BenchReport:
    """The findings, for a person and for a program.

    Attributes:
        title: What was measured, in one line.
        tables: The figures as text.
        values: The same and more as plain values, which JSON knows; None for what is not a finite number.
        notes: What must be known to read the tables, a sentence each.
        findings: For the summary of all benchmarks.
    """

    title: str
    tables: Sequence[TextTable]
    values: dict[str, Any]
    notes: Sequence[str] = ()
    findings: Sequence[Comparison] = ()


Benchmark = Callable[[Effort, Progress], BenchReport]
