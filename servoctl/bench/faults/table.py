"""Many scenarios, put together row by row."""

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from servoctl.bench.faults.expected import GOES_ON
from servoctl.bench.faults.run import FaultResult, play
from servoctl.bench.faults.scenario import Scenario


@dataclass
class FaultRow:
    """A row of the table, of one protocol.

    Attributes:
        row: Which one.
        protocol: Of the drives.
        runs: Number of them.
        passed: Number of those with nothing wrong.
        ended_by: Kinds of the events that ended them.
        reaction: The longest time from the fault to its verdict [s]; None where every run went on.
        bound: Of that run [s].
        off: The longest time from the fault to the last drive off [s]; None where every run went on.
        failures: Sentences.
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

    def add(self, verdict: FaultResult) -> None:
        """Counts a run."""
        self.runs += 1
        self.passed += not verdict.problems
        self.ended_by.add(verdict.ended_by)
        self.failures += [f"{verdict.scenario.name}: {problem}" for problem in verdict.problems]
        if verdict.ended_by == GOES_ON or verdict.reaction is None:
            return
        if self.reaction is None or verdict.reaction > self.reaction:
            self.reaction, self.bound = verdict.reaction, verdict.expected.within
        if verdict.off is not None and (self.off is None or verdict.off > self.off):
            self.off = verdict.off


def tabulate(verdicts: Iterable[FaultResult]) -> list[FaultRow]:
    """Row and protocol -> how its runs ended, in the order in which they come first."""
    lines: dict[tuple[str, str], FaultRow] = {}
    for verdict in verdicts:
        key = verdict.scenario.row, verdict.scenario.protocol
        lines.setdefault(key, FaultRow(*key)).add(verdict)
    return list(lines.values())


def play_all(scenarios: Sequence[Scenario], jobs: int, progress: Callable[[float], None]) -> Iterator[FaultResult]:
    """Plays scenarios, in so many processes at a time; verdicts in their order."""
    if jobs == 1:
        yield from _told(map(play, scenarios), len(scenarios), progress)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from _told(pool.imap(play, scenarios, chunksize=4), len(scenarios), progress)


def _told(verdicts: Iterable[FaultResult], count: int, progress: Callable[[float], None]) -> Iterator[FaultResult]:
    for number, verdict in enumerate(verdicts, 1):
        yield verdict
        progress(number / count)
