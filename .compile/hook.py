"""Compiles the Python modules of the real-time tick into extension modules while servoctl is installed.

Design: mypyc compiles the modules unchanged, by their type annotations. The result goes into `servoctl/_compiled/<ABI>`
with the digests of the sources, by which `servoctl.compiled` decides whether to use it. If the build fails, everything
runs as Python, slower, and `servoctl doctor` reports the reason.
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
    # a * b + c rounds twice, as in Python, even if the processor can round once; a warning is no error
    for extension in extensions:
        extension.extra_compile_args = [*extension.extra_compile_args, "-ffp-contract=off", "-Wno-error"]
build = Distribution({"name": "servoctl", "ext_modules": extensions}).get_command_obj("build_ext")
build.build_lib, build.build_temp, build.parallel = place + "/new", place + "/temp", os.cpu_count()
build.ensure_finalized()
build.run()
"""
"""Runs in its own process, so that its output can be hidden unless it fails."""


class CompileHook(BuildHookInterface):  # type: ignore[type-arg]
    """Hook of hatchling, for wheels and editable installations."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles the modules if their sources changed; SERVOCTL_COMPILED=0 skips this."""
        if os.environ.get("SERVOCTL_COMPILED") == "0":
            return
        problem = provide(Path(self.root), self.config["modules"])
        if problem:
            self.app.display_warning(f"the loop on drives runs as Python, slower: {problem}")
            build_data["artifacts"].append(f"{PLACE.as_posix()}/{MANIFEST}")  # `servoctl doctor` reads the reason there
            return
        build_data["pure_python"], build_data["infer_tag"] = False, True
        build_data["artifacts"].append(f"{PLACE.as_posix()}/*")


def provide(root: Path, modules: list[str]) -> str:
    """Builds the extension modules of a checkout if needed; returns the reason if it fails, else an empty text."""
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
    except OSError as error:  # a read-only checkout, or another installation was faster
        return "" if _made(place) == wanted else str(error)
    return str(wanted["problem"])


def _compile(root: Path, modules: list[str], scratch: Path, manifest: dict[str, Any]) -> None:
    """Writes the modules and their manifest into `done`; if the build fails, only the manifest with its problem."""
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
    """The manifest in a folder; None if there is no readable one."""
    try:
        return json.loads((place / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return None


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _reason(output: str) -> str:
    """The reason of a failed build: the compiler's first error, which causes the others, or the last line."""
    lines = output.splitlines() or ["it died"]
    line = next((line for line in lines if re.search(r"\berror\b( \w+)?:", line)), lines[-1]).strip()
    return re.sub(r"\['([^']*)'.*'\]", r"\1", line)  # a command is shortened to its name
