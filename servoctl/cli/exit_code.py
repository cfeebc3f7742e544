"""Exit codes, and the exit code of each error and of each status of a run."""

from enum import IntEnum

from servoctl.errors import RigError, ServoctlError, WriteError


class ExitCode(IntEnum):
    """How a command ended; the value is the exit code."""

    DONE = 0
    CRASHED = 1
    WRONG_INPUT = 2
    RIG_FAILED = 3
    BAD_STATUS = 4
    INTERRUPTED = 130


def outcome_of(error: Exception) -> ExitCode:
    """The exit code of a command that raised this error."""
    if isinstance(error, WriteError | RigError):
        return ExitCode.RIG_FAILED
    return ExitCode.WRONG_INPUT if isinstance(error, ServoctlError) else ExitCode.CRASHED


def outcome_of_run(status: str) -> ExitCode:
    """The exit code of a run whose summary has this status."""
    return {"done": ExitCode.DONE, "interrupted": ExitCode.INTERRUPTED}.get(status, ExitCode.BAD_STATUS)
