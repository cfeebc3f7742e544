"""`servoctl replay`: recomputes the inputs of a run on drives, and compares them with its log."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from servoctl.cli.check import say_imports
from servoctl.cli.console import Announcer, ExitCode, note, say, say_json, say_table
from servoctl.cli.options import AsJson, Classes

if TYPE_CHECKING:
    from hil.session.replay import Replay


def replay(
    run: Annotated[
        Path, typer.Argument(metavar="RUN_DIR", exists=True, file_okay=False, help="A folder that a run wrote.")
    ],
    classes: Classes = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="Allowed difference, relative to the largest |u| of each actuator.",
            show_default="0 (equal to the bit) on the engine of the run; 1e-9 on another",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Recompute u of a run and compare it with its log.

    Also compares the logged torques with the frames in can.blf. Exit code 4: they differ.
    """
    from hil.session.replay import CONFIG
    from hil.session.replay import replay as again
    from servoctl.config import load_config

    if (run / CONFIG).is_file() and (run / CONFIG).stat().st_size:
        say_imports(load_config(run / CONFIG).of_folder(classes).config, note if as_json else say)
    with Announcer(run.name) as announcer:
        result = again(run, classes, tolerance, announcer.progress)
    if as_json:
        say_json(result.to_dict())
    else:
        _say_result(result)
    raise typer.Exit(ExitCode.DONE if result.agrees else ExitCode.BAD_STATUS)


def _say_result(result: "Replay") -> None:
    skipped = f" ({result.skipped} more rows did not use the law)" if result.skipped else ""
    engine = f"engine {result.engine}"
    if result.engine != result.logged_engine:
        engine += f", the run used {result.logged_engine}"
    measure = f"within {result.tolerance:g} of the largest |u|" if result.tolerance else "to the bit"
    comparison = f"{result.differing} rows differ" if result.differing else "all rows are equal"
    say(f"{result.rows} rows compared{skipped}; {engine}; {comparison}, {measure}")
    if result.missing:
        say(
            f"can.blf lacks {result.missing} of the run's frames: it was cut or deleted (what it lacks is not compared)"
        )
    if result.samples:
        say(f"{result.samples} positions decoded again from can.blf: {_equal(result.other_samples)}")
    if result.sent is not None:
        sent = result.sent
        for count, other, subject in (
            (sent.torques, sent.other_torques, "torques sent in stage full, compared with the law and its limits"),
            (sent.frames, sent.other_frames, "torque frames in can.blf, compared with the torques sent"),
        ):
            say(f"{count} {subject}: {_equal(other)}")
        if sent.first:
            say(f"first difference: {sent.first}")
    say()
    rows = [[name, result.units[name], f"{size:.3g}"] for name, size in result.largest.items()]
    say_table(["input", "unit", "largest difference"], rows, numbers=1)
    if result.first is not None:
        first, unit = result.first, result.units[result.first.actuator]
        say(
            f"\nfirst difference in row {first.row}, t = {first.t:.6g} s: {first.actuator} was "
            f"{first.logged!r} {unit}, is {first.recomputed!r} {unit}"
        )


def _equal(differing: int) -> str:
    return f"{differing} differ" if differing else "all equal"
