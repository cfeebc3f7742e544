"""Starts the recorder and the live page as processes of their own."""

import signal
import subprocess
import sys
from multiprocessing.connection import Connection

PROGRAM = "import sys; sys.path[:] = sys.argv[2:]; from {} import main; main(int(sys.argv[1]))"
"""Program of a child. Unlike multiprocessing, it does not import the user's script."""

IGNORED = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP}
"""Ctrl-C, Ctrl-Z and the end of the terminal reach all processes; the loop stops the machine, then its children."""


def start_child(module: str, there: Connection, *descriptors: int) -> "subprocess.Popen[bytes]":
    """A process that calls `main(descriptor)` of a module and ignores the signals of the terminal.

    Args:
        module: Name of the module.
        there: Its end of a pipe, whose file descriptor `main` gets; closed here.
        descriptors: Further file descriptors that it inherits.

    Raises:
        OSError: The system starts no process.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED)  # a child inherits the mask
    try:
        with there:
            return subprocess.Popen(
                [sys.executable, "-c", PROGRAM.format(module), str(there.fileno()), *sys.path],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=(there.fileno(), *descriptors),
            )  # fmt: skip
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
