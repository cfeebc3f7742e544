"""Every end goes down the ladder: the loop's torque, the drive's own ramp, the brake while torque is held, off."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from hil.codecs import cia402 as codec
from hil.drives import Condition, Sample
from hil.emulator.emulator import Emulator, ignore
from hil.frame import Frame
from hil.loop import SECOND
from hil.protocols.registry import build
from hil.safety import EventKind
from hil.safety.ladder import Ladder, Rung, longest_ramp
from hil.safety.plan import Phase
from hil.session.notes import preflight
from tests.hil.command_observer import observed
from tests.hil.emulation import MILLISECOND, drive_settings
from tests.hil.rigs import RACK, Played, Rig, lift, play
from tests.hil.test_monitor import Silent, settings

BRAKED = 0.001
"""Most that the vertical axis may move while its brake closes [m]."""


def moved_after(played: Played, stage: str) -> float:
    """Largest true displacement after the first row of a stage [m]."""
    first = int(np.argmax(played.rows_in(stage)))
    height = played["true_q.x"][first:]
    return float(np.abs(height - height[0]).max())


@pytest.fixture(scope="module")
def interrupted() -> Played:
    return play(lift(RACK), stop_at=0.5)


def test_a_vertical_axis_does_not_fall_while_its_brake_closes_after_ctrl_c(interrupted: Played) -> None:
    assert interrupted.exit_code == 130 and not interrupted.unconfirmed
    assert moved_after(interrupted, "braking") < BRAKED
    assert interrupted["true_brake.F"][-1] == 1 and interrupted["true_on.F"][-1] == 0


def test_torque_is_held_until_the_brake_is_closed(interrupted: Played) -> None:
    braking = interrupted.rows_in("braking")
    assert 0.09 <= braking.sum() * 0.002 <= 0.11  # brake_time in periods
    assert (interrupted["true_on.F"][braking] == 1).all()


def test_a_drive_that_still_moves_after_stop_time_stops_by_its_own_ramp_before_it_goes_off() -> None:
    played = play(lift(RACK), "hil.safety.stop_time=0.004", stop_at=0.5)
    speed = np.abs(played["true_v.x"])
    began, off = (int(np.argmax(played.rows_in(stage))) for stage in ("stopping", "disabling"))
    assert played.rows_in("quick stop").any()
    (said,) = (event for event in played.events if event.kind is EventKind.NOT_STOPPED)
    assert str(said).startswith("F: it still moves at the end of stop_time") and "of its speed_limit" in said.detail
    assert speed[began] > 0.19 and speed[off] < 0.05 * speed[began]
    assert moved_after(played, "disabling") < BRAKED


@pytest.mark.parametrize("at", [0.5, 0.505])  # up to v (watchdog and a heartbeat) + v^2 / 2a, at 0.2 m/s
def test_a_cut_bus_leaves_a_vertical_axis_to_the_ramp_and_brake_of_its_drive(at: float) -> None:
    played = play(lift(RACK), "hil.safety.drive_watchdog=30*ms", faults=[{"kind": "cut", "at": at}])
    assert moved_after(played, "stopping") < 0.02
    assert played["true_brake.F"][-1] == 1
    assert played.unconfirmed == ("F",)  # it cannot say so


LEFT_ENABLED = {  # what a master that then died has sent to a drive that holds 392 of 560 N: id#payload
    "cia402": (
        "000#0101 601#2301140101020080 601#2F6060000A000000 601#2B716000BC020000 "  # RPDO1 is off
        "601#2B40600006000000 601#2B40600007000000 601#2B4060000F000000"
    ),
    "mit": "001#FFFFFFFFFFFFFFFC 001#7FFF7FF000000D3B",
}


@pytest.mark.parametrize("protocol", LEFT_ENABLED)
def test_a_drive_that_a_dead_master_has_left_enabled_is_refused_and_brakes_before_it_goes_off(protocol: str) -> None:
    before: list[bool] = []

    def leave(emulator: Emulator) -> None:
        emulator.world.after(99 * MILLISECOND, lambda: before.append(emulator.drives["F"].motor.enabled))
        master = emulator.wires["main"].attach(ignore, frozenset())
        for number, text in enumerate(LEFT_ENABLED[protocol].split()):
            identity, _, data = text.partition("#")
            frame = Frame(int(identity, 16), bytes.fromhex(data))
            emulator.world.after((50 + 5 * number) * MILLISECOND, partial(master.send, frame))

    played = play(lift(RACK, protocol), stage=Phase.ZERO, begin=leave)
    assert before == [True] and played.exit_code == 3 and not played.unconfirmed
    assert ["already" in str(event) for event in played.events if event.kind is EventKind.HANDSHAKE] == [True]
    assert not played.emulator.drives["F"].motor.enabled
    fall = 0.09 if protocol == "mit" else 0.002  # its brake closes only once it is off, in 0.1 s
    assert abs(played.emulator.state[0].item()) < fall


def bench(*changes: dict[str, object]) -> tuple[Ladder, list[Silent]]:
    drives = [Silent(settings(f"u{number}"), 0.0025) for number in range(2)]
    for drive, change in zip(drives, changes, strict=False):
        drive.settings = drive_settings("odrive", **change)  # type: ignore[arg-type]
    for drive in drives:
        drive.condition = Condition.ENABLED
    return Ladder(drives, np.zeros(len(drives))), drives


def test_a_drive_never_goes_up_the_ladder() -> None:
    ladder, _ = bench({"brake": True})
    ladder.brake(0, 5, must=True)
    ladder.ramp(0, 6, must=True)
    assert ladder.rungs == [Rung.BRAKE, Rung.LOOP]


def test_a_drive_that_cannot_brake_by_itself_goes_off_only_if_it_must() -> None:
    ladder, drives = bench({"brake": True}, {})
    for number in range(2):
        ladder.ramp(number, 0, must=False)
    assert ladder.rungs == [Rung.LOOP, Rung.LOOP]
    ladder.ramp_all(0)
    assert ladder.rungs == [Rung.BRAKE, Rung.OFF]
    assert not ladder.ended(0, round(0.099 * SECOND)) and ladder.ended(0, round(0.1 * SECOND))
    assert longest_ramp(drives[1]) == pytest.approx(3 * 0.25 + 0.1)  # three times the usual ramp, and a report


@pytest.mark.parametrize("protocol", ["moteus", "robstride"])
def test_a_drive_that_brakes_by_itself_is_told_no_more_than_to_be_off_once_it_is(protocol: str) -> None:
    drive: Any = build(drive_settings(protocol), 0.0025)
    drive.condition = Condition.ENABLED
    ladder = Ladder([drive], np.zeros(1))
    ladder.ramp_all(0)
    braking, off = list(drive.quick_stop_frames(1.0)), list(drive.disable_frames())
    assert list(ladder.frames(0, 1.0)) == braking != off
    drive.condition = Condition.DISABLED
    assert list(ladder.frames(0, 1.0)) == off


def test_a_drive_whose_encoder_is_in_doubt_does_not_brake_by_it() -> None:
    ladder, drives = bench()
    drives[0].ramps = drives[1].ramps = True  # type: ignore[misc]
    ladder.distrusted.add(0)
    ladder.ramp_all(0)
    assert ladder.rungs == [Rung.OFF, Rung.RAMP]


@pytest.mark.parametrize(
    ("speeds", "rung"),
    [([0.3, 0.51, 0.51, 0.51], Rung.OFF), ([0.3, 0.49, 0.49, 0.49], Rung.RAMP), ([0.3, 0.6, 0.2, 0.6, 0.6], Rung.RAMP)],
)
def test_a_drive_whose_braking_makes_it_faster_goes_off_whatever_sensing_trusts(speeds: Any, rung: Rung) -> None:
    """After a gap no sample of a joint that runs on is trusted; growth is a fifth of the speed limit."""
    ladder, drives = bench()
    drives[0].ramps = True  # type: ignore[misc]
    ladder.ramp_all(0)
    for time, speed in enumerate(speeds):
        drives[0].sample = Sample(0.0, -speed * drives[0].settings.speed_limit, 0.0, time)
        for _ in range(3):  # the same sample counts once
            ladder.watch([0.0, 0.0], [False, False])
    assert ladder.rungs[0] is rung


def test_a_motor_whose_polarity_turns_round_while_its_replies_are_lost_is_not_driven_on_by_its_own_braking() -> None:
    faults = [
        {"kind": "torque_constant", "at": 0.3749, "drive": "F", "factor": -1.0},
        {"kind": "lost", "at": 0.3594, "p": 1.0, "direction": "to_host", "for": 0.04239},
    ]
    played = play("V rack robstride", faults=faults, duration=0.257)
    assert np.abs(played["true_v.x"]).max() < 2.0 and not played.unconfirmed


def test_one_slow_or_stale_sample_is_no_standstill() -> None:
    ladder, _ = bench()
    for fresh in (True, True, False, True, True):
        ladder.watch([0.0, 0.0], [fresh, True])
    assert not ladder.stands(0) and ladder.stands(1)


def enabled_cia402() -> Any:
    drive: Any = build(drive_settings("cia402", node=5), 0.002)
    drive.enable_requested = drive._started = True
    drive.accept(Frame(0x705, bytes([codec.OPERATIONAL])))
    drive.accept(Frame(0x285, bytes.fromhex("371200000000")))
    return drive


@pytest.mark.parametrize(("moved", "stands"), [(0.0, False), (0.02, True), (10.0, True)])
def test_a_joint_stands_that_a_step_of_its_torque_on_the_wire_moves_faster(moved: float, stands: bool) -> None:
    """Below 1 % of its speed limit, 0.04: a light joint coasts until a whole step of torque is wanted."""
    drives = [Silent(drive_settings("odrive"), 0.0025)]
    ladder = Ladder(drives, np.array([moved / drives[0].quantum()[2]]))
    ladder.begin()
    for speed in (0.1, 0.015, 0.015, 0.015):
        ladder.watch([speed], [True])
    assert ladder.stands(0) is stands
    for _ in range(4):
        ladder.watch([0.045], [True])
    assert not ladder.stands(0)


def test_a_drive_that_has_left_nmt_operational_is_not_confirmed_off_by_that() -> None:
    drive = enabled_cia402()
    drive.accept(Frame(0x705, bytes([codec.PRE_OPERATIONAL])))
    assert not drive.confirmed_off and drive.possibly_on


def test_only_a_statusword_after_the_order_to_stop_confirms_that_a_drive_is_off() -> None:
    drive = enabled_cia402()
    drive.accept(Frame(0x285, bytes.fromhex("500200000000")))
    drive.disable_frames()
    assert not drive.confirmed_off
    drive.accept(Frame(0x285, bytes.fromhex("330200000000")))
    assert not drive.confirmed_off  # it may still hold torque while its brake closes
    drive.accept(Frame(0x285, bytes.fromhex("500200000000")))
    assert drive.confirmed_off


def test_a_drive_that_does_not_obey_pdos_is_stopped_and_asked_over_sdo() -> None:
    drive = enabled_cia402()
    drive.accept(Frame(0x705, bytes([codec.PRE_OPERATIONAL])))
    sent = [frame for _ in range(2) for frame in drive.disable_frames()]
    assert [frame.data.hex() for frame in sent if frame.id == 0x605] == ["4041600000000000", "2b40600000000000"]
    drive.accept(Frame(0x585, bytes.fromhex("4b41600040020000")))
    assert drive.confirmed_off


def test_an_axis_that_its_own_damping_drives_on_is_braked_though_its_frames_cannot_say_how_fast_it_is() -> None:
    """The polarity turns round in the task, and the frames of the motor end at 0.6 m/s, as fast as the ramp begins."""
    played = play(
        "V rack mit", faults=[{"kind": "torque_constant", "at": 0.06, "drive": "F", "factor": -1}], duration=0.2
    )
    assert "runaway" in played.kinds and not played.unconfirmed
    off = np.argmax((played["true_on.F"] == 0) & (played["t"] > played["t"][played.rows_in("full")][0]))
    assert abs(played["true_v.x"][off]) < 1.0 and abs(played["true_v.x"][-1]) < 1e-3


def test_an_axis_whose_encoder_is_wrong_stops_by_the_model_and_its_brake() -> None:
    played = play(lift(RACK), faults=[{"kind": "encoder_flip", "drive": "F", "at": 0.5}])
    assert "encoder" in played.kinds
    assert moved_after(played, "stopping") < 0.01
    assert played["true_brake.F"][-1] == 1


def test_a_drive_without_torque_that_cannot_brake_by_itself_closes_its_brake() -> None:
    played = play(lift(RACK), faults=[{"kind": "no_torque", "drive": "F", "at": 0.5}])
    height = played["true_q.x"]  # it falls until its brake of 0.1 s is closed, and no longer: g/2 (0.112 s)^2 = 0.062
    assert height.max() - height[-1] < 0.062 and not played.unconfirmed


def test_the_joints_beside_a_silent_drive_stop_under_control_and_it_stops_by_itself() -> None:
    played = play("AF", faults=[{"kind": "silent", "drive": "joint2", "at": 0.3}])
    assert left_when_off(played) < 0.05
    assert {"speed", "runaway", "tracking"}.isdisjoint(played.kinds)  # nothing is concluded of a joint without samples
    assert played.unconfirmed == ("joint2",)


@pytest.mark.parametrize("at", [0.05, 0.0507, 0.052])  # between two ticks, and while the commands of one go out
def test_commands_that_wait_on_a_dead_bus_enable_no_drive_when_all_restart(at: float) -> None:
    names = [f"u{number}" for number in range(1, 7)]
    faults = [{"kind": "reboot", "drive": name, "at": at, "for": 0.05} for name in names]
    short = ("hil.safety.zero_time=0.1", "hil.safety.ramp_time=0.1")
    with observed() as observers:
        played = play(Rig("coordinated_robots_moteus", short), faults=faults)
    on = played.group("true_on")
    first_off = int(np.argmax((on == 0).all(axis=1) & (played["t"] > played["t"][played.rows_in("full")][0])))
    assert not on[first_off:].any()
    assert [each.report() for each in observers] == [[]] and not played.unconfirmed


def test_the_pre_flight_list_says_how_an_axis_stops_without_the_loop() -> None:
    setup = play(lift(RACK, "mit"), stage=Phase.ZERO, duration=0.01).run.setup
    lines = "\n".join(preflight(setup, Phase.FULL, ()))
    assert "F (mit), own ramp: damping in the motor" in lines and "F (mit), without the loop or its bus" in lines


TWO_BUSES = (
    'hil.buses.second={"interface": "emulated"}', *[f"hil.drives.{number}.bus=second" for number in (3, 4, 5)]
)  # fmt: skip


def left_when_off(played: Played) -> float:
    """Largest true speed when the drives go off, over the largest when the stop begins."""
    speeds = np.abs(played.group("true_v"))
    began, off = (int(np.argmax(played.rows_in(stage))) for stage in ("stopping", "disabling"))
    return float(speeds[off].max() / speeds[began].max())


def test_errors_on_one_bus_do_not_let_the_machine_coast() -> None:
    played = play("AF", *TWO_BUSES, faults=[{"kind": "corruption", "bus": "second", "p": 1, "at": 0.3, "for": 0.006}])
    assert set(played.kinds) == {"missed", "bus_passive"} and not played.unconfirmed
    assert left_when_off(played) < 0.05


def test_the_drives_of_a_dead_bus_stop_by_themselves_and_those_of_the_other_under_control() -> None:
    played = play("AF", *TWO_BUSES, faults=[{"kind": "cut", "bus": "second", "at": 0.3}])
    assert "bus" in played.kinds and played.unconfirmed == ("joint4", "joint5", "joint6")
    assert played.rows_in("stopping").sum() * 0.0025 > 0.2  # the others are led to rest
    assert left_when_off(played) < 0.05
    assert (played.group("true_brake")[-1] == 1).all()


@pytest.mark.parametrize(("rig", "drive"), [("S", "F4"), ("V rack", "F"), ("V rack moteus", "F"), ("S cia402", "F4")])
def test_a_drive_whose_fault_goes_away_by_itself_makes_no_torque_again(rig: str, drive: str) -> None:
    gone = {"kind": "drive_fault", "at": 0.1, "drive": drive, "clear": True, "for": 0.04}
    with observed() as observers:
        played = play(rig, faults=[gone], duration=0.2)
    off = int(np.argmax(played[f"true_on.{drive}"][1:] < played[f"true_on.{drive}"][:-1])) + 1
    assert "drive_fault" in played.kinds and not played.unconfirmed
    assert not played[f"true_on.{drive}"][off:].any()
    assert [each.report() for each in observers] == [[]]


def test_a_drive_that_is_lost_makes_no_other_encoder_suspect() -> None:
    """The model, which does not know where its joint stands, says that the others move on."""
    played = play("A", faults=[{"kind": "silent", "drive": "joint2", "at": 0.5, "for": 0.5}], duration=1.0)
    assert {event.subject for event in played.events if event.kind.name in ("ENCODER", "LOST")} == {"joint2"}


def test_a_drive_that_refuses_is_not_explained_by_the_emergency_of_the_watchdog_test() -> None:
    played = play("L", faults=[{"kind": "refuse_enable", "drive": "tau", "since": "power_on"}], duration=0.1)
    assert "its NMT state: operational" in str(played.events[1]) and "emergency" not in str(played.events[1])
