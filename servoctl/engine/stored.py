"""Traced functions in the cache: a later command reads them instead of tracing again.

Design: a key is made of fingerprints (`engine.fingerprint`), which contain all that a trace depends on. Things with the
code of a user have none, so they are traced every time. A file that is damaged, or was written by others, is as good as
none, as for compiled libraries (`engine.cache`). A function reads the same operations that were written, so results are
equal to the bit.

A run in C from the cache needs no function at all, and to read those of two arms with a box takes half of such
a command's time.
"""

import base64
import hashlib
import json
import zlib
from collections.abc import Callable
from typing import Any

import casadi as ca
import numpy as np

from servoctl.engine import cache
from servoctl.engine.kernel import Kernel
from servoctl.engine.numpy_call import numpy_calls
from servoctl.engine.ops import LookupTable, Repeated, op_of, register
from servoctl.types import Array

SUFFIX = ".trace"

FIELDS = {"name", "length", "inputs", "outputs", "facts"}  # least fields of a file's header
WORTH = 500  # functions of fewer operations are not kept: tracing them takes no longer than reading them


def has_kernel(key: str | None, name: str) -> bool:
    """Whether a kernel was kept under a key and a name."""
    return _find(key, name) is not None


def kept(key: str | None, name: str, make: Callable[[], tuple[Kernel, Any]]) -> tuple[Kernel, Any]:
    """The kernel of a key and a name, and facts that JSON can write: made now, or from the cache.

    A function from the cache is read when it is first needed. What calls code in NumPy cannot be written.
    """
    found = _read(_find(key, name))
    if found is not None:
        header, functions = found
        shapes = _shapes(header)

        def function() -> Any:
            return _function(header, functions) or make()[0].function

        return Kernel(function, *shapes, header["name"], header["length"]), header["facts"]
    kernel, facts = make()
    if key is not None and kernel.length >= WORTH and not numpy_calls(kernel.function):
        content = _written(kernel, facts)
        if content is not None:
            cache.put_bytes(_file_key(key, name), content, SUFFIX)
    return kernel, facts


def kept_kernel(key: str | None, name: str, make: Callable[[], Kernel]) -> Kernel:
    """`kept`, without facts."""
    return kept(key, name, lambda: (make(), None))[0]


def kept_numbers(key: str | None, name: str, make: Callable[[], Array]) -> Array:
    """A vector that is expensive to find, from the cache or made now, equal to the bit; None for the key: made now."""
    found = _find(key, name)
    if found is not None and len(found) % np.dtype(float).itemsize == 0:
        return np.frombuffer(found, dtype=float).copy()
    numbers = make()
    if key is not None:
        cache.put_bytes(_file_key(key, name), np.ascontiguousarray(numbers, dtype=float).tobytes(), SUFFIX)
    return numbers


def _file_key(key: str, name: str) -> str:
    return hashlib.sha256(f"{key} {name}".encode()).hexdigest()[:32]


def _written(kernel: Kernel, facts: Any) -> bytes | None:
    """A kernel as bytes; None if CasADi cannot write its function."""
    ops = {name: op_of(name) for name in {each.name() for each in kernel.function.find_functions()}}
    repeated = {name: op for name, op in ops.items() if isinstance(op, Repeated)}
    tables = [op for op in ops.values() if isinstance(op, LookupTable)]
    writer = ca.StringSerializer()
    try:
        writer.pack([kernel.function, *(each.step for each in repeated.values())])
        functions = writer.encode()
    except RuntimeError:
        return None
    header = json.dumps(
        {
            "name": kernel.name,
            "length": kernel.length,
            "inputs": kernel.inputs,
            "outputs": kernel.outputs,
            "repeated": [[name, each.most, each.done] for name, each in repeated.items()],
            "tables": [[_text(table.breaks), _text(table.rows), list(table.rows.shape)] for table in tables],
            "facts": facts,
        }
    )
    return header.encode() + b"\n" + zlib.compress(functions.encode(), 1)


def _find(key: str | None, name: str) -> bytes | None:
    found = None if key is None else cache.find(_file_key(key, name), SUFFIX)
    return None if found is None else found.content


def _read(content: bytes | None) -> tuple[dict[str, Any], bytes] | None:
    """Header and functions that `_written` wrote; the cache has compared their checksum."""
    if content is None:
        return None
    header, _, functions = content.partition(b"\n")
    try:
        values = json.loads(header)
    except ValueError:  # another program's file under this name
        return None
    return (values, functions) if isinstance(values, dict) and set(values) >= FIELDS else None


def _shapes(header: dict[str, Any]) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
    inputs, outputs = ({name: tuple(shape) for name, shape in header[key].items()} for key in ("inputs", "outputs"))
    return inputs, outputs


def _function(values: dict[str, Any], functions: bytes) -> Any | None:
    """The CasADi function, with all that it calls; None if another program wrote it."""
    try:
        function, *steps = ca.StringDeserializer(zlib.decompress(functions).decode()).unpack()
        for (name, most, done), step in zip(values["repeated"], steps, strict=True):
            register(name, Repeated(step, most, done))
        for breaks, rows, shape in values["tables"]:
            table = LookupTable(_numbers(breaks), _numbers(rows).reshape(shape))
            register(table.name, table)
    except (ValueError, LookupError, TypeError, RuntimeError, zlib.error):
        return None
    return function


def _text(array: Any) -> str:
    return base64.b64encode(np.ascontiguousarray(array, dtype=float).tobytes()).decode()


def _numbers(text: str) -> Any:
    return np.frombuffer(base64.b64decode(text), dtype=float)
