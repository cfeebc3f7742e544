"""`servoctl compare`: several runs side by side."""

from pathlib import Path
from typing import Annotated, Any

import typer

from servoctl.cli.console import say, say_json, say_table
from servoctl.cli.options import AsJson


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN_DIR", exists=True, file_okay=False, help="Two or more folders that `run` wrote."),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to draw; default: into the first run's folder.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the metrics of several runs side by side, and draw their lines over each other."""
    from servoctl.report.compare import draw, load_all, metrics

    found = load_all(runs)
    table = metrics(found)
    written = [str(path) for path in draw(found, out or runs[0])]
    if as_json:
        say_json({"runs": list(found), "metrics": table, "pictures": written})
        return
    say_table(["", *found], [[name, *map(_shown, values)] for name, values in table.items()], len(found))
    say()
    for path in written:
        say(path)


def _shown(value: Any) -> str:
    """A value as a cell of the table."""
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
