"""Where a compiled function runs: generated C where that is there within seconds, else CasADi's virtual machine."""

from servoctl.engine.ccode import Library, Program
from servoctl.engine.kernel import Kernel
from servoctl.errors import CompileError

LARGEST_SOURCE = 400_000
"""C source whose compilation a start may wait for [byte]: about 10 s (gcc 12; coordinated robots: 70 kB, 1.5 s)."""


def load_at_once(program: Program, engine: str) -> Library:
    """The library of a program that a start waits for.

    Args:
        program: What to compile.
        engine: `auto`: only if it is cached or compiles within seconds; `c`: in any case.

    Raises:
        CompileError: It cannot be compiled, or it would take long and `auto` is asked for.
    """
    if engine == "auto" and len(program.source) > LARGEST_SOURCE and not program.cached:
        size = len(program.source) / 1e6
        raise CompileError(f"{size:.1f} MB of C would take long to compile (--engine c compiles it)")
    return program.load()


def run_fast(kernel: Kernel, engine: str, *others: Kernel) -> tuple[str, str]:
    """Puts a kernel on C where that is asked for or pays.

    Args:
        kernel: On the virtual machine.
        engine: `auto`, `c` or `vm`.
        others: Kernels that go with it, in one library.

    Returns:
        The engine that it got, `c` or `vm`, and why it is not C; empty where it is, or is not wanted.
    """
    if engine == "vm":
        return "vm", ""
    try:
        library = load_at_once(Program([each.function for each in (kernel, *others)]), engine)
        for each in (kernel, *others):
            each.run_on(library)
    except CompileError as error:
        return "vm", str(error)
    return "c", ""
