"""`servoctl export`: writes the law of a config as standalone C."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from servoctl.cli.console import note, say, say_json
from servoctl.cli.options import AsJson, Config, Overrides, SetFiles, changes_of

if TYPE_CHECKING:
    from servoctl.export import Export


def export(
    config: Config,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Output folder; created if it is missing.")],
    set_file: SetFiles = None,
    overrides: Overrides = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an earlier export, unless its files were changed.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write the law as standalone C99.

    A test, an example, a Makefile and a README come with it.
    """
    from servoctl.assembly import load
    from servoctl.export import export as law_in_c
    from servoctl.export import write

    run = load(config, changes_of(set_file, overrides))
    for warning in run.warnings:
        note(f"warning: {warning}")
    exported = law_in_c(run)
    written = write(exported.files, out, force)
    if as_json:
        say_json(exported.to_dict() | {"files": [str(path) for path in written]})
        return
    for path in written:
        say(str(path))
    _say_facts(exported)
    say(f"next: cd {quote(str(out))} && make test")
    say(f"without make: {exported.compile_line}")


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
