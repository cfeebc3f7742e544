"""Friction and brakes of the emulated machine, and the ramp of a drive that brakes by itself."""

import numpy as np
import pytest

from hil.assembly.emulation import make_emulator
from hil.assembly.prepare import load
from hil.emulator.contacts import Loads
from hil.emulator.node import EmulatedDrive
from hil.emulator.plant import SimulatedPlant
from servoctl.config.hil import Emulation
from servoctl.errors import ConfigError
from servoctl.types import Array, State
from tests.hil.emulation import MILLISECOND, Axes, bench, drive_settings, system_of
from tests.hil.rigs import RACK, RIGS, lift, play


def axes(coulomb: float = 0.0, viscous: float = 0.0, m: float = 2.0, g: float = 0.0, v: float = 1.0) -> SimulatedPlant:
    start = State(0.0, np.zeros(2), np.array([v, 0.0]))
    options = Emulation(current_lag=0.0, coulomb_friction=coulomb, viscous_friction=viscous)
    return SimulatedPlant(system_of(Axes(m=m, weight=g), start), start, MILLISECOND, "vm", options)


def test_friction_is_stable_on_the_lightest_joint() -> None:
    plant = axes(viscous=0.5, coulomb=0.1, m=1e-6)  # its time constant is 2 us, the step 1 ms
    q, v = plant.state(50 * MILLISECOND)
    assert v[0] == 0.0 and abs(q[0]) < 0.001  # it stands within the first step
    plant.command(0, 0.6, 50 * MILLISECOND)
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
    plant.command(0, -0.2, 5000 * MILLISECOND)  # 0.1 N more than friction holds
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
