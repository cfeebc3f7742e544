"""Selects the engine of a compiled function: C if it compiles within seconds, else CasADi's virtual machine.

Design: nothing that `auto` chooses takes the compiler longer than `MOST`. A program that would is compiled without
optimisation; if even that takes longer, it stays on the virtual machine. Both are told to the user.
"""

from typing import TypeVar

from servoctl.engine.ccode import CSource, Library, Program
from servoctl.engine.kernel import Kernel
from servoctl.errors import CompileError

MOST = 5.0
"""Longest expected compilation that `auto` starts, in processor time of the compiler [s]."""

PLAIN = 0.42
"""Share of a compilation's time without optimisation: 0.30 to 0.6 of it with gcc 12.2, 0.42 for most large programs."""

P = TypeVar("P", bound=CSource)


def compiling_time(program: CSource) -> float:
    """Expected processor time of the compiler [s]."""
    return program.expected * (1.0 if program.optimised else PLAIN)


def affordable(program: P) -> tuple[P | None, str]:
    """What `auto` compiles: the program, or the same without optimisation.

    Returns:
        The program, None if every compilation would take too long, and a remark for the user; empty for the program
        as it is.
    """
    if program.cached:
        return program, ""
    time = compiling_time(program)
    if time <= MOST:
        return program, ""
    plain = program.unoptimised()
    if plain.cached or compiling_time(plain) <= MOST:
        return (
            plain,
            f"C without optimisation (optimised, it takes the compiler about {time:.1f} s; --engine c waits for it)",
        )
    return None, f"C takes the compiler about {time:.1f} s (--engine c waits for it)"


def load_at_once(program: Program, engine: str) -> Library:
    """The library of a program that a start waits for.

    Args:
        program: What to compile.
        engine: `auto`: only within `MOST`, see `affordable`; `c`: in any case.

    Raises:
        CompileError: It cannot be compiled, or it would take long and `auto` is asked for.
    """
    if engine != "auto":
        return program.load()
    chosen, remark = affordable(program)
    if chosen is None:
        raise CompileError(remark)
    return chosen.load()


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
