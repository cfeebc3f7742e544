"""Compiles the modules that a tick passes through, while servoctl is installed: Python in, extension modules out.

Design: mypyc takes the modules as they are, by the types that they are annotated with; nothing is written twice. What
it makes goes into `servoctl/_compiled/<ABI>`, with the digests of the sources, by which `servoctl.compiled` uses it or
not. Where it cannot be made everything runs as Python, slower, and `servoctl doctor` says why.
"""

import contextlib
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PLACE = Path("servoctl", "_compiled", EXTENSION_SUFFIXES[0].split(".")[1])
MANIFEST = "manifest.json"

BUILD = """
import os, sys
from mypyc.build import mypycify
from setuptools import Distribution
place, *modules = sys.argv[1:]
types = ["--config-file=", "--explicit-package-bases", "--ignore-missing-imports", "--cache-dir", place + "/types"]
how = {"opt_level": "2", "debug_level": "0", "multi_file": True, "target_dir": place + "/c", "group_name": "servoctl"}
extensions = mypycify([*types, *modules], **how)
if sys.platform != "win32":
    # a * b + c rounds twice, as in Python, also where the machine could round once; what a new compiler warns of is no
    # error
    for extension in extensions:
        extension.extra_compile_args = [*extension.extra_compile_args, "-ffp-contract=off", "-Wno-error"]
build = Distribution({"name": "servoctl", "ext_modules": extensions}).get_command_obj("build_ext")
build.build_lib, build.build_temp, build.parallel = place + "/new", place + "/temp", os.cpu_count()
build.ensure_finalized()
build.run()
"""
"""A program of its own: its output is only of interest where it fails."""


class CompileHook(BuildHookInterface):  # type: ignore[type-arg]
    """Of hatchling, for wheels, editable ones too."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles what has changed; SERVOCTL_COMPILED=0 leaves it out."""
        if os.environ.get("SERVOCTL_COMPILED") == "0":
            return
        problem = provide(Path(self.root), self.config["modules"])
        if problem:
            self.app.display_warning(f"the loop on drives runs as Python, slower: {problem}")
            build_data["artifacts"].append(f"{PLACE.as_posix()}/{MANIFEST}")  # by which `servoctl doctor` says so
            return
        build_data["pure_python"], build_data["infer_tag"] = False, True
        build_data["artifacts"].append(f"{PLACE.as_posix()}/*")


def provide(root: Path, modules: list[str]) -> str:
    """Makes a checkout's extension modules, unless they are there; returns why that cannot be, or nothing."""
    wanted = {
        "sources": {module: _digest(root / module) for module in modules},
        "recipe": _digest(Path(__file__)),
        "problem": "",
    }
    place = root / PLACE
    if _made(place) == wanted:
        return ""
    try:
        place.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, ignore_cleanup_errors=True) as scratch:
            _compile(root, modules, Path(scratch), wanted)
            with contextlib.suppress(OSError):
                place.rename(Path(scratch, "old"))
            Path(scratch, "done").rename(place)
    except OSError as error:  # a checkout that may not be written to, or another installation was quicker
        return "" if _made(place) == wanted else str(error)
    return str(wanted["problem"])


def _compile(root: Path, modules: list[str], scratch: Path, manifest: dict[str, Any]) -> None:
    """Leaves the modules and their manifest in `done`; the manifest alone, with its problem, where they cannot be."""
    command = [sys.executable, "-c", BUILD, str(scratch), *modules]
    built = subprocess.run(command, cwd=root, capture_output=True, text=True, errors="replace", check=False)
    new, done = scratch / "new", scratch / "done"
    done.mkdir()
    if built.returncode:
        manifest["problem"] = _reason(built.stdout + built.stderr)
    else:
        for library in [path for path in new.rglob("*") if path.is_file()]:
            library.rename(done / ".".join(library.relative_to(new).parts))
    (done / MANIFEST).write_text(json.dumps(manifest, indent=1))


def _made(place: Path) -> Any:
    """The manifest of what is there; None where there is none that can be read."""
    try:
        return json.loads((place / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return None


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _reason(output: str) -> str:
    """What a build that failed says is wrong: a compiler's first error, for others follow from it, or the last line."""
    lines = output.splitlines() or ["it died"]
    line = next((line for line in lines if re.search(r"\berror\b( \w+)?:", line)), lines[-1]).strip()
    return re.sub(r"\['([^']*)'.*'\]", r"\1", line)  # of a command its name
