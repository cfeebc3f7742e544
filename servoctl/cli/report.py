"""`servoctl report`: pictures and a page from run folders."""

from pathlib import Path
from typing import Annotated

import typer

from servoctl.cli.console import say


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN_DIR", exists=True, file_okay=False, help="Folders that `run` wrote."),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to write; default: into each run's own folder.")
    ] = None,
) -> None:
    """Draw one or several runs, and print the files written."""
    from servoctl.report import report as draw
    from servoctl.trajectory import Trajectory

    for folder in runs:
        place = folder if out is None else out if len(runs) == 1 else out / folder.name
        for written in draw(Trajectory.load(folder), place):
            say(str(written))
