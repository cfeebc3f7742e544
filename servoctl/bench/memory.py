"""Peak memory of fresh processes."""

from servoctl.bench import peers
from servoctl.bench.fresh import peak
from servoctl.bench.report import BenchReport, Effort, Progress, TextTable
from servoctl.bench.startup import LARGER, PEERS, SMALLEST

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
