"""Times of several programs for the same work, as a table and as values."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from servoctl.bench.inside import Inside
from servoctl.bench.report import Comparison, Progress, TextTable
from servoctl.bench.timing import Contestant, Timings, interleaved, shown, timed
from servoctl.types import Array

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


class Contest:
    """Programs that do the same work at the same states; they take turns.

    Args:
        count: Number of states.

    Attributes:
        results: Program -> its result at a state by index.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._contestants: dict[str, Contestant] = {}
        self.results: dict[str, Callable[[int], Array]] = {}

    def enter(
        self, name: str, work: Callable[[int], Array | None], result: Callable[[int], Array] | None = None
    ) -> None:
        """Adds a program: its work at a state by index, and the result to compare, if that is not what it returns."""
        self._contestants[name] = timed(lambda k: work(k % self._count))
        self.results[name] = lambda k: np.array(work(k) if result is None else result(k))

    def enter_inside(self, name: str, inside: Inside, part: slice = slice(None)) -> None:
        """Adds a function that C code calls and times; `part` of its outputs is compared."""
        self._contestants[name] = inside
        self.results[name] = lambda k: inside.results[k, part]

    def compare(
        self, exact: Array, tolerance: Mapping[str, float] | float, quick: bool, progress: Progress, scale: float = 1.0
    ) -> list[Competitor]:
        """Times all programs and compares their results.

        Args:
            exact: Expected result at each state (count, size); a program may compute only its first numbers.
            tolerance: Largest difference that counts as equal, for all programs or by name.
            quick: Whether to take only two turns.
            progress: Called with the share of turns that are done.
            scale: Unit of the differences.
        """
        times = interleaved(self._contestants, 2 if quick else 40, self._count, progress)
        entries = []
        for name, result in self.results.items():
            values = np.array([result(k) for k in range(self._count)])
            difference = float(np.abs(values - exact[:, : values.shape[1]]).max()) / scale
            most = tolerance if isinstance(tolerance, float) else tolerance[name]
            entries.append(Competitor(name, times[name], difference, most))
        return entries
