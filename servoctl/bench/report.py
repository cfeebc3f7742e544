"""The effort that a benchmark may spend, and the report that it returns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from servoctl.bench.timing import shown
from servoctl.run_folder.values import plain

Progress = Callable[[float], None]
"""Called with the share that is done, from 0 to 1."""


@dataclass(frozen=True)
class Effort:
    """How much time a benchmark may take.

    Attributes:
        quick: Runs a reduced set that takes seconds; the report lists what was left out.
        jobs: Processes that work at the same time, at least 1.
        cap: Wall time [s] after which one run is cut short.
    """

    quick: bool = False
    jobs: int = 1
    cap: float = 20.0


@dataclass(frozen=True)
class TextTable:
    """A table of texts.

    Attributes:
        title: Title of the table.
        header: One title per column.
        rows: One text per column.
        left: Number of first columns that are aligned left; the others hold numbers.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1


@dataclass(frozen=True)
class Comparison:
    """One line of the summary: our time and another one for the same work.

    Attributes:
        work: The work.
        peer: The other program, or a target.
        ours: Our median time [s].
        theirs: The other median time [s].
        aim: Ratio theirs / ours to reach; None: no target.
    """

    work: str
    peer: str
    ours: float
    theirs: float
    aim: float | None

    @property
    def ratio(self) -> float:
        """The other time divided by ours."""
        return self.theirs / self.ours


def at_most(work: str, ours: float, limit: float) -> Comparison:
    """Our time and the limit that it must keep [s]."""
    return Comparison(work, f"at most {shown(limit)}", ours, limit, 1.0)


@dataclass(frozen=True)
class BenchReport:
    """Result of a benchmark.

    Attributes:
        title: What was measured, in one line.
        tables: The figures as text.
        values: The same figures and more, made plain for JSON: None for a number that is not finite.
        notes: Sentences that a reader of the tables needs.
        findings: Comparisons for the summary of all benchmarks.
    """

    title: str
    tables: Sequence[TextTable]
    values: dict[str, Any]
    notes: Sequence[str] = ()
    findings: Sequence[Comparison] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", plain(self.values))


Benchmark = Callable[[Effort, Progress], BenchReport]
