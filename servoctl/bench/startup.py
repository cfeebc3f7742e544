"""Time and memory of fresh processes up to their first result."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from servoctl.bench import peers
from servoctl.bench.fresh import peak, seconds
from servoctl.bench.report import BenchReport, Effort, Progress, TextTable, at_most
from servoctl.bench.timing import interleaved, shown
from servoctl.engine import compiler
from servoctl.types import Array

SMALLEST, LARGER = "two_mass_spring", "coordinated_robots"
PEER = """
from servoctl.bench.peers.{module} import {kind}
from servoctl.bench.peers.tree import ROBOTS
import numpy as np
{kind}(ROBOTS, {arguments}).acceleration(np.ones(5), np.ones(5), np.ones(5))
"""
PEERS = {
    "pinocchio": PEER.format(module="pinocchio", kind="PinocchioTree", arguments="5.0"),
    "mujoco": PEER.format(module="mujoco", kind="MujocoTree", arguments="0.001, 0.2"),
}
"""Module -> code from import to the first acceleration of two robots."""


def startup(effort: Effort, progress: Progress) -> BenchReport:
    """Time to the first result in fresh processes: import, first run without a cache and with one, peers' import.

    Args:
        effort: Quick starts each process once, and leaves out the larger runs.
        progress: Called with the share of turns that are done.
    """
    notes, installed = peers.notes(), peers.installed()
    configs = (SMALLEST,) if effort.quick else (SMALLEST, LARGER)
    with tempfile.TemporaryDirectory(prefix="servoctl-") as folder:
        filled, empty = Path(folder) / "filled", Path(folder) / "empty"

        def run(config: str, *more: str) -> list[str]:
            return ["-m", "servoctl", "run", config, *more]

        programs: dict[str, tuple[list[str], Path]] = {
            "python": (["-c", "pass"], empty),
            "import numpy": (["-c", "import numpy"], empty),
            "import servoctl": (["-c", "import servoctl"], empty),
            **{f"servoctl run {config}, empty cache": (run(config), empty) for config in configs},
        }
        if compiler.compiler() is not None:
            for config in configs:
                programs[f"servoctl run {config} --engine c, cached"] = (run(config, "--engine", "c"), filled)
        else:
            notes.append("engine C is left out: there is no C compiler")
        for module, code in PEERS.items():
            if installed[module]:
                programs[f"import {module}"] = (["-c", f"import {module}"], empty)
                programs[f"{module}, first acceleration"] = (["-c", code], empty)
        contestants = {name: _fresh(words, cache, empty) for name, (words, cache) in programs.items()}
        times = interleaved(contestants, 1 if effort.quick else 7, progress=progress)
    rows = [[name, shown(each.median)] for name, each in times.items()]
    cold = f"servoctl run {SMALLEST}, empty cache"
    findings = [at_most(cold, times[cold].median, 1.5)]
    cached = f"servoctl run {SMALLEST} --engine c, cached"
    if cached in times:
        findings.append(at_most(cached, times[cached].median, 1.0))
    notes.append("wall time of a process from start to end; system files are in the disk cache")
    values = {"seconds": {name: each.median for name, each in times.items()}, "versions": peers.versions()}
    table = TextTable("Fresh processes", ("", "median"), rows)
    return BenchReport("Start-up", [table], values, notes, findings)


def _fresh(words: list[str], cache: Path, empty: Path) -> Callable[[int], Array]:
    import shutil

    import numpy as np

    def calls(count: int) -> Array:
        times = []
        for _ in range(count):
            shutil.rmtree(empty, ignore_errors=True)
            times.append(seconds(words, cache))
        return np.array(times)

    return calls


RUN = "import servoctl; servoctl.load({config!r}, engine={engine!r}).simulate()"


def memory(effort: Effort, progress: Progress) -> BenchReport:
    """Peak memory of fresh processes: import, a run, the peers' import and first result.

    Args:
        effort: Quick leaves out the larger runs.
        progress: Called with the share of processes that are done.
    """
    notes, installed = peers.notes(), peers.installed()
    programs = {
        "python": "pass",
        "import numpy": "import numpy",
        "import servoctl": "import servoctl",
        f"run {SMALLEST}": RUN.format(config=SMALLEST, engine="auto"),
    }
    if not effort.quick:
        programs[f"run {LARGER}, VM"] = RUN.format(config=LARGER, engine="vm")
        programs[f"run {LARGER}, C"] = RUN.format(config=LARGER, engine="c")
    for module, code in PEERS.items():
        if installed[module]:
            programs[f"import {module}"] = f"import {module}"
            programs[f"{module}, first acceleration"] = code
    peaks = {}
    for name, code in programs.items():
        peaks[name] = peak(code)
        progress(len(peaks) / len(programs))
    table = TextTable(
        "Peak of resident memory", ("", "MB"), [[name, f"{size / 1e6:.0f}"] for name, size in peaks.items()]
    )
    values = {"bytes": peaks, "versions": peers.versions()}
    return BenchReport("Memory", [table], values, notes)
