"""How often do the 95 % intervals of `servoctl identify` cover the truth? Many logs of one arm, by seeds."""

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from servoctl.assembly import load
from servoctl.bench.report import BenchReport, Effort, Progress, TextTable
from servoctl.bench.timing import shown
from servoctl.bench.two_link_arm import TwoLinkArm

if TYPE_CHECKING:
    from servoctl.identification import Identification

SEEDS, QUICK = 100, 5
"""Number of logs, and with `--quick`."""

COVERED = 0.9
"""Target: share of the logs whose interval holds the truth, for every parameter."""

SIGMAS = 1.96
"""Half the width of an interval of 95 % [standard deviations]."""

ERRORS = {"m1": 0.3, "m2": -0.2, "I1": 0.3, "I2": -0.2}
"""What the law's model does not know, relative."""

FRICTION = {"coulomb": {"u1": 0.6, "u2": 0.3}, "viscous": {"u1": 0.4, "u2": 0.2}}
"""Of the machine [N m, N m s]; the law's model has none."""

CONFIG = f"""
plant: {{class: "servoctl.bench.two_link_arm:TwoLinkArm"}}
initial: {{q: {{q1: 0.3, q2: 0.5}}, v: 0}}
task:
  - {{name: a, holonomic: "q1 - (0.3 + 0.8*sin(0.9*t)**2 + 0.3*sin(2.9*t)**2 - 0.15*sin(4.3*t)**2)"}}
  - {{name: b, holonomic: "q2 - (0.5 + 0.7*sin(1.7*t)**2 - 0.4*(1-cos(3.3*t)) - 0.2*sin(5.1*t)**2)"}}
law: {{correction: {{baumgarte: {{alpha: 10, beta: 10}}}}}}
run: {{duration: 10, period: 0.001, integrator: {{method: rk4, step: 0.001}}}}
realism:
  noise: {{q: 1e-4}}
  quantisation: {{q: 2*pi/16384}}
  friction: {FRICTION}
  parameter_error: {ERRORS}
"""


def truth() -> dict[str, float]:
    """Parameter of the machine -> its value."""
    plant = {name: (1.0 + error) * float(getattr(TwoLinkArm(), name)) for name, error in ERRORS.items()}
    return plant | {f"friction.{kind}.{name}": x for kind, each in FRICTION.items() for name, x in each.items()}


def identified(seed: int, folder: Path) -> "Identification":
    """The identification from the arm's log with the noise of a seed; the run is written into the folder."""
    config = folder / "arm.yaml"
    config.write_text(CONFIG)
    load(config, [f"run.seed={seed}"]).simulate(folder / "run")
    from servoctl.identification import identify  # a second and a half, which the other benchmarks do not need

    return identify(folder / "run")


def identification_study(effort: Effort, progress: Progress) -> BenchReport:
    """Coverage of the 95 % intervals of `servoctl identify`: a two-link arm, friction, 14-bit encoders.

    Args:
        effort: Quick identifies 5 logs.
        progress: Called with the share of logs that are done.
    """
    seeds, true = QUICK if effort.quick else SEEDS, truth()
    errors, sigmas = (np.full((seeds, len(true)), np.nan) for _ in range(2))
    validation, times = np.zeros(seeds), np.zeros(seeds)
    for seed in range(seeds):
        with tempfile.TemporaryDirectory(prefix="servoctl-") as folder:
            before = time.process_time()
            found = identified(seed, Path(folder))
            times[seed] = time.process_time() - before
        known = found.parameters
        for i, (name, value) in enumerate(true.items()):
            sigma = known[name]["sigma"] if name in known else None
            if sigma is not None:
                errors[seed, i], sigmas[seed, i] = found.values[name] / value - 1.0, sigma / value
        validation[seed] = found.validation_rms / found.torque_rms
        progress((seed + 1) / seeds)
    covered = (np.abs(errors) < SIGMAS * sigmas).sum(axis=0)
    rows = [
        [name, f"{value:g}", f"{100 * error:.2g} %", f"{100 * sigma:.2g} %", f"{count} of {seeds}"]
        for (name, value), error, sigma, count in zip(
            true.items(), np.nanmax(np.abs(errors), axis=0), np.nanmedian(sigmas, axis=0), covered, strict=True
        )
    ]
    least = int(covered.min())
    values = {
        "seeds": seeds, "covered": dict(zip(true, covered.tolist(), strict=True)), "least": least,
        "largest_error": dict(zip(true, np.nanmax(np.abs(errors), axis=0).tolist(), strict=True)),
        "validation": float(validation.max()), "reached": least >= COVERED * seeds,
    }  # fmt: skip
    verdict = "reached" if values["reached"] else "MISSED"
    notes = [
        f"goal: at least {100 * COVERED:g} % of the intervals cover the truth, for every parameter: {verdict}",
        f"torque of rows that were not used: {100 * validation.max():.2g} % of its rms at worst",
        f"simulation and identification of a log: {shown(float(np.median(times)))} of processor time",
        "a log: 10 s at 1 kHz, noise of 1e-4 rad and steps of 14 bits; every parameter of the model is 20 to 30 % off",
    ]
    header = ("parameter", "truth", "largest error", "median sigma", "covered by 95 % intervals")
    return BenchReport("Identification: a two-link arm from its working log", [TextTable("Coverage", header, rows)],
                       values, notes)  # fmt: skip
