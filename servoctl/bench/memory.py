"""How much memory a process takes at most."""

from servoctl.bench import peers
from servoctl.bench.fresh import peak
from servoctl.bench.report import BenchReport, Effort, Progress, TextTable
from servoctl.bench.startup import LARGER, PEERS, SMALLEST
from servoctl.run_folder.trajectory import plain

RUN = "import servoctl; servoctl.load({config!r}, engine={engine!r}).simulate()"


def memory(effort: Effort, progress: Progress) -> BenchReport:
    """Peak memory of fresh processes: import, a run, peers' import and first result.

    Args:
        effort: Quick leaves the larger runs out.
        progress: Called with the share of processes that are done.
    """
    notes, installed = peers.notes(), peers.installed()
    plans = {
        "python": "pass",
        "import numpy": "import numpy",
        "import servoctl": "import servoctl",
        f"run {SMALLEST}": RUN.format(config=SMALLEST, engine="auto"),
    }
    if not effort.quick:
        plans[f"run {LARGER}, VM"] = RUN.format(config=LARGER, engine="vm")
        plans[f"run {LARGER}, C"] = RUN.format(config=LARGER, engine="c")
    for module, code in PEERS.items():
        if installed[module]:
            plans[f"import {module}"] = f"import {module}"
            plans[f"{module}, first acceleration"] = code
    found = {}
    for name, code in plans.items():
        found[name] = peak(code)
        progress(len(found) / len(plans))
    table = TextTable(
        "Peak of resident memory", ("", "MB"), [[name, f"{size / 1e6:.0f}"] for name, size in found.items()]
    )
    values = {"bytes": found, "versions": peers.versions()}
    return BenchReport("Memory", [table], dict(plain(values)), notes)
