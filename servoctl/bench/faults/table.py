"""The results of many scenarios as a table with one row per fault and protocol."""

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from servoctl.bench.faults.expected import GOES_ON
from servoctl.bench.faults.run import FaultResult, play
from servoctl.bench.faults.scenario import Scenario


@dataclass
class FaultRow:
    """A row of the table.

    Attributes:
        row: Name of the fault.
        protocol: Protocol of the drives.
        runs: Number of runs.
        passed: Number of runs without a problem.
        ended_by: Kinds of the events that ended the runs.
        reaction: Longest time from the fault to the event that ended a run [s]; None if every run went on.
        bound: Longest time allowed in that run [s].
        off: Longest time from the fault to the last drive off [s]; None if every run went on.
        failures: One sentence for each problem.
    """

    row: str
    protocol: str
    runs: int = 0
    passed: int = 0
    ended_by: set[str] = field(default_factory=set)
    reaction: float | None = None
    bound: float | None = None
    off: float | None = None
    failures: list[str] = field(default_factory=list)

    def add(self, result: FaultResult) -> None:
        """Adds a run to the row."""
        self.runs += 1
        self.passed += not result.problems
        self.ended_by.add(result.ended_by)
        self.failures += [f"{result.scenario.name}: {problem}" for problem in result.problems]
        if result.ended_by == GOES_ON or result.reaction is None:
            return
        if self.reaction is None or result.reaction > self.reaction:
            self.reaction, self.bound = result.reaction, result.expected.within
        if result.off is not None and (self.off is None or result.off > self.off):
            self.off = result.off


def tabulate(results: Iterable[FaultResult]) -> list[FaultRow]:
    """The rows of the table, in the order in which their first runs come."""
    lines: dict[tuple[str, str], FaultRow] = {}
    for result in results:
        key = result.scenario.row, result.scenario.protocol
        lines.setdefault(key, FaultRow(*key)).add(result)
    return list(lines.values())


def play_all(scenarios: Sequence[Scenario], jobs: int, progress: Callable[[float], None]) -> Iterator[FaultResult]:
    """Runs scenarios in parallel processes; results come in the order of the scenarios."""
    if jobs == 1:
        yield from _with_progress(map(play, scenarios), len(scenarios), progress)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from _with_progress(pool.imap(play, scenarios, chunksize=4), len(scenarios), progress)


def _with_progress(
    results: Iterable[FaultResult], count: int, progress: Callable[[float], None]
) -> Iterator[FaultResult]:
    for number, result in enumerate(results, 1):
        yield result
        progress(number / count)
