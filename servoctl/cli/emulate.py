"""`servoctl emulate`: the drives of a config, emulated in a process of their own."""

from typing import Annotated, Literal

import typer

from servoctl.cli.announcer import Announcer
from servoctl.cli.console import note, say
from servoctl.cli.options import Config, Overrides, SetFiles, given


def emulate(
    config: Config,
    set_file: SetFiles = None,
    overrides: Overrides = None,
    vcan: Annotated[
        bool, typer.Option("--vcan", help="Allow virtual SocketCAN interfaces, vcan*: they count as real to a loop.")
    ] = False,
    engine: Annotated[
        Literal["auto", "c", "vm", "numpy"], typer.Option(help="What the simulated plant runs on.")
    ] = "auto",
) -> None:
    """Emulate a config's drives, with the simulated plant behind them, until Ctrl-C; never on a physical bus."""
    from hil.session.serve import serve

    with Announcer("") as announcer:
        served = serve(config, given(set_file, overrides), engine, vcan, announcer.say)
        for line in served.notes:
            say(f"emulated on {line}")
        say("until Ctrl-C")
        served.run(announcer.say)
    note("ended")
