"""The command line: parses arguments, calls the library, prints the results.

Design: results go to stdout, notes about them to stderr. A command imports its modules inside its function, so that
`servoctl --help` loads neither NumPy nor CasADi. Every command calls functions that are available in Python too.
"""

import os
import re
import sys
import traceback
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from servoctl.cli.console import ExitCode, begin, interruptible, note, outcome_of, results_alone

if TYPE_CHECKING:
    from typer.core import TyperGroup

STACK = 8 * 2**20  # stack of the process [bytes], the usual one of Linux


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        arguments: Words of the command line; None: those of this process.

    Returns:
        The exit code, one of `ExitCode`, of a command that ended in an error.

    Raises:
        SystemExit: The command ended without an error; it carries the exit code.
    """
    begin(process=arguments is None)
    _deepen_stack()
    words = [_in_home(word) for word in (sys.argv[1:] if arguments is None else arguments)]
    debug = "--debug" in words  # typer accepts options of the app only before the command
    try:
        with interruptible(), results_alone("--json" in words):
            _command()([word for word in words if word != "--debug"], prog_name="servoctl")
    except KeyboardInterrupt:  # before the command began, which handles it from then on
        return ExitCode.INTERRUPTED
    except Exception as error:
        if debug:
            traceback.print_exc()
        outcome = outcome_of(error)
        if isinstance(error, ModuleNotFoundError) and outcome is ExitCode.CRASHED:
            note(f"servoctl: {error.name} is not installed (pip install it; servoctl doctor lists all packages)")
        elif outcome is ExitCode.CRASHED:
            note(f"servoctl: {type(error).__name__}: {error} (this is a bug; --debug shows where)")
        else:
            note(str(error))
        return outcome
    return ExitCode.DONE


@cache
def _command() -> "TyperGroup":
    """The commands with their options, which take 7 ms to make."""
    from typer.main import get_group

    from servoctl.cli.app import app

    return get_group(app)


def _in_home(word: str) -> str:
    """`~/x` and `--out=~/x` with the home folder in place of `~`, which shells leave there in quotes and after `=`."""
    option, path = word.split("=", 1) if re.match(r"--[a-z-]+=~", word) else ("", word)
    if path != "~" and not path.startswith("~/"):
        return word
    return f"{option}={os.path.expanduser(path)}" if option else os.path.expanduser(path)


def _deepen_stack() -> None:
    """Raises the limit of the stack to what tracing a large machine needs, where the system has one and allows it."""
    try:
        import resource
    except ImportError:  # Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    wanted = STACK if hard == resource.RLIM_INFINITY else min(STACK, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_STACK, (wanted, hard))
