"""Compiles a library into the cache: a process of its own, which may outlive the run that started it.

Design: it needs nothing of the run but its standard input, takes at most `PROCESSOR_TIME`, politely to other processes,
and one process works for a key at a time. SIGTERM to its session ends it and the compiler, and removes its files.
"""

import json
import os
import signal
import sys
import tempfile
from pathlib import Path

from servoctl.engine import cache, compiler
from servoctl.errors import CompileError

PROCESSOR_TIME = 60  # [s] most processor time of a compilation in the background
NICE = 5  # how far the process steps back behind others


def command() -> list[str]:
    """The command that reads `{"key": .., "source": ..}` from standard input; on failure its last line says why."""
    root = str(Path(__file__).parents[2])
    code = f"import sys; sys.path.insert(0, {root!r}); from servoctl.engine.detached import main; main()"
    return [sys.executable, "-IS", "-c", code]


def main() -> None:
    """The process."""
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
