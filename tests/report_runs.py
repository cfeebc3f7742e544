"""Run folders that the tests of the page look at."""

import base64
from pathlib import Path
from typing import Any

import numpy as np

import servoctl as sc
from servoctl.assembly.run import Run
from servoctl.types import Array
from tests.faces import on_drives

FAULTS = (
    "hil.faults=[{kind: stall, at: 0.1, for: 0.004, since: engaged}, "
    "{kind: drive_fault, at: 0.2, since: engaged, drive: u3}]"
)


def simulated(name: str, folder: Path, *overrides: str) -> Path:
    """A shipped config, run."""
    run: Run = sc.load(name, overrides, engine="vm")
    run.simulate(folder)
    return folder


def caught(folder: Path) -> Path:
    """A run on emulated drives, one of which fails."""
    assert on_drives("coordinated_robots", FAULTS, out=folder, duration=0.5).exit_code == 3
    return folder


def decoded(entry: dict[str, Any], text: str) -> Array:
    """The array at a place in the numbers of a page."""
    count = int(np.prod(entry["shape"], dtype=int))
    x = np.frombuffer(base64.b64decode(text), "<f8" if entry["double"] else "<f4", count, entry["at"])
    return x.reshape(entry["shape"])
