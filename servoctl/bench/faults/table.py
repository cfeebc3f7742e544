"""The results of many scenarios as a table with one row per fault and protocol."""

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from servoctl.bench.faults.expected import GOES_ON
from servoctl.bench.faults.run import FaultResult, play
from servoctl.bench.faults.scenario import Scenario, rows, scenarios
from servoctl.bench.report import BenchReport, Effort, Progress, TextTable


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


QUICK = 40
"""Number of scenarios of a quick table."""


def faults(
    effort: Effort, progress: Progress, count: int | None = None, seed: int = 0, estimation: bool = False
) -> BenchReport:
    """Plays faults on emulated drives in virtual time, and compares reaction and delay with the requirements.

    Args:
        effort: Quick: 40 scenarios; else every fault, protocol and motion once.
        progress: Called with the fraction of scenarios that are done, 0 to 1.
        count: Number of scenarios; None: as above.
        seed: Seed of their random numbers.
        estimation: Whether the law works with an estimator.
    """
    wanted = list(scenarios(count or (QUICK if effort.quick else len(rows())), seed, estimation))
    lines = tabulate(play_all(wanted, effort.jobs, progress))
    header = ("fault", "protocol", "ended by", "runs", "passed", "detected [ms]", "bound [ms]", "all off [ms]")
    texts = [
        [line.row, line.protocol, ", ".join(sorted(line.ended_by)), str(line.runs), str(line.passed),
         *(_milliseconds(value) for value in (line.reaction, line.bound, line.off))]
        for line in lines
    ]  # fmt: skip
    failures = [sentence for line in lines for sentence in line.failures]
    passed, played = sum(line.passed for line in lines), len(wanted)
    values = {
        "seed": seed, "estimation": estimation, "played": played, "passed": passed, "failures": failures,
        "rows": [vars(line) | {"ended_by": sorted(line.ended_by)} for line in lines],
    }  # fmt: skip
    notes = [
        "times since the fault, the longest of all runs; bound: that of the run with the longest time to detection"
    ]
    loop = ", with an estimator in the loop" if estimation else ""
    title = f"Faults on emulated drives{loop}: {passed} of {played} runs reacted as required"
    return BenchReport(title, [TextTable("", header, texts, left=3)], values, [*failures, *notes])


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None or seconds == float("inf") else f"{1e3 * seconds:.2f}"
