"""`servoctl report`: writes a page, pictures and films of run folders. `servoctl compare`: several side by side.

`servoctl export` writes a law as C.
"""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from servoctl.cli.console import note, number, say, say_json, say_table
from servoctl.cli.options import AsJson, Config, Overrides, RunFolders, SetFiles, changes_of
from servoctl.errors import ServoctlError

if TYPE_CHECKING:
    from servoctl.export import Export
    from servoctl.run_folder.trajectory import Trajectory


def report(
    runs: RunFolders,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", file_okay=False, help="Output folder; default: the run folder itself."),
    ] = None,
    html: Annotated[bool, typer.Option("--html", help="The page report.html with all runs.")] = False,
    png: Annotated[bool, typer.Option("--png", help="All pictures, 160 dpi.")] = False,
    pdf: Annotated[bool, typer.Option("--pdf", help="All pictures as vectors, as wide as a printed page.")] = False,
    picture: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Only this picture, such as path or timing, as PNG or with --pdf; repeatable."
        ),
    ] = None,
    gif: Annotated[bool, typer.Option("--gif", help="The animation.")] = False,
    mp4: Annotated[bool, typer.Option("--mp4", help="The animation as a film; needs ffmpeg.")] = False,
) -> None:
    """Write a page and pictures of one or several runs.

    Prints the written files. Without --html, --png, --pdf, --picture, --gif, --mp4: the page, and one overview per run.
    The page of several runs is written into the folder of the first run.
    """
    from servoctl.run_folder import load_run

    if picture:
        _require_pictures(picture)
        png = png or not pdf
    default = not (html or png or pdf or gif or mp4)
    if html or default:
        from servoctl.report.page import PAGE, write

        say(str(write(runs, (out or runs[0]) / PAGE)))
    if html and not (png or pdf or gif or mp4):
        return
    from servoctl.report import report as draw
    from servoctl.report.page import names_of

    for folder, name in zip(runs, names_of(runs), strict=True):
        target = folder if out is None else out if len(runs) == 1 else out / name
        trajectory = load_run(folder)
        _require_data(folder, trajectory, picture or [])
        written = draw(trajectory, target, "png", ["overview"] if default else picture) if png or default else []
        written += draw(trajectory, target, "pdf", picture) if pdf else []
        for kind in [name for name, wanted in (("gif", gif), ("mp4", mp4)) if wanted]:
            from servoctl.report.film import film

            written.append(film(trajectory, target / f"film.{kind}"))
        for path in written:
            say(str(path))


def _require_pictures(names: list[str]) -> None:
    from servoctl.report import FIGURES

    if unknown := [name for name in names if name not in FIGURES]:
        raise ServoctlError(f"report: --picture {unknown[0]}: no such picture (expected one of {', '.join(FIGURES)})")


def _require_data(folder: Path, trajectory: "Trajectory", names: list[str]) -> None:
    """Refuses pictures for which a run has no data; without names each is drawn for which it has."""
    from servoctl.report import FIGURES, gives

    if empty := [name for name in names if not gives(trajectory, name)]:
        there = ", ".join(name for name in FIGURES if gives(trajectory, name)) or "none"
        raise ServoctlError(f"{folder}: --picture {empty[0]}: the run has no data for it (it has: {there})")


def compare(
    runs: RunFolders,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", file_okay=False, help="Folder for the pictures; default: A_and_B beside the first run."
        ),
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
    rows = [
        [_in_words(name), unit, *map(number, values)] for (name, values), unit in zip(table.items(), of, strict=True)
    ]
    say_table(["", "unit", *trajectories], rows, numbers=len(trajectories))
    say()
    for path in written:
        say(path)


def _in_words(name: str) -> str:
    """`tasks.level.max_violation` as a reader says it: `level: task error, max`."""
    from servoctl.run_folder.metrics import TASK_METRICS

    group, _, rest = name.partition(".")
    row, _, key = rest.rpartition(".")
    kind = {"tasks": "task error", "passive": "mechanism constraint", "inputs": "input"}.get(group)
    heads = {metric.name: metric.head.partition(" [")[0] for metric in TASK_METRICS}
    return name.replace("_", " ") if kind is None else f"{row}: {kind}, {heads.get(key, key)}"


def export(
    config: Config,
    out: Annotated[Path, typer.Option(metavar="DIR", file_okay=False, help="Output folder; created if it is missing.")],
    set_file: SetFiles = None,
    overrides: Overrides = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the law as standalone C99.

    A test and a Makefile come with it.
    """
    from servoctl.assembly import load
    from servoctl.export import export as law_in_c
    from servoctl.export import write

    run = load(config, changes_of(set_file, overrides))
    for warning in run.warnings:
        note(f"warning: {warning}")
    exported = law_in_c(run)
    written = write(exported.files, out, force)
    if as_json:
        say_json(exported.to_dict() | {"files": [str(path) for path in written]})
        return
    for path in written:
        say(str(path))
    _say_facts(exported)
    say(f"next: cd {quote(str(out))} && make test")
    say(f"without make: {exported.compile_line}")


def _say_facts(exported: "Export") -> None:
    cost = exported.cost
    say(
        f"at most {cost.operations} operations a call, of these {cost.divisions} divisions and square roots and "
        f"{cost.functions} sines, powers and the like; about {exported.stack} bytes of stack"
    )
    left_out = (
        f" ({exported.left_out} states left out: rounding decides their rank, status or digits)"
        if exported.left_out
        else ""
    )
    say(f"{exported.vectors} reference vectors{left_out}")
