"""Processor time of a tick with six emulated drives in virtual time, part by part."""

from servoctl.bench.report import BenchReport, Comparison, Effort, Progress, TextTable
from servoctl.bench.tick_costs import WORLD, costs
from servoctl.bench.timing import shown

CONFIG = "coordinated_robots"

REAL_TIME = 10.0
"""Target: so many times real time."""

OWN = 150e-6
"""Target: processor time per tick of the loop without the emulated world [s]."""


def hil(effort: Effort, progress: Progress) -> BenchReport:
    """Six emulated CiA 402 drives in virtual time: ticks per second, times real time, processor time per tick by part.

    Args:
        effort: Quick runs one second of the task instead of ten.
        progress: Called at the end.
    """
    measured = costs(CONFIG, 1.0 if effort.quick else 10.0)
    progress(1.0)
    ticks, period, whole = measured.ticks, shown(measured.period), measured.time / measured.ticks
    parts = {name: spent / ticks for name, spent in measured.parts.items()}
    own = sum(parts.values()) - parts[WORLD]
    rows = [["ticks per second", f"{1.0 / whole:.0f}"], ["times real time", f"{measured.period / whole:.3g}"],
            ["per tick", shown(whole)], ["per tick, with pauses between ticks", shown(measured.rested)]]  # fmt: skip
    shares = [[name, shown(spent)] for name, spent in parts.items()] + [["loop without the emulated world", shown(own)]]
    tables = [
        TextTable(f"{CONFIG}, {ticks} ticks of {period}, {measured.axes} drives", ("", "virtual time"), rows),
        TextTable("Processor time per tick, by part", ("", "time"), shares),
    ]
    values = {
        **measured._asdict(),
        "world": measured.parts[WORLD],
        "tick": whole,
        "realtime_factor": measured.period / whole,
        "own": own,
    }
    notes = [
        f"processor time; the parts add up to {shown(sum(parts.values()))}: they come from a second run, and what it "
        "takes to read the clock is subtracted",
        f"with one tick every {period}, as in real time, a tick costs {measured.rested / whole:.2g} times as much as "
        "without pauses: after a pause the caches are cold",
    ]
    findings = [
        Comparison(
            "one tick in virtual time", f"{REAL_TIME:g} times real time", whole, measured.period / REAL_TIME, 1.0
        ),
        Comparison("a tick without the emulated world", f"at most {shown(OWN)}", own, OWN, 1.0),
    ]
    return BenchReport("Emulated drives in virtual time", tables, values, notes, findings)
