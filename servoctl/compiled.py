"""Uses the modules of the real-time tick in the compiled form that the installation made.

Design: all modules are compiled, or none, and only while every source is unchanged, so that an edited module takes
effect at once. SERVOCTL_COMPILED=0 runs everything as Python, for debugging.
"""

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "servoctl" / "_compiled" / EXTENSION_SUFFIXES[0].split(".")[1]

SHARED = "servoctl__mypyc"
"""The module that contains the code of all others."""

AGAIN = "pip install servoctl, or -e ., again"


class _Finder(MetaPathFinder):
    def __init__(self, libraries: dict[str, Path]) -> None:
        self._libraries = libraries

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        library = self._libraries.get(name)
        return None if library is None else spec_from_file_location(name, library)


def _use() -> str:
    """Makes later imports take the compiled modules; returns the reason if that is impossible, else an empty text."""
    if os.environ.get("SERVOCTL_COMPILED") == "0":
        return "SERVOCTL_COMPILED=0"
    try:
        made = json.loads((PLACE / "manifest.json").read_bytes())
        sources, problem = dict(made["sources"]), str(made["problem"])
        changed = [name for name, digest in sources.items() if _digest(ROOT / name) != digest]
    except (OSError, ValueError, LookupError):  # no manifest, or a damaged one
        return "it is not compiled"
    if problem:
        return f"{problem} ({AGAIN})"
    if changed:
        return f"changed since they were compiled: {', '.join(changed[:3])} ({AGAIN})"
    suffix = EXTENSION_SUFFIXES[0]
    libraries = {path.name.removesuffix(suffix): path for path in PLACE.glob(f"*{suffix}")}
    missing = {SHARED, *(name.removesuffix(".py").replace("/", ".") for name in sources)} - libraries.keys()
    if missing:
        return f"not all there: {', '.join(sorted(missing)[:3])} ({AGAIN})"
    finder = _Finder(libraries)
    sys.meta_path.insert(0, finder)
    try:
        import_module(SHARED)
    except ImportError as error:  # compiled on another kind of machine, or for another C library
        sys.meta_path.remove(finder)
        return f"{error} ({AGAIN})"
    return ""


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


AS_PYTHON = _use()
"""Why the compiled modules are not in use; empty if they are."""
