"""Moves compiled functions from CasADi's virtual machine to C, where a start waits for the compiler."""

import math

from servoctl.engine.ccode import Program
from servoctl.engine.kernel import Kernel
from servoctl.errors import CompileError

AT_START = 60.0
"""Longest time that the start of a loop in real time waits for the compiler, unless `c` is asked for [s]."""


def patience(engine: str) -> float:
    """Longest time to wait for the compiler with `auto` or `c` [s]."""
    return AT_START if engine == "auto" else math.inf


def run_fast(kernel: Kernel, engine: str, *others: Kernel) -> tuple[str, str]:
    """Moves kernels from the virtual machine to C, if `engine` allows it.

    Args:
        kernel: Kernel on the virtual machine.
        engine: `auto`, `c`, `vm` or `numpy`; `auto` waits for the compiler no longer than `AT_START`.
        others: More kernels for the same library.

    Returns:
        The engine in use, and the reason why it is not C; the reason is empty if C is in use, or was not asked for.
    """
    if engine in ("vm", "numpy"):
        return engine, ""
    try:
        library = Program([each.function for each in (kernel, *others)]).load(patience(engine))
    except CompileError as error:
        return "vm", str(error)
    for each in (kernel, *others):
        each.run_on(library)
    return "c", ""
