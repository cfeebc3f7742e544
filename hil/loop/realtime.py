"""What a punctual loop needs from the operating system, and what was granted.

Design: a loop runs without any of it, so nothing raises by itself: each request that is not granted comes with its
remedy, and a caller that needs them all says so. Only the calling thread and this process are changed.
Processes that are started later do not inherit the priority, but they inherit the CPU: start them before.

clock_nanosleep through ctypes is not used, since time.sleep waits for an absolute time itself.

A signal that asks for the controlled stop only stores its name, which the run reads. It never raises an exception, so
it interrupts neither the frames that stop the drives nor the recorder. A signal before the end of a run makes its
status "interrupted" and its exit code 130; a later one changes nothing.
"""

import ctypes
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

from servoctl.errors import RigError, ServoctlError


def _signals(*names: str) -> tuple[signal.Signals, ...]:
    """Those that this system has."""
    return tuple(getattr(signal, name) for name in names if hasattr(signal, name))


SIGNALS = _signals("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
"""What an operator or the system sends to end a program."""

SUSPEND = _signals("SIGTSTP")  # Ctrl-Z: on the wall clock, a suspended loop would leave the drives to their watchdogs

_HARMLESS = ("SIGCHLD", "SIGCONT", "SIGURG", "SIGWINCH")
_CRASHES = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL")
_SUSPEND = ("SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGSTOP")


def _others() -> list[int]:
    """All further signals that end a process: by default (SIGUSR1, SIGALRM), and no crash of its own code."""
    left_out = {getattr(signal, name, None) for name in (*_HARMLESS, *_CRASHES, *_SUSPEND, "SIGKILL")}
    return [
        number
        for number in signal.valid_signals() - left_out - set(SIGNALS)
        if signal.getsignal(number) is signal.SIG_DFL
    ]


_NAMED = frozenset(map(int, signal.Signals))


class StopSignals:
    """Notes the signals that ask for a stop; use it as a context manager, in the main thread (RigError elsewhere).

    Args:
        suspend: Whether Ctrl-Z is one of them.
    """

    def __init__(self, suspend: bool) -> None:
        self.first = ""  # name of the first signal that came; empty before
        self.heard: Callable[[str], None] | None = None  # called with the name of each signal; None: no call
        self._suspend = suspend
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        if not hasattr(signal, "pthread_sigmask"):  # Windows
            raise RigError("hil: drives, emulated ones too, need Linux or macOS (all else runs on Windows too)")
        if threading.current_thread() is not threading.main_thread():
            raise RigError(
                "hil: the loop must run in the main thread, which alone gets the signals that stop the machine, Ctrl-C "
                "among them (run it there, or in a process of its own)"
            )
        numbers = [*SIGNALS, *_others(), *(SUSPEND if self._suspend else ())]
        self._before = {number: signal.signal(number, self._note) for number in numbers}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name if number in _NAMED else f"signal {number}"
        self.first = self.first or name
        if self.heard is not None:
            self.heard(name)


PRIORITY = 80  # priority of SCHED_FIFO: above threads that wait for a network, below the kernel's own watchdogs

_MCL_CURRENT, _MCL_FUTURE, _MCL_ONFAULT = 1, 2, 4  # ONFAULT: lock pages in use, not whole reserves
_PR_SET_PDEATHSIG, _PR_SET_TIMERSLACK, _PR_GET_TIMERSLACK = 1, 29, 30
_CAP_IPC_LOCK = 14
_LIMITS = "as root, or with '@realtime - rtprio 99' and '@realtime - memlock unlimited' in /etc/security/limits.conf"


class RealtimeError(ServoctlError, PermissionError):
    """The system does not grant what a real-time loop needs, although the operator demands it."""


@dataclass(frozen=True)
class Grant:
    """The answer to one request."""

    name: str  # what was requested: `memory`, `cpu`, `priority` ...
    granted: bool  # whether it was granted
    sentence: str  # what was granted; or why it was not, and the remedy


@contextmanager
def prepare(priority: int = PRIORITY, cpu: int | None = None, require: bool = False) -> Iterator[Sequence[Grant]]:
    """Prepares this thread for a punctual loop, and undoes everything at the end; yields the answer to each request.

    Call it when everything is imported and warm: the garbage collector is off, and ignores what exists by then.

    Args:
        priority: Priority of SCHED_FIFO, 1 to 99.
        cpu: CPU to bind this thread to; None: do not bind it.
        require: Whether to refuse where something is not granted.

    Raises:
        RealtimeError: Something that is required is not granted; the text has a sentence for each.
    """
    with ExitStack() as undo:
        grants = [_still(undo)]
        if not sys.platform.startswith("linux"):
            grants.append(Grant("system", False, "timers, memory, CPU and priority are set on Linux only"))
        else:
            grants += [_exact_timers(undo), _locked(undo)]
            if cpu is not None:
                grants.append(_bound(undo, cpu))
            grants.append(_first(undo, priority))
        missing = [f"real time: {each.name}: {each.sentence}" for each in grants if not each.granted]
        if require and missing:
            raise RealtimeError("\n".join(missing))
        yield grants


def die_with_parent(parent: int) -> bool:
    """Makes the kernel send this process SIGTERM when its parent ends, in whatever way.

    Call it first in the child. If the parent has ended already, the signal is raised at once.

    Args:
        parent: Process id of the parent, as the parent has passed it on.

    Returns:
        Whether the system supports it: only Linux does.
    """
    if not sys.platform.startswith("linux") or _call("prctl", _PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0):
        return False
    if os.getppid() != parent:
        signal.raise_signal(signal.SIGTERM)
    return True


@contextmanager
def without_collector() -> Iterator[None]:
    """Turns the garbage collector off inside: a tick leaves no cycles, and a full collection takes milliseconds."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _still(undo: ExitStack) -> Grant:
    """Turns the garbage collector off, and excludes what exists now from later collections."""
    gc.collect()
    gc.freeze()
    undo.callback(gc.unfreeze)
    undo.enter_context(without_collector())
    return Grant("collector", True, "the garbage collector is off")


def _exact_timers(undo: ExitStack) -> Grant:
    """Makes sleeps end on time without real-time priority: by default they end up to 50 us late."""
    before = _call("prctl", _PR_GET_TIMERSLACK, 0, 0, 0, 0)
    if before < 0 or _call("prctl", _PR_SET_TIMERSLACK, 1, 0, 0, 0):
        return Grant("timers", False, "timer slack cannot be set on this system (run on Linux)")
    undo.callback(_call, "prctl", _PR_SET_TIMERSLACK, before, 0, 0, 0)  # 0 stands for the default
    return Grant("timers", True, "timer slack 1 ns")


def _locked(undo: ExitStack) -> Grant:
    limit = _lock_limit()
    if limit is not None:
        return Grant("memory", False, f"memory may be paged out: only {limit >> 10} kB may be locked ({_LIMITS})")
    if number := -_call("mlockall", _MCL_CURRENT | _MCL_FUTURE | _MCL_ONFAULT):
        return Grant("memory", False, f"memory may be paged out: {os.strerror(number)} ({_LIMITS})")
    undo.callback(_call, "munlockall")
    return Grant("memory", True, "memory is locked")


def _lock_limit() -> int | None:
    """Limit of locked memory [byte]; None: no limit. With a limit, allocations after locking could fail."""
    import resource  # not on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if hard == resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (hard, hard))
        return None
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("CapEff:") and int(line.split()[1], 16) >> _CAP_IPC_LOCK & 1:
                return None
    return soft


def _bound(undo: ExitStack, cpu: int) -> Grant:
    before = os.sched_getaffinity(0)
    if cpu not in before:
        there_are = ", ".join(map(str, sorted(before)))
        return Grant("cpu", False, f"CPU {cpu} is not available (this process may use {there_are})")
    os.sched_setaffinity(0, {cpu})
    undo.callback(os.sched_setaffinity, 0, before)
    return Grant("cpu", True, f"bound to CPU {cpu}")


def _first(undo: ExitStack, priority: int) -> Grant:
    policy, before = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(priority))
    except PermissionError:
        return Grant(
            "priority",
            False,
            f"SCHED_FIFO is not permitted ({_LIMITS}; in a container --cap-add SYS_NICE --ulimit rtprio=99)",
        )
    except OSError as error:
        low, high = os.sched_get_priority_min(os.SCHED_FIFO), os.sched_get_priority_max(os.SCHED_FIFO)
        return Grant("priority", False, f"SCHED_FIFO {priority}: {error.strerror} (expected {low} to {high})")
    undo.callback(_back_to, policy, before)
    return Grant("priority", True, f"SCHED_FIFO priority {priority}")


def _back_to(policy: int, parameters: "os.sched_param") -> None:
    try:
        os.sched_setscheduler(0, policy, parameters)
    except PermissionError:  # only root may clear that flag
        os.sched_setscheduler(0, policy | os.SCHED_RESET_ON_FORK, parameters)


def _call(name: str, *arguments: int) -> int:
    """Result of a C function of the system; -errno if it fails or does not exist."""
    library = ctypes.CDLL(None, use_errno=True)
    function: Callable[..., int] | None = getattr(library, name, None)
    if function is None:
        return -38  # ENOSYS
    result = function(*(ctypes.c_ulong(each) if index else ctypes.c_int(each) for index, each in enumerate(arguments)))
    return -ctypes.get_errno() if result == -1 else result
