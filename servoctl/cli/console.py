"""Exit codes, Ctrl-C, and printing: results on stdout, notes about them and progress on stderr.

Design: Ctrl-C and SIGTERM raise KeyboardInterrupt wherever the program is. CasADi swallows exceptions raised while it
inspects a Python object, as it does during a trace, so the request is remembered and `heed` raises it again.
"""

import atexit
import gc
import json
import os
import shutil
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from enum import IntEnum
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Any, Self, TextIO

import typer

from servoctl.errors import RigError, ServoctlError, WriteError

CLEAR = "\r\033[K"  # erases the line of a terminal
_requested = False


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C and SIGTERM raise KeyboardInterrupt inside this block.

    Ctrl-C stays ignored if the shell ignores it, as it does for background jobs.
    """
    global _requested
    _requested = False
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [signal.SIGTERM]
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        numbers.append(signal.SIGINT)
    before = {number: signal.signal(number, _interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def heed() -> None:
    """Raises KeyboardInterrupt if one was requested."""
    if _requested:
        raise KeyboardInterrupt


def _interrupt(number: int, frame: Any) -> None:
    global _requested
    _requested = True
    raise KeyboardInterrupt


PATIENCE = 1.0  # [s] the terminal shows what a command does once this takes longer
SPACING = 1.0  # [s] shortest time between two updates of the progress


class Announcer:
    """Tells on stderr what a command does, from its own thread; a context manager.

    Lines are printed as they come; on a terminal also the activity, once nothing has come for a second, and the
    progress. Entering and each progress raise KeyboardInterrupt if Ctrl-C was pressed.

    Design: the thread shares the interpreter lock with a loop on drives. So the progress is one short line per second
    instead of a bar that is redrawn all the time.

    Args:
        title: Text before activity and progress.
        activity: What the command does before the first line or progress, such as `compiling`.
        always: Whether to print the activity to a file or a pipe too.
    """

    def __init__(self, title: str, activity: str = "", always: bool = False) -> None:
        self._title, self._terminal = title, sys.stderr.isatty()
        self._activity = activity if always or self._terminal else ""
        self._queue: SimpleQueue[str | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name="announcer", daemon=True)
        self._shown = time.monotonic()
        self._first: tuple[float, float] | None = None  # time and fraction of the first progress

    def say(self, line: str) -> None:
        """Prints a line; returns at once."""
        self._queue.put(f"{CLEAR}{line}\n" if self._terminal else f"{line}\n")

    def progress(self, fraction: float, detail: str = "") -> None:
        """Shows the fraction that is done, 0 to 1, with a few words; returns at once."""
        heed()
        self._activity, now = "", time.monotonic()
        began, before = self._first = self._first or (now, fraction)
        if self._terminal and now > self._shown + SPACING:
            self._shown = now
            left = f", {(now - began) * (1.0 - fraction) / (fraction - before):.0f} s left" if fraction > before else ""
            title = f"{self._title}: {detail}" if detail else self._title
            self._queue.put(f"{CLEAR}{title} {100 * fraction:.0f} %{left}")

    def __enter__(self) -> Self:
        heed()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        patience: float | None = PATIENCE
        while True:
            try:
                text = self._queue.get(timeout=patience)
            except Empty:
                patience, text = None, f"{self._title}: {self._activity} ...\n" if self._activity else ""
            if text is None:
                break
            typer.echo(text, nl=False, err=True)
        if self._terminal:
            typer.echo(CLEAR, nl=False, err=True)


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


_results: TextIO | None = None  # where results go; None: to stdout


@contextmanager
def results_alone(as_json: bool) -> Iterator[None]:
    """Keeps stdout free for a result that is JSON: what the user's own plants and laws print goes to stderr."""
    global _results
    if not as_json:
        yield
        return
    _results = sys.stdout
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _results = None


COLLECT_AFTER = 50_000  # new objects after which Python looks for unreachable ones


def say(text: str = "", dim: bool = False) -> None:
    """Prints a line of the result on stdout; dim on a terminal where it matters less.

    Raises:
        WriteError: It cannot be written, as to a file on a full disk.
    """
    try:
        typer.secho(text, file=_results, dim=dim or None)
    except BrokenPipeError:  # the reader has seen enough
        raise
    except OSError as error:
        raise WriteError(f"standard output: cannot be written: {error.strerror} (free disk space)") from error


def wrapped(line: str) -> str:
    """An indented line; on a terminal, lines that are too long for it go on further to the right."""
    if not sys.stdout.isatty():
        return line
    further = " " * (len(line) - len(line.lstrip()) + 4)
    width = shutil.get_terminal_size().columns
    return textwrap.fill(line, width, subsequent_indent=further, break_long_words=False, break_on_hyphens=False)


def note(text: str) -> None:
    """Prints a line about the result on stderr."""
    typer.echo(text, err=True)


def say_json(value: Any) -> None:
    """Prints a value as JSON on stdout."""
    say(json.dumps(value, indent=2))


def number(value: Any) -> str:
    """A number with four digits, `-` for None, and whatever else is in a table as it is."""
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def say_table(header: Sequence[str], rows: Sequence[Sequence[str]], numbers: int = 0) -> None:
    """Prints a table on stdout, unless it has no rows.

    Args:
        header: One title per column.
        rows: One text per column.
        numbers: How many of the last columns hold numbers, which are aligned to the right.
    """
    if not rows:
        return
    columns = []
    for index, column in enumerate(zip(header, *rows, strict=True)):
        width = max(map(len, column))
        align = str.rjust if index >= len(header) - numbers else str.ljust
        columns.append([align(cell, width) for cell in column])
    for line in zip(*columns, strict=True):
        say("  ".join(line).rstrip())


_began = time.monotonic()


def begin(process: bool) -> None:
    """Starts the clock of a command; in its own process, NumPy will use one thread unless the user asks for more.

    The matrices are too small to gain from threads of OpenBLAS. Idle threads keep a core busy, which slows down other
    programs. The search of Pydantic for plugins is switched off, since it reads the metadata of every installed
    package. Garbage collection runs less often, since objects that are made during imports are never freed, and not at
    the end of the process, where it would take a tenth of a second or more: memory goes back to the system anyway.

    Args:
        process: Whether the process runs this command alone, so that the start of the interpreter counts too.
    """
    global _began
    if process:
        _fill_streams()
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
        gc.set_threshold(COLLECT_AFTER)
        atexit.register(gc.freeze)
    _began = time.monotonic() - (_age() if process else 0.0)


def _fill_streams() -> None:
    """Opens standard streams that the shell has closed: else the next file or socket would be one of them."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - it stays open


def elapsed() -> float:
    """Time since the command began [s]."""
    return time.monotonic() - _began


def _age() -> float:
    """Age of this process [s], to 10 ms; 0 if the system does not tell."""
    try:
        started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0


class Phases:
    """How long each phase of a command took; the first phase begins with the command."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}  # phase -> time [s], in order

    def end(self, *names: str, share: float = 0.0) -> None:
        """Ends a phase, which began when the previous one ended.

        Args:
            names: Name of the phase; or two names, of which the second took `share` of the time.
            share: Time of the second [s].
        """
        passed = elapsed() - self.total
        parts = [passed] if len(names) == 1 else [max(0.0, passed - share), min(share, passed)]
        for name, part in zip(names, parts, strict=True):
            self.seconds[name] = self.seconds.get(name, 0.0) + part

    @property
    def total(self) -> float:
        """Time of all phases that have ended [s]."""
        return sum(self.seconds.values())

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {seconds:.3g} s" for name, seconds in self.seconds.items())
        return f"{self.total:.3g} s in total: {parts}"
