"""`servoctl run`: simulate a config and say how it went."""

from datetime import datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from servoctl.cli.console import ProgressBar, note, say, say_json, say_table
from servoctl.cli.options import AsJson, Config
from servoctl.cli.outcome import Outcome, outcome_of_run

if TYPE_CHECKING:
    from servoctl.trajectory import Trajectory


def run(
    config: Config,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The run folder; default: runs/<name>-<date>-<time>.")
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Change one value of the config; repeatable."),
    ] = None,
    engine: Annotated[
        Literal["auto", "c", "vm", "numpy"],
        typer.Option(help="c needs a compiler; vm needs none; numpy is for comparison; auto takes the fastest."),
    ] = "auto",
    as_json: AsJson = False,
) -> None:
    """Simulate a config and write a run folder."""
    from servoctl.runs import load

    loaded = load(config, overrides or (), engine=engine)
    folder = out or _fresh_folder(Path(config).stem)
    try:
        with ProgressBar(Path(config).stem) as progress:
            trajectory = loaded.simulate(out=folder, progress=progress)
    except KeyboardInterrupt:
        note(f"interrupted; what there is: {folder}")
        raise typer.Exit(Outcome.INTERRUPTED) from None
    summary = trajectory.summary()
    if as_json:
        say_json(summary)
    else:
        _say_summary(trajectory, summary)
        say(f"\nwritten to {folder}; next: servoctl report {folder}")
    raise typer.Exit(outcome_of_run(summary["status"]))


def _fresh_folder(name: str) -> Path:
    stem = Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    names = (stem if number == 1 else stem.with_name(f"{stem.name}-{number}") for number in count(1))
    return next(path for path in names if not path.exists())


def _say_summary(trajectory: "Trajectory", summary: dict[str, Any]) -> None:
    units = trajectory.units
    say(_headline(summary) + "\n")
    errors = ("max_violation", "rms_violation", "final_violation")
    rows = [
        [name, _common_unit([units.get(f"violation.{row}", "") for row in trajectory.tasks[name]])]
        + [_number(metrics[key]) for key in errors]
        for name, metrics in summary["tasks"].items()
    ]
    rows += [
        [f"{name} (passive)", units.get(f"passive.{name}", "")] + [_number(metrics[key]) for key in errors]
        for name, metrics in summary["passive"].items()
    ]
    say_table(["violation", "unit", "max", "rms", "final"], rows, numbers=3)
    if rows and summary["inputs"]:
        say()
    say_table(
        ["input", "unit", "min", "max", "rms"],
        [
            [name, units.get(f"u.{name}", "")] + [_number(metrics[key]) for key in ("min", "max", "rms")]
            for name, metrics in summary["inputs"].items()
        ],
        numbers=3,
    )
    for line in _evidence(summary):
        say(line)


def _headline(summary: dict[str, Any]) -> str:
    duration, wall_time, factor = (summary[key] for key in ("duration", "wall_time", "realtime_factor"))
    speed = f", {_number(factor)} times real time" if factor is not None else ""
    error = f" ({summary['error']})" if summary.get("error") else ""
    return (
        f"{summary['config']}: {summary['status']}{error}; {_number(duration)} s simulated in {_number(wall_time)} s"
        f" by engine {summary['engine']}{speed}"
    )


def _evidence(summary: dict[str, Any]) -> list[str]:
    """Lines on rank, residual, energy and every status that is not OK."""
    lines = []
    if summary.get("rank_min") is not None:
        low, high = summary["rank_min"], summary["rank_max"]
        rank = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        lines.append(f"\nrank {rank}, residual at most {_number(summary['residual_max'])}")
    if summary.get("energy_drift") is not None:
        lines.append(f"energy drift {_number(summary['energy_drift'])}")
    counts = summary.get("status_counts", {})
    total = sum(counts.values())
    return lines + [f"{n} of {total} rows: {_sentence(name)}" for name, n in counts.items() if name != "OK"]


def _sentence(status: str) -> str:
    from servoctl.types import Status

    return Status[status].value if status in Status.__members__ else f"status {status}"


def _common_unit(units: list[str]) -> str:
    return units[0] if len(set(units)) == 1 else ""


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
