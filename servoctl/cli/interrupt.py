"""Ctrl-C and SIGTERM: both end a command alike, with what there is written.

Design: either raises KeyboardInterrupt wherever the program is. CasADi drops what is raised while it looks at a Python
object, as it does throughout a trace, so the wish is remembered and `heed` raises it again.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_wished = False


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C and SIGTERM raise KeyboardInterrupt inside this block; a Ctrl-C that the shell has us ignore does not."""
    global _wished
    _wished = False
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
    """Raises KeyboardInterrupt where one was wished for."""
    if _wished:
        raise KeyboardInterrupt


def _interrupt(number: int, frame: Any) -> None:
    global _wished
    _wished = True
    raise KeyboardInterrupt
