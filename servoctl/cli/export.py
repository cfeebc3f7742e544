"""`servoctl export`: the law of a config as standalone C."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from servoctl.cli.console import note, say, say_json
from servoctl.cli.options import AsJson, Config, Overrides, SetFiles, given

if TYPE_CHECKING:
    from servoctl.export import Export


def export(
    config: Config,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to write; made if it is not there.")],
    set_file: SetFiles = None,
    overrides: Overrides = None,
    single: Annotated[
        bool, typer.Option("--float", help="Compute in float; its error is measured, which takes a C compiler.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier export that nobody has changed.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the law as standalone C99 with a test, an example, a Makefile and a README."""
    from servoctl.assembly import load
    from servoctl.export import export as law_in_c
    from servoctl.export import write

    run = load(config, given(set_file, overrides))
    for warning in run.warnings:
        note(f"warning: {warning}")
    made = law_in_c(run, single)
    written = write(made.files, out, force)
    if as_json:
        say_json(made.to_dict() | {"files": [str(path) for path in written]})
        return
    for path in written:
        say(str(path))
    _say_facts(made)
    say(f"next: cd {quote(str(out))} && make test")
    say(f"without make: {made.compile_line}")


def _say_facts(made: "Export") -> None:
    cost = made.cost
    say(
        f"at most {cost.operations} operations a call, of these {cost.divisions} divisions and square roots and "
        f"{cost.functions} sines, powers and the like; about {made.stack} bytes of stack"
    )
    left_out = f" ({made.left_out} states left out: rank, status or digits hang on rounding)" if made.left_out else ""
    say(f"{made.vectors} reference vectors{left_out}")
    if made.float_error is not None:
        differs = f"; rank or status differ at {made.float_differs} states" if made.float_differs else ""
        say(f"float: largest relative error of u {made.float_error:.1e}{differs}")
