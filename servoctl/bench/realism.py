"""Time of runs with realism: ideal, with noise and delay, and with all effects."""

import time

import numpy as np

from servoctl.assembly.make import load
from servoctl.assembly.run import Run
from servoctl.bench.report import BenchReport, Effort, Progress, TextTable
from servoctl.bench.timing import shown
from servoctl.sweep.batch import batch

COUNT = 256
GAIN = "law.correction.baumgarte.alpha"
SAMPLED = ["run.period=0.005", "run.integrator={method: rk4, step: 0.001}", "run.output_step="]
MASS = {"two_mass_spring": "m1", "coordinated_robots": "m"}
"""Config -> parameter with an error in the law."""

KINDS = {
    "ideal": "",
    "noise, one cycle late, 10 % mass error": (
        "realism={{noise: {{q: 1e-5, v: 1e-4}}, delay: 5*ms, parameter_error: {{{mass}: 0.1}}}}"
    ),
    "the same, 1.2 to 1.4 cycles late, quantised, with lag, friction and saturation": (
        "realism={{noise: {{q: 1e-5, v: 1e-4}}, quantisation: {{q: 2*pi/2**18}}, delay: 6*ms, jitter: 1*ms, lag: 3*ms, "
        "friction: {{coulomb: 0.01, viscous: 0.01, speed: 0.1}}, saturation: 100, parameter_error: {{{mass}: 0.1}}}}"
    ),
}
"""Description -> setting."""


def realism(effort: Effort, progress: Progress) -> BenchReport:
    """256 gain sets of two configs, sampled at 5 ms, ideal and realistic: processor time of a run.

    Args:
        effort: Quick takes 16 gain sets of a tenth of a second.
        progress: Called with the share of batches that are done.
    """
    count = 16 if effort.quick else COUNT
    rows, values = [], {}
    cases = [(name, kind) for name in MASS for kind in KINDS]
    for number, (name, kind) in enumerate(cases):
        settings = [KINDS[kind].format(mass=MASS[name])] if KINDS[kind] else []
        quick = ["run.duration=0.1"] if effort.quick else []
        each, status = _each(load(name, [*SAMPLED, *settings, *quick]), count)
        values[f"{name}: {kind}"] = {"seconds": each, "runs_per_second": 1 / each, "status": status}
        rows.append([name, kind, shown(each), f"{1 / each:.0f}", ", ".join(status)])
        progress((number + 1) / len(cases))
    table = TextTable(
        "Processor time of a run, one thread", ("config", "realism", "each", "runs/s", "ended"), rows, left=2
    )
    notes = [f"{count} gain sets in one batch, compiled before; processor time of all threads"]
    return BenchReport("Realism: time of runs", [table], {"count": count, **values}, notes)


def _each(run: Run, count: int) -> tuple[float, list[str]]:
    """Processor time of a run [s], and the statuses of the runs."""
    gains = {GAIN: np.linspace(3.0, 6.0, count).tolist()}
    batch(run, gains)  # compiles
    began = time.process_time()
    metrics = batch(run, gains)
    return (time.process_time() - began) / count, sorted(set(map(str, metrics["status"])))
