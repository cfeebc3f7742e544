"""C initialisers of structs that hold no pointers, from their values in memory."""

from typing import Any


def initialiser(ffi: Any, value: Any, kind: Any = None) -> str:
    """The C initialiser of a value.

    Args:
        ffi: cffi of the value.
        value: A struct, an array, or a number.
        kind: Its type; None: that of the value.
    """
    kind = kind or ffi.typeof(value)
    if kind.kind == "struct":
        return "{" + ", ".join(initialiser(ffi, getattr(value, name), field.type) for name, field in kind.fields) + "}"
    if kind.kind == "array":
        return "{" + ", ".join(initialiser(ffi, value[i], kind.item) for i in range(len(value))) + "}"
    if kind.cname == "double":
        return number(value)
    whole = value[0] if isinstance(value, bytes) else int(value)
    return (
        f"{whole}ULL"
        if kind.cname == "unsigned long long"
        else f"{whole}LL"
        if kind.cname == "long long"
        else f"{whole}"
    )


def number(value: float) -> str:
    """A double in C, to the bit."""
    if value != value:
        return "NAN"
    if value in (float("inf"), -float("inf")):
        return "INFINITY" if value > 0.0 else "-INFINITY"
    return repr(float(value))


def numbers(values: Any) -> str:
    """Initialiser of an array of doubles; one zero where it is empty, because C has no empty array."""
    return "{" + ", ".join(number(value) for value in values) + "}" if len(values) else "{0.0}"
