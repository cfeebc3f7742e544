"""Exports a control law as standalone C99, for the controller of a drive or a robot.

Design: the code is that of the compiled loop's `control_kernel`, so the exported law is the simulated one. Its test
compares it with engine `numpy`. The C allocates nothing, prints nothing and keeps no state between calls.
"""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from servoctl.assembly import Run
from servoctl.engine.emit import USE_VM
from servoctl.engine.ops import Cost
from servoctl.errors import CompileError, ConfigError
from servoctl.export.interface import identifier, interface
from servoctl.export.source import Facts, StandaloneSource, header, law
from servoctl.export.trial import test, vectors
from servoctl.simulation.closed_loop import Loop


def write(texts: Mapping[str, str], folder: Path, force: bool = False) -> list[Path]:
    """Writes files, all or none, and returns their paths.

    Args:
        texts: File name -> content.
        folder: Where to write; made if it does not exist.
        force: Whether files that are there, with other content, are replaced.

    Raises:
        ConfigError: Such a file is there without `force`, or the folder cannot be written.
    """
    paths = {folder / name: text for name, text in texts.items()}
    try:
        other = [path for path, text in paths.items() if path.exists() and path.read_bytes() != text.encode()]
        if other and not force:
            raise ConfigError(
                [f"{path}: is there already (choose another --out, or --force replaces it)" for path in other]
            )
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".servoctl-", dir=folder) as fresh:
            for path, text in paths.items():
                (Path(fresh) / path.name).write_text(text, encoding="utf-8", newline="\n")
            for path in paths:
                os.replace(Path(fresh) / path.name, path)
    except OSError as error:
        why = f"--out: {error.filename or folder}: cannot be written: {error.strerror or error}"
        raise ConfigError(f"{why} (free disk space, or choose another --out)") from error
    return list(paths)


TOLERANCE = 1e-9  # error of u that the test allows, relative to its largest entry or to 1
MAKEFILE = Path(__file__).with_name("Makefile")  # the same for every law

__all__ = ["Export", "export", "write"]


@dataclass(frozen=True)
class Export:
    """An exported law."""

    name: str  # prefix of the files and of the names in C
    files: dict[str, str]  # file name -> text
    cost: Cost  # operations of a call in the worst case
    stack: int  # [byte] approximate upper limit of a call's stack
    vectors: int  # number of reference vectors in the test
    left_out: int  # number of states that are no reference, because rounding decides their rank, status or digits

    @property
    def compile_line(self) -> str:
        """Shell command that compiles and runs the test."""
        stem = f"{self.name}_law"
        return f"cc -std=c99 -O2 -o {stem}_test {stem}_test.c {stem}.c -lm && ./{stem}_test"

    def to_dict(self) -> dict[str, Any]:
        """The export without the texts of its files, for JSON."""
        cost = {"operations": self.cost.operations, "divisions": self.cost.divisions, "functions": self.cost.functions}
        facts = {"name": self.name, "files": list(self.files), "cost": cost, "stack_bytes": self.stack}
        return facts | {"vectors": self.vectors, "left_out": self.left_out, "compile": self.compile_line}


def export(run: Run) -> Export:
    """Exports the law of a run.

    Args:
        run: Result of `load`, with a compiled loop.

    Raises:
        ConfigError: There is no law, or it is not compiled.
    """
    loop = _compiled(run)
    name = identifier(run.name)
    border, source = interface(loop, name), _source(run, loop)
    references, left_out = vectors(loop, run.start, border)
    if not references:
        raise ConfigError(f"{run.name}: export: engines numpy and vm agree at none of {left_out} states")
    accuracy = (
        f"double; the test holds u to {TOLERANCE:g} of {len(references)} states about the start, computed by NumPy"
    )
    facts = Facts(run.name, border, source, loop, accuracy)
    files = {
        f"{name}_law.h": header(facts),
        f"{name}_law.c": law(facts),
        f"{name}_law_test.c": test(facts, references, TOLERANCE),
        MAKEFILE.name: MAKEFILE.read_text(encoding="utf-8"),
    }
    return Export(name, files, source.cost, source.stack, len(references), left_out)


def _compiled(run: Run) -> Loop:
    system, model = run.system, run.system.model
    if system.law is None:
        raise ConfigError(f"{run.name}: law: none: there is no law to export (give the config one)")
    if model.opaque is not None:
        raise ConfigError(f"{run.name}: plant: cannot be exported, it cannot be compiled: {model.opaque}")
    if not run.loop.traced:
        why = run.loop.note or "it runs in NumPy"
        raise ConfigError(f"{run.name}: law: cannot be exported, it is not compiled: {why}")
    return run.loop


def _source(run: Run, loop: Loop) -> StandaloneSource:
    try:
        return StandaloneSource(loop.control_kernel.function)
    except CompileError as error:
        reason = str(error).removesuffix(USE_VM)
        raise ConfigError(f"{run.name}: law: cannot be exported: {reason}") from error
