"""The machine that is not ideal: measurement, delay and actuators, for simulated runs and for emulated drives.

`Realism` is the section of a config, and the same in Python. Made ready for a plant and a period it gives `Channels`.

    measured    x~ = r floor((x + sigma z) / r + 1/2)           r the resolution; x + sigma z at r = 0; z: `tick_noise`
    delayed     the command of tick k acts from t_k + delay + jitter U_k on, within the actuator's limits
    lagging     a' = (u - a) / lag, exactly, while u is held:    a(t + s) = u + (a(t) - u) exp(-s / lag)
    friction    u acts as u - coulomb tanh(s / speed) - viscous s,   s = B^T v

Design: the functions below are the model of one channel. A simulated run (`Channels`, `Period`) applies them to all
channels at each tick; an emulated drive applies them to its own at the times at which frames arrive and leave. The
numbers are parameters, so that a sweep compiles once; how many commands are on their way, and whether anything lags, is
structure. `engine/c/realism.h` does the same in C. The model is our own; tanh for the sign of a speed is usual.

Design: Philox is a counter-based generator. The seed is its key and the tick its counter, and Box-Muller turns raw
words into normals here. So the numbers depend neither on the engine, nor on the number of workers, nor on NumPy's
method for normals.

Source: Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC 2011); Box, Muller (1958).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, cast

import numpy as np
from pydantic import Field

from servoctl.engine.step import DelayLayout
from servoctl.errors import no_such
from servoctl.mechanics.coordinate_bounds import limit_pair
from servoctl.mechanics.friction import Friction
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.timing import Timing, remaining
from servoctl.tree.fields import (
    ByPath,
    FileName,
    Lag,
    Limit,
    Notes,
    NotNegative,
    NumberField,
    OneOrEach,
    PerName,
    Positive,
    ScalarOr,
    Time,
    described,
    one_per_name,
    spread,
)
from servoctl.tree.rules import Broken, FieldPath, Rules, outer_rule, rule
from servoctl.types import Array


def quantised(x: Any, step: Any, floor: Callable[[Any], Any] = np.floor) -> Any:
    """The nearest multiple of a step; halves are rounded up.

    Args:
        x: Value.
        step: Resolution, above 0.
        floor: For such values; `math.floor` is faster on plain numbers.
    """
    return step * floor(x / step + 0.5)


RelativeError = Annotated[
    float, NumberField("a relative error above -1 (0.2 is 20 % more than the law knows)", above=-1)
]


@dataclass(frozen=True)
class PerCoordinate:
    """One number per coordinate and one per velocity."""

    q: PerName[NotNegative] = described(
        0.0, "coordinates [units of the plant]: one for all, list in the plant's order, or by name"
    )
    v: PerName[NotNegative] = described(0.0, "velocities [units of the plant per s], written as q is")

    def ready(self, plant: Plant, problems: Notes, field: str) -> tuple[float, ...]:
        """The numbers of all coordinates, then those of all velocities, shape (2n,).

        Args:
            field: Of `realism` that has them.
        """
        each = spread(self, plant.coordinates, "coordinate", problems, "realism", field)
        return (*cast(Any, each.q), *cast(Any, each.v))


@dataclass(frozen=True)
class SceneFile(Rules):
    """A scene of MuJoCo that moves in place of the plant: exactly one of mjcf, urdf."""

    mjcf: FileName | None = described(None, "MJCF file, relative to the config's folder; needs mujoco")
    urdf: FileName | None = described(None, "URDF that MuJoCo reads, relative to the config's folder")

    @rule
    def _exactly_one(self) -> Broken:
        kinds = self.given(("mjcf", "urdf"))
        if len(kinds) != 1:
            yield (), f"expected exactly one of mjcf, urdf, got {' and '.join(kinds) or 'none'}"

    @property
    def kind(self) -> str:
        """The field that is given."""
        return "urdf" if self.mjcf is None else "mjcf"

    @property
    def file(self) -> str:
        """The file of the scene."""
        return str(self.urdf or self.mjcf)


OWN = "the machine of realism.machine has its own (change its file)"

LONGEST_DELAY = 50  # longest delay [periods]; a longer one is most likely a wrong unit


@dataclass(frozen=True)
class Realism(Rules):
    """Effects of a real machine that its model does not have; an effect that is left out is zero."""

    noise: PerCoordinate = described(
        PerCoordinate(), "standard deviation of the measurement noise, white, new at every tick"
    )
    quantisation: PerCoordinate = described(PerCoordinate(), "resolution of the measurements; 0: exact")
    measured: Literal["q", "q and v"] = described(
        "q and v", "q: the law gets positions alone, and speeds by estimation; without that section by differences"
    )
    delay: Time = described(0.0, "time from a measurement to the torque computed from it [s]")
    jitter: Time = described(0.0, "largest random delay that is added to each command, uniform [s]; at most one period")
    lag: PerName[Lag] = described(
        0.0, "time constant of the actuators' torque [s]: one for all, list in the plant's order, or by name"
    )
    friction: Friction | None = described(
        None,
        "friction at the actuators, unknown to the law; if given, it takes the place of plant.friction "
        "in the simulated plant",
    )
    saturation: ScalarOr[Positive, dict[str, Limit]] | None = described(
        None,
        "largest torques of the actuators [actuator units]: one number for all, or actuator -> "
        "symmetric limit or [lower, upper]; the law knows only law.limits",
    )
    parameter_error: Annotated[
        ByPath[OneOrEach[RelativeError]],
        Field(
            description="plant parameter -> e [-]: the simulated plant has (1 + e) times the law's value; a list has "
            "one e per entry of a parameter that is a list",
            json_schema_extra={"default": {}},
        ),
    ] = field(default_factory=dict)
    machine: SceneFile | None = described(
        None,
        "MuJoCo moves the machine, here and behind emulated drives: joints by the names of "
        "coordinates, motors by the joints that they drive, then by name; a scene without motors gets the torques "
        "at its joints",
    )

    @rule
    def _machine_has_its_own(self) -> Broken:
        if self.machine is not None and self.friction is not None:
            yield ("friction",), OWN
        if self.machine is not None and self.parameter_error:
            yield ("parameter_error",), OWN

    @outer_rule
    def _needs_a_period(self, config: Any, at: FieldPath) -> Broken:
        if config.run.period is None and (self.machine is None or config.hil is None):
            yield at, "needs run.period (realism is for sampled laws: give run.period [s])"
        if self.machine is not None and config.hil is not None and config.hil.emulation.parameters:
            yield ("hil", "emulation", "parameters"), OWN

    @outer_rule
    def _late_by_few_periods(self, config: Any, at: FieldPath) -> Broken:
        period = config.run.period
        if period is not None and self.delay > LONGEST_DELAY * period:
            cycles = f"{self.delay:g} s is {self.delay / period:.4g} periods of {period:g} s"
            yield (*at, "delay"), f"{cycles} (expected at most {LONGEST_DELAY}; is the unit right? 5*ms)"

    @outer_rule
    def _commands_in_order(self, config: Any, at: FieldPath) -> Broken:
        period = config.run.period
        if period is not None and self.jitter > period * (1 + 1e-9):
            longer = f"{self.jitter:g} s is longer than run.period, {period:g} s"
            yield (*at, "jitter"), f"{longer} (commands would overtake each other)"

    def ready(self, plant: Plant, period: float, problems: Notes) -> "Channels":
        """Measurement, delay and actuators, without friction and parameter errors; notes names that do not exist.

        Args:
            period: Of the law [s].
        """
        noise, resolution = (getattr(self, each).ready(plant, problems, each) for each in ("noise", "quantisation"))
        lag = one_per_name(self.lag, plant.actuators, "actuator", problems, "realism", "lag")
        named, others = (self.saturation, None) if isinstance(self.saturation, Mapping) else ({}, self.saturation)
        for wrong in [name for name in named if name not in plant.actuators]:
            problems.add(no_such("actuator", wrong, plant.actuators), "realism", "saturation", wrong)
        limits = [limit_pair(named.get(name, math.inf if others is None else others)) for name in plant.actuators]
        lower, upper = ([limit[side] for limit in limits] for side in (0, 1))
        timing = Timing.of(period, plant.actuators, self.delay, self.jitter, lag.tolist(), lower, upper)
        return Channels(noise, resolution, timing, any(noise) or self.jitter > 0.0)


@dataclass(frozen=True)
class Channels:
    """Measurement and timing of a sampled run with n coordinates and m actuators."""

    noise: tuple[float, ...]  # standard deviation of the measurements: of q, then of v, shape (2n,)
    resolution: tuple[float, ...]  # resolution of the measurements, in the same order; 0: exact
    timing: Timing  # of the loop
    random: bool  # whether anything is random

    @property
    def deviation(self) -> Array:
        """Standard deviation of the measured positions, noise and resolution together, shape (n,)."""
        white, step = (np.split(np.array(each), 2)[0] for each in (self.noise, self.resolution))
        sigma: Array = np.sqrt(white**2 + step**2 / 12.0)
        return sigma

    @property
    def parameters(self) -> Array:
        """All numbers, in the order of the enum in `engine/c/realism.h`."""
        of = self.timing
        return np.array([*self.noise, *self.resolution, *of.lag, *of.lower, *of.upper, of.delay, of.jitter, of.h])

    @property
    def layout(self) -> DelayLayout:
        """Sizes of measurement, delays and lags."""
        of = self.timing
        return DelayLayout(len(self.noise) // 2, len(of.actuators), of.earliest, of.latest, of.lagging, self.width)

    @property
    def carried(self) -> int:
        """Size of the state that a run has besides q, v and memory: lagging torques, then commands on their way."""
        return self.layout.carried

    @property
    def width(self) -> int:
        """Random numbers per tick: one per coordinate, one per velocity, one for the jitter; 0 if nothing is random."""
        return (len(self.noise) + 1) * self.random

    def measured(self, x: Array, w: Array) -> Array:
        """Measurement of q and v, shape (2n,), or (rows, 2n); w is a row of `tick_noise`, or as many."""
        noisy = x + np.array(self.noise) * w[..., :-1] if self.random else x
        step = np.array(self.resolution)
        exact = step <= 0.0
        return np.where(exact, noisy, quantised(noisy, np.where(exact, 1.0, step)))

    def sent(self, carried: Array, u: Array, w: Array) -> Array:
        """Commands that act in this period, the newest first, each followed by its delay, shape (latest + 1, m + 1).

        Args:
            carried: Lagging torques and earlier commands, shape (carried,).
            u: Command of this tick, shape (m,).
            w: Random numbers of this tick.
        """
        timing, m = self.timing, len(self.timing.actuators)
        late = timing.delay + (timing.jitter * w[-1] if self.random else 0.0)
        newest = np.append(timing.limited(u), late)
        return np.vstack([newest, carried[m * timing.lagging :].reshape(timing.latest, m + 1)])

    def stretches(self, sent: Array, h: float) -> list[tuple[float, float, Array]]:
        """Parts of a period of length h with one command each: begin, end [s], command (m,)."""
        ages = range(self.timing.latest, self.timing.earliest - 1, -1)
        begins = [0.0] + [min(max(float(sent[age, -1]) - age * self.timing.h, 0.0), h) for age in ages[1:]]
        return [(begin, end, sent[age, :-1]) for age, begin, end in zip(ages, begins, [*begins[1:], h], strict=True)]

    def lagging(self, torque: Array, u: Array, elapsed: float) -> Array:
        """Torque after a time [s] under the command u, from `torque`."""
        later: Array = u + (torque - u) * remaining(elapsed, np.array(self.timing.lag))
        return later

    def mean(self, torque: Array, u: Array, elapsed: float) -> Array:
        """Mean torque over a time [s] under the command u, from `torque`."""
        lag = np.array(self.timing.lag)
        mean: Array = u + (torque - u) * lag / elapsed * (1.0 - remaining(elapsed, lag))
        return mean


_WORDS = 4  # numbers per count of Philox 4x64


def tick_noise(seed: int, first: int, count: int, coordinates: int) -> Array:
    """Random numbers of some ticks.

    Args:
        seed: Seed of the run, an integer >= 0; taken modulo 2^128.
        first: First tick.
        count: Number of ticks.
        coordinates: Number of the plant's coordinates.

    Returns:
        Per tick a standard normal for each coordinate, one for each velocity, and one uniform number in (0, 1), shape
        (count, 2 coordinates + 1).
    """
    blocks = -(-(2 * coordinates + 1) // _WORDS)
    source = np.random.Philox(key=seed % 2**128)
    source.advance(first * blocks)
    raw = source.random_raw(count * blocks * _WORDS).reshape(count, blocks * _WORDS)
    uniform = ((raw[:, : 2 * coordinates + 1] >> np.uint64(11)) + 0.5) * 2.0**-53
    radius = np.sqrt(-2.0 * np.log(uniform[:, :coordinates]))
    angle = 2.0 * np.pi * uniform[:, coordinates:-1]
    return np.hstack([radius * np.cos(angle), radius * np.sin(angle), uniform[:, -1:]])
