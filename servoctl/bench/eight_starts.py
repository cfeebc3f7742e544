"""The shipped parallelogram from eight starts, as a run of servoctl: by default, and with a correction alone."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.assembly import load
from servoctl.bench.parallelogram import DURATION, EIGHT_STARTS, SPACING, start_overrides, true_angle
from servoctl.bench.report import Progress, TextTable

INTEGRATORS = {"rk4, 5 ms": "{method: rk4, step: 0.005}", "dop853, rtol 1e-9": "{method: dop853, rtol: 1e-9}"}

LONG_SPACING = 0.05
"""Time between rows of implicit methods [s]."""

DEFAULT = "default: projection"
"""The default settings."""

IMPLICIT = {"radau, rtol 1e-7": "{method: radau, rtol: 1e-7, atol: 1e-9}"}
"""Implicit methods, which run by default settings only: each run takes half a minute."""

SETTINGS = {
    DEFAULT: [],
    "correction alone, 10/10": ["plant.passive={correction: {baumgarte: {alpha: 10, beta: 10}}, projection: false}"],
}

HEADER = ("integrator", "from [deg]", "at [rad/s]", "result", "angle [rad]", "energy [J]", "evaluations", "rank")


@dataclass(frozen=True)
class StartOutcome:
    """Result of one run.

    Attributes:
        settings: A name of `SETTINGS`.
        integrator: A name of `INTEGRATORS` or `IMPLICIT`.
        theta: Angle at the start [rad].
        rate: Rate of theta at the start [rad/s].
        status: Status of the run.
        error: Why the run ended early; empty if it did not.
        reached: Time of the last row [s].
        angle_error: Largest error of link 1 over the run [rad].
        energy_drift: Largest energy drift over the run [J].
        evaluations: Number of evaluations of the equations of motion.
        rank_min: Smallest passive rank.
        rank_max: Largest passive rank.
    """

    settings: str
    integrator: str
    theta: float
    rate: float
    status: str
    error: str
    reached: float
    angle_error: float
    energy_drift: float
    evaluations: int
    rank_min: int
    rank_max: int


def run_start(settings: str, integrator: str, start: tuple[float, float]) -> StartOutcome:
    """One run of 20 s."""
    method = (INTEGRATORS | IMPLICIT)[integrator]
    spacing = LONG_SPACING if integrator in IMPLICIT else SPACING
    overrides = [*start_overrides(*start), f"run.integrator={method}", f"run.duration={DURATION}", *SETTINGS[settings]]
    run = load("parallelogram", [*overrides, f"run.output_step={spacing}"], "c").simulate()
    error = np.abs(run["q.link1_phi"] - true_angle(run.t, *start))
    facts, ranks = run.metadata, run["passive_rank"]
    return StartOutcome(
        settings, integrator, *start, facts["status"], facts.get("error", ""), float(run.t[-1]), float(error.max()),
        facts["energy_drift"], facts["evaluations"], int(ranks.min()), int(ranks.max()),
    )  # fmt: skip


def eight_starts(quick: bool, progress: Progress) -> list[StartOutcome]:
    """All settings with all integrators from all starts; quick: explicit ones from the first start only."""
    starts = EIGHT_STARTS[:1] if quick else EIGHT_STARTS
    cases = [(settings, by, start) for settings in SETTINGS for by in INTEGRATORS for start in starts]
    if not quick:
        cases += [(DEFAULT, by, start) for by in IMPLICIT for start in starts]
    outcomes = []
    for count, case in enumerate(cases, start=1):
        outcomes.append(run_start(*case))
        progress(count / len(cases))
    return outcomes


def tables(outcomes: list[StartOutcome]) -> list[TextTable]:
    """One table per setting."""
    return [
        TextTable(
            f"servoctl, {settings}", HEADER, [_texts(one) for one in outcomes if one.settings == settings], left=4
        )
        for settings in SETTINGS
    ]


def _texts(outcome: StartOutcome) -> list[Any]:
    low, high = outcome.rank_min, outcome.rank_max
    ended = outcome.status if outcome.status == "done" else f"{outcome.status} at {outcome.reached:.2f} s, says why"
    return [
        outcome.integrator,
        f"{np.degrees(outcome.theta):.0f}",
        f"{outcome.rate:g}",
        ended,
        f"{outcome.angle_error:.1e}",
        f"{outcome.energy_drift:.1e}",
        f"{outcome.evaluations:,}",
        f"{low}" if low == high else f"{low}-{high}",
    ]
