"""`servoctl run`: simulates a config and prints how the run went."""

from collections.abc import Mapping, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from servoctl.cli.console import Announcer, ExitCode, Phases, note, number, outcome_of_run, say, say_json, say_table
from servoctl.cli.options import AsJson, Config, EngineName, Overrides, RunFolderOut, SetFiles, changes_of, fresh_folder
from servoctl.errors import counted

if TYPE_CHECKING:
    from servoctl.run_folder.trajectory import Trajectory

ROUND_OFF = 1e-9  # constraints of a mechanism that are kept so well are one line
TABLE_LENGTH = 24  # largest number of rows in a printed table; `summary.json` has all rows
BOUND_LINES = 8  # most lines on the times at which bounds held the inputs


def run(
    config: Config,
    out: RunFolderOut = None,
    set_file: SetFiles = None,
    overrides: Overrides = None,
    engine: Annotated[
        EngineName, typer.Option(help="auto compiles to C if that pays; vm needs no compiler; numpy is for comparison.")
    ] = "auto",
    as_json: AsJson = False,
) -> None:
    """Simulate a config and write a run folder."""
    from servoctl.assembly import load
    from servoctl.study.metrics import check_metrics

    phases = Phases()
    compiles = engine == "c"
    loading = f"loading, tracing{' and compiling' * compiles}"
    with Announcer(config, loading, always=compiles):
        loaded = load(config, changes_of(set_file, overrides), engine=engine)
    check_metrics(loaded)
    phases.end(loading)
    with Announcer(loaded.name, "compiling"):
        loaded.prepare(wait=False)
    phases.end("compiling")
    for warning in loaded.warnings:
        note(f"warning: {warning}")
    folder = out or fresh_folder(loaded.name)
    try:
        with Announcer(loaded.name) as announcer:
            trajectory = loaded.simulate(out=folder, progress=announcer.progress)
    except KeyboardInterrupt:
        note(f"interrupted; the rows so far are in {folder}")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    summary = trajectory.summary()
    if switch := summary.get("engine_switch"):
        at = f"engine c from t = {number(switch['t'])} s on; " if "t" in switch else ""
        note(f"{at}{switch['note']}")
    phases.end("writing", "simulating", share=summary["wall_time"])
    for sentence in summary.get("left_out", []):
        note(f"warning: left out: {sentence}")
    if "sparse_rows" in summary:
        note(f"warning: {summary['sparse_rows']}")
    if as_json:
        say_json(summary)
    else:
        say(headline(summary))
        say_figures(trajectory, summary)
        say()
        for line in _evidence(summary, trajectory.units.get("residual", "")):
            say(line)
        say(str(phases), dim=True)
        say(f"written to {folder}; next: servoctl report {quote(str(folder))}")
    outcome = outcome_of_run(summary["status"])
    if outcome is ExitCode.BAD_STATUS and summary.get("error"):
        note(f"error: {summary['config']}: {summary['status']}: {summary['error']}")
    raise typer.Exit(outcome)


def say_figures(trajectory: "Trajectory", summary: Mapping[str, Any]) -> None:
    """The tables of task errors, inputs and bounds."""
    from servoctl.run_folder.metrics import without_round_off

    _say_errors(trajectory, summary)
    keys = ("min", "max", "rms")
    figures = iter(without_round_off([metrics[key] for metrics in summary["inputs"].values() for key in keys]))
    rows = [
        [name, trajectory.units.get(f"u.{name}", ""), *(number(next(figures)) for _ in keys)]
        for name in summary["inputs"]
    ]
    _say_long_table(["input", "unit", *keys], rows)
    keys = ("min", "active_time", "violated_time")
    rows = [
        [name, trajectory.units.get(f"bound.{name}", "-"), *(number(metrics[key]) for key in keys)]
        for name, metrics in summary.get("bounds", {}).items()
    ]
    _say_long_table(["bound", "unit of h", "smallest h", "active [s]", "h < -1e-6 [s]"], rows)


def _say_errors(trajectory: "Trajectory", summary: Mapping[str, Any]) -> None:
    """The tables of the errors of tasks, and of the mechanism's own constraints if they are not at round-off."""
    from servoctl.run_folder.metrics import TASK_METRICS

    columns = {metric.name: metric.head for metric in TASK_METRICS[:3]}
    for title, group in (("task error", "tasks"), ("mechanism constraint", "passive")):
        metrics = summary[group]
        largest = max((each["max_violation"] or 0.0 for each in metrics.values()), default=0.0)
        if group == "passive" and metrics and largest < ROUND_OFF:
            units = ", ".join(dict.fromkeys(trajectory.unit_of(name) or "-" for name in metrics))
            say(f"\nmechanism constraints: {counted(len(metrics), 'row')} within {number(largest)} [{units}]")
            continue
        rows = []
        for name, each in metrics.items():
            rows.append([name, trajectory.unit_of(name) or "-", *(number(each[key]) for key in columns)])
        _say_long_table([title, "unit", *columns.values()], rows)


def outliers(summary: Mapping[str, Any]) -> list[str]:
    """A line for each coordinate whose readings an estimator found far from their prediction."""
    return [
        f"{name}: {each['outliers']} readings ({100 * each['outlier_share']:.2g} %) far from the estimator's prediction"
        for name, each in summary.get("estimate", {}).items()
        if each.get("outliers")
    ]


def _say_long_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if rows:
        say()
        say_table(header, rows[:TABLE_LENGTH], numbers=3)
    if len(rows) > TABLE_LENGTH:
        say(f"and {len(rows) - TABLE_LENGTH} more (summary.json has all rows)")


def headline(summary: dict[str, Any]) -> str:
    """Status, duration and speed of a run, in one line; stderr has the error of a run that stopped."""
    duration, wall_time, factor = (summary[key] for key in ("duration", "wall_time", "realtime_factor"))
    speed = f", {number(factor)} times real time" if factor is not None else ""
    return (
        f"{summary['config']}: {summary['status']}; {number(duration)} s simulated in {number(wall_time)} s"
        f" by engine {summary['engine']}{speed}"
    )


def _evidence(summary: dict[str, Any], residual_unit: str) -> list[str]:
    """Lines on energy, bounds and every status except OK; on rank and residual if they tell why."""
    counts = summary.get("status_counts", {})
    total = sum(counts.values())
    sound = set(counts) <= {"OK"} and summary["status"] == "done"
    lines = []
    if summary.get("rank_min") and sound:
        missed = [task for task, most in summary.get("given_up", {}).items() if (most or 0.0) >= ROUND_OFF]
        reached = f"task of priority 1 reachable at all times; given up in part: {', '.join(missed)}"
        lines.append(reached if missed else "task reachable at all times")
    if summary.get("rank_min") is not None and not sound:
        low, high = summary["rank_min"], summary["rank_max"]
        rank = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        lines.append(f"rank {rank}, residual at most {number(summary['residual_max'])} {residual_unit}".rstrip())
    if summary.get("energy_drift") is not None:
        lines.append(f"energy drift {number(summary['energy_drift'])} J")
    held = [event for event in summary["events"] if event["event"] in ("bound", "funnel", "clipped")]
    lines += [f"at {number(event['t'])} s {event['text']}" for event in held[:BOUND_LINES]]
    if len(held) > BOUND_LINES:
        lines.append(f"and {len(held) - BOUND_LINES} more times (summary.json has all events)")
    lines += outliers(summary)
    return lines + [f"{n} of {total} rows: {_sentence(name)}" for name, n in counts.items() if name != "OK"]


def _sentence(status: str) -> str:
    from servoctl.types import Status

    return Status[status].value if status in Status.__members__ else f"status {status}"
