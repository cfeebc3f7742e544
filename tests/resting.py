"""Runs at an equilibrium, and the rate at which a simulated deviation grows.

    u_i = u_i* + k (u_i(law) - u_i*)       factor k on the deviation of one actuator's torque from its value at rest

Design: the simulation is that of the run, nonlinear and with all of `realism`; only the law's command is changed. The
start is 1e-6 off the equilibrium. The envelope of the command, within the linear range, shows growth or decay.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from servoctl.assembly.make import load
from servoctl.assembly.run import Run
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.steps import step_of
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

PERIODS = 400
"""Longest simulation [periods]."""

WINDOW = 40
"""Periods per point of the envelope, which is their largest deviation."""

START, LARGEST, SMALLEST = 1e-6, 1e-3, 1e-13
"""Deviation at the start; ends of the linear range and of the numerical resolution [units of the state]."""


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

    def stepper(self, substeps: int) -> Callable[[Array, float, float, Array], tuple[Array, Array]]:
        """(x, t, h, p) -> x after a hold of so many steps, and the row."""

        def step(x: Array, t: float, h: float, p: Array) -> tuple[Array, Array]:
            command = self.control(t, x)
            log = self._loop.motion(t, x, command)[1]
            return self._loop.after_hold(t, x, command, h, substeps), np.concatenate([command, log])

        return step


def resting(run: Run) -> Array:
    """State vector of a sampled run at its equilibrium; torques and delayed commands are those of the law."""
    loop, m, realism = run.loop, run.system.model.m, run.system.realism
    x = loop.vector(run.start)
    u = loop.control(run.start.t, x[: loop.size])[:m]
    if realism is not None:
        first = loop.size + m * realism.timing.lagging
        x[loop.size : first] = u[: first - loop.size]
        x[first:] = np.tile(np.append(u, realism.timing.delay), realism.timing.latest)
    return x


def growth(run: Run, actuator: int, factor: float) -> float:
    """Rate at which the command's deviation grows in simulation [1/period]; negative where it decays."""
    assert run.settings.period is not None
    h, t, rest = run.settings.period, run.start.t, resting(run)
    u = run.loop.control(t, rest[: run.loop.size])[: run.system.model.m]
    loop = cast(Loop, Factored(run.loop, actuator, factor, float(u[actuator])))
    advance = step_of(loop, run.settings, t)
    x = rest.copy()
    sizes: list[float] = []
    x[: run.loop.size] += START * np.random.default_rng(1).standard_normal(run.loop.size)
    if run.system.model.passive_rows:
        x = run.loop.projected(t, x)
    for k in range(PERIODS):
        size = float(np.abs(run.loop.control(t, x[: run.loop.size])[: len(u)] - u).max())
        if sizes and not size < LARGEST / START * max(START, sizes[0]):  # also true for NaN
            return math.log(LARGEST / START) / k
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
