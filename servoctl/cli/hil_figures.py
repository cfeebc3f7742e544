"""Prints the figures of a run on drives: errors, times, samples, buses."""

from collections.abc import Mapping
from math import isnan
from typing import TYPE_CHECKING, Any

from servoctl.cli.console import say, say_table
from servoctl.cli.run import number

if TYPE_CHECKING:
    from servoctl.run_folder.trajectory import Trajectory

TIMES = ("mean", "std", "p50", "p99", "p99_9", "max")
PARTS = ("lateness", "period", "execution", "read", "law", "write")


def say_figures(
    trajectory: "Trajectory",
    summary: Mapping[str, Any],
    bounds: Mapping[str, float],
    loads: Mapping[str, tuple[float, float]],
) -> None:
    """Prints the figures of a run.

    Args:
        trajectory: The run.
        summary: Its summary.
        bounds: Task row -> error that sampling and delay of the loop explain.
        loads: Bus -> its load, on average and at most, 0 to 1.
    """
    rows = []
    for name in trajectory.rows:
        metrics = trajectory.violation_metrics(name)
        errors = (metrics["max_violation"], metrics["rms_violation"], bounds.get(name))
        rows.append([name, *("-" if each is None or isnan(each) else number(each) for each in errors)])
    say()
    say_table(["task row", "max error", "rms error", "explained by the loop"], rows, numbers=3)
    say()
    _say_times(summary["timing"])
    if summary.get("realtime"):
        say(f"real time: {'; '.join(summary['realtime'])}")
    counts = {name: summary["counts"].get(name, 0) for name in ("missed", "implausible", "rejected")}
    say(
        f"samples: {counts['missed']} missing at their tick, {counts['implausible']} implausible; "
        f"{sum(drive['rejected'] for drive in summary['drives'].values())} invalid frames from drives"
    )
    for name, bus in summary["bus"].items():
        load = ""
        if name in loads:
            mean, most = loads[name]
            load = f"load {100 * mean:.0f} % on average, {100 * most:.0f} % at most, "
        say(f"bus {name}: {load}{bus['sent']} frames sent, {bus['received']} received, {bus['errors']} error frames")
        problems = {"refused": "not accepted for sending", "lost": "lost in reception", "invalid": "not readable"}
        counts_of = [f"{bus[key]} {words}" for key, words in problems.items() if bus[key]]
        if counts_of:
            say(f"bus {name}: {', '.join(counts_of)}")


def _say_times(timing: Mapping[str, Any]) -> None:
    """Prints the times of the loop and the ages of the samples."""
    durations = {name: timing[f"{name}_s"] for name in PARTS}
    durations |= {f"age of {name}": age for name, age in timing["age_s"].items()}
    rows = [
        [name, *(number(1e6 * times.get(key, 0.0)) for key in TIMES)] for name, times in durations.items() if times["n"]
    ]
    say_table(["time [us]", *(key.replace("_", ".") for key in TIMES)], rows, numbers=len(TIMES))
    say(f"{timing['skipped_periods']} periods skipped; at most {timing['longest_late_run']} late ticks in a row")
    say(
        f"{timing['ticks']} ticks, {timing['late_ticks']} of them late by a period or more; "
        f"least time left in a period {1e6 * timing['least_slack_s']:.0f} us"
    )
    if "cpu_per_tick_s" in timing:
        bare, cpu, law = timing["bare"], timing["cpu_per_tick_s"], timing["law_s"].get("mean", 0.0)
        figures = ", ".join(
            f"{1e6 * bare['lateness_s'][key]:.0f} {key.replace('_', '.')}" for key in ("p50", "p99", "max")
        )
        say(
            f"for comparison, an empty loop, {bare['ticks'] * bare['nominal_period_s']:.1f} s just before: late by "
            f"{figures} us, {bare['skipped_periods']} periods skipped"
        )
        say(f"CPU per tick {1e6 * cpu:.0f} us, of which about {1e6 * law:.0f} us are the law")
