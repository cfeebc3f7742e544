"""What an estimator costs: the law inside C with `estimation: {kind: model}`, and the tick on drives."""

from typing import Any

import numpy as np

from servoctl.assembly import load
from servoctl.bench import comparison
from servoctl.bench.comparison import Competitor
from servoctl.bench.inside import Inside
from servoctl.bench.report import Comparison, Progress, TextTable
from servoctl.bench.robots_case import CONFIG, States
from servoctl.bench.tick_costs import own_time
from servoctl.bench.timing import interleaved, shown
from servoctl.simulation.compiled import CompiledLoop
from servoctl.types import Array

PERIOD = 0.001
"""Of the law [s]."""

WITHOUT, NONE, ONE, TWO = (
    "without estimation", "estimation, no delay", "estimation, one cycle predicted", "estimation, two cycles predicted",
)  # fmt: skip
DELAYS = {NONE: 0, ONE: 1, TWO: 2}

MOST, PER_CYCLE, ON_DRIVES = 2.0, 0.7, 1.1
"""Targets: the law inside C over that without, what each predicted cycle adds to that, and the same of a tick."""

TOLERANCE = 1e-9
"""Largest difference of u between C and the virtual machine, relative to the largest u."""

RUNS, LONG, SHORT = 5, 1.0, 0.2
"""Runs on drives of each kind, of which the fastest counts, and their length [s], and with `--quick`."""


def _loop(settings: list[str]) -> CompiledLoop:
    loop = load(CONFIG, [f"run.period={PERIOD}", *settings], "vm", strict=False).loop
    assert isinstance(loop, CompiledLoop)
    return loop


def _states(loop: CompiledLoop, where: States) -> Array:
    """The states with the loop's memory; the estimate agrees with the measurement."""
    memory = np.tile(loop.memory_start, (len(where.t), 1))
    plant = loop.system.model.plant
    for part, values in (("q", where.q), ("v", where.v)):
        for i, name in enumerate(plant.coordinates):
            if f"estimation.{part}.{name}" in loop.memory_names:
                memory[:, loop.memory_names.index(f"estimation.{part}.{name}")] = values[:, i]
    if "estimation.running" in loop.memory_names:
        memory[:, loop.memory_names.index("estimation.running")] = 1.0
    return np.hstack([where.x, memory])


def inside_c(where: States, quick: bool, progress: Progress) -> tuple[TextTable, dict[str, Any], list[Comparison]]:
    """Times of the law inside C without and with estimation, ratios, and their targets.

    Raises:
        CompileError: There is no compiler, or it fails.
    """
    settings = {WITHOUT: list[str]()}
    settings |= {name: ["estimation.kind=model", f"realism.delay={d * PERIOD}"] for name, d in DELAYS.items()}
    loops = {name: _loop(each) for name, each in settings.items()}
    inside = {
        name: Inside(loop.control_kernel.function, where.t, _states(loop, where), loop.parameters)
        for name, loop in loops.items()
    }
    times = interleaved(inside, 2 if quick else 40, len(where.t), progress)
    entries = []
    for name, loop in loops.items():
        u = loop.layout.slices["u"]
        exact = np.array([loop.control(*at)[u] for at in inside[name].states])
        difference = float(np.abs(inside[name].results[:, u] - exact).max() / np.abs(exact).max())
        entries.append(Competitor(name, times[name], difference, TOLERANCE))
    medians = {name: each.median for name, each in times.items()}
    base = medians[WITHOUT]
    findings = [
        Comparison(
            f"law inside C: {name}", f"at most {MOST + PER_CYCLE * cycles:.3g} times the law without",
            medians[name], (MOST + PER_CYCLE * cycles) * base, 1.0,
        )
        for name, cycles in DELAYS.items()
    ]  # fmt: skip
    table = comparison.table("The law inside C with estimation; difference of u from the virtual machine", entries)
    ratios = {name: medians[name] / base for name in DELAYS}
    return table, {"rows": comparison.values(entries), "ratios": ratios}, findings


def on_drives(quick: bool) -> tuple[TextTable, dict[str, Any], list[Comparison]]:
    """Processor time of a tick on emulated drives without the emulated world, with and without estimation."""
    settings = {WITHOUT: list[str](), "with estimation": ["estimation.kind=model"]}
    times = dict.fromkeys(settings, np.inf)
    for _ in range(1 if quick else RUNS):
        for name, each in settings.items():
            times[name] = min(times[name], own_time(CONFIG, SHORT if quick else LONG, each))
    without, with_one = times.values()
    rows = [[name, shown(spent), f"{spent / without:.3g}"] for name, spent in times.items()]
    findings = [
        Comparison("tick on drives with estimation", f"at most {ON_DRIVES} times that without", with_one,
                   ON_DRIVES * without, 1.0)
    ]  # fmt: skip
    title = "A tick on six emulated drives, without the emulated world: the fastest run"
    return (
        TextTable(title, ("", "processor time", "ratio"), rows),
        {"tick": times, "ratio": with_one / without},
        findings,
    )
