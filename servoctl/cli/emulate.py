"""`servoctl emulate`: emulates the drives of a config in a process of their own."""

from typing import Annotated

import typer

from servoctl.cli.announcer import Announcer
from servoctl.cli.console import note, say
from servoctl.cli.options import Config, EngineName, Overrides, SetFiles, changes_of


def emulate(
    config: Config,
    set_file: SetFiles = None,
    overrides: Overrides = None,
    vcan: Annotated[
        bool, typer.Option("--vcan", help="Allow virtual SocketCAN interfaces (vcan*); the loop treats them as real.")
    ] = False,
    engine: Annotated[EngineName, typer.Option(help="Engine of the simulated plant.")] = "auto",
) -> None:
    """Emulate a config's drives and plant until Ctrl-C.

    A physical bus is refused.
    """
    from hil.session.serve import serve

    with Announcer("") as announcer:
        served = serve(config, changes_of(set_file, overrides), engine, vcan, announcer.say)
        for line in served.notes:
            say(f"emulated on {line}")
        say("running until Ctrl-C")
        served.run(announcer.say)
    note("ended")
