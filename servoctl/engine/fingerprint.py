"""Short texts for what a trace or a compiled library depends on; equal texts mean equal results.

Design: a fingerprint contains every value that is not a parameter, and the class. It exists only for values made of
numbers, texts, containers and classes of this package, whose source is part of `program_fingerprint`. The code of a
user may read anything, such as files or the environment, so things with such code have no fingerprint: the traced
function itself is their fingerprint.
"""

import dataclasses
import hashlib
import os
import platform
import sys
from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np

from servoctl.engine.parameters import contents, parameter_fields, structural

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


def key_of(*fingerprints: Callable[[], str]) -> str | None:
    """The key for things with these fingerprints; None if one of them has none."""
    try:
        texts = [program_fingerprint(), *(each() for each in fingerprints)]
    except (NoFingerprintError, OSError):  # a package inside a zip file
        return None
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:32]
