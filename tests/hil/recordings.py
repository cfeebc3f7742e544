"""Recordings of runs on emulated drives, to be played by another version: the net under a rebuilding.

    python -m tests.hil.recordings record FOLDER
    python -m tests.hil.recordings play FOLDER

A recording is the run folder of one machine in one stage, with at most one fault: the frames that were
sent and received, the rows, and the events. In lock-step a run repeats to the bit, so to play it is to run it again and
to compare. Both commands use the command line alone; `--python` names the interpreter of another installation.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))  # `rigs`, as in the tests beside this file

from rigs import RIGS

from hil.recorder import read_events, read_frames
from servoctl import load_run
from servoctl.config import load_config

STAGES = ("zero", "ramp", "full", "float")
FAULTS = ("drive_fault", "silent", "encoder_stuck", "no_torque", "heartbeat_loss", "brake_stuck")
"""Kinds of faults of the first drive, at 0.1 s of the task."""

TOLERANCE = 1e-9
"""Rows are equal within this share of the largest value of their column: compilers round otherwise."""

PATIENCE = 120.0
"""Longest time for a run [s]."""


class Case(NamedTuple):
    """What is recorded."""

    rig: str
    stage: str
    fault: str | None = None

    @property
    def folder(self) -> str:
        """Name of its folder."""
        return "-".join(filter(None, self)).replace(" ", "_")


def cases(rigs: list[str]) -> Iterator[Case]:
    """Every machine in every stage and with every fault."""
    for rig in rigs:
        yield from (Case(rig, stage) for stage in STAGES)
        yield from (Case(rig, "full", fault) for fault in FAULTS)


def run(case: Case, folder: Path, python: str) -> None:
    """Writes the run folder of a case; of a run that is refused, the sentence is in `refused.txt`."""
    rig = RIGS[case.rig]
    sets = [each for each in rig.overrides if isinstance(each, str)]
    if case.fault is not None:
        drive = load_config(str(rig.config), list(rig.overrides)).config.hil.drives[0].actuator
        fault = {"kind": case.fault, "drive": drive, "at": 0.1, "since": "engaged"}
        sets.append(f"hil.faults={json.dumps([fault])}")
    words = [python, "-m", "servoctl", "hil", str(rig.config), "--stage", case.stage, "--duration", "0.3"]
    words += [word for each in sets for word in ("--set", each)]
    words += [word for each in rig.overrides if isinstance(each, Path) for word in ("--set-file", str(each))]
    done = subprocess.run([*words, "--out", str(folder)], capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode in (1, 2):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "refused.txt").write_text(done.stderr)


def differences(recorded: Path, played: Path) -> list[str]:
    """What differs between two run folders, one sentence each."""
    refusals = [folder / "refused.txt" for folder in (recorded, played)]
    if any(file.exists() for file in refusals):
        said = [file.read_text() if file.exists() else "it ran" for file in refusals]
        return [] if said[0] == said[1] else [f"refused: {said[0].strip()!r}, now {said[1].strip()!r}"]
    found = []
    for before, after in zip_longest(*([(e["event"], e["text"]) for e in read_events(f)] for f in (recorded, played))):
        if before != after:
            found.append(f"event {before}, now {after}")
            break
    frames = zip_longest(*(((b, s, str(f), t) for b, s, f, t in read_frames(each)) for each in (recorded, played)))
    for number, (before, after) in enumerate(frames):
        if before != after:
            found.append(f"frame {number}: {before}, now {after}")
            break
    old, new = load_run(recorded).columns, load_run(played).columns
    found += [f"column {name} is {'new' if name in new else 'gone'}" for name in sorted(old.keys() ^ new.keys())]
    for name in (name for name in old if name in new):
        a, b = np.asarray(old[name], dtype=float), np.asarray(new[name], dtype=float)
        scale = float(np.nanmax(np.abs(a), initial=0.0))
        if a.shape != b.shape:
            found.append(f"{name}: {len(a)} rows, now {len(b)}")
        elif not np.allclose(a, b, rtol=0.0, atol=TOLERANCE * max(scale, 1e-12), equal_nan=True):
            found.append(f"{name}: up to {np.nanmax(np.abs(a - b)):.3g} of {scale:.3g} different")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("record", "play"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rig", action="append", choices=list(RIGS), help="only this machine; may be repeated")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the installation that runs")
    options = parser.parse_args()
    wrong = 0
    for case in cases(options.rig or list(RIGS)):
        recorded = options.folder / case.folder
        if options.what == "record":
            run(case, recorded, options.python)
            print(case.folder, flush=True)
        elif recorded.is_dir():
            with tempfile.TemporaryDirectory() as place:
                run(case, Path(place) / "run", options.python)
                found = differences(recorded, Path(place) / "run")
            wrong += bool(found)
            print(f"{case.folder}: {'; '.join(found) or 'equal'}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
