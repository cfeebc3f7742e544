"""`servoctl bench faults`: plays faults on emulated drives and tabulates the reactions."""

from servoctl.bench.report import BenchReport, Effort, Progress, TextTable

QUICK = 40
"""Number of scenarios of a quick table."""


def faults(effort: Effort, progress: Progress, count: int | None = None, seed: int = 0) -> BenchReport:
    """Plays faults on emulated drives in virtual time, and compares reaction and delay with the requirements.

    Args:
        effort: Quick: 40 scenarios; else every fault, protocol and motion once.
        progress: Called with the fraction of scenarios that are done, 0 to 1.
        count: Number of scenarios; None: as above.
        seed: Seed of their random numbers.
    """
    from servoctl.bench.faults.scenario import rows, scenarios
    from servoctl.bench.faults.table import play_all, tabulate

    wanted = list(scenarios(count or (QUICK if effort.quick else len(rows())), seed))
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
        "seed": seed, "played": played, "passed": passed, "failures": failures,
        "rows": [vars(line) | {"ended_by": sorted(line.ended_by)} for line in lines],
    }  # fmt: skip
    notes = [
        "times since the fault, the longest of all runs; bound: that of the run with the longest time to detection"
    ]
    title = f"Faults on emulated drives: {passed} of {played} runs reacted as required"
    return BenchReport(title, [TextTable("", header, texts, left=3)], values, [*failures, *notes])


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None or seconds == float("inf") else f"{1e3 * seconds:.2f}"
