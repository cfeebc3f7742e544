"""Compiles the modules that a tick passes through, while servoctl is installed: Python in, extension modules out.

Design: mypyc takes the modules as they are, by the types that they are annotated with; nothing is written twice. What
it makes goes into `servoctl/_compiled/<interpreter>`, with the digests of the sources, by which `servoctl.compiled`
uses it or not. Where it cannot be made everything runs as Python, slower, and `servoctl doctor` says why.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PLACE = Path("servoctl", "_compiled", str(sys.implementation.cache_tag))
MANIFEST = "manifest.json"

BUILD = """
import os, sys
from mypyc.build import mypycify
from setuptools import Distribution
place, *modules = sys.argv[1:]
types = ["--config-file=", "--explicit-package-bases", "--ignore-missing-imports", "--cache-dir", place + "/types"]
how = {"opt_level": "2", "debug_level": "0", "multi_file": True, "target_dir": place + "/c", "group_name": "servoctl"}
extensions = mypycify([*types, *modules], **how)
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
            return
        build_data["pure_python"], build_data["infer_tag"] = False, True
        build_data["artifacts"].append(f"{PLACE.as_posix()}/*")


def provide(root: Path, modules: list[str]) -> str:
    """Makes a checkout's extension modules, unless they are there; returns why that cannot be, or nothing."""
    sources = {module: hashlib.sha256((root / module).read_bytes()).hexdigest() for module in modules}
    place = root / PLACE
    if (place / MANIFEST).is_file():
        made = json.loads((place / MANIFEST).read_text())
        if made["sources"] == sources and not made["problem"]:
            return ""
    place.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as scratch:
        built = subprocess.run(
            [sys.executable, "-c", BUILD, scratch, *modules], cwd=root, capture_output=True, text=True, check=False
        )
        problem = "" if built.returncode == 0 else _last_words(built.stdout + built.stderr)
        new = Path(scratch, "done")
        new.mkdir()
        for library in [] if problem else [path for path in Path(scratch, "new").rglob("*") if path.is_file()]:
            library.rename(new / ".".join(library.relative_to(Path(scratch, "new")).parts))
        (new / MANIFEST).write_text(json.dumps({"sources": sources, "problem": problem}, indent=1))
        shutil.rmtree(place, ignore_errors=True)
        new.rename(place)
    return problem


def _last_words(output: str) -> str:
    """What a build that failed says is wrong."""
    lines = [line for line in output.splitlines() if "error" in line.lower()] or output.splitlines() or ["it died"]
    return lines[-1].strip()
