"""`servoctl report`: a page, pictures and films from run folders."""

from pathlib import Path
from typing import Annotated

import typer

from servoctl.cli.console import say
from servoctl.run_folder import load_run


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN_DIR", exists=True, file_okay=False, help="Folders that `run` or `hil` wrote."),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to write; default: into each run's own folder.")
    ] = None,
    html: Annotated[bool, typer.Option("--html", help="The page: report.html, of all runs together.")] = False,
    png: Annotated[bool, typer.Option("--png", help="All pictures, 160 dpi.")] = False,
    pdf: Annotated[bool, typer.Option("--pdf", help="The same as vectors, in the width of a printed page.")] = False,
    gif: Annotated[bool, typer.Option("--gif", help="The animation.")] = False,
    mp4: Annotated[bool, typer.Option("--mp4", help="The animation as film; needs ffmpeg.")] = False,
) -> None:
    """Write a page that opens anywhere, and pictures, of one or several runs; print the files written.

    Without any of the last five options: the page, and of each run the picture with everything at a glance. The page of
    several runs goes to the first one's folder.
    """
    default = not (html or png or pdf or gif or mp4)
    if html or default:
        from servoctl.report.page import PAGE, write

        say(str(write(runs, (out or runs[0]) / PAGE)))
    if html and not (png or pdf or gif or mp4):
        return
    from servoctl.report import report as draw

    for folder in runs:
        place = folder if out is None else out if len(runs) == 1 else out / folder.name
        trajectory = load_run(folder)
        written = draw(trajectory, place) if png else []
        written += draw(trajectory, place, names=["overview"]) if default else []
        written += draw(trajectory, place, "pdf") if pdf else []
        for kind in [name for name, wanted in (("gif", gif), ("mp4", mp4)) if wanted]:
            from servoctl.report.film import film

            written.append(film(trajectory, place / f"film.{kind}"))
        for path in written:
            say(str(path))
