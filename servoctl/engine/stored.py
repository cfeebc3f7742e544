"""Traced functions in the cache: a later command reads them instead of tracing again.

Design: a key is made of fingerprints, which contain all that a trace depends on. A fingerprint contains every value
that is not a parameter, and the class. It exists only for values made of numbers, texts, containers and classes of this
package, whose source is part of `program_fingerprint`. The code of a user may read anything, such as files or the
environment, so things with such code have no fingerprint: they are traced every time, and the traced function itself is
their fingerprint. A file that is damaged, or was written by others, is as good as none, as for compiled libraries
(`engine.cache`). A function reads the same operations that were written, so results are equal to the bit.

A run in C from the cache needs no function at all, and to read those of two arms with a box takes half of such
a command's time.
"""

import base64
import dataclasses
import hashlib
import json
import os
import platform
import sys
import zlib
from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np

from servoctl.engine import cache
from servoctl.engine.kernel import Kernel
from servoctl.engine.lookup import LookupTable
from servoctl.engine.loops import Repeated
from servoctl.engine.numpy_call import numpy_calls
from servoctl.engine.ops import op_of, register
from servoctl.engine.parameters import contents, parameter_fields, structural
from servoctl.types import Array

PACKAGE = Path(__file__).parents[1]

PYTHON = ("builtins", "abc", "typing", "enum", "collections.abc")  # modules of Python whose classes are bases of ours
DEEPEST = 40  # things inside one another beyond this depth have no fingerprint: they may contain themselves


_names: dict[type, str] = {}  # of the classes whose names are known; asking for the files of their modules takes time


class NoFingerprintError(ValueError):
    """A value contains a user's code, or something else that may change without notice."""


def fingerprint(*values: Any) -> str:
    """A short text for values.

    Raises:
        NoFingerprintError: There is none.
    """
    found = hashlib.sha256()
    for value in values:
        _add(found, value, 0)
    return found.hexdigest()[:32]


def structure_fingerprint(thing: Any) -> str:
    """A short text for everything except the parameters of a dataclass, which are inputs of a trace.

    Raises:
        NoFingerprintError: There is none.
    """
    if not parameter_fields(thing):
        return fingerprint(thing)
    return fingerprint(_name(type(thing)), structural(thing))


@lru_cache
def program_fingerprint() -> str:
    """A short text for this package's source, the packages that trace and evaluate, and the machine."""
    found = hashlib.sha256()
    for folder, folders, files in os.walk(PACKAGE):
        folders.sort()
        for name in sorted(files):
            if name.endswith((".py", ".h")):
                path = Path(folder) / name
                found.update(f"{path.relative_to(PACKAGE)}\0".encode())
                found.update(hashlib.sha256(path.read_bytes()).digest())
    versions = (sys.version, ca.CasadiMeta.version(), np.__version__, platform.machine(), *platform.libc_ver())
    found.update("\0".join(versions).encode())
    return found.hexdigest()[:32]


def function_fingerprint(function: Any) -> str:
    """A short text for a CasADi function, by its content.

    Raises:
        NoFingerprintError: CasADi cannot write it.
    """
    try:
        return hashlib.sha256(function.serialize().encode()).hexdigest()[:32]
    except RuntimeError as error:
        raise NoFingerprintError(str(error)) from error


def _add(found: Any, value: Any, depth: int) -> None:
    if depth > DEEPEST:
        raise NoFingerprintError("too deep")
    kind = type(value)
    if value is None or kind in (bool, int, float, str, bytes):
        found.update(f"{kind.__name__} {value!r};".encode())
    elif isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.dtype.kind in "biuf"):
        array = np.ascontiguousarray(value)
        found.update(f"array {array.dtype} {np.shape(value)};".encode() + array.tobytes())
    elif isinstance(value, type):
        found.update(f"class {_name(value)};".encode())
    elif isinstance(value, Mapping):
        found.update(f"mapping {len(value)};".encode())
        for pair in value.items():
            _add(found, pair, depth + 1)
    elif isinstance(value, tuple) or kind is list:
        found.update(f"{_name(kind)} {len(value)};".encode())
        for item in value:
            _add(found, item, depth + 1)
    elif isinstance(value, Enum):
        found.update(f"{_name(kind)} {value.name};".encode())
    elif isinstance(value, Path):
        found.update(f"path {value};".encode())
    elif not kind.__module__.startswith("servoctl."):
        raise NoFingerprintError(f"{kind.__module__}.{kind.__qualname__} is no class of servoctl")
    else:
        if not (dataclasses.is_dataclass(kind) or hasattr(value, "__dict__")):
            raise NoFingerprintError(f"{kind.__name__} has no fields")
        found.update(f"{_name(kind)};".encode())
        _add(found, contents(value), depth + 1)


def _name(kind: type) -> str:
    """Module and name of a class that, like all its bases, is one of this package or of Python."""
    if kind not in _names:
        _require_known(kind)
        _names[kind] = f"{kind.__module__}.{kind.__qualname__}"
    return _names[kind]


def _require_known(kind: type) -> None:
    for base in kind.__mro__:
        file = getattr(sys.modules.get(base.__module__), "__file__", None)
        ours = base.__module__.startswith("servoctl.") and file is not None and PACKAGE in Path(file).parents
        if not ours and base.__module__ not in PYTHON:
            raise NoFingerprintError(f"{base.__module__}.{base.__qualname__} is no class of servoctl")


SUFFIX = ".trace"

FIELDS = {"name", "length", "inputs", "outputs", "facts"}  # least fields of a file's header
WORTH = 500  # functions of fewer operations are not kept: tracing them takes no longer than reading them


def key_of(*fingerprints: Callable[[], str]) -> str | None:
    """The key for things with these fingerprints; None if one of them has none."""
    try:
        texts = [program_fingerprint(), *(each() for each in fingerprints)]
    except (NoFingerprintError, OSError):  # a package inside a zip file
        return None
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:32]


def has_kernel(key: str | None, name: str) -> bool:
    """Whether a kernel was kept under a key and a name."""
    return key is not None and cache.find(_file_key(key, name), SUFFIX) is not None


def kept(key: str | None, name: str, make: Callable[[], tuple[Kernel, Any]]) -> tuple[Kernel, Any]:
    """The kernel of a key and a name, and facts that JSON can write: made now, or from the cache.

    A function from the cache is read when it is first needed. What calls code in NumPy cannot be written.
    """
    found = _find(key, name)
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
    content = None if key is None else cache.find_bytes(_file_key(key, name), SUFFIX)
    if content is not None and len(content) % np.dtype(float).itemsize == 0:
        return np.frombuffer(content, dtype=float).copy()
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


def _find(key: str | None, name: str) -> tuple[dict[str, Any], bytes] | None:
    """Header and functions that `_written` wrote; the cache has compared their checksum."""
    if key is None:
        return None
    content = cache.find_bytes(_file_key(key, name), SUFFIX)
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
