"""`servoctl bench faults`: faults on emulated drives, row by row. Not among the benchmarks, which know no drives."""

from servoctl.bench.report import BenchReport, Effort, Progress, TextTable

QUICK = 40
"""Scenarios of a quick table."""


def faults(effort: Effort, progress: Progress, count: int | None = None, seed: int = 0) -> BenchReport:
    """Faults on emulated drives in lock-step: what follows, and whether it does in time.

    Args:
        effort: Quick plays 40 scenarios, else every row, protocol and motion once.
        progress: Is told the share of scenarios that are done.
        count: Number of scenarios, if not these.
        seed: Of their numbers.
    """
    from servoctl.bench.faults.scenario import rows, scenarios
    from servoctl.bench.faults.table import play_all, tabulate

    wanted = list(scenarios(count or (QUICK if effort.quick else len(rows())), seed))
    lines = tabulate(play_all(wanted, effort.jobs, progress))
    header = ("fault", "protocol", "ended by", "runs", "passed", "verdict [ms]", "bound [ms]", "all off [ms]")
    texts = [
        [line.row, line.protocol, ", ".join(sorted(line.ended_by)), str(line.runs), str(line.passed),
         *(_milliseconds(value) for value in (line.reaction, line.bound, line.off))]
        for line in lines
    ]  # fmt: skip
    failures = [sentence for line in lines for sentence in line.failures]
    passed, played = sum(line.passed for line in lines), len(wanted)
    values = {
        "seed": seed, "played": played, "passed": passed, "failures": failures,
        "rows": [vars(line) | {"ended_by": sorted(line.ended_by)} for line in lines],
    }  # fmt: skip
    notes = ["times from the fault, the longest of the runs; bound: of the run with the longest time to its verdict"]
    title = f"Faults on emulated drives: {passed} of {played} runs did what they must"
    return BenchReport(title, [TextTable("", header, texts, left=3)], values, [*failures, *notes])


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None or seconds == float("inf") else f"{1e3 * seconds:.2f}"
