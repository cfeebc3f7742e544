"""A motion that tells the parameters of a plant apart, within its limits.

    q_i(t) = q_i(0) + s(t) sum_k a_ik sin(k w t) + b_ik cos(k w t),   k = 1 .. 5,   s: quintic from rest, and to rest
    greatest  log det(W^T W + d 1)          W: base regressor in units of the parameters, d keeps it finite

Design: as many coordinates are prescribed as the motors can move independently; the passive constraints give the
others. A search of random series, then of random changes of the best one, is enough, because the optimum is flat. Each
candidate is scaled until it keeps all limits. D-optimality, because the condition number is not smooth.

Source: Swevers et al. 1997 (Fourier series); Park 2006 (D-optimality).
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import qr

from servoctl.assembly import Run
from servoctl.config.schema import LawConfig
from servoctl.errors import ConfigError
from servoctl.identification.rows import Equations, Motion
from servoctl.identification.solution import base
from servoctl.identification.unknowns import select
from servoctl.mechanics.coordinate_bounds import limit_pair
from servoctl.mechanics.model import Model
from servoctl.mechanics.motors import motor_positions
from servoctl.mechanics.plant_values import dense_actuation
from servoctl.mechanics.spatial.plant import Robot
from servoctl.mechanics.spatial.pose_solver import joint_limits
from servoctl.types import Array, State


@dataclass(frozen=True)
class MotorLimits:
    """Limits per actuator; infinite where none is known."""

    # lower, upper: displacement, shape (m,)
    lower: Array
    upper: Array
    speed: Array  # largest speed, shape (m,)
    # least, most: torque, shape (m,)
    least: Array
    most: Array

    def share(self, position: Array, speed: Array, torque: Array) -> float:
        """The largest share of a limit that a motion uses; at most 1 inside all limits.

        Args:
            position, speed, torque: Of the motors along the motion, shape (rows, m).
        """
        parts = [
            np.abs(position - self.middle) / self.half,
            np.abs(speed) / self.speed,
            np.maximum(torque / self.most, torque / self.least),
        ]
        return max(float(np.max(np.nan_to_num(part, nan=0.0), initial=0.0)) for part in parts)

    @property
    def middle(self) -> Array:
        """Middle of the displacements, shape (m,); 0 where a limit is infinite."""
        both = np.isfinite(self.lower) & np.isfinite(self.upper)
        return np.where(both, 0.5 * (np.where(both, self.lower, 0.0) + np.where(both, self.upper, 0.0)), 0.0)

    @property
    def half(self) -> Array:
        """Half the range of the displacements, shape (m,)."""
        return np.where(np.isfinite(self.upper - self.lower), 0.5 * (self.upper - self.lower), np.inf)


def motor_limits(run: Run) -> MotorLimits:
    """The limits that a config states: of its drives, its law, and the files of its robots; the narrowest holds.

    Raises:
        ConfigError: The limits of a motor leave it no room.
    """
    assert run.loaded is not None
    config, plant = run.loaded.config, run.system.model.plant
    names = list(plant.actuators)
    widest = {"lower": -np.inf, "upper": np.inf, "speed": np.inf, "least": -np.inf, "most": np.inf}
    found = {key: np.full(len(names), size) for key, size in widest.items()}

    def narrow(name: str, key: str, value: float | None) -> None:
        if value is not None:
            j, lowest = names.index(name), key in ("lower", "least")
            found[key][j] = max(found[key][j], value) if lowest else min(found[key][j], value)

    for drive in () if config.hil is None else config.hil.drives:
        for key, value in zip(("lower", "upper"), drive.position_limits, strict=True):
            narrow(drive.actuator, key, value)
        narrow(drive.actuator, "speed", drive.speed_limit)
        narrow(drive.actuator, "least", -drive.torque_limit)
        narrow(drive.actuator, "most", drive.torque_limit)
    if isinstance(config.law, LawConfig) and isinstance(config.law.limits, dict):
        for name, limit in config.law.limits.items():
            for key, value in zip(("least", "most"), limit_pair(limit), strict=True):
                narrow(name, key, value)
    if isinstance(plant, Robot):
        limits = joint_limits(plant.tree)
        for name in names:
            efforts = plant.tree.joint(name).effort or (None, None)
            values = (*limits[name], plant.tree.velocity(name), *efforts)
            for key, value in zip(widest, values, strict=True):
                narrow(name, key, value)
    for name, low, high in zip(names, found["lower"], found["upper"], strict=True):
        if low >= high:
            raise ConfigError(
                f"excite: {name} has no room: its limits want at least {low:.4g} and at most {high:.4g} (correct them "
                "in the robot's file, with those of the joints that follow it, or position_limits of its drive)"
            )
    return MotorLimits(**found)


HARMONICS = 5
PERIODS = 4  # periods of the series in the motion
RANGE = 0.5  # [unit of the coordinate] largest way from the start where no position limit is known
MARGIN = 0.9  # share of each limit that the motion may use
SAMPLES = 80  # times at which a candidate is examined
RANDOM, CHANGES = 12, 24  # candidates: random series, then random changes of the best one
SMALLEST = 1e-3  # a motion scaled below this share of its range is none
FADE = 0.1  # share of the motion in which it begins, and in which it ends


@dataclass(frozen=True)
class Excitation:
    """A motion for the identification."""

    coordinates: tuple[str, ...]  # names of the prescribed coordinates
    t: Array  # times [s], shape (rows,)
    q: Array  # prescribed coordinates, shape (rows, coordinates)
    condition: float  # condition number of the base regressor along it, columns of unit length
    parameters: int  # how many sums of parameters it determines
    share: float  # largest share of a limit that it uses
    limits: MotorLimits


class _Planner:
    """Series of a run's plant -> motions and what they are worth."""

    def __init__(self, run: Run, duration: float) -> None:
        self.model: Model = run.system.model.plain
        self.start, self.duration, self.limits = run.start, duration, motor_limits(run)
        unknowns, _ = select(self.model.plant, None)
        self.equations, self.before = Equations(unknowns), unknowns.before
        self.size = np.where(self.before == 0.0, 1.0, np.abs(self.before))
        self.moved = self._independent()

    def _independent(self) -> list[int]:
        """Indices of the coordinates to prescribe: as many as the motors move independently."""
        q, zero = self.start.q[None], np.zeros((1, self.model.n))
        found = self.equations.along(Motion(np.zeros(1), q, zero, zero, zero), self.before)
        B = found.actuation[0]
        _, R, order = qr(B.T, mode="economic", pivoting=True)
        sizes = np.abs(np.diag(R))
        rank = int(np.sum(sizes > 1e-9 * sizes[0])) if len(sizes) and sizes[0] > 0.0 else 0
        if not rank:
            raise ConfigError("excite: no motor moves a coordinate at the start (start elsewhere)")
        return sorted(order[:rank].tolist())

    def prescribed(self, series: Array, scale: float, t: Array) -> tuple[Array, Array, Array]:
        """Prescribed coordinates and their derivatives, shape (rows, coordinates).

        Args:
            series: a and b, shape (coordinates, harmonics, 2).
            scale: Factor on the way from the start.
            t: Times [s].
        """
        w = 2.0 * np.pi * PERIODS / self.duration * np.arange(1, HARMONICS + 1)
        phase = t[:, None] * w
        sin, cos = np.sin(phase), np.cos(phase)
        a, b = series[:, :, 0].T, series[:, :, 1].T
        x, dx, ddx = sin @ a + cos @ b, (cos * w) @ a - (sin * w) @ b, -(sin * w**2) @ a - (cos * w**2) @ b
        s, ds, dds = self._fade(t)
        q = self.start.q[self.moved] + scale * s * x
        return q, scale * (ds * x + s * dx), scale * (dds * x + 2.0 * ds * dx + s * ddx)

    def _fade(self, t: Array) -> tuple[Array, Array, Array]:
        """s and its derivatives, shape (rows, 1): 0 to 1 at the beginning, back to 0 at the end."""
        ramp = FADE * self.duration
        z = np.clip(np.minimum(t, self.duration - t) / ramp, 0.0, 1.0)[:, None]
        sign = np.where(t < 0.5 * self.duration, 1.0, -1.0)[:, None] / ramp
        s = z**3 * (10.0 - 15.0 * z + 6.0 * z**2)
        return s, sign * 30.0 * z**2 * (1.0 - z) ** 2, sign**2 * 60.0 * z * (1.0 - z) * (1.0 - 2.0 * z)

    def motion(self, series: Array, scale: float, t: Array) -> Motion | None:
        """The motion of all coordinates; None if the passive constraints do not allow it."""
        part, rate, acceleration = self.prescribed(series, scale, t)
        q, v, a = (np.tile(x, (len(t), 1)) for x in (self.start.q, 0.0 * self.start.q, 0.0 * self.start.q))
        q[:, self.moved], v[:, self.moved], a[:, self.moved] = part, rate, acceleration
        if self.model.passive_rows:
            others = [i for i in range(self.model.n) if i not in self.moved]
            last = self.start.q[others]
            for k in range(len(t)):
                q[k, others] = last
                if not self._close(t[k], q[k], v[k], a[k], others):
                    return None
                last = q[k, others]
        return Motion(t, q, v, a, v)

    def _close(self, t: float, q: Array, v: Array, a: Array, others: list[int]) -> bool:
        """Moves the other coordinates onto the passive constraints, in place; False if that fails."""
        holonomic = [i for i, row in enumerate(self.model.passive_rows) if row.has_rate]
        for _ in range(20):
            passive = self.model.rows(State(t, q, v))[0]
            error = passive.violation[holonomic]
            if np.abs(error).max(initial=0.0) < 1e-10:
                break
            q[others] -= np.linalg.lstsq(passive.A[np.ix_(holonomic, others)], error, rcond=1e-9)[0]
        else:
            return False
        A = passive.A[:, others]
        v[others] -= np.linalg.lstsq(A, passive.A @ v, rcond=1e-9)[0]
        passive = self.model.rows(State(t, q, v))[0]
        a[others] += np.linalg.lstsq(A, passive.b - passive.A @ a, rcond=1e-9)[0]
        return bool(np.isfinite([*q, *v, *a]).all())

    def share(self, motion: Motion) -> float:
        """The largest share of a limit that a motion uses."""
        found = self.equations.along(motion, self.before)
        torque = np.einsum("kij,kj->ki", np.linalg.pinv(found.actuation, rcond=1e-9), found.residual)
        plant = self.model.plant
        position = np.array([motor_positions(plant, q) for q in motion.q])
        B = [dense_actuation(plant, q, float(t)) for q, t in zip(motion.q, motion.t, strict=True)]
        speed = np.einsum("kij,ki->kj", np.array(B, dtype=float), motion.v)
        way = np.abs(motion.q - self.start.q)[:, self.moved].max(initial=0.0)
        known = np.isfinite(self.limits.half).all()
        return max(self.limits.share(position, speed, torque) / MARGIN, 0.0 if known else way / RANGE)

    def scaled(self, series: Array, t: Array, scale: float) -> tuple[float, Motion] | None:
        """The largest scale, of a row of falling ones from `scale` on, at which the motion keeps all limits."""
        while scale > SMALLEST:
            motion = self.motion(series, scale, t)
            if motion is not None and self.share(motion) <= 1.0:
                return scale, motion
            scale *= 0.7
        return None

    def worth(self, motion: Motion) -> float:
        """log det of the information about the parameters, in units of their sizes."""
        W = self.equations.along(motion, self.before).regressor.reshape(-1, len(self.size)) * self.size
        information = W.T @ W
        d = 1e-9 * float(np.trace(information)) + 1e-300
        return float(np.linalg.slogdet(information + d * np.eye(len(information)))[1])


