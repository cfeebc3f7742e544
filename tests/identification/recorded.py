"""Logs of a simulated arm as another program writes them: exact inverse dynamics, then encoders, delay and noise."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.interpolate import CubicSpline

import servoctl as sc
from servoctl.mechanics.actuator_parameters import with_armature
from servoctl.types import Array

ARM7 = Path(__file__).parents[2] / "configs/robots/arm7.urdf"
COUNTS = 2**14  # of an encoder, per turn
ROTORS = (0.5, 0.6, 0.35, 0.3, 0.1, 0.08, 0.05)  # [kg m^2]
COULOMB = (4.0, 5.0, 3.0, 3.0, 1.2, 1.0, 0.6)  # [N m]
VISCOUS = (3.0, 4.0, 2.0, 2.0, 0.8, 0.6, 0.4)  # [N m s/rad]
NOISE = 0.01  # standard deviation of a torque, relative to its rms


def true_arm(seed: int = 0, spread: float = 0.2) -> Any:
    """The arm with rotors, whose bodies are not those of its file: masses and inertias differ by this share."""
    return with_armature(other_bodies(sc.Robot.from_urdf(ARM7), seed, spread), ROTORS)


def other_bodies(robot: Any, seed: int, spread: float) -> Any:
    """A robot whose masses and inertias differ by this share."""
    random, changed = np.random.default_rng(seed), {}
    for link in robot.tree.links:
        share = 1.0 + spread * random.uniform(-1.0, 1.0)
        changed[f"{link.name}_m"] = share * getattr(robot, f"{link.name}_m")
        if link.gyration is None:
            changed[f"{link.name}_I"] = tuple(share * x for x in getattr(robot, f"{link.name}_I"))
    return replace(robot, **changed)


def motion(seed: int, t: Array, n: int = 7) -> tuple[Array, Array, Array]:
    """Positions, speeds and accelerations of a sum of five harmonics of 0.1 Hz, shape (rows, n) each."""
    random = np.random.default_rng(1000 + seed)
    w = 2.0 * np.pi * 0.1 * np.arange(1, 6)
    a, b = (random.uniform(-1.0, 1.0, (5, n)) * 0.5 / np.sqrt(np.arange(1, 6))[:, None] for _ in range(2))
    middle, sines, cosines = random.uniform(-0.5, 0.5, n), np.sin(np.outer(t, w)), np.cos(np.outer(t, w))
    v = cosines @ (w[:, None] * a) - sines @ (w[:, None] * b)
    return middle + sines @ a + cosines @ b, v, -sines @ (w[:, None] ** 2 * a) - cosines @ (w[:, None] ** 2 * b)


def torques(robot: Any, q: Array, v: Array, a: Array) -> Array:
    """Inverse dynamics with friction, shape (rows, n)."""
    return inverse(robot, q, v, a) + np.array(COULOMB) * np.tanh(v / 0.01) + np.array(VISCOUS) * v


def inverse(robot: Any, q: Array, v: Array, a: Array) -> Array:
    """Torques without friction, shape (rows, n)."""
    rows = [robot.mass_matrix(x, 0.0) @ z - robot.right_hand_side(x, y, 0.0) for x, y, z in zip(q, v, a, strict=True)]
    return np.array(rows)


def record(
    seed: int = 0,
    time: float = 20.0,
    rate: float = 250.0,
    delay: float = 0.003,
    robot: Any = None,
    noise: float = NOISE,
) -> tuple[Array, Array, Array]:
    """Times, positions and torques as logged: the torque of a row acts this much later [s]."""
    random, t = np.random.default_rng(seed), np.arange(0.0, time, 1.0 / rate)
    u = torques(true_arm() if robot is None else robot, *motion(seed, t + delay))
    u = u + noise * np.sqrt(np.mean(u**2, axis=0)) * random.standard_normal(u.shape)
    turn = 2.0 * np.pi / COUNTS
    return t, np.round(motion(seed, t)[0] / turn) * turn, u


CONFIG = """plant: {robot: {urdf: %s}}
initial: {v: 0}
task: [{name: rest, posture: initial}]
law: {correction: {baumgarte: {alpha: 10, beta: 10}}}
run: {duration: 1}
log:
  time: time
  q: [q1, q2, q3, q4, q5, q6, q7]
  u: [tau1, tau2, tau3, tau4, tau5, tau6, tau7]
