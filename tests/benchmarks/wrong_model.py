"""What each answer to a wrong model leaves of the task error, and what it costs in torque activity."""

import numpy as np

from servoctl.assembly.make import load
from servoctl.run_folder.trajectory import Trajectory
from tests.benchmarks.contest import Results, Table

MACHINE = ("run.period=0.001", "run.output_step=0.001", "realism.delay=0.001", "realism.parameter_error.m=0.3")
"""coordinated_robots with links and an object that are 30 % heavier than the law believes, one cycle late."""

SPEEDS = ("realism.noise.v=0.001",)
"""Exact angles, and speeds with noise of 1 mrad/s."""

ANGLES = ("realism.measured=q", "realism.quantisation.q=2*pi/65536")
"""Angles of 16 bits alone."""

LAWS: dict[str, tuple[str, ...]] = {
    "as the model says": (),
    "`observer: auto`": ("law.observer=auto",),
    "`robust: {bound: 6}`": ("law.robust.bound=6",),
    "`adaptive: {kind: leakage, rate: 120, leak: 2}`": ("law.adaptive={kind: leakage, rate: 120, leak: 2}",),
    "`adaptive: {kind: dead_zone, rate: 120, width: 0.01}`": (
        "law.adaptive={kind: dead_zone, rate: 120, width: 0.01}",
    ),
}
"""Law -> settings; the measured speeds are used as they are."""

ESTIMATORS: dict[str, tuple[str, ...]] = {
    "`estimation: {kind: difference}`": ("estimation.kind=difference",),
    "`estimation: {kind: alpha_beta}`": ("estimation.kind=alpha_beta",),
    "`estimation: {kind: model}`": ("estimation.kind=model",),
    "`estimation: {kind: model, disturbance: 20}`": ("estimation={kind: model, disturbance: 20}",),
}
"""Estimator -> settings; from angles alone."""


def wrong_model(quick: bool) -> Results:
    """coordinated_robots, 30 % heavier than its model: task error and torque activity of every answer to it."""
    short = ("run.duration=0.1",) if quick else ()
    cases: dict[str, tuple[tuple[str, ...], ...]] = {
        name: (sets, (*sets, *SPEEDS))[: 1 if quick else 2] for name, sets in LAWS.items()
    }
    cases |= {name: ((*ANGLES, *sets),) for name, sets in ESTIMATORS.items()}
    rows = []
    for name, runs in cases.items():
        exact, *noisy = (
            errors(load("coordinated_robots", (*MACHINE, *short, *sets), "vm").simulate()) for sets in runs
        )
        noise = f"{noisy[0]['activity']:.0f}" if noisy else "-"
        rows.append([name, *(f"{1e3 * exact[key]:.2g}" for key in ("max", "rms")), f"{exact['activity']:.0f}", noise])
    header = ("law", "largest error [mm]", "rms after a third [mm]", "activity [N m/s]", "with noisy speeds")
    yield Table("Masses 30 % above the model, 1 ms, one cycle late: error of object_y, change of all torques per "
                "second; laws from exact states and with noise of 1 mrad/s, estimation from 16-bit angles alone",
                header, rows)  # fmt: skip


def errors(run: Trajectory) -> dict[str, float]:
    """Largest error and rms after a third of object_y [m], and the activity of all torques after a third [N m/s]."""
    error, late = run["violation.object_y"], run.t > run.t[-1] / 3.0
    moved = np.abs(np.diff(run.u[late], axis=0)).sum()
    return {
        "max": float(np.abs(error).max()),
        "rms": float(np.sqrt((error[late] ** 2).mean())),
        "activity": float(moved / (run.t[-1] * 2.0 / 3.0)),
    }
