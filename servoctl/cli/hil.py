"""`servoctl hil`: a config on drives, emulated or real."""

import os
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from servoctl.cli.announcer import Announcer
from servoctl.cli.console import note, say, say_json
from servoctl.cli.exit_code import ExitCode
from servoctl.cli.hil_figures import say_figures
from servoctl.cli.options import AsJson, Config, Overrides, SetFiles, given
from servoctl.cli.run import fresh_folder, headline
from servoctl.errors import in_one_line

if TYPE_CHECKING:
    from hil.session.run import Result
    from hil.session.start import ReadyRun


def hil(
    config: Config,
    duration: Annotated[
        float | None, typer.Option(metavar="S", help="Time in the last stage [s]; default: run.duration.")
    ] = None,
    stage: Annotated[
        Literal["shadow", "zero", "ramp", "full"] | None,
        typer.Option(help="How far to go; default: full on emulated drives, shadow (sends nothing) on real ones."),
    ] = None,
    armed: Annotated[bool, typer.Option("--armed", help="Let real drives make torque.")] = False,
    require_rt: Annotated[bool, typer.Option("--require-rt", help="Refuse without real-time rights.")] = False,
    cpu: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Bind the loop to this CPU, such as an isolated one.")
    ] = None,
    view: Annotated[
        bool,
        typer.Option(
            "--view",
            help="Serve a live page on this machine, with a stop button, and say its address; paces lock-step.",
        ),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The run folder; default: runs/<name>-<date>-<time>.")
    ] = None,
    set_file: SetFiles = None,
    overrides: Overrides = None,
    engine: Annotated[
        Literal["auto", "c", "vm", "numpy"], typer.Option(help="What law and sensing run on; auto compiles to C.")
    ] = "auto",
    as_json: AsJson = False,
) -> None:
    """Run a config on drives: emulated by default, real by naming a real bus and arming it."""
    from hil.loop.realtime import die_with_parent
    from hil.session.start import Request, start

    request = Request(config, tuple(given(set_file, overrides)), stage, duration, armed, require_rt, engine, cpu)
    begun = start(request)
    for line in begun.notes:
        note(line)
    folder = out or fresh_folder(begun.name)
    if not begun.lockstep:
        die_with_parent(os.getppid())  # by SIGTERM, which is a controlled stop
    try:
        with Announcer(begun.name) as announcer:
            ended = begun.run(
                folder,
                lambda event: announcer.say(f"{event.time / 1e9:9.4f} s  {event}"),
                announcer.progress,
                (lambda address: announcer.say(f"live page, for who has its address: {address}")) if view else None,
            )
    except KeyboardInterrupt:  # while nothing listened to keys yet
        note("interrupted before the first frame")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    try:
        _say_end(begun, ended, folder, as_json)
    except KeyboardInterrupt:
        note(f"interrupted: the run was over already, and {folder} is finished")
    finally:
        for name in ended.unconfirmed:
            note(f"{name}: DID NOT CONFIRM THAT IT IS OFF: use the emergency stop")
    raise typer.Exit(ended.exit_code)


def _say_end(begun: "ReadyRun", ended: "Result", folder: Path, as_json: bool) -> None:
    """Prints what the run says of itself; its figures are not worth its exit code."""
    summary = ended.trajectory.summary()
    if as_json:
        say_json(summary)
        return
    say(headline(summary))
    bounds = {}
    try:
        bounds = begun.accuracy(ended.trajectory)
    except Exception as error:  # of a user's plant, on states of the run
        note(f"the errors that the loop explains cannot be computed: {in_one_line(error)}")
    say_figures(ended.trajectory, summary, bounds, begun.loads(ended.trajectory))
    say(f"\nwritten to {folder}; next: servoctl report {quote(str(folder))}")
