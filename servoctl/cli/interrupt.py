"""Ends a command on Ctrl-C or SIGTERM; the results so far are written.

Design: both raise KeyboardInterrupt wherever the program is. CasADi swallows exceptions raised while it inspects a
Python object, as it does during a trace, so the request is remembered and `heed` raises it again.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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
