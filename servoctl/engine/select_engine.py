"""Selects the engine of a compiled function: C if it compiles within seconds, else CasADi's virtual machine."""

from servoctl.engine.ccode import Library, Program
from servoctl.engine.kernel import Kernel
from servoctl.errors import CompileError

LARGEST_SOURCE = 400_000
"""Longest C source that a start waits for [byte]: compiling it takes about 10 s (gcc 12; 70 kB take 1.5 s)."""


def load_at_once(program: Program, engine: str) -> Library:
    """The library of a program that a start waits for.

    Args:
        program: What to compile.
        engine: `auto`: only if it is cached or compiles within seconds; `c`: in any case.

    Raises:
        CompileError: It cannot be compiled, or it would take long and `auto` is asked for.
    """
    if engine == "auto" and not program.cached and program.length > LARGEST_SOURCE:
        size = program.length / 1e6
        raise CompileError(f"{size:.1f} MB of C would take long to compile (--engine c compiles it)")
    return program.load()


def run_fast(kernel: Kernel, engine: str, *others: Kernel) -> tuple[str, str]:
    """Moves kernels from the virtual machine to C, if `engine` allows it.

    Args:
        kernel: Kernel on the virtual machine.
        engine: `auto`, `c` or `vm`; `auto` avoids long compilations.
        others: More kernels for the same library.

    Returns:
        The engine in use, `c` or `vm`, and the reason why it is not C; the reason is empty if C is in use, or `vm` was
        asked for.
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
