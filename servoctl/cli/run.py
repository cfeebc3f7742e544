"""`servoctl run`: simulate a config and say how it went."""

from collections.abc import Sequence
from datetime import datetime
from itertools import count
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Literal

import typer

from servoctl.cli.console import ProgressBar, note, say, say_json, say_table
from servoctl.cli.exit_code import ExitCode, outcome_of_run
from servoctl.cli.options import AsJson, Config, Overrides, SetFiles, given
from servoctl.cli.phases import Phases, announced

TABLE_LENGTH = 24
"""Most rows of a table; `summary.json` has them all."""


def run(
    config: Config,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The run folder; default: runs/<name>-<date>-<time>.")
    ] = None,
    set_file: SetFiles = None,
    overrides: Overrides = None,
    engine: Annotated[
        Literal["auto", "c", "vm", "numpy"],
        typer.Option(help="auto compiles to C where that pays; vm needs no compiler; numpy is for comparison."),
    ] = "auto",
    as_json: AsJson = False,
) -> None:
    """Simulate a config and write a run folder."""
    from servoctl.assembly import load

    phases = Phases()
    compiles = engine == "c"
    with announced(config, f"loading, tracing{' and compiling' * compiles}", always=compiles):
        loaded = load(config, given(set_file, overrides), engine=engine)
    phases.end(f"loading, tracing{' and compiling' * compiles}")
    with announced(loaded.name, "compiling"):
        loaded.prepare()
    phases.end("compiling")
    if loaded.loop.choice is not None and loaded.loop.engine == "c":
        note(f"engine c: {loaded.loop.choice}")
    for warning in loaded.warnings:
        note(f"warning: {warning}")
    folder = out or fresh_folder(loaded.name)
    try:
        with ProgressBar(loaded.name) as progress:
            trajectory = loaded.simulate(out=folder, progress=progress)
    except KeyboardInterrupt:
        note(f"interrupted; what there is: {folder}")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    summary = trajectory.summary()
    phases.end("writing", "simulating", share=summary["wall_time"])
    for sentence in summary.get("left_out", []):
        note(f"warning: left out: {sentence}")
    if as_json:
        say_json(summary)
    else:
        _say_summary(trajectory.units, summary, phases)
        say(f"\nwritten to {folder}; next: servoctl report {quote(str(folder))}")
    outcome = outcome_of_run(summary["status"])
    if outcome is ExitCode.BAD_STATUS and summary.get("error"):
        note(f"error: {summary['config']}: {summary['status']}: {summary['error']}")
    raise typer.Exit(outcome)


def fresh_folder(name: str) -> Path:
    """A folder below `runs` that is not there yet."""
    stem = Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    names = (stem if number == 1 else stem.with_name(f"{stem.name}-{number}") for number in count(1))
    return next(path for path in names if not path.exists())


def _say_summary(units: dict[str, str], summary: dict[str, Any], phases: Phases) -> None:
    say(headline(summary, phases.total))
    say(str(phases))
    violations = summary["tasks"] | {f"{name} (passive)": metrics for name, metrics in summary["passive"].items()}
    keys = ("max_violation", "rms_violation", "final_violation")
    rows = [[name, *(number(metrics[key]) for key in keys)] for name, metrics in violations.items()]
    _say_some(["violation", "max", "rms", "final"], rows)
    keys = ("min", "max", "rms")
    rows = [
        [name, units.get(f"u.{name}", ""), *(number(metrics[key]) for key in keys)]
        for name, metrics in summary["inputs"].items()
    ]
    _say_some(["input", "unit", *keys], rows)
    evidence = _evidence(summary)
    if evidence:
        say()
    for line in evidence:
        say(line)


def _say_some(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if rows:
        say()
        say_table(header, rows[:TABLE_LENGTH], numbers=3)
    if len(rows) > TABLE_LENGTH:
        say(f"and {len(rows) - TABLE_LENGTH} more (summary.json has them all)")


def headline(summary: dict[str, Any], total: float | None = None) -> str:
    """What became of a run, in a line.

    Args:
        summary: Of the run.
        total: What the whole command took [s]; None: the time of the run alone is said.
    """
    duration, wall_time, factor = (summary[key] for key in ("duration", "wall_time", "realtime_factor"))
    if total is not None:
        wall_time, factor = total, None if duration is None else duration / total
    speed = f", {number(factor)} times real time" if factor is not None else ""
    error = f" ({summary['error']})" if summary.get("error") else ""
    return (
        f"{summary['config']}: {summary['status']}{error}; {number(duration)} s simulated in {number(wall_time)} s"
        f" by engine {summary['engine']}{speed}"
    )


def _evidence(summary: dict[str, Any]) -> list[str]:
    """Lines on rank, residual, energy and every status that is not OK."""
    lines = []
    if summary.get("rank_min") is not None:
        low, high = summary["rank_min"], summary["rank_max"]
        rank = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        lines.append(f"rank {rank}, residual at most {number(summary['residual_max'])}")
    if summary.get("energy_drift") is not None:
        lines.append(f"energy drift {number(summary['energy_drift'])} J")
    counts = summary.get("status_counts", {})
    total = sum(counts.values())
    return lines + [f"{n} of {total} rows: {_sentence(name)}" for name, n in counts.items() if name != "OK"]


def _sentence(status: str) -> str:
    from servoctl.types import Status

    return Status[status].value if status in Status.__members__ else f"status {status}"


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