"""


def write(folder: Path, t: Array, q: Array, u: Array, urdf: Path = ARM7) -> tuple[Path, Path]:
    """A table, and the config of an arm as its file says."""
    n = q.shape[1]
    header = ",".join(["time", *(f"q{i + 1}" for i in range(n)), *(f"tau{i + 1}" for i in range(n))])
    log, config = folder / "log.csv", folder / "arm.yaml"
    np.savetxt(log, np.column_stack([t, q, u]), delimiter=",", header=header, comments="", fmt="%.9g")
    config.write_text((CONFIG if n == 7 else CONFIG.replace(", q7", "").replace(", tau7", "")) % urdf)
    return log, config


def foreign(folder: Path, seed: int, urdf: Path | None = None, load: float = 3.0) -> tuple[Array, Array, Array]:
    """Times, positions and torques of a machine of which much is unknown.

    Arms of six and of seven joints in turn; bodies, a load up to `load` [kg] that the file does not have, rotors,
    friction with a Stribeck peak that no model here has, noise, delay, encoders, rate and length differ by seed.
    """
    random = np.random.default_rng(7000 + seed)
    urdf = urdf or (ARM6, ARM7)[seed % 2]
    place = np.array([0.0, 0.0, 0.06]) + random.uniform(-0.06, 0.06, 3)
    body = f"bodies: {{load: {{m: {random.uniform(0.0, load):.4g}, on: tool, at: {{xyz: {place.round(4).tolist()}}}}}}}"
    text = CONFIG.replace("robot: {urdf: %s}", f"robot: {{urdf: {urdf}}}, {body}")
    (folder / "truth.yaml").write_text(text[: text.index("log:")])
    robot = other_bodies(
        sc.load(folder / "truth.yaml", engine="numpy").system.model.plant, seed, random.uniform(0.1, 0.35)
    )
    n = len(robot.coordinates)
    own = (ROTORS, COULOMB, VISCOUS) if n == 7 else (ARM6_ROTORS, ARM6_COULOMB, ARM6_VISCOUS)
    rotors, coulomb, viscous = (np.array(x) * random.uniform(0.3, 2.0, n) for x in own)
    rate, time, delay = (
        random.choice([100.0, 250.0, 500.0, 1000.0]),
        random.uniform(15.0, 30.0),
        random.uniform(0.0, 0.008),
    )
    peak, noise, turn = (
        random.uniform(0.0, 0.3),
        random.uniform(0.003, 0.03),
        2.0 * np.pi / 2 ** random.integers(13, 19),
    )
    t = np.arange(0.0, time, 1.0 / rate)
    every = max(1, round(rate / 250.0))  # exact torques of rows at 250 Hz, with a spline between them
    late = t[::every] + delay
    u = inverse(with_armature(robot, rotors.tolist()), *motion(seed, late, n))
    v = motion(seed, t + delay, n)[1]
    u = CubicSpline(late, u, axis=0)(t + delay) if every > 1 else u
    u += coulomb * (1.0 + peak * np.exp(-((v / 0.1) ** 2))) * np.tanh(v / 0.01) + viscous * v
    u += noise * np.sqrt(np.mean(u**2, axis=0)) * random.standard_normal(u.shape)
    return t, np.round(motion(seed, t, n)[0] / turn) * turn, u


def loaded(robot: Any, load_m: float) -> Any:
    """The robot with rotors and another load."""
    return with_armature(replace(robot, load_m=load_m), ROTORS)


ARM6 = ARM7.with_name("arm6.urdf")
ARM6_LOG = ARM6.with_name("arm6_log.csv")
ARM6_ROTORS = (0.3, 0.3, 0.2, 0.03, 0.03, 0.02)  # [kg m^2]
ARM6_COULOMB = np.array([3.0, 3.0, 2.0, 0.4, 0.4, 0.3])  # [N m]
ARM6_VISCOUS = np.array([2.0, 2.0, 1.5, 0.3, 0.3, 0.2])  # [N m s/rad]


def arm6_log() -> str:
    """The log beside `arm6.urdf`, as text: simulated, 15 s at 100 Hz, in degrees, the third torque's sign reversed.

    The arm has rotors, friction, a forearm that is 30 % heavier than in its file, encoders of 14 bits, 1 % of noise in
    the torques, and 3 ms of delay.
    """
    robot: Any = sc.Robot.from_urdf(ARM6)
    inertia = tuple(1.3 * x for x in robot.link3_I)
    arm = with_armature(replace(robot, link3_m=1.3 * robot.link3_m, link3_I=inertia), ARM6_ROTORS)
    t, random = np.arange(0.0, 15.0, 0.01), np.random.default_rng(6)
    q, v, a = motion(6, t + 0.003, 6)
    u = inverse(arm, q, v, a) + ARM6_COULOMB * np.tanh(v / 0.01) + ARM6_VISCOUS * v
    u *= np.where(np.arange(6) == 2, -1.0, 1.0)
    u += NOISE * np.sqrt(np.mean(u**2, axis=0)) * random.standard_normal(u.shape)
    degrees = np.round(motion(6, t, 6)[0] * COUNTS / (2.0 * np.pi)) * 360.0 / COUNTS
    header = ",".join(["time", *(f"q{i}" for i in range(1, 7)), *(f"tau{i}" for i in range(1, 7))])
    lines = [
        ",".join([f"{t:.2f}", *(f"{x:.3f}" for x in positions), *(f"{x:.3f}" for x in torque)])
        for t, positions, torque in zip(t, degrees, u, strict=True)
    ]
    return "\n".join([header, *lines]) + "\n"


if __name__ == "__main__":
    ARM6_LOG.write_text(arm6_log())
