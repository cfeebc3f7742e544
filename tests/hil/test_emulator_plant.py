"""The machine behind emulated drives: the same motion as in a simulation, brakes that hold, actuators that lag.

Its friction, and the ramp of a drive that brakes by itself.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

import servoctl as sc
from hil.assembly.emulation import make_emulator
from hil.assembly.prepare import load
from hil.emulator.contacts import Loads
from hil.emulator.motor import Encoder
from hil.emulator.node import EmulatedDrive
from hil.emulator.plant import SimulatedPlant
from plants.coordinated_robots import CoordinatedRobots
from plants.scara import Scara
from servoctl.assembly.make import make_system
from servoctl.config.hil import Emulation
from servoctl.config.plant import PASSIVE_CORRECTION
from servoctl.errors import ConfigError, PlantError
from servoctl.mechanics.timing import Timing
from servoctl.simulation.realism import Channels
from servoctl.simulation.system import PassiveStabilisation
from servoctl.types import Array, State
from tests.hil.emulation import MILLISECOND, Axes, Clockwork, bench, drive_settings, system_of
from tests.hil.rigs import RACK, RIGS, lift, play

START = State(0.0, np.array([1.0, -1.0, 0.0, 1.0, -1.0]) * np.pi / 3, np.zeros(5))


class Explosive(Axes):
    """Axes whose speed runs away within 10 ms."""

    def force(self, q: Array, v: Array, t: float) -> Array:
        return 100.0 * v**3


class Damped(Axes):
    """Axes in oil: a speed decays within a fraction of a millisecond."""

    def force(self, q: Array, v: Array, t: float) -> Array:
        return -7000.0 * v


def robots(projection: bool = False) -> SimulatedPlant:
    system = make_system(CoordinatedRobots(), {}, None, {}, START, PASSIVE_CORRECTION, 1e-6, projection)
    return SimulatedPlant(system, START, MILLISECOND, "vm", Emulation(current_lag=0.0))


def test_under_held_torques_it_moves_as_a_simulation_does() -> None:
    plant = robots()
    torques = [3.0, -1.0, 0.5, 2.0, 1.0, -3.0]
    for index, torque in enumerate(torques):
        plant.actuators[index].command(torque, 0)
    names = list(CoordinatedRobots().actuators)
    inputs = {name: repr(torque) for name, torque in zip(names, torques, strict=True)}
    known = sc.simulate(CoordinatedRobots(), {}, None, q=START.q, duration=0.2, step=0.001, inputs=inputs, engine="vm")
    q, v = plant.state(200 * MILLISECOND)
    assert np.abs(q - known.q[-1]).max() < 1e-9
    assert np.abs(v - known.v[-1]).max() < 1e-9


def test_an_emulated_actuator_and_a_simulated_one_lag_alike() -> None:
    realism = Channels((0.0, 0.0), (0.25, 0.25), Timing.of(0.01, ["F"], lag=0.01), random=False)
    (actuator, *_), torque = axes(lag=0.01).actuators, np.zeros(1)
    for k, command in enumerate((2.0, -1.0, 0.5)):
        actuator.command(command, 3 * k * MILLISECOND)
        torque = realism.lagging(torque, np.array([command]), 0.003)
        assert actuator.torque(3 * (k + 1) * MILLISECOND) == pytest.approx(torque[0], rel=1e-15)


def test_between_two_steps_the_state_is_as_accurate_as_at_them() -> None:
    # a constant force on a free mass: q is a parabola, which every Runge-Kutta step meets exactly
    start = State(0.0, np.zeros(2), np.zeros(2))
    plant = SimulatedPlant(system_of(Axes(m=2.0), start), start, MILLISECOND, "vm", Emulation(current_lag=0.0))
    plant.actuators[0].command(3.0, 0)
    for moment in (300_000, 1_234_567, 7_999_999):
        t = moment / 1e9
        q, v = plant.state(moment)
        assert q[0] == pytest.approx(3.0 / 2.0 * t**2 / 2, rel=1e-12)
        assert v[0] == pytest.approx(3.0 / 2.0 * t, rel=1e-12)


def test_what_decays_within_a_step_decays() -> None:
    start = State(0.0, np.zeros(2), np.ones(2))
    plant = SimulatedPlant(system_of(Damped(m=1.0), start), start, MILLISECOND, "vm", Emulation(current_lag=0.0))
    q, v = plant.state(10 * MILLISECOND)
    np.testing.assert_allclose(q, 1 / 7000, rtol=0.02)
    np.testing.assert_allclose(v, 0.0, atol=1e-4)


def test_a_machine_that_no_step_is_short_enough_for_is_refused() -> None:
    start = State(0.0, np.zeros(2), np.ones(2))
    plant = SimulatedPlant(system_of(Damped(m=1e-3), start), start, MILLISECOND, "vm", Emulation(current_lag=0.0))
    assert plant.step == pytest.approx(2.5e9 / 7e6, rel=0.01)
    for mass in (1e-4, 1e-6, 1e-9):
        with pytest.raises(PlantError, match=r"too stiff: it has a pole beyond 2\.5e\+07 1/s at its start"):
            SimulatedPlant(system_of(Damped(m=mass), start), start, MILLISECOND, "vm", Emulation(current_lag=0.0))


def test_an_actuator_lags_by_its_time_constant() -> None:
    actuator, *_ = axes(lag=0.001).actuators
    actuator.command(2.0, 0)
    assert actuator.torque(1_000_000) == pytest.approx(2.0 * (1 - math.exp(-1)), rel=1e-12)
    for engine in ("numpy", "vm"):
        # the mean of 1 - exp(-t) over the first time constant is exp(-1): it moves 2 kg by an impulse of so much
        start = State(0.0, np.zeros(2), np.zeros(2))
        plant = SimulatedPlant(system_of(Axes(m=2.0), start), start, MILLISECOND, engine, Emulation(current_lag=0.001))
        plant.actuators[0].command(2.0, 0)
        assert plant.state(1_000_000)[1][0] == pytest.approx(2.0 * math.exp(-1) * 0.001 / 2.0, rel=1e-12)
        assert plant.actuators[0].torque(1_000_000) == pytest.approx(2.0 * (1 - math.exp(-1)), rel=1e-12)
        assert plant.actuators[0].torque(2_000_000) == pytest.approx(2.0 * (1 - math.exp(-2)), rel=1e-12)


def test_an_actuator_limits_and_reports_saturation() -> None:
    actuator, *_ = axes().actuators
    actuator.limit = 1.0
    for asked, made, saturated in ((0.3, 0.3, False), (1.0, 1.0, False), (-7.0, -1.0, True), (math.nan, 0.0, False)):
        actuator.command(asked, 0)
        assert (actuator.torque(0), actuator.saturated) == (made, saturated)


def test_brakes_on_every_motor_hold_a_falling_machine_exactly() -> None:
    plant = robots()
    for index in range(6):
        plant.brake(index, True, 0)
    q, v = plant.state(10_000 * MILLISECOND)
    assert plant._asleep
    assert np.array_equal(q, START.q) and not v.any()
    plant.brake(0, False, 10_000 * MILLISECOND)
    q, v = plant.state(10_100 * MILLISECOND)  # five motors hold three freedoms as well
    assert plant._asleep
    assert np.array_equal(q, START.q) and not v.any()


def test_a_machine_with_a_memory_of_its_own_goes_on_while_it_rests() -> None:
    start, machine = State(0.0, np.array([0.1, 0.2]), np.zeros(2)), Clockwork()
    plant = SimulatedPlant(replace(system_of(Axes(), start), machine=machine), start, MILLISECOND, "vm")
    for index in range(2):
        plant.brake(index, True, 0)
    plant.advance(100 * MILLISECOND)
    assert plant._asleep and machine.elapsed == pytest.approx(0.1)


def test_brakes_hold_as_many_freedoms_as_they_can() -> None:
    start = State(0.0, np.array([0.1, 0.2]), np.zeros(2))
    plant = SimulatedPlant(system_of(Axes(weight=5.0), start), start, MILLISECOND, "vm")
    plant.brake(1, True, 0)
    q, _ = plant.state(100 * MILLISECOND)
    assert q[1] == pytest.approx(0.2, abs=1e-12)
    assert q[0] == pytest.approx(0.1 - 2.5 * 0.1**2 / 2, rel=1e-9)


def test_a_brake_that_closes_at_speed_acts_as_a_plastic_impulse() -> None:
    # M v+ = M v - B p with B^T v+ = 0, the passive rows as they were: least kinetic energy taken (Carnot)
    plant = robots()
    for index, torque in enumerate([5.0, -2.0, 0.0, 1.0, 0.0, 2.0]):
        plant.actuators[index].command(torque, 0)
    moment = 100 * MILLISECOND
    q, v = (array.copy() for array in plant.state(moment))
    plant.brake(0, True, moment)
    after = plant.state(moment)[1]
    robot = CoordinatedRobots()
    M, b = robot.mass_matrix(q, 0.0), robot.actuation(q, 0.0)[:, 0]
    # the loop's rows: sum of l cos and l sin
    A = np.array([-np.sin(q), np.cos(q)])
    saddle = np.block([[M, b[:, None], A.T], [b[None], np.zeros((1, 3))], [A, np.zeros((2, 3))]])
    expected = np.linalg.solve(saddle, np.concatenate([M @ v, [0.0], A @ v]))[:5]
    assert after == pytest.approx(expected, abs=1e-9)
    assert after @ M @ after < v @ M @ v


def test_projection_keeps_the_loop_closed_as_in_a_simulation() -> None:
    plant = robots(projection=True)
    plant.actuators[0].command(5.0, 0)
    q, _ = plant.state(500 * MILLISECOND)
    assert max(abs(np.cos(q).sum() - 3.0), abs(np.sin(q).sum())) < 1e-12


def test_a_state_that_is_not_finite_stops_the_machine_and_records_the_time() -> None:
    start = State(0.0, np.zeros(2), np.ones(2))
    plant = SimulatedPlant(system_of(Explosive(), start), start, MILLISECOND, "vm")
    q, v = plant.state(20 * MILLISECOND)
    assert np.isfinite(q).all() and np.isfinite(v).all()
    assert plant.diverged is not None


def test_motors_of_a_plant_with_varying_actuation_turn_at_its_rates() -> None:
    plant = Scara()
    start = State(0.0, np.array([0.3, -0.5, 0.2, 0.1]), np.array([0.1, 0.2, -0.3, 0.05]))
    system = make_system(plant, {}, None, {}, start, None, 1e-6)
    machine = SimulatedPlant(system, start, MILLISECOND, "vm")
    first, second = (machine.motion(moment)[0].copy() for moment in (0, 100_000))
    assert np.subtract(second, first) / 1e-4 == pytest.approx(machine.motion(50_000)[1], abs=1e-3)


def test_an_encoder_shows_resolution_sign_gear_and_offset() -> None:
    start = State(0.0, np.array([0.5, 0.0]), np.array([2.0, 0.0]))
    plant = SimulatedPlant(system_of(Axes(), start), start, MILLISECOND, "vm")
    settings = drive_settings("odrive")
    exact = Encoder(plant, settings, 0, 0)
    # motor = sign (x - offset) gear
    assert exact.read(0) == pytest.approx((-1 * (0.5 - 0.25) * 2.0, -1 * 2.0 * 2.0))
    moment = 10 * MILLISECOND
    coarse = Encoder(plant, settings, 0, 0, resolution=0.1)
    assert coarse.read(moment)[0] == pytest.approx(-0.5, abs=1e-12)  # of -0.54
    noisy = [Encoder(plant, settings, 0, seed, noise=0.01) for seed in (1, 1, 2)]
    first, same, other = (encoder.read(moment)[0] for encoder in noisy)
    assert first == same != other


def test_the_plant_uses_the_stabilisation_of_the_system() -> None:
    system = make_system(CoordinatedRobots(), {}, None, {}, START, PASSIVE_CORRECTION, 1e-6)
    assert isinstance(system.passive, PassiveStabilisation)
    plant = SimulatedPlant(system, START, MILLISECOND, "numpy", Emulation(current_lag=0.0))
    compiled = robots()
    for each in (plant, compiled):
        each.actuators[0].command(2.0, 0)
    assert plant.state(20 * MILLISECOND)[0] == pytest.approx(compiled.state(20 * MILLISECOND)[0], abs=1e-12)


def axes(
    coulomb: float = 0.0, viscous: float = 0.0, m: float = 2.0, g: float = 0.0, v: float = 1.0, lag: float = 0.0
) -> SimulatedPlant:
    start = State(0.0, np.zeros(2), np.array([v, 0.0]))
    options = Emulation(current_lag=lag, coulomb_friction=coulomb, viscous_friction=viscous)
    return SimulatedPlant(system_of(Axes(m=m, weight=g), start), start, MILLISECOND, "vm", options)


def test_friction_is_stable_on_the_lightest_joint() -> None:
    plant = axes(viscous=0.5, coulomb=0.1, m=1e-6)  # its time constant is 2 us, the step 1 ms
    q, v = plant.state(50 * MILLISECOND)
    assert v[0] == 0.0 and abs(q[0]) < 0.001  # it stands within the first step
    plant.actuators[0].command(0.6, 50 * MILLISECOND)
    assert plant.state(100 * MILLISECOND)[1][0] == pytest.approx((0.6 - 0.1) / 0.5, rel=1e-6)


def test_viscous_friction_follows_its_exponential() -> None:
    plant = axes(viscous=4.0)  # v = exp(-2 t)
    q, v = plant.state(500 * MILLISECOND)
    assert v[0] == pytest.approx(np.exp(-1.0), rel=2e-3)  # first order: 2 1/s times a step of 1 ms
    assert q[0] == pytest.approx((1 - np.exp(-1.0)) / 2, rel=2e-3)


def test_dry_friction_holds_a_joint_for_good_below_its_size() -> None:
    plant = axes(coulomb=4.0, g=3.9, v=0.0)
    q, v = plant.state(5000 * MILLISECOND)
    assert not q.any() and not v.any()
    plant.actuators[0].command(-0.2, 5000 * MILLISECOND)  # 0.1 N more than friction holds
    assert plant.state(5100 * MILLISECOND)[1][0] == pytest.approx(-0.1 / 2.0 * 0.1, rel=1e-6)


def test_a_brake_slides_with_its_torque_and_then_holds_where_it_stands() -> None:
    plant = axes(g=5.0)
    plant.brake(0, True, 0, strength=15.0)
    # 15 N against 1 m/s of 2 kg and 5 N of weight upwards: -10 m/s^2
    assert plant.state(50 * MILLISECOND)[1][0] == pytest.approx(1.0 - 10.0 * 0.05, rel=1e-3)
    q, v = (array.copy() for array in plant.state(200 * MILLISECOND))
    assert v[0] == pytest.approx(0.0, abs=1e-12) and q[0] == pytest.approx(1.0 / 20.0, abs=1e-3)
    assert plant.state(2000 * MILLISECOND)[0][0] == pytest.approx(q[0], abs=1e-12)
    plant.brake(0, False, 2000 * MILLISECOND, strength=15.0)
    assert plant.state(2100 * MILLISECOND)[1][0] == pytest.approx(-2.5 * 0.1, rel=1e-6)


@pytest.mark.parametrize("name", ["A", "S cia402", "V rack"])
def test_drives_brake_by_themselves_down_a_ramp_and_hold_any_joint(name: str) -> None:
    setup = load(RIGS[name].config, RIGS[name].overrides, "vm")
    emulator = make_emulator(setup, "vm")
    drives = [drive for drive in emulator.nodes.values() if isinstance(drive, EmulatedDrive)]
    speeds = np.array([0.6 * drive.settings.speed_limit * (-1) ** k for k, drive in enumerate(drives)])
    for drive in drives:
        drive.motor.enable(0.0)
    emulator.plant._x[emulator.plant.model.n :] = speeds
    for drive in drives:
        drive.brake_down(None)

    def motion(milliseconds: int) -> tuple[np.ndarray, np.ndarray]:
        emulator.clock.sleep_until(emulator.clock.now() + milliseconds * MILLISECOND)
        positions, rates = emulator.plant.motion(emulator.world.now)
        return np.array(positions), np.array(rates)

    # 0.25 s from the speed limit: two thirds are left after 50 ms, nothing after 150 ms; the current loop takes 1 ms
    assert motion(50)[1] == pytest.approx(speeds * 2 / 3, rel=0.05)
    assert np.abs(motion(150)[1]).max() < 0.01 * np.abs(speeds).max()
    where = motion(300)[0]
    assert motion(500)[0] == pytest.approx(where, abs=1e-4)


def test_a_motor_without_torque_is_on_for_its_drive_and_off_in_truth() -> None:
    played = play(lift(RACK), faults=[{"kind": "no_torque", "drive": "F", "at": 0.5}])
    t = played["t"]
    lost = t > t[np.argmax(played["task_time"] >= 0.5)] + 0.01  # the run stops by then
    assert (played["true_on.F"][lost] == 0).all() and np.abs(played["true_u.F"][lost]).max() < 1e-3
    drive = play(lift(RACK), faults=[{"kind": "torque_constant", "drive": "F", "at": 0.5, "factor": -1}])
    row = np.argmax(drive["task_time"] > 0.505)
    assert drive["true_u.F"][row] < -300 and drive["torque.F"][row] > 300  # the drive measures its current


@pytest.mark.parametrize(("kind", "held"), [("brake_stuck", True), ("brake_worn", False)])
def test_a_brake_may_be_stuck_or_worn(kind: str, held: bool) -> None:
    settings = drive_settings("cia402", brake=True)
    host = bench(settings, plant=Axes(weight=5.0), faults=[{"kind": kind, "drive": "a", "since": "power_on"}])
    host.collect(1.0)
    motor = host.node.motor
    motor.enable(0.0)
    host.collect(100.0)
    motor.disable()
    host.collect(200.0)
    assert motor.braked is held and bool(host.emulator.state[1][0]) is not held


def test_braking_raises_a_common_supply_until_it_trips_all_drives_unless_a_resistor_takes_the_energy() -> None:
    """40 kg come down by 0.4 m, at 0.3 m/s: 118 W for 2 s; 5 mF take 3.2 J from 48 to 60 V."""
    supply = "hil.emulation.supply={voltage: 48, capacitance: 0.005, trip: 60}"
    tripped = play(lift(RACK, brake_time=0.1), supply, duration=4)
    fault = next(event for event in tripped.events if event.kind.name == "DRIVE_FAULT")
    assert "DC link over-voltage" in fault.detail and tripped.exit_code == 3
    down = tripped["true_v.x"] < -0.01
    energy = 40 * 9.81 * (tripped["true_q.x"].max() - tripped["true_q.x"][np.flatnonzero(tripped["true_on.F"])[-1]])
    assert down.any() and energy == pytest.approx(0.005 / 2 * (60**2 - 48**2), rel=0.2)  # the kinetic energy is less
    assert play(lift(RACK), supply, "hil.emulation.supply.resistor=20", duration=4).exit_code == 0
    with pytest.raises(ConfigError, match=r"hil.emulation.supply: trip 40 V is not above voltage 48 V"):
        play(lift(RACK), "hil.emulation.supply={trip: 40}")


def test_drives_that_brake_share_the_terms_of_a_millisecond() -> None:
    """Each drive acts at its own times in the period: terms for each of them took longer than the period."""
    asked: list[int] = []

    def terms(now: int) -> tuple[Array, ...]:
        asked.append(now)
        return np.eye(2), np.eye(2), np.zeros((0, 2)), np.zeros(2)

    loads = Loads(terms, lambda now: np.zeros(2))
    for now in (0, 200_000, 999_999, 1_000_000, 1_500_000):
        assert loads.torque(now // 200_000 % 2, 3.0, now) == pytest.approx(3.0)
        assert loads.inertia(0, now) == pytest.approx(1.0)
    assert asked == [0, 1_000_000]
