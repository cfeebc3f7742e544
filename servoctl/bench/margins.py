"""Gain margins against simulation: the reported factor, and the factor at which a simulated loop becomes unstable.

    u_i = u_i* + k (u_i(law) - u_i*)       factor k on the deviation of one actuator's torque from its value at rest

Design: the simulation is that of the run, nonlinear and with all of `realism`; only the law's command is changed. The
start is 1e-6 off the equilibrium. The envelope of the command, within the linear range, shows growth or decay. The
search for the factor does not use the reported margin.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from servoctl.assembly.make import load
from servoctl.assembly.run import Run
from servoctl.bench.report import BenchReport, Effort, Progress, TextTable
from servoctl.linear import analyse
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.integrate import sampled
from servoctl.types import Array

STILL = "task.object_y.holonomic=l*sin(theta1) + l*sin(theta2) + l/2*sin(theta3)"
"""The robots' object is held where it is."""


@dataclass(frozen=True)
class Resting:
    """A run at an equilibrium.

    Attributes:
        config: Name of the config.
        overrides: Settings that put it at an equilibrium and set the period.
        actuator: The actuator whose torque gets the factor.
        delay: Delay in the case with lag and delay [s].
        lag: Time constant of the actuators [s].
    """

    config: str
    overrides: tuple[str, ...]
    actuator: str
    delay: float
    lag: float

    def run(self, late: bool) -> Run:
        """The run, with or without lag and delay."""
        more = [f"realism={{delay: {self.delay}, lag: {self.lag}}}"] if late else []
        return load(self.config, [*self.overrides, *more], engine="vm")


CASES = (
    Resting("two_mass_spring", ("initial.v=0", "initial.q={x1: 0, x2: 0.5}", "task.distance.holonomic=x2 - x1 - l",
                                "run.period=0.02", "run.integrator.step=0.005", "run.output_step="), "F", 0.013, 0.02),
    Resting("crane", ("initial.q={s: 5, theta: 0}", "run.period=0.1", "run.integrator={method: rk4, step: 0.02}",
                      "run.output_step="), "F", 0.06, 0.1),
    Resting("coordinated_robots", (STILL, "run.period=0.01", "run.integrator.step=0.005", "run.output_step="),
            "u2", 0.015, 0.01),
    Resting("scara", ("initial.v=0", "initial.max_violation=1", "task.x.holonomic=q1 - 30*deg",
                      "task.y.holonomic=q2 + 55*deg", "task.heading.holonomic=q3 - 24*deg", "task.z.holonomic=q4",
                      "law.correction={baumgarte: {alpha: 8, beta: 8}}", "run.period=0.02",
                      "run.integrator={method: rk4, step: 0.005}", "run.output_step="), "tau1", 0.03, 0.02),
    Resting("mass_on_car", ("initial.q={x: 0.981/2, s: -0.981*sin(pi/4)}", "task.place.holonomic=x + s*cos(a)",
                            "run.period=0.02", "run.integrator={method: rk4, step: 0.005}", "run.output_step="),
            "F", 0.01, 0.03),
)  # fmt: skip
"""These cases cover: a neutral drift, relative degree 4, a closed chain with six motors, gravity, internal dynamics."""

PERIODS = 800
"""Longest simulation [periods]."""

WINDOW = 40
"""Periods per point of the envelope, which is their largest deviation."""

START, LARGEST, SMALLEST = 1e-6, 1e-3, 1e-13
"""Deviation at the start; ends of the linear range and of the numerical resolution [units of the state]."""

CLOSE = 2e-3
"""Relative width of the interval that contains the factor."""


class Factored:
    """A loop with a factor on the deviation of one actuator's command from a value.

    Args:
        loop: The loop.
        actuator: Index of the actuator.
        factor: The factor.
        rest: The command of that actuator at rest.
    """

    def __init__(self, loop: Loop, actuator: int, factor: float, rest: float) -> None:
        self._loop, self._i, self._factor, self._rest = loop, actuator, factor, rest

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def control(self, t: float, x: Array) -> Array:
        """The command, with the factor applied."""
        command = self._loop.control(t, x).copy()
        command[self._i] = self._rest + self._factor * (command[self._i] - self._rest)
        return command


def resting(run: Run) -> Array:
    """State vector of a sampled run at its equilibrium; torques and delayed commands are those of the law."""
    loop, m, realism = run.loop, run.system.model.m, run.system.realism
    x = loop.vector(run.start)
    u = loop.control(run.start.t, x[: loop.size])[:m]
    if realism is not None:
        first = loop.size + m * realism.lagged
        x[loop.size : first] = u[: first - loop.size]
        x[first:] = np.tile(np.append(u, realism.delay), realism.latest)
    return x


