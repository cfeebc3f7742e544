"""`servoctl hil`: runs a config on drives, emulated or real."""

import os
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from servoctl.cli.announcer import Announcer
from servoctl.cli.console import note, say, say_json
from servoctl.cli.exit_code import ExitCode
from servoctl.cli.folders import fresh_folder
from servoctl.cli.hil_figures import say_figures
from servoctl.cli.options import AsJson, Config, EngineName, Overrides, RunFolderOut, SetFiles, changes_of
from servoctl.cli.phases import Phases
from servoctl.cli.run import headline
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
        typer.Option(help="Last stage; default: full on emulated drives, shadow (sends nothing) on real ones."),
    ] = None,
    armed: Annotated[bool, typer.Option("--armed", help="Allow real drives to produce torque.")] = False,
    require_rt: Annotated[bool, typer.Option("--require-rt", help="Refuse to start without real-time rights.")] = False,
    cpu: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Pin the loop to this CPU, for example an isolated one.")
    ] = None,
    view: Annotated[
        bool,
        typer.Option(
            "--view",
            help="Serve a live page with a stop button and print its address; virtual time then runs at real speed.",
        ),
    ] = False,
    out: RunFolderOut = None,
    set_file: SetFiles = None,
    overrides: Overrides = None,
    engine: Annotated[EngineName, typer.Option(help="Engine of the law and the sensing; auto compiles to C.")] = "auto",
    as_json: AsJson = False,
) -> None:
    """Run a config on drives, emulated or real.

    Drives are emulated by default; real ones need a real bus in the config, and --armed.
    """
    from hil.loop.realtime import die_with_parent
    from hil.session.start import Request, start

    request = Request(config, tuple(changes_of(set_file, overrides)), stage, duration, armed, require_rt, engine, cpu)
    phases = Phases()
    ready = start(request)
    phases.end("loading, tracing and compiling")
    for line in ready.notes:
        note(line)
    folder = out or fresh_folder(ready.name)
    if not ready.lockstep:
        die_with_parent(os.getppid())  # by SIGTERM, which is a controlled stop
    try:
        with Announcer(ready.name) as announcer:
            result = ready.run(
                folder,
                lambda event: announcer.say(f"{event.time / 1e9:9.4f} s  {event}"),
                announcer.progress,
                (lambda address: announcer.say(f"live page; anyone with this address can open it: {address}"))
                if view
                else None,
            )
    except KeyboardInterrupt:  # Ctrl-C before the run installed its own handler
        note("interrupted before the first frame")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    try:
        _say_end(ready, result, folder, as_json, phases)
    except KeyboardInterrupt:
        note(f"interrupted: the run had already ended, and {folder} is complete")
    finally:
        for name in result.unconfirmed:
            note(f"{name}: DID NOT CONFIRM THAT IT IS OFF: use the emergency stop")
    raise typer.Exit(result.exit_code)


def _say_end(ready: "ReadyRun", result: "Result", folder: Path, as_json: bool, phases: Phases) -> None:
    """Prints the result of a run; a failure here does not change the exit code."""
    summary = result.trajectory.summary()
    phases.end("bring-up and writing", "running", share=summary["wall_time"])
    if as_json:
        say_json(summary)
        return
    say(headline(summary))
    say(str(phases))
    bounds = {}
    try:
        bounds = ready.accuracy(result.trajectory)
    except Exception as error:  # the user's plant may fail at a state of the run
        note(f"the errors that sampling and delay explain cannot be computed: {in_one_line(error)}")
    say_figures(result.trajectory, summary, bounds, ready.loads(result.trajectory))
    say(f"\nwritten to {folder}; next: servoctl report {quote(str(folder))}")
