"""The commands that there are."""

from typing import Annotated

import typer

from servoctl.cli.analyse import analyse
from servoctl.cli.bench import bench
from servoctl.cli.check import check
from servoctl.cli.compare import compare
from servoctl.cli.console import say
from servoctl.cli.doctor import doctor
from servoctl.cli.emulate import emulate
from servoctl.cli.export import export
from servoctl.cli.hil import hil
from servoctl.cli.listing import list_all
from servoctl.cli.new import new
from servoctl.cli.replay import replay
from servoctl.cli.report import report
from servoctl.cli.run import run
from servoctl.cli.schema import schema
from servoctl.cli.sweep import sweep
from servoctl.cli.tune import TuneCommand, tune
from servoctl.version import VERSION

app = typer.Typer(
    help="Constraint-following servo control: a task is a constraint, and the control is the constraint force.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("run")(run)
app.command("check")(check)
app.command("sweep")(sweep)
app.command("tune", cls=TuneCommand)(tune)
app.command("analyse")(analyse)
app.command("replay")(replay)
app.command("hil")(hil)
app.command("emulate")(emulate)
app.command("report")(report)
app.command("compare")(compare)
app.command("export")(export)
app.command("bench")(bench)
app.command("new")(new)
app.command("list")(list_all)
app.command("schema")(schema)
app.command("doctor")(doctor)


def _version(wanted: bool) -> None:
    if wanted:
        say(VERSION)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Declares what `--help` lists; `main` itself takes `--debug` out of the line."""
