"""The app of the command line: all commands in groups, each with an example in its help."""

from collections.abc import Callable
from typing import Annotated

import typer

from servoctl.cli.analyse import analyse
from servoctl.cli.check import check
from servoctl.cli.console import say
from servoctl.cli.doctor import doctor
from servoctl.cli.hil import emulate, hil, replay
from servoctl.cli.identify import excite, identify
from servoctl.cli.listing import list_all, new, schema
from servoctl.cli.options import CommandWithExample, GroupedCommands
from servoctl.cli.report import compare, export, report
from servoctl.cli.run import run
from servoctl.cli.study import TuneCommand, sweep, tune
from servoctl.version import VERSION

_HERE = "{interface: udp_multicast, channel: 239.74.163.2, bitrate: 1000000, hop_limit: 0}"

GROUPS: dict[str, dict[str, tuple[Callable[..., None], str]]] = {
    "Simulation": {
        "run": (run, "servoctl run coordinated_robots --set law.correction.baumgarte.alpha=20 --out first"),
        "sweep": (sweep, "servoctl sweep two_mass_spring_off --vary law.correction.baumgarte.alpha=1:16:12 --jobs 2"),
        "tune": (tune, "servoctl tune two_mass_spring --trials 64 --out tuned"),
    },
    "Model and stability": {
        "check": (check, "servoctl check coordinated_robots"),
        "analyse": (analyse, "servoctl analyse coordinated_robots --at 1"),
        "excite": (excite, "servoctl excite coordinated_robots --duration 10 --out excited"),
        "identify": (identify, "servoctl identify first"),
    },
    "Drives": {
        "hil": (hil, "servoctl hil coordinated_robots --duration 2 --out caught"),
        "emulate": (emulate, f"servoctl emulate two_mass_spring_drive --set 'hil.buses.main={_HERE}'"),
        "replay": (replay, "servoctl replay caught"),
    },
    "Results": {
        "report": (report, "servoctl report first --html --gif"),
        "compare": (compare, "servoctl compare first second"),
        "export": (export, "servoctl export two_mass_spring --out law"),
    },
    "Getting started and reference": {
        "new": (new, "servoctl new crane"),
        "list": (list_all, "servoctl list"),
        "schema": (schema, "servoctl schema > schema.json"),
        "doctor": (doctor, "servoctl doctor"),
    },
}
"""Group -> command -> its function, and an example for its help."""

app = typer.Typer(
    cls=GroupedCommands,
    help="Constraint-following servo control: a task is a constraint, and the control is the constraint force.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for _group, _commands in GROUPS.items():
    for _name, (_function, _example) in _commands.items():
        _class = TuneCommand if _name == "tune" else CommandWithExample
        app.command(_name, cls=_class, epilog=_example, rich_help_panel=_group)(_function)


def _version(wanted: bool) -> None:
    if wanted:
        say(VERSION)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Declares the options in `--help`; `main` itself takes `--debug` out of the line."""
