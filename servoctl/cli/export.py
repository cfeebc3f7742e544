"""`servoctl export`: writes the law of a config as standalone C."""

from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from servoctl.cli.console import note, say, say_json
from servoctl.cli.options import AsJson, Config, Overrides, SetFiles, changes_of
from servoctl.errors import ConfigError

if TYPE_CHECKING:
    from servoctl.config.overrides import Override
    from servoctl.export import Export


def export(
    config: Config,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Output folder; created if it is missing.")],
    set_file: SetFiles = None,
    overrides: Overrides = None,
    single: Annotated[
        bool, typer.Option("--float", help="Compute in float and measure its error; needs a C compiler.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an earlier export, unless its files were changed.")
    ] = False,
    loop: Annotated[
        bool,
        typer.Option("--loop", help="Write the whole loop on drives, for Linux without Python, in place of the law."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write the law as standalone C99.

    A test, an example, a Makefile and a README come with it.
    """
    from servoctl.assembly import load
    from servoctl.export import export as law_in_c
    from servoctl.export import write

    if loop:
        _export_loop(config, out, changes_of(set_file, overrides), single, force, as_json)
        return
    run = load(config, changes_of(set_file, overrides))
    for warning in run.warnings:
        note(f"warning: {warning}")
    exported = law_in_c(run, single)
    written = write(exported.files, out, force)
    if as_json:
        say_json(exported.to_dict() | {"files": [str(path) for path in written]})
        return
    for path in written:
        say(str(path))
    _say_facts(exported)
    say(f"next: cd {quote(str(out))} && make test")
    say(f"without make: {exported.compile_line}")


def _export_loop(
    config: str, out: Path, overrides: "Sequence[Override]", single: bool, force: bool, as_json: bool
) -> None:
    """Writes `NAME_loop.c`."""
    from hil.export.loop import export_loop
    from servoctl.export import write

    if single:
        raise ConfigError("--float: the loop on drives computes in double, as servoctl hil does (leave --float out)")
    exported = export_loop(config, overrides)
    written = [str(path) for path in write(exported.files, out, force)]
    if as_json:
        say_json({"name": exported.name, "files": written, "buses": exported.buses, "compile": exported.compile_line})
        return
    for path in written:
        say(path)
    say("it needs Linux with SocketCAN, no Python; it has no stages, no live page and no recorder: test on the machine")
    say(f"with servoctl hil first; buses, in the order of its arguments: {', '.join(exported.buses)}")
    say(f"next: cd {quote(str(out))} && {exported.compile_line}")


def _say_facts(exported: "Export") -> None:
    cost = exported.cost
    say(
        f"at most {cost.operations} operations a call, of these {cost.divisions} divisions and square roots and "
        f"{cost.functions} sines, powers and the like; about {exported.stack} bytes of stack"
    )
    left_out = (
        f" ({exported.left_out} states left out: rounding decides their rank, status or digits)"
        if exported.left_out
        else ""
    )
    say(f"{exported.vectors} reference vectors{left_out}")
    if exported.float_error is not None:
        count = exported.float_differs
        differs = f"; rank or status differ at {count} states" if count else ""
        say(f"float: largest relative error of u {exported.float_error:.1e}{differs}")
