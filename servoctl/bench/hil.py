"""What six emulated drives in lock-step cost, tick by tick.

Design: the benchmark starts the run in a process of its own, for no room below the command line knows `hil`.
"""

import json

from servoctl.bench.fresh import printed
from servoctl.bench.report import BenchReport, Comparison, Effort, Progress, TextTable
from servoctl.bench.timing import shown
from servoctl.run_folder.trajectory import plain

CONFIG = "coordinated_robots"
CODE = """
import json
from servoctl.bench.tick_costs import WORLD, costs
found = costs({config!r}, {duration})
print(json.dumps(found._asdict() | {{"world": found.parts[WORLD]}}))
"""

REAL_TIME = 10.0
"""Times real time that lock-step is meant to reach."""

OWN = 150e-6
"""Processor time per tick that the loop itself is meant to take at most [s]."""


def hil(effort: Effort, progress: Progress) -> BenchReport:
    """Six emulated CiA 402 drives in lock-step: ticks per second, times real time, processor time per tick by part.

    Args:
        effort: Quick runs one second of the task; else ten.
        progress: Is told when it is done.
    """
    found = json.loads(printed(CODE.format(config=CONFIG, duration=1.0 if effort.quick else 10.0)))
    progress(1.0)
    ticks, whole = found["ticks"], found["time"] / found["ticks"]
    parts = {name: spent / ticks for name, spent in found["parts"].items()}
    own = sum(parts.values()) - found["world"] / ticks
    rows = [["ticks per second", f"{1.0 / whole:.0f}"], ["times real time", f"{found['period'] / whole:.3g}"],
            ["per tick", shown(whole)], ["per tick, one each period", shown(found["rested"])]]  # fmt: skip
    shares = [[name, shown(spent)] for name, spent in parts.items()] + [["loop without the emulated world", shown(own)]]
    tables = [
        TextTable(
            f"{CONFIG}, {ticks} ticks of {shown(found['period'])}, {found['axes']} drives", ("", "lock-step"), rows
        ),
        TextTable("Processor time per tick, by part", ("", "time"), shares),
    ]
    values = {**found, "tick": whole, "realtime_factor": found["period"] / whole, "own": own}
    notes = [
        f"processor time; the parts add up to {shown(sum(parts.values()))}: they are of a second run, in which looking "
        "at the clock costs some time too",
        f"one tick each {shown(found['period'])} costs {found['rested'] / whole:.2g} times as much as one behind the "
        "other: the processor rests in between, and comes back to cold caches; so does a loop on the wall clock",
    ]
    findings = [
        Comparison("one tick in lock-step", f"{REAL_TIME:g} times real time", whole, found["period"] / REAL_TIME, 1.0),
        Comparison("the loop's own part of a tick", f"at most {shown(OWN)}", own, OWN, 1.0),
    ]
    return BenchReport("Emulated drives in lock-step", tables, dict(plain(values)), notes, findings)
