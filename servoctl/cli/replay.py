"""`servoctl replay`: what the law of a run gives now, against what the run logged."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from servoctl.cli.check import say_imports
from servoctl.cli.console import ProgressBar, note, say, say_json, say_table
from servoctl.cli.exit_code import ExitCode
from servoctl.cli.options import AsJson

if TYPE_CHECKING:
    from hil.replay.replay import Replay


def replay(
    run: Annotated[
        Path, typer.Argument(metavar="RUN_DIR", exists=True, file_okay=False, help="A folder that a run wrote.")
    ],
    classes: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            exists=True,
            file_okay=False,
            help="Where class paths like cart.py:Cart in the run's config start.",
            show_default="the working folder",
        ),
    ] = Path(),
    tolerance: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="Relative to the largest |u| of each actuator.",
            show_default="0, to the bit, on the run's own engine; 1e-9 on another",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Recompute u from the logged states, compare it with what was sent, and that with the frames; 4 if they differ."""
    from hil.replay.replay import CONFIG
    from hil.replay.replay import replay as again
    from servoctl.config import load_config

    if (run / CONFIG).is_file() and (run / CONFIG).stat().st_size:
        say_imports(load_config(run / CONFIG).config, note if as_json else say)
    with ProgressBar(run.name) as progress:
        found = again(run, classes, tolerance, progress)
    if as_json:
        say_json(found.to_dict())
    else:
        _say_findings(found)
    raise typer.Exit(ExitCode.DONE if found.agrees else ExitCode.BAD_STATUS)


def _say_findings(found: "Replay") -> None:
    skipped = f" ({found.skipped} more did not ask the law)" if found.skipped else ""
    engine = f"engine {found.engine}"
    if found.engine != found.logged_engine:
        engine += f", the run had {found.logged_engine}"
    measure = f"within {found.tolerance:g} of the largest |u|" if found.tolerance else "to the bit"
    verdict = f"{found.differing} rows differ" if found.differing else "all rows are the same"
    say(f"{found.rows} rows compared{skipped}; {engine}; {verdict}, {measure}")
    if found.samples:
        same = "all the same" if not found.other_samples else f"{found.other_samples} differ"
        say(f"{found.samples} positions decoded again from can.blf: {same}")
    if found.sent is not None:
        sent = found.sent
        for count, other, what in (
            (sent.torques, sent.other_torques, "torques sent in the stage full, against the law and its limits"),
            (sent.frames, sent.other_frames, "torque frames in can.blf, against the torques sent"),
        ):
            say(f"{count} {what}: {'all the same' if not other else f'{other} differ'}")
        if sent.first:
            say(f"first: {sent.first}")
    say()
    rows = [[name, found.units[name], f"{size:.3g}"] for name, size in found.largest.items()]
    say_table(["input", "unit", "largest difference"], rows, numbers=1)
    if found.first is not None:
        first, unit = found.first, found.units[found.first.actuator]
        say(
            f"\nfirst in row {first.row}, t = {first.t:.6g} s: {first.actuator} was {first.logged!r} {unit}, "
            f"is {first.recomputed!r} {unit}"
        )
