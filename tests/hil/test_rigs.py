"""The machines that tests of stops and faults run on, and the true columns of their runs."""

import numpy as np
import pytest

from tests.hil.emulation import Axes, bench, drive_settings
from tests.hil.rigs import SCREW, Played, lift, play


@pytest.fixture(scope="module")
def stopped() -> Played:
    return play(lift(SCREW), stop_at=0.5)


def test_a_run_on_emulated_drives_has_the_true_torque_drive_and_brake_as_columns(stopped: Played) -> None:
    holding, full = 40 * 9.81, stopped.rows_in("full")
    assert stopped["true_u.F"][full] == pytest.approx(holding, rel=0.1)
    assert (stopped["true_on.F"][full] == 1).all() and (stopped["true_brake.F"][full] == 0).all()
    waiting = stopped.rows_in("waiting for samples")
    assert (stopped["true_brake.F"][waiting] == 1).all() and (stopped["true_on.F"][waiting] == 0).all()


def test_the_operator_of_a_test_stops_a_run_at_a_time(stopped: Played) -> None:
    assert "interrupted" in stopped.kinds and stopped.exit_code == 130
    assert stopped["task_time"].max() == pytest.approx(0.5, abs=0.0041)  # two ticks


def test_a_brake_closes_after_its_time_while_torque_is_kept() -> None:
    settings = drive_settings("cia402", brake=True)
    host = bench(settings, plant=Axes(weight=5.0))
    motor = host.node.motor
    motor.enable(settings.motor_torque(5.0))
    host.collect(50.0)
    motor.close_brake()
    host.collect(99.0)
    assert motor.enabled and not motor.braked
    host.collect(2.0)
    assert motor.enabled and motor.braked
    before = host.emulator.state[0][0]
    motor.disable()
    host.collect(200.0)
    assert motor.braked and host.emulator.state[0][0] == before
    motor.enable(0.0)
    host.collect(20.0)
    assert not motor.braked and np.isclose(host.emulator.state[1][0], -2.5 * 0.02, rtol=0.1)


def test_a_brake_slows_an_axis_down_before_it_is_closed() -> None:
    settings = drive_settings("cia402", brake=True)
    host = bench(settings, plant=Axes(weight=5.0))
    motor = host.node.motor
    motor.enable(settings.motor_torque(5.5))
    host.collect(50.0)
    motor.close_brake()
    host.collect(74.0)
    before = host.emulator.state[1][0]
    host.collect(10.0)
    assert not motor.braked and 0.0 <= host.emulator.state[1][0] < before


@pytest.mark.parametrize("fault", [{"kind": "stall", "for": 0.02}, {"kind": "encoder_jump", "drive": "F"}])
def test_a_fault_begins_at_its_time_after_power_on_or_after_the_start_of_the_task(fault: dict[str, object]) -> None:
    ended = {}
    for since in ("engaged", "power_on"):
        at = 0.2 if since == "engaged" else 1.2
        played = play("V rack", faults=[{**fault, "at": at, "since": since}], duration=0.5)
        stopping = np.flatnonzero(played.rows_in("stopping") | played.rows_in("disabling"))
        ended[since] = played["t"][stopping[0]], played["t"][np.argmax(played.rows_in("full"))]
    assert ended["engaged"][0] - ended["engaged"][1] >= 0.2 - 0.003
    assert ended["power_on"][0] >= 1.2 - 0.003


@pytest.mark.parametrize("friction", ["viscous_friction", "coulomb_friction"])
def test_friction_at_the_joints_of_an_arm_only_takes_energy(friction: str) -> None:
    """The wrist is the lightest joint: 0.5 N m s/rad stop it within a step of the machine."""
    played = play("AF", f"hil.emulation.{friction}=0.5", "hil.safety.tracking=1000", stop_at=0.3)
    assert played.exit_code == 130 and np.abs(played.group("true_v")).max() < 2.5
    assert np.abs(played.group("true_v")[-1]).max() < 1e-6
