"""`servoctl identify`: finds the plant's parameters and friction from logs."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from servoctl.cli.console import announced, note, say, say_json, say_table
from servoctl.cli.folders import fresh_folder
from servoctl.cli.options import AsJson, Classes

if TYPE_CHECKING:
    from servoctl.identification import Identification


def identify(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN_DIR", exists=True, file_okay=False, help="Folders written by `run` or `hil`."),
    ],
    parameters: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="What to identify, such as m1,tool_m,friction; default: all that enters linearly, and friction.",
        ),
    ] = None,
    bandwidth: Annotated[
        float | None,
        typer.Option(metavar="HZ", help="Cut-off frequency of the positions; default: where noise begins."),
    ] = None,
    classes: Classes = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Output folder; default: runs/<name>-identify-<date>-<time>.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Identify the plant's parameters and friction from logs.

    Writes identified.yaml, to be laid over the config by --set-file.
    """
    from servoctl.identification import identify as identified
    from servoctl.identification.files import IDENTIFIED, MACHINE, save
    from servoctl.run_folder.files import CONFIG, study_folder

    names = None if parameters is None else [name.strip() for name in parameters.split(",") if name.strip()]
    with announced(runs[0].name, "tracing and fitting"):
        result = identified(runs, names, bandwidth, classes)
    folder = study_folder(out or fresh_folder(f"{result.config}-identify"))
    files = save(result, folder)
    if as_json:
        say_json(result.to_dict())
        return
    _say(result)
    say(f"\nwritten to {quote(str(folder))}: {', '.join(files)}")
    over = [f"--set-file {quote(str(folder / name))}" for name in (IDENTIFIED, MACHINE) if name in files]
    say(f"next: servoctl run {quote(str(runs[0] / CONFIG))} {' '.join(over)}")


def _say(result: "Identification") -> None:
    together = {name for group in result.unidentifiable for name in group}
    known = [
        [name, f"{entry['value']:.6g}", f"{entry['sigma']:.2g}", f"{entry['before']:.6g}"]
        for name, entry in result.parameters.items()
        if name not in together and entry["sigma"] is not None
    ]
    say_table(["parameter", "identified", "+- sigma", "before"], known, numbers=3)
    sums = [
        [entry["sum"], f"{entry['value']:.6g}", f"{entry['sigma']:.2g}", f"{entry['before']:.6g}"]
        for entry in result.base
        if any(name in together for name in entry["sum"].split(" "))
    ]
    if sums:
        say()
        say_table(["parameters that only act together", "identified", "+- sigma", "before"], sums, numbers=3)
    alone = [group[0] for group in result.unidentifiable if len(group) == 1]
    if alone:
        say(f"\nno effect in these logs: {', '.join(alone)}")
    for name, why in result.left_out.items():
        say(f"not identified: {name}: {why}")
    if result.not_significant:
        note(f"not significant, so taken as 0: {', '.join(result.not_significant)}")
    figures = result.torque_figures
    rows = [
        [name, one["unit"], *(f"{one[key]:.4g}" for key in ("torque", "before", "after", "validation"))]
        for name, one in figures.items()
    ]
    say("\nrms of the torque, and of what the model does not explain")
    say_table(["actuator", "unit", "torque", "before", "after", "on rows not used"], rows, numbers=4)
    say(f"\n{result.verdict}")