def excite(run: Run, duration: float = 10.0, seed: int = 0) -> Excitation:
    """A motion from the start of a run, and back to rest, that tells the plant's parameters apart.

    Args:
        run: A run of a config.
        duration: Of the motion [s].
        seed: Of the search.

    Raises:
        ConfigError: No motion keeps the limits, or there is nothing to identify.
    """
    planner, random = _Planner(run, duration), np.random.default_rng(seed)
    if not planner.equations.unknowns.names:
        raise ConfigError("excite: the plant has no parameter that a log can identify")
    t = np.linspace(0.0, duration, SAMPLES)
    shape = (len(planner.moved), HARMONICS, 2)
    half = planner.limits.half
    way = float(np.min(half[np.isfinite(half)], initial=1.0)) if np.isfinite(half).any() else RANGE
    way /= np.sqrt(HARMONICS)  # of each prescribed coordinate, with which a series begins
    best: tuple[float, float, Array, Motion] | None = None
    for number in range(RANDOM + CHANGES):
        if number < RANDOM or best is None:
            series = way * random.standard_normal(shape)
        else:
            series = best[2] + 0.3 * way * random.standard_normal(shape)
        found = planner.scaled(series, t, 1.0 if best is None else min(1.0, 2.0 * best[1]))
        worth = -np.inf if found is None else planner.worth(found[1])
        if found is not None and (best is None or worth > best[0]):
            best = worth, found[0], series, found[1]
    if best is None:
        raise ConfigError("excite: no motion from this start keeps the limits (start further from them, or widen them)")
    W = planner.equations.along(best[3], planner.before).regressor.reshape(-1, len(planner.size))
    sums = base(W, planner.size)
    names = list(planner.model.plant.coordinates)
    fine = np.linspace(0.0, duration, 1 + round(duration / 0.01))
    q = planner.prescribed(best[2], best[1], fine)[0]
    share = MARGIN * planner.share(best[3])
    return Excitation(
        tuple(names[i] for i in planner.moved), fine, q, sums.condition, len(sums.independent), share, planner.limits
    )
