"""The results of many scenarios as a table with one row per fault and protocol."""

import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from servoctl.bench.faults.expected import GOES_ON
from servoctl.bench.faults.run import TICKS, FaultResult, play_on
from servoctl.bench.faults.scenario import Scenario, rows, scenarios
from servoctl.bench.report import BenchReport, Effort, Progress, TextTable


@dataclass
class FaultRow:
    """A row of the table.

    Attributes:
        row: Name of the fault.
        protocol: Protocol of the drives.
        runs: Number of runs.
        in_c: Number of runs whose ordinary ticks were done in C.
        passed: Number of runs without a problem.
        ended_by: Kinds of the events that ended the runs.
        reaction: Longest time from the fault to the event that ended a run [s]; None if every run went on.
        bound: Longest time allowed in that run [s].
        off: Longest time from the fault to the last drive off [s]; None if every run went on.
        over_limits: Number of frames that commanded what must not be on the wire.
        enabled_again: Number of drives that were enabled again after they went off.
        failures: One sentence for each problem.
    """

    row: str
    protocol: str
    runs: int = 0
    in_c: int = 0
    passed: int = 0
    ended_by: set[str] = field(default_factory=set)
    reaction: float | None = None
    bound: float | None = None
    off: float | None = None
    over_limits: int = 0
    enabled_again: int = 0
    failures: list[str] = field(default_factory=list)

    def add(self, result: FaultResult) -> None:
        """Adds a run to the row."""
        self.runs += 1
        self.in_c += result.ticks_in_c > 0
        self.passed += not result.problems
        self.over_limits += result.over_limits
        self.enabled_again += result.enabled_again
        self.ended_by.add(result.ended_by)
        tick = ", tick in C" * (result.ticks_in_c > 0)
        self.failures += [f"{result.scenario.name}{tick}: {problem}" for problem in result.problems]
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


def play_all(
    scenarios: Sequence[Scenario], jobs: int, progress: Callable[[float], None], ticks: Sequence[str] = TICKS
) -> Iterator[FaultResult]:
    """Runs scenarios in parallel processes, each on these ticks; results come in the order of the scenarios."""
    if jobs == 1:
        yield from _with_progress(map(partial(play_on, ticks), scenarios), len(scenarios), progress)
        return
    silent = signal.SIGINT, signal.SIG_DFL
    with multiprocessing.get_context("spawn").Pool(jobs, signal.signal, silent) as pool:
        yield from _with_progress(pool.imap(partial(_in_worker, ticks), scenarios, 4), len(scenarios), progress)


def _in_worker(ticks: Sequence[str], scenario: Scenario) -> tuple[FaultResult, ...]:
    """`play_on` in a process that ends without a word when it is told to."""
    try:
        return play_on(ticks, scenario)
    except KeyboardInterrupt:
        raise SystemExit from None


def _with_progress(
    results: Iterable[tuple[FaultResult, ...]], count: int, progress: Callable[[float], None]
) -> Iterator[FaultResult]:
    for number, group in enumerate(results, 1):
        yield from group
        progress(number / count)


QUICK = 40
"""Number of scenarios of a quick table."""


def faults(
    effort: Effort,
    progress: Progress,
    count: int | None = None,
    seed: int = 0,
    estimation: bool = False,
    ticks: Sequence[str] = TICKS,
) -> BenchReport:
    """Plays faults on emulated drives in virtual time, and compares reaction and delay with the requirements.

    Args:
        effort: Quick: 40 scenarios; else every fault, protocol and motion once.
        progress: Called with the fraction of scenarios that are done, 0 to 1.
        count: Number of scenarios; None: as above.
        seed: Seed of their random numbers.
        estimation: Whether the law works with an estimator.
        ticks: `python`, `c` or both.
    """
    wanted = list(scenarios(count or (QUICK if effort.quick else len(rows())), seed, estimation))
    lines = tabulate(play_all(wanted, effort.jobs, progress, ticks))
    header = ("fault", "protocol", "ended by", "runs", "in C", "passed", "detected [ms]", "bound [ms]", "all off [ms]")
    texts = [
        [line.row, line.protocol, ", ".join(sorted(line.ended_by)), str(line.runs), str(line.in_c), str(line.passed),
         *(_milliseconds(value) for value in (line.reaction, line.bound, line.off))]
        for line in lines
    ]  # fmt: skip
    failures = [sentence for line in lines for sentence in line.failures]
    names = ("runs", "in_c", "passed", "over_limits", "enabled_again")
    total = {name: sum(getattr(line, name) for line in lines) for name in names}
    values = {
        "seed": seed, "estimation": estimation, "scenarios": len(wanted), "played": total.pop("runs"), **total,
        "failures": failures, "rows": [vars(line) | {"ended_by": sorted(line.ended_by)} for line in lines],
    }  # fmt: skip
    notes = [
        f"{len(wanted)} scenarios; {total['over_limits']} frames outside the limits, "
        f"{total['enabled_again']} drives enabled again after they went off",
        "times since the fault, the longest of all runs; bound: that of the run with the longest time to detection",
        "in C: runs whose ordinary ticks were done in C; their reaction must be that of the tick in Python",
    ]
    loop = ", with an estimator in the loop" if estimation else ""
    title = f"Faults on emulated drives{loop}: {total['passed']} of {values['played']} runs reacted as required"
    return BenchReport(title, [TextTable("", header, texts, left=3)], values, [*failures, *notes])


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None or seconds == float("inf") else f"{1e3 * seconds:.2f}"
