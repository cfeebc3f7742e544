"""A compilation beside a run, which starts on the virtual machine and goes over to C when the library is ready.

Design: a run shorter than `SHORT` starts no compiler. After that, a thread writes the source, and a process compiles it
into the cache. The run asks between two steps whether the library is there. If the run ends earlier, the process
finishes alone, so that the next run finds the library; after Ctrl-C it is ended.

The process needs nothing of the run but its standard input, takes at most `PROCESSOR_TIME`, politely to other
processes, and one process works for a key at a time. SIGTERM to its session ends it and the compiler, and removes its
files.
"""

import atexit
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from servoctl.engine import cache, compiler
from servoctl.errors import CompileError

if TYPE_CHECKING:
    from servoctl.engine.ccode import Library, Program

SHORT = 1.0  # [s] a run that takes less than this on the virtual machine starts no compiler
SWITCH = "SERVOCTL_FINISH_COMPILING"  # environment variable; `0`: a compilation ends with its run

PROCESSOR_TIME = 60  # [s] most processor time of a compilation in the background
NICE = 5  # how far the process steps back behind others

LONGEST_END = 2.0
"""Longest wait for the end of the work, or for the source: that of a large law takes half a second to write [s]."""


def refusal() -> str | None:
    """Why nothing is compiled beside a run; None if it is."""
    if os.name != "posix" or not sys.executable:
        return "this system has no means for it"
    if cache.folder() is None or cache.refusal() is not None:
        return f"the cache is not used: {cache.refusal()}"
    return None


def may_outlive() -> bool:
    """Whether a compilation may go on when its run has ended."""
    return os.environ.get(SWITCH, "").strip() != "0"


class Compilation:
    """A library in the making."""

    def __init__(self, program: "Program", after: float = SHORT) -> None:
        """Starts the work after this time [s]."""
        # problem: why there will be no library; empty while nothing is wrong
        self._program, self.problem = program, ""
        self.library: Library | None = None  # None: it is not there yet
        self._process: subprocess.Popen[str] | None = None
        self._lock, self._ended, self._left = threading.Lock(), False, False
        self._begun, self._handed_over = threading.Event(), threading.Event()
        self._thread = threading.Timer(after, self._work)
        self._thread.daemon = True
        self._thread.start()
        atexit.register(self.end)  # a command may end before its run

    def leave(self) -> bool:
        """Lets the compiler finish alone; returns whether it works and can."""
        self._thread.cancel()
        works = self._begun.is_set() and may_outlive() and self._handed_over.wait(LONGEST_END)
        self._left = works and not self.problem
        return self._left

    def end(self) -> None:
        """Ends the compiler, unless it has finished or was left alone, and waits until its files are removed."""
        atexit.unregister(self.end)
        self._thread.cancel()
        if self._left:
            return
        with self._lock:
            self._ended = True
            if self._process is not None and self._process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGTERM)
        self._thread.join(LONGEST_END)

    def _work(self) -> None:
        self._begun.set()
        try:
            why = refusal()
            if why is not None:
                raise CompileError(f"nothing is compiled beside a run: {why} (--engine c compiles before it)")
            if not self._program.cached:
                self._compile()
            if not self._left and not self._ended:
                self.library = self._program.load()
        except CompileError as error:
            self.problem = str(error)
        finally:
            self._handed_over.set()

    def _compile(self) -> None:
        """Waits for the process that compiles.

        Raises:
            CompileError: There is no library, and why.
        """
        request = json.dumps({"key": self._program.key, "source": self._program.source})
        with self._lock:
            if self._ended:
                return
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(
                _command(),
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                text=True,
                env=os.environ | {"CC": shlex.join(compiler.compiler() or [])},  # it does not look for packages
                start_new_session=True,
            )
        assert self._process.stdin is not None
        with suppress(BrokenPipeError), self._process.stdin:  # it has ended, and its exit code says so
            self._process.stdin.write(request)
        self._process.stdin = None
        self._handed_over.set()
        errors = self._process.communicate()[1].strip().splitlines()
        if self._process.returncode != 0:
            raise CompileError(errors[-1] if errors else f"the compiler ended with {self._process.returncode}")


def _command() -> list[str]:
    """The command that reads `{"key": .., "source": ..}` from standard input; on failure its last line says why."""
    root = str(Path(__file__).parents[2])
    code = f"import sys; sys.path.insert(0, {root!r}); from {__name__} import compile_into_cache as work; work()"
    return [sys.executable, "-IS", "-c", code]


def compile_into_cache() -> None:
    """Compiles what standard input asks for; the whole work of the process."""
    import fcntl
    import resource

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    request = json.loads(sys.stdin.read())
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    most = PROCESSOR_TIME if hard == resource.RLIM_INFINITY else min(PROCESSOR_TIME, hard)
    resource.setrlimit(resource.RLIMIT_CPU, (most, most))
    os.nice(NICE)
    key, lock = request["key"], cache.lock_file(request["key"])
    try:
        with lock.open("w") as locked, tempfile.TemporaryDirectory(prefix="servoctl-") as folder:
            fcntl.flock(locked, fcntl.LOCK_EX)
            built = Path(folder) / "code.so"
            if cache.find(key) is None:
                compiler.build(request["source"], built, session=False)
                if cache.put(key, built) == built:
                    raise CompileError(f"{cache.folder()}: the library cannot be written")
    except (CompileError, OSError) as error:
        sys.exit(" ".join(str(error).split()))
    finally:
        cache.drop(lock)
