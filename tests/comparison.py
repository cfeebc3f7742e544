"""Three controllers on one shipped arm: `python -m tests.comparison FOLDER` prints figures and draws a picture.

The arm of `elbow_above_table` follows its circle. Its links weigh 20 % more than every controller believes, and it
starts 2 cm off. Constraint following is the config as shipped. Computed torque and LQR follow the joint path that puts
the tip on the circle with the tool at -20 degrees. All three have the error poles -20 1/s twice, and 2 ms per tick.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import control
import numpy as np

import servoctl as sc
from plants.chain import Chain
from servoctl.types import Array

CONFIG = "elbow_above_table"
GAIN = 20.0  # [1/s] alpha and beta of the config
TOOL = np.deg2rad(-20.0)  # [rad]
PERIOD = 0.002  # [s]
DURATION = 2 * np.pi  # [s]
HEAVIER = 0.2  # the machine's mass over the model's, minus 1
OFF = np.array([0.02, 0.0])  # [m] of the tip at the start
MODEL = Chain(N=3, m=3.0, reach=1.8)
LINK = MODEL.reach / MODEL.N  # [m]

Law = Callable[[float, Array, Array], Array]


@dataclass(frozen=True)
class Result:
    """A run: times (k,) [s], tip error (k,) [m], elbow height (k,) [m], torques (k, 3) [N m]."""

    t: Array
    error: Array
    elbow: Array
    u: Array

    @property
    def figures(self) -> tuple[float, float, float]:
        """Root mean square of the tip error after 1 s [m], largest torque after 1 s [N m], least height [m]."""
        late = self.t > 1.0
        return (
            float(np.sqrt(np.mean(self.error[late] ** 2))),
            float(np.abs(self.u[late]).max()),
            float(self.elbow.min()),
        )


def circle(t: float) -> tuple[Array, Array, Array]:
    """Position, velocity and acceleration of the tip on its circle."""
    c, s = np.cos(2 * t), np.sin(2 * t)
    return np.array([1.2 + 0.15 * c, 0.45 + 0.15 * s]), 0.3 * np.array([-s, c]), -0.6 * np.array([c, s])


def tip(q: Array) -> Array:
    return LINK * np.array([np.cos(q).sum(), np.sin(q).sum()])


def joints(t: float, off: Array | float = 0.0) -> tuple[Array, Array, Array]:
    """q, v, a with the tip on the circle, or beside it by `off`, and the tool at its angle."""
    position, velocity, acceleration = circle(t)
    x, y = position + off - LINK * np.array([np.cos(TOOL), np.sin(TOOL)])
    half = np.arccos(np.hypot(x, y) / (2 * LINK))
    q = np.array([np.arctan2(y, x) - half, np.arctan2(y, x) + half, TOOL])
    J = np.vstack([-LINK * np.sin(q), LINK * np.cos(q), [0.0, 0.0, 1.0]])
    v = np.linalg.solve(J, [*velocity, 0.0])
    turning = -LINK * np.array([np.cos(q) @ v**2, np.sin(q) @ v**2])
    return q, v, np.linalg.solve(J, [*(acceleration - turning), 0.0])


def torques(q: Array, v: Array, a: Array, t: float) -> Array:
    """Inverse dynamics of the model."""
    return np.linalg.solve(MODEL.actuation(q, t), MODEL.mass_matrix(q, t) @ a - MODEL.force(q, v, t))


def computed_torque(t: float, q: Array, v: Array) -> Array:
    target, rate, acceleration = joints(t)
    return torques(q, v, acceleration + 2 * GAIN * (rate - v) + GAIN**2 * (target - q), t)


def lqr() -> Law:
    """Linear feedback about the joint path, with its inverse dynamics; the gain is that of the pose in the middle.

    The cost weighs errors, rates and accelerations so that the poles in that pose are those of the others.
    """
    middle = (joints(0.0)[0] + joints(np.pi / 2)[0]) / 2
    B = np.linalg.solve(MODEL.mass_matrix(middle, 0.0), MODEL.actuation(middle, 0.0))
    I, O = np.eye(3), np.zeros((3, 3))  # noqa: E741
    A = np.block([[O, I], [_slope(middle), O]])
    Q = np.diag([*3 * [GAIN**4], *3 * [2 * GAIN**2]])
    K, _, _ = control.lqr(A, np.vstack([O, B]), Q, B.T @ B)

    def law(t: float, q: Array, v: Array) -> Array:
        target, rate, acceleration = joints(t)
        u: Array = torques(target, rate, acceleration, t) + K @ np.concatenate([target - q, rate - v])
        return u

    return law


def _slope(q: Array, step: float = 1e-6) -> Array:
    """Derivative of the acceleration at rest by the coordinates, under the torques that hold the pose."""
    load = MODEL.actuation(q, 0.0) @ torques(q, np.zeros(3), np.zeros(3), 0.0)

    def acceleration(at: Array) -> Any:
        return np.linalg.solve(MODEL.mass_matrix(at, 0.0), MODEL.force(at, np.zeros(3), 0.0) + load)

    return np.column_stack([(acceleration(q + d) - acceleration(q - d)) / (2 * step) for d in step * np.eye(3)])


def simulated(law: Law) -> Result:
    """A run on the heavier machine; the torque is held for a period."""
    machine = Chain(N=3, m=MODEL.m * (1 + HEAVIER), reach=MODEL.reach)
    q, v, _ = joints(0.0, OFF)
    rows = []
    for tick in range(round(DURATION / PERIOD)):
        t = tick * PERIOD
        u = law(t, q, v)
        rows.append((t, np.linalg.norm(tip(q) - circle(t)[0]), LINK * np.sin(q[0]), u))
        q, v = _stepped(machine, q, v, u, t)
    t, error, elbow, u = (np.array(column) for column in zip(*rows, strict=True))
    return Result(t, error, elbow, u)


def _stepped(machine: Chain, q: Array, v: Array, u: Array, t: float) -> tuple[Array, Array]:
    """The state after a period, by one step of the classical Runge-Kutta method: finer ones change no digit shown."""

    def rate(x: Array) -> Array:
        force = machine.force(x[:3], x[3:], t) + machine.actuation(x[:3], t) @ u
        return np.concatenate([x[3:], np.linalg.solve(machine.mass_matrix(x[:3], t), force)])

    x, h = np.concatenate([q, v]), PERIOD
    k1 = rate(x)
    k2 = rate(x + h / 2 * k1)
    k3 = rate(x + h / 2 * k2)
    x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + rate(x + h * k3))
    return x[:3], x[3:]


def constraint_following() -> Result:
    """The config as shipped, on the heavier machine and from the same start."""
    q, v, _ = joints(0.0, OFF)
    start = f"initial={{q: {q.tolist()}, v: {v.tolist()}, project: false}}"
    run = sc.load(CONFIG, [start, f"realism={{parameter_error: {{m: {HEAVIER}}}}}"])
    trajectory = run.simulate()
    rows = slice(0, -1)
    error = np.hypot(trajectory.violation("tip_x"), trajectory.violation("tip_y"))
    return Result(trajectory.t[rows], error[rows], (LINK * np.sin(trajectory.q[:, 0]))[rows], trajectory.u[rows])


def compared() -> dict[str, Result]:
    """Name -> run of each controller."""
    return {
        "constraint following": constraint_following(),
        "computed torque": simulated(computed_torque),
        "LQR": simulated(lqr()),
    }


def draw(results: dict[str, Result], path: Path) -> None:
    """One picture: tip error and elbow height of all controllers."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained", dpi=160)
    error, elbow = figure.subplots(1, 2)
    for (name, result), style in zip(results.items(), ("-", "--", ":"), strict=True):
        error.plot(result.t, 1000 * result.error, style, label=name)
        elbow.plot(result.t, 1000 * result.elbow, style, label=name)
    error.set(xlabel="time [s]", ylabel="tip error [mm]", ylim=(0, 21), title="The tip on its circle")
    elbow.set(xlabel="time [s]", ylabel="height of the elbow [mm]", title="The elbow above the table")
    elbow.set_ylim(-120, 220)
    elbow.axhspan(-120, 0.0, color="0.9")
    elbow.text(0.2, -105, "table", color="0.4")
    for axes in (error, elbow):
        axes.margins(x=0)
        axes.spines[["top", "right"]].set_visible(False)
    error.legend(fontsize="small")
    figure.savefig(path)


def main(folder: Path) -> None:
    results = compared()
    print(f"{'controller':22}{'tip error rms':>15}{'largest torque':>16}{'lowest elbow':>16}")
    for name, result in results.items():
        rms, torque, height = result.figures
        print(f"{name:22}{1000 * rms:12.2f} mm{torque:12.1f} N m{1000 * height:13.0f} mm")
    folder.mkdir(parents=True, exist_ok=True)
    draw(results, folder / "comparison.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
