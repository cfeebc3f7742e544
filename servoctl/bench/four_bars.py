"""Forty four-bar linkages in a row (IFToMM A02) for one second by fixed steps."""

import time
from pathlib import Path
from typing import Any

import numpy as np

from servoctl.assembly import simulate
from servoctl.assembly.classes import load_class
from servoctl.bench.report import BenchReport, Effort, Progress, TextTable, at_most
from servoctl.bench.timing import shown
from servoctl.laws.corrections import Baumgarte
from servoctl.mechanics.plant import Plant
from servoctl.types import Array

LOOPS, QUICK, STEP, DURATION = 40, 3, 0.01, 1.0
GAIN = 10.0
"""Baumgarte's alpha = beta [1/s]."""

MOST = 8.0
"""Target of the wall time [s]."""

THETA, RATE = np.pi / 2, -1.0
"""Angle of the posts at the start [rad] and its rate [rad/s]."""


def four_bars(effort: Effort, progress: Progress) -> BenchReport:
    """Forty four-bar linkages in a row fall from upright: one second by RK4 at 10 ms, start to arrays.

    Args:
        effort: Quick takes three linkages.
        progress: Called with the share that is done.
    """
    loops = QUICK if effort.quick else LOOPS
    plant: Plant = load_class("plants.four_bars:FourBars", Path(), Plant)(N=loops)
    q, v = start(loops)
    began, clock = time.process_time(), time.perf_counter()
    run = simulate(plant, {}, None, q=q, v=v, duration=DURATION, step=STEP, passive_correction=Baumgarte(GAIN, GAIN))
    spent, wall = time.process_time() - began, time.perf_counter() - clock
    progress(1.0)
    error = float(np.abs(run["q.post0_phi"] - exact(run.t, loops)).max())
    rows = [[f"{loops}", str(6 * loops + 3), run.metadata["engine"], shown(wall), shown(spent), f"{error:.1e}"]]
    header = ("loops", "coordinates", "engine", "wall", "processor", "error [rad]")
    findings = [] if effort.quick else [at_most("forty four-bars, 1 s, RK4 10 ms", wall, MOST)]
    notes = ["error: largest difference of a post's angle from the one of the pendulum to which the row reduces"]
    values = {"loops": loops, "engine": run.metadata["engine"], "wall": wall, "processor": spent, "error": error}
    return BenchReport("Four-bar linkages in a row", [TextTable("One second", header, rows)], values, notes, findings)


def start(loops: int) -> tuple[dict[str, float], dict[str, float]]:
    """Coordinates and rates of the upright row whose tips move at 1 m/s."""
    q: dict[str, float] = {}
    v: dict[str, float] = {}
    for i in range(loops + 1):
        q |= {f"post{i}_x": float(i), f"post{i}_y": 0.5, f"post{i}_phi": THETA}
        v |= {f"post{i}_x": -0.5 * RATE, f"post{i}_phi": RATE}
    for i in range(1, loops + 1):
        q |= {f"coupler{i}_x": i - 0.5, f"coupler{i}_y": 1.0, f"coupler{i}_phi": 0.0}
        v |= {f"coupler{i}_x": -RATE}
    return q, v


def exact(t: Array, loops: int) -> Array:
    """Angle of the posts, from the equation of the pendulum to which the row reduces, integrated to 1e-12 [rad]."""
    from scipy.integrate import solve_ivp

    pull = -9.81 * ((loops + 1) / 2 + loops) / ((loops + 1) / 3 + loops)
    swing: Any = solve_ivp(
        lambda _, y: [y[1], pull * np.cos(y[0])], (0.0, DURATION), [THETA, RATE], "DOP853", t, rtol=1e-12, atol=1e-12
    )
    return np.asarray(swing.y[0])
