"""Compiles into the cache in a process of its own, which may outlive the run that started it.

Design: the process reads key and source from its standard input and needs nothing else of the run. It works for
`PROCESSOR_TIME` at most, politely to other processes, and one process works for a key at a time. SIGTERM ends it, its
compiler and its temporary files. Without a cache the next run could not find the library, so nothing is detached.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from servoctl.engine import cache, compiler
from servoctl.errors import CompileError

SWITCH = "SERVOCTL_FINISH_COMPILING"
"""Environment variable; `0`: a compilation ends with its run."""

PROCESSOR_TIME = 60
"""Most processor time of a compilation; `auto` starts none that it expects to take more than 5 s [s]."""

NICE = 5
"""How far the process steps back behind others."""

POLL = 0.1
"""Time between two looks at another process that compiles the same [s]."""

CODE = "import sys; sys.path.insert(0, {root!r}); from servoctl.engine.detached import main; main()"


def refusal() -> str | None:
    """Why a compilation ends with its run; None if it goes on."""
    if os.environ.get(SWITCH, "").strip() == "0":
        return f"{SWITCH} is 0"
    if os.name != "posix" or not sys.executable:
        return "this system has no means for it"
    if cache.folder() is None or cache.refusal() is not None:
        return f"the cache is not used: {cache.refusal()}"
    return None


class DetachedStop(compiler.Stop):
    """Ends a process of this module, which then ends its compiler and removes its files."""

    signal = signal.SIGTERM


def build(key: str, source: str, optimised: bool, stop: DetachedStop, handed_over: threading.Event) -> None:
    """Compiles a library into the cache, by another process.

    Args:
        key: Key of the library.
        source: The C code.
        optimised: As of `compiler.build`.
        stop: Another thread may end the process by it.
        handed_over: Is set once the process needs this one no more.

    Raises:
        CompileError: There is no library, and why.
    """
    request = json.dumps({"key": key, "source": source, "optimised": optimised, "run": os.getpid()})
    code = CODE.format(root=str(Path(__file__).parents[2]))
    try:
        process = stop.start([sys.executable, "-IS", "-c", code], stdin=subprocess.PIPE)
    except OSError as error:
        raise CompileError(f"the process that compiles does not start: {error.strerror}") from error
    assert process.stdin is not None
    with suppress(BrokenPipeError), process.stdin:  # it has ended, and its exit code says so
        process.stdin.write(request)
    process.stdin = None
    handed_over.set()
    errors = process.communicate()[1].strip().splitlines()
    if process.returncode != 0:
        raise CompileError(errors[-1] if errors else f"the process that compiles ended with {process.returncode}")


def main() -> None:
    """The process: reads a request from standard input; on failure the last line on stderr says why."""
    stop = _CompilerStop()
    signal.signal(signal.SIGTERM, stop.on_signal)
    request = json.loads(sys.stdin.read())
    _limit()
    key = request["key"]
    try:
        with _turn(key, request["run"]), tempfile.TemporaryDirectory(prefix="servoctl-") as folder:
            if cache.find(key) is None:
                built = Path(folder) / "code.so"
                compiler.build(request["source"], built, stop, request["optimised"])
                if cache.put(key, built) == built:
                    raise CompileError(f"{cache.folder()}: the library cannot be written")
    except (CompileError, OSError) as error:
        with suppress(OSError):  # the run has ended
            sys.stderr.write(" ".join(str(error).split()) + "\n")
            sys.stderr.flush()
        os._exit(1)


class _CompilerStop(compiler.Stop):
    """Ends the compiler and this process on a signal, which may come while the compiler starts."""

    def __init__(self) -> None:
        super().__init__()
        self._starting, self._signalled = False, False

    def on_signal(self, *_: object) -> None:
        self._signalled = True
        if not self._starting:
            self.ask()
            sys.exit(1)

    def start(self, command: Sequence[str], stdin: int | None = None) -> "subprocess.Popen[str]":
        self._starting = True
        process = super().start(command, stdin)
        self._starting = False
        if self._signalled:
            self.on_signal()
        return process


def _limit() -> None:
    """Limits the processor time of this process and of its compiler, and lets other processes go first."""
    import resource

    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    most = PROCESSOR_TIME if hard == resource.RLIM_INFINITY else min(PROCESSOR_TIME, hard)
    resource.setrlimit(resource.RLIMIT_CPU, (most, most))
    os.nice(NICE)


@contextmanager
def _turn(key: str, run: int) -> Iterator[None]:
    """Waits until no other process compiles for this key; ends this process when its run ends meanwhile.

    Args:
        key: The key.
        run: Process id of the run.
    """
    import fcntl

    path = cache.lock_file(key)
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if os.getppid() != run:
                    sys.exit()
                time.sleep(POLL)
            except OSError:  # a file system without locks: two may do the same work
                break
        try:
            yield
        finally:
            cache.drop(path)
