"""The modules that a tick passes through, compiled where they could be when servoctl was installed.

Design: all or none, and only while every source is the one that was compiled: an edited module runs as it is written.
SERVOCTL_COMPILED=0 runs everything as Python, which is what a debugger wants.
"""

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "servoctl" / "_compiled" / str(sys.implementation.cache_tag)


class _Finder(MetaPathFinder):
    def __init__(self, libraries: dict[str, Path]) -> None:
        self._libraries = libraries

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        library = self._libraries.get(name)
        return None if library is None else spec_from_file_location(name, library)


def _use() -> str:
    """Lets modules that are imported from now on be the compiled ones; returns why they are not, or nothing."""
    if os.environ.get("SERVOCTL_COMPILED") == "0":
        return "SERVOCTL_COMPILED=0"
    try:
        made = json.loads((PLACE / "manifest.json").read_bytes())
        sources = {name: hashlib.sha256((ROOT / name).read_bytes()).hexdigest() for name in made["sources"]}
    except OSError:
        return f"not compiled for {sys.implementation.cache_tag} (pip install servoctl, or -e ., again)"
    if made["problem"]:
        return str(made["problem"])
    changed = [name for name, digest in made["sources"].items() if sources[name] != digest]
    if changed:
        return f"changed since they were compiled: {', '.join(changed[:3])} (pip install -e . again)"
    suffix = EXTENSION_SUFFIXES[0]
    libraries = {path.name.removesuffix(suffix): path for path in PLACE.glob(f"*{suffix}")}
    sys.meta_path.insert(0, _Finder(libraries))
    return ""


AS_PYTHON = _use()
"""Why the compiled modules are not in use; empty where they are."""
