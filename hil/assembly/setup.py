"""Everything that a run on drives needs, and the states of its task by the model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hil.assembly.live_gains import LiveGains
from hil.assembly.settings import HilSettings
from hil.core.controller import Controller
from hil.drives.base import Drive, Node
from hil.safety import SafetyBounds
from hil.safety.plan import Phase, RunPlan
from hil.safety.proof import ProofPlan
from hil.safety.rules import Rule
from hil.safety.torques import FASTEST_POLE, Guiding
from hil.safety.watchdog_test import WatchdogTest
from hil.sensing.motion import GravityCompensation, Hold, Prediction, StaticBalance, falls_without_torque, task_errors
from hil.sensing.sensing import Sensing
from servoctl.assembly.make import make_run
from servoctl.assembly.run import Run
from servoctl.check.bound_path import task_state
from servoctl.config.hil import Hil
from servoctl.config.load import LoadedConfig
from servoctl.errors import ConfigError, ServoctlError
from servoctl.mechanics.actuator_parameters import FIELD as ROTORS
from servoctl.mechanics.actuator_parameters import armature_of
from servoctl.mechanics.friction import friction_of
from servoctl.mechanics.model import Model
from servoctl.mechanics.plant import Plant
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.system import System
from servoctl.types import Array, State

ENGAGE_TIME = 1e-9  # Task time at which the task is engaged [s]. At 0 a path that starts to move still has speed 0.

DELAY_SHARE = 0.3
"""Largest rate of a controlled stop times the delay of its feedback; from 1/e the speed overshoots zero."""

TICKS = 3000  # ticks in which the law is followed on the model; what comes later in the task is found by geometry
TICKS_IN_NUMPY = 200  # the same for a plant that cannot be compiled

POSES = 32  # poses of the task, or of the range of the joints, that are judged

QUARTER = 0.01  # [s] shortest time for which a torque of the test in stage zero keeps its sign
BLUR = 0.02  # [s] time over which a speed by an encoder shows one of its steps
TURN, TRAVEL = 0.005, {"m": 0.001}  # largest motion of a test: of a joint that turns [rad], and by unit

HEADROOM = 1.5  # while a hand guides, each drive may make at least this times the torque that holds the start pose

GRIP = 0.005
"""Torque at which the machine gives way to a hand [share of torque_limit]; two steps of the torque if that is more."""


def sample_errors(values: Hil, nodes: Sequence[Node]) -> tuple[Array, Array]:
    """Largest errors of displacements [joint unit] and rates [joint unit/s] of nodes, shape (nodes,) each."""
    # three standard deviations at the motor, divided by the gear for the joint
    noise = np.array([3.0 * values.emulation.encoder_noise / node.settings.gear for node in nodes])
    steps = np.array([node.quantum()[:2] for node in nodes])
    positions = steps[:, 0] / 2 + noise
    differenced = 2.0 * positions / values.period
    measured = steps[:, 1] / 2 + noise / values.period  # NaN: the node sends no velocity
    if values.velocity == "filter":
        return positions, differenced
    return positions, np.where(np.isnan(measured), differenced, measured)


@dataclass(frozen=True)
class RigSetup:
    """Everything that a run on drives needs."""

    run: Run  # law, plant and task, as for a simulation
    settings: HilSettings  # section `hil` of the config, checked
    start: State  # start pose, at rest
    drives: tuple[Drive, ...]  # in the order of the plant's actuators
    sensors: tuple[Node, ...]  # encoder nodes
    sensing: Sensing  # computes q and v from samples
    prediction: Prediction  # predicts the state at which a torque acts
    gravity_compensation: GravityCompensation  # computes the torques that hold a pose
    rules: tuple[Rule, ...]  # what is judged at every tick
    live_gains: LiveGains  # gains that the operator may change
    warnings: tuple[str, ...]  # on the config and its simulation; `prepare.notes_on` has all notes

    @property
    def loaded(self) -> LoadedConfig:
        assert self.run.loaded is not None
        return self.run.loaded

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Drives, then encoder nodes."""
        return *self.drives, *self.sensors

    @property
    def bounds(self) -> SafetyBounds:
        """Limits beyond which an event is reported."""
        return SafetyBounds(self.settings.values.period, self.settings.values.safety)

    @cached_property
    def hold(self) -> Hold:
        """What holds the start pose."""
        return self.gravity_compensation(self.start.t, self.start.q)

    @cached_property
    def balance(self) -> StaticBalance:
        """How the machine moves from rest without torque."""
        return self.balance_with(())

    def balance_with(self, braked: Sequence[int]) -> StaticBalance:
        """The same with closed brakes of the drives with these numbers."""
        start, tolerance = self.start, self.run.system.passive.rank_tolerance
        return falls_without_torque(self.model, start.t, start.q, tolerance, braked)

    @property
    def loop(self) -> Loop:
        return self.run.loop

    @property
    def model(self) -> Model:
        """The plant with its task."""
        return self.run.system.model

    @property
    def plant(self) -> Plant:
        return self.model.plant

    @cached_property
    def simulated(self) -> System:
        """The plant behind emulated drives: that of the model, with the parameters and the friction of `hil.emulation`.

        Raises ConfigError if the plant refuses these parameters.
        """
        values = self.settings.values.emulation
        rotors = dict.fromkeys(self.plant.actuators, 0.0)
        rotors |= zip(rotors, armature_of(self.plant) or (), strict=False)
        overrides = []
        for name, value in values.parameters.items():
            if name.startswith(f"{ROTORS}."):
                rotors[name.removeprefix(f"{ROTORS}.")] = value
            else:
                overrides.append(f"plant.parameters.{name}={value}")
        if len(overrides) < len(values.parameters):
            overrides.append(f"plant.armature={rotors}")
        if friction_of(self.plant) is not None and (values.coulomb_friction or values.viscous_friction):
            overrides.append("plant.friction=")  # the drives' friction is all that the machine has
        if not overrides:
            return self.run.system
        try:
            return make_run(self.loaded.overridden(overrides), "vm", strict=False, waiting=True).system
        except ServoctlError as error:
            raise ConfigError(f"hil.emulation.parameters: {error}") from error

    @property
    def units(self) -> tuple[str, ...]:
        """Units of the displacements of the drives' joints, then of those of encoder nodes."""
        return self.sensing.displacements.units

    @cached_property
    def torque_limits(self) -> Array:
        """Of the drives, shape (m,) [actuator units]."""
        return np.array([drive.torque_limit for drive in self.settings.drives])

    @cached_property
    def speed_limits(self) -> Array:
        """Of the drives, shape (m,) [joint units/s]."""
        return np.array([drive.speed_limit for drive in self.settings.drives])

    def positions(self, q: Array) -> Array:
        """Displacements of the drives' joints at a pose, shape (m,) [joint units]."""
        return self.sensing.displacements(self.plant, q)[: len(self.drives)]

    def speeds(self, state: State) -> Array:
        """Speeds of the drives' joints in a state, shape (m,) [joint units/s]."""
        return self.sensing.displacements.rates(self.plant, state.q, state.v, state.t)[: len(self.drives)]

    def beyond_limits(self, state: State) -> str:
        """The first joint that is beyond the limits of its drive, and how far; empty: none is."""
        if not (np.isfinite(state.q).all() and np.isfinite(state.v).all()):
            return "the law, or the model, has no numbers any more"
        motions = zip(self.settings.drives, self.positions(state.q), self.speeds(state), self.units, strict=False)
        for drive, y, rate, unit in motions:
            lower, upper = drive.position_limits
            if not lower <= y <= upper:
                return f"{drive.name} is beyond its position_limits, {y:.4g} {unit}"
            if abs(rate) > drive.speed_limit:
                return f"{drive.name} is faster than its speed_limit, {abs(rate):.4g} {unit}/s"
        return ""

    @property
    def task_states(self) -> list[State]:
        """States of the model in the task, the start first: while the law does it, then nearest to those before.

        They end where a run would: where the law has no torque, or a joint is beyond its limits.
        """
        return self._through_task[0]

    @property
    def task_end(self) -> str:
        """Why and when they end before the task does; empty: they do not."""
        return self._through_task[1]

    @cached_property
    def _through_task(self) -> tuple[list[State], str]:
        states = [self.start]
        for state in self._later_states():
            if beyond := self.beyond_limits(state):
                return states, f"{beyond} at t = {state.t:.4g} s"
            states.append(state)
        return states, ""

    def _later_states(self) -> Iterator[State]:
        """States of the model in the task after the start."""
        duration, period = self.run.settings.duration, self.settings.values.period
        ticks = int(duration / period)
        count = min(ticks, TICKS if self.model.opaque is None else TICKS_IN_NUMPY)
        controller, limits, q, v = Controller(self.run.loop), self.torque_limits, self.start.q, self.start.v
        for k in range(count):
            t = k * period
            torques = np.clip(controller.command(t, q, v), -limits, limits)
            controller.remember(period)
            controller.sent(torques)
            q, v = self.prediction(t, period, q, v, torques)
            if (k + 1) % max(1, count // POSES) == 0 or not np.isfinite(torques).all():
                yield State(t + period, q, v)
        done, rest = count * period, duration - count * period
        more = 0 if count == ticks else min(POSES, int(POSES * rest / done))
        if not more:  # states of both kinds that are near each other would have speeds that jump
            return
        near: State | None = State(done, q, v)
        for t in np.linspace(done, duration, more + 1)[1:].tolist():
            near = None if near is None else task_state(self.run, near, t)
            if near is not None:
                yield near

    @property
    def seed(self) -> int:
        return self.loaded.config.run.seed

    @property
    def stop_rate(self) -> float:
        """Rate at which speeds decay in a controlled stop [1/s], as fast as the delay of the feedback allows.

        A torque acts for a period, on speeds that are half a period old, or older by their filter.
        """
        filtered = self.sensing.filter_time if self._differenced.any() else 0.0
        return min(FASTEST_POLE, DELAY_SHARE / (1.5 * self.settings.values.period + filtered))

    def task_errors(self, t: float, q: Array, v: Array) -> dict[str, tuple[float, float]]:
        """Task row of priority 1 -> its violation and rate; the rate is NaN where the row has none."""
        system = self.loop.system
        return task_errors(self.model, State(max(t, ENGAGE_TIME), q, v), system.acting.low_priority_rows)

    def _resolved_steps(self) -> dict[str, tuple[float, float]]:
        """Task row -> steps of its violation and of its rate by quantisation and noise, at the start pose.

        Each sample is moved by its error to both sides, which is one step of quantisation. The steps of all add up.
        """
        steps: dict[str, tuple[float, float]] = {}
        (t, q, v), still = self.start, np.zeros(self.model.n)
        inverse = self.sensing.coordinates.inverse(t, q)
        positions, rates = ((inverse * errors).T for errors in sample_errors(self.settings.values, self.nodes))
        for dq, dv in [*((move, still) for move in positions), *((still, move) for move in rates)]:
            above = task_errors(self.model, State(t, q + dq, v + dv))
            below = task_errors(self.model, State(t, q - dq, v - dv))
            for name, pair in above.items():
                step = np.abs(np.subtract(pair, below[name]))
                violation, rate = steps.get(name, (0.0, 0.0))
                steps[name] = violation + float(np.nan_to_num(step[0])), rate + float(np.nan_to_num(step[1]))
        return steps

    @cached_property
    def speed_steps(self) -> Array:
        """Steps in which speeds of drives show, shape (m,) [joint unit/s]: of the wire, or of filtered positions."""
        period = self.settings.values.period
        # a step of position moves the filtered speed by (1 - p)^2 / T: see `c/samples.c`
        filtered = self._visible * (1.0 - np.exp(-2.0 * period / self.sensing.filter_time)) ** 2 / period
        steps: Array = np.where(self._differenced, filtered, self._quanta[1])
        return steps

    @property
    def _differenced(self) -> Array:
        """Whether the speed of each drive follows from its positions, by a filter, shape (m,)."""
        differenced: Array = np.isnan(self._quanta[1]) | self.sensing.filtered
        return differenced

    @property
    def _visible(self) -> Array:
        """Smallest motion that the encoder of each drive shows, shape (m,) [joint units]."""
        return np.array([drive.visible() for drive in self.drives])

    @property
    def _quanta(self) -> Array:
        """Steps of position, velocity and torque on the wire of each drive, shape (3, m)."""
        return np.array([drive.quantum() for drive in self.drives]).T

    @property
    def _travel(self) -> Array:
        """Largest motion of each joint while its drive is tested, shape (m,) [joint units]."""
        return np.array([TRAVEL.get(unit, TURN) for unit in self.units[: len(self.drives)]])

    @cached_property
    def proof(self) -> ProofPlan:
        """How stage zero tests the drives."""
        m, period, friction = len(self.drives), self.settings.values.period, friction_of(self.plant)
        by_positions = bool(self._differenced.any())
        # a filtered speed lags by tau - T/2: see `c/samples.c`
        lag = max(0.0, self.sensing.filter_time - period / 2) if by_positions else 0.0
        return ProofPlan(
            dry=np.zeros(m) if friction is None else np.array(friction.coulomb),
            position_step=self._visible,
            speed_step=np.where(self._differenced, self.speed_steps, np.fmax(self.speed_steps, self._visible / BLUR)),
            torque_step=np.nan_to_num(self._quanta[2]),
            travel=self._travel,
            quarter=max(QUARTER, 4 * period + (4 * period + lag if by_positions else 0.0)),
            units=self.units[:m],
            lag=lag,
            measures_speed=not by_positions,
        )

    @cached_property
    def watchdog_tests(self) -> list[WatchdogTest]:
        """The tests of the drives' watchdogs."""
        loose = {i for i, drive in enumerate(self.drives) if not drive.settings.brake}
        falls = [abs(float(self.hold.let_go([i, *(loose - {i})])[1][0])) for i in range(len(self.drives))]
        parts = self.drives, self.hold.u.tolist(), falls, self._travel.tolist(), self.units
        return [WatchdogTest(*values) for values in zip(*parts, strict=False)]

    def _guiding(self) -> Guiding:
        """How the machine feels in the hand."""
        safety, (_, _, steps) = self.settings.values.safety, self._quanta
        limits = np.maximum(safety.float_torque * self.torque_limits, HEADROOM * np.abs(self.hold.u))
        grip = np.fmax(GRIP * self.torque_limits, 2.0 * steps)
        return Guiding(safety.float_damping, np.minimum(self.torque_limits, limits).tolist(), grip.tolist())

    def plan(self, stage: Phase, duration: float | None) -> RunPlan:
        """The plan for the stages of a run.

        `stage`: last stage. `duration`: time in the last stage [s]; None: that of the config.
        """
        safety, law = self.settings.values.safety, self.loop.system.acting
        guided = stage is Phase.FLOAT
        return RunPlan(
            stage,
            duration=self.run.settings.duration if duration is None else duration,
            safety=safety,
            stop_rate=self.stop_rate,
            stands=self.balance.falls or guided,
            hold=self.gravity_compensation,
            errors=self.task_errors,
            proof=self.proof,
            stops_on=law.stops_on,
            resolved=self._resolved_steps(),
            guiding=self._guiding() if guided else None,
        )