def growth(run: Run, actuator: int, factor: float) -> float:
    """Rate at which the command's deviation grows in simulation [1/period]; negative where it decays."""
    assert run.settings.period is not None
    h, t, rest = run.settings.period, run.start.t, resting(run)
    u = run.loop.control(t, rest[: run.loop.size])[: run.system.model.m]
    loop = cast(Loop, Factored(run.loop, actuator, factor, float(u[actuator])))
    advance = sampled(loop, run.settings.integrator, h, t, 0)
    x = rest.copy()
    sizes: list[float] = []
    x[: run.loop.size] += START * np.random.default_rng(1).standard_normal(run.loop.size)
    if run.system.model.passive_rows:
        x = run.loop.projected(t, x)
    for k in range(PERIODS):
        size = float(np.abs(run.loop.control(t, x[: run.loop.size])[: len(u)] - u).max())
        if not size < LARGEST * max(1.0, sizes[0] / START if sizes else 1.0):  # also true for NaN
            return math.log(LARGEST / START) / max(1, k)
        sizes.append(size)
        if k > WINDOW and size < SMALLEST:
            break
        x = advance(t, x, h)[0]  # t stays constant: no case depends on time
    return _rate(sizes)


def _rate(sizes: Sequence[float]) -> float:
    """Slope of the logarithm of the envelope over its second half [1/period]."""
    windows = [max(sizes[i : i + WINDOW]) for i in range(0, len(sizes) - WINDOW + 1, WINDOW)]
    if len(windows) < 4:
        return math.log(sizes[-1] / sizes[0]) / len(sizes)
    late = np.log(windows[len(windows) // 2 :])
    return float(np.polyfit(np.arange(len(late)), late, 1)[0]) / WINDOW


def unstable_from(grows: Callable[[float], bool]) -> float:
    """The least factor above 1 at which the deviation grows."""
    low, high = 1.0, 1.5
    while not grows(high):
        low, high = high, 1.5 * high
        if high > 1e4:
            return math.inf
    while high - low > CLOSE * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if grows(middle) else (middle, high)
    return math.sqrt(low * high)


def compared(case: Resting, late: bool) -> dict[str, Any]:
    """The reported and the simulated factor of a case, and their ratio."""
    run = case.run(late)
    actuator = list(run.system.model.plant.actuators).index(case.actuator)
    margins = analyse(run, change=0.0).margins[-1]
    reported = {one.actuator: one for one in margins.actuators}[case.actuator].gain
    simulated = unstable_from(lambda factor: growth(run, actuator, factor) > 0.0)
    return {
        "config": case.config, "actuator": case.actuator, "timing": str(margins.timing), "reported": reported,
        "simulated": simulated, "ratio": simulated / reported, "gain_factor": margins.gain_factor,
    }  # fmt: skip


def margins(effort: Effort, progress: Progress) -> BenchReport:
    """Gain margins of five plants, with and without lag and delay: the reported factor against simulated instability.

    Args:
        effort: Quick takes two plants.
        progress: Called with the share of cases that are done.
    """
    cases = CASES[:2] if effort.quick else CASES
    results = []
    for case in cases:
        for late in (False, True):
            results.append(compared(case, late))
            progress(len(results) / (2 * len(cases)))
    rows = [
        [result["config"], result["actuator"], result["timing"], f"{result['reported']:.4g}",
         f"{result['simulated']:.4g}", f"{result['ratio']:.4f}",
         f"{result['gain_factor']:.4g}" if result["gain_factor"] else "-"]
        for result in results
    ]  # fmt: skip
    header = ("config", "actuator", "loop", "reported", "simulated", "ratio", "on all gains")
    ratios = [result["ratio"] for result in results]
    notes = [
        f"simulated / reported: {min(ratios):.4f} to {max(ratios):.4f}; the simulated factor is known to {CLOSE:.1%}",
        "the factor acts on the deviation of one actuator's torque from its value on the constraint, at an equilibrium",
        "on all gains: the factor on alpha and beta at which the loop becomes unstable; this is another quantity",
    ]
    table = TextTable("Factor at which the loop becomes unstable", header, rows, left=3)
    return BenchReport("Margins: reported and simulated", [table], {"cases": results, "ratios": ratios}, notes)
