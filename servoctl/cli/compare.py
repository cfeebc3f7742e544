"""`servoctl compare`: prints the metrics of several runs side by side, and draws their lines."""

from pathlib import Path
from typing import Annotated, Any

import typer

from servoctl.cli.console import say, say_json, say_table
from servoctl.cli.options import AsJson


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN_DIR", exists=True, file_okay=False, help="Two or more run folders."),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for the pictures; default: A_and_B beside the first run.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print and draw several runs side by side."""
    from servoctl.report.compare import beside, draw, load_all, metrics, units

    trajectories = load_all(runs)
    table = metrics(trajectories)
    written = [str(path) for path in draw(trajectories, out or beside(runs[0], trajectories))]
    if as_json:
        say_json({"runs": list(trajectories), "metrics": table, "pictures": written})
        return
    of = units(trajectories, table)
    rows = [[name, unit, *map(_shown, values)] for (name, values), unit in zip(table.items(), of, strict=True)]
    say_table(["", "unit", *trajectories], rows, numbers=len(trajectories))
    say()
    for path in written:
        say(path)


def _shown(value: Any) -> str:
    """The text of a table cell."""
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
