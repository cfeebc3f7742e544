"""Times of several programs for the same work, as a table and as values."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from servoctl.bench.report import Comparison, TextTable
from servoctl.bench.timing import Timings, shown

HEADER = ("", "median", "p99", "p99.9", "ratio", "difference")


@dataclass(frozen=True)
class Competitor:
    """One contestant.

    Attributes:
        name: Program and setting.
        times: Times of the work [s].
        difference: Largest difference from the reference, in the unit of the title.
        tolerance: Largest difference at which the work counts as the same.
    """

    name: str
    times: Timings
    difference: float
    tolerance: float

    @property
    def equal(self) -> bool:
        """Whether its result agrees with the reference."""
        return self.difference <= self.tolerance


def table(title: str, entries: Sequence[Competitor], tails: bool = True) -> TextTable:
    """A table of medians, tails, and times relative to the first entry.

    Args:
        title: The work.
        entries: The contestants; the ratios are relative to the first.
        tails: Whether p99 and p99.9 are shown.
    """
    rows = []
    for entry in entries:
        ratio = f"{entry.times.median / entries[0].times.median:.3g}" if entry.equal else "not equal"
        late = [shown(entry.times.p99), shown(entry.times.p999)] if tails else []
        rows.append([entry.name, shown(entry.times.median), *late, ratio, f"{entry.difference:.1e}"])
    header = HEADER if tails else (*HEADER[:2], *HEADER[4:])
    return TextTable(title, header, rows)


def values(entries: Sequence[Competitor]) -> list[dict[str, Any]]:
    """The entries as plain values, times in seconds."""
    return [{"name": e.name, **asdict(e.times), "difference": e.difference, "equal": e.equal} for e in entries]


def findings(
    work: str, entries: Sequence[Competitor], ours: str, peers: Mapping[str, float | None]
) -> list[Comparison]:
    """Comparisons for the summary of all benchmarks.

    Args:
        work: The work.
        entries: The contestants.
        ours: Name of our entry.
        peers: Name of another entry -> ratio to reach; None: no target.
    """
    by_name = {entry.name: entry for entry in entries}
    comparisons = []
    for peer, aim in peers.items():
        if ours in by_name and peer in by_name and by_name[peer].equal and by_name[ours].equal:
            comparisons.append(Comparison(work, peer, by_name[ours].times.median, by_name[peer].times.median, aim))
    return comparisons
