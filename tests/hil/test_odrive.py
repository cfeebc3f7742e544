"""CANSimple: fields, driver and emulated axis against ODrive's own message database and its documentation.

What driver and axis say to each other is in `conversations.txt`.
"""

import math
import struct
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

import pytest
from cantools.database import load_file
from cantools.database.can import Database, Message
from hypothesis import given
from hypothesis import strategies as st

from hil.codecs import odrive
from hil.codecs.field import Field, packed
from hil.drives.base import Condition, Drive
from hil.drives.settings import SensorSettings
from hil.frame import Frame
from hil.protocols.registry import build
from tests.hil.drive_host import PERIOD, Host
from tests.hil.emulation import MILLISECOND, TURN, Bench, bare_drive, bench, drive_settings

NODE = 3
FLOAT32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
DRIVE = bare_drive("odrive", node=NODE, torque_limit=2.0)


@cache
def odrive_database() -> Database:
    """The DBC of firmware 0.6.10 that `odrive-can` carries; half a second to read."""
    database = load_file(str(files("odrive_can") / "dbc" / "odrive-cansimple-0.6.10.dbc"))
    assert isinstance(database, Database)
    return database


def input_torque(torque: float) -> bytes:
    return DRIVE.encoding.frame_of(torque).data


def kind_of(name: str, node: int = NODE) -> Message:
    return odrive_database().get_message_by_name(f"Axis{node}_{name}")


def of(numbers: Mapping[Field, float]) -> bytes:
    return packed(odrive.SIZE, numbers)


def shaft(data: bytes) -> tuple[float, ...]:
    """Position [rad] and velocity [rad/s] of encoder estimates."""
    return tuple(DRIVE.motion.values(data).values())


def fields(name: str, data: bytes) -> list[float]:
    decoded = kind_of(name).decode(data, decode_choices=False)
    return [decoded[signal.name] for signal in kind_of(name).signals]


COMMANDS = {
    "Get_Version": odrive.GET_VERSION, "Heartbeat": odrive.HEARTBEAT, "Estop": odrive.ESTOP,
    "Get_Error": odrive.GET_ERROR, "Set_Axis_State": odrive.SET_AXIS_STATE,
    "Get_Encoder_Estimates": odrive.GET_ENCODER_ESTIMATES, "Set_Controller_Mode": odrive.SET_CONTROLLER_MODE,
    "Set_Input_Torque": odrive.SET_INPUT_TORQUE, "Set_Limits": odrive.SET_LIMITS, "Clear_Errors": odrive.CLEAR_ERRORS,
}  # fmt: skip


@pytest.mark.parametrize("node", [0, 3, 7])
def test_the_dbc_has_the_same_ids(node: int) -> None:
    for name, command in COMMANDS.items():
        assert kind_of(name, node).frame_id == odrive.identifier(node, command)


def test_the_dbc_has_the_same_commands_of_a_master() -> None:
    of_node = [each for each in odrive_database().messages if each.name.startswith("Axis3_")]
    answers = {"Get_Version", "Heartbeat", "TxSdo"} | {
        each.name[6:] for each in of_node if each.name[6:].startswith("Get_")
    }
    commands = {each.frame_id & 0x1F for each in of_node if each.name[6:] not in answers}
    assert commands == set(odrive.MASTER_COMMANDS)


def test_the_dbc_names_the_same_errors_and_states() -> None:
    signals = {signal.name: signal.choices for signal in kind_of("Heartbeat").signals}
    assert {code: str(name) for code, name in signals["Axis_State"].items()} == dict(enumerate(odrive.STATES))
    named = {code: str(name) for code, name in signals["Axis_Error"].items() if code}
    assert named.items() <= odrive.ERRORS.items()
    assert set(odrive.ERRORS) - set(named) == {0x20000}  # came with 0.6.11


@given(FLOAT32)
def test_the_dbc_decodes_our_torque(torque: float) -> None:
    assert fields("Set_Input_Torque", input_torque(torque)) == [torque]


@given(FLOAT32, FLOAT32)
def test_encoder_estimates_of_the_dbc_are_decoded(position: float, velocity: float) -> None:
    data = kind_of("Get_Encoder_Estimates").encode({"Pos_Estimate": position, "Vel_Estimate": velocity})
    assert shaft(data) == (position * math.tau, velocity * math.tau)


FIELDS: dict[str, dict[str, Field]] = {
    "Heartbeat": {
        "Axis_Error": odrive.ERROR, "Axis_State": odrive.STATE, "Procedure_Result": odrive.RESULT,
        "Trajectory_Done_Flag": odrive.TRAJECTORY_DONE,
    },
    "Get_Error": {"Active_Errors": odrive.ERROR, "Disarm_Reason": odrive.DISARM_REASON},
    "Get_Temperature": {"FET_Temperature": odrive.INVERTER, "Motor_Temperature": odrive.MOTOR},
    "Get_Bus_Voltage_Current": {"Bus_Voltage": odrive.BUS_VOLTAGE},
    "Get_Version": {"Protocol_Version": odrive.PROTOCOL_NUMBER},
    "Set_Controller_Mode": {"Control_Mode": odrive.CONTROL_MODE, "Input_Mode": odrive.INPUT_MODE},
    "Set_Axis_State": {"Axis_Requested_State": odrive.REQUESTED_STATE},
    "Set_Limits": {"Velocity_Limit": odrive.VELOCITY_LIMIT, "Current_Limit": odrive.CURRENT_LIMIT},
}  # fmt: skip
"""Message -> its signals, and where our table has them."""


@pytest.mark.parametrize("name", FIELDS)
@given(st.binary(min_size=8, max_size=8))
def test_the_dbc_has_every_number_where_the_table_has_it(name: str, data: bytes) -> None:
    decoded = kind_of(name).decode(data, decode_choices=False)
    data = kind_of(name).encode(decoded, strict=False)  # without the bits of no signal
    for signal, field in FIELDS[name].items():
        number = decoded[signal]
        assert field.number(data) == pytest.approx(number, rel=0, nan_ok=True)
        again = kind_of(name).decode(of({field: number}), decode_choices=False)[signal]
        assert again == pytest.approx(number, rel=0, nan_ok=True)


@given(st.binary(min_size=8, max_size=8))
def test_the_dbc_has_the_same_firmware(data: bytes) -> None:
    decoded = kind_of("Get_Version").decode(data, decode_choices=False)
    parts = ("Fw_Version_Major", "Fw_Version_Minor", "Fw_Version_Revision")
    assert odrive.firmware(data) == tuple(decoded[part] for part in parts)


def test_a_limit_that_is_not_finite_is_refused() -> None:
    drive = bare_drive("odrive", node=NODE, options={"vel_gain": 1e-320, "current_limit": 10.0})
    with pytest.raises(ValueError, match=r"inf, 10\.0: not finite"):
        list(drive.configure())


def test_errors_have_a_text_with_their_code() -> None:
    assert odrive.error_text(0) == ""
    assert odrive.error_text(0x0100_0200) == "DC_BUS_UNDER_VOLTAGE | WATCHDOG_TIMER_EXPIRED (0x1000200)"
    assert odrive.error_text(0x8000_0000) == "unknown error (0x80000000)"


def test_a_watchdog_that_expires_again_during_the_test_of_another_drive_is_reset_again() -> None:
    host = Host(drive_settings("odrive", speed_limit=1.0))
    host.order("identify")
    steps, drive = host.drive.reset(), host.drive
    step = next(steps)
    host.send(*step.send)
    drive.quiet = True  # the bus stays quiet for another drive
    host.until(step.done, host.tick)
    assert drive.fault == "WATCHDOG_TIMER_EXPIRED (0x1000000)"
    drive.quiet = False
    host.perform(steps)
    assert drive.condition is Condition.DISABLED


@pytest.mark.parametrize(("options", "is_set"), [({}, False), ({"current_limit": 20.0}, True)])
def test_limits_that_stay_as_they_are_in_the_drive_are_reported(options: dict[str, float], is_set: bool) -> None:
    drive = build(drive_settings("odrive", options=options | {"feedback_period": PERIOD}), PERIOD)
    assert isinstance(drive, Drive)
    assert ("its own current and speed limits stay as they are saved" not in drive.unverified) is is_set
    assert "control mode cannot be read back" in drive.unverified


@pytest.mark.parametrize(("options", "changes", "speed"), [
    # 12 N m at a gear of 8 take 9 turn/s below the limit, at 1/6 N m per turn/s; 0.5 N m take 0.375 turn/s
    ({}, {}, 0.0), ({}, {"torque_limit": 0.5}, (2 - 0.375) * math.tau / 8), ({"vel_limit": 17}, {}, math.inf),
    ({"current_limit": 20.0}, {}, math.inf),
    ({}, {"torque_limit": 0.5, "speed_limit": 1.0}, math.inf),  # 2 turn/s are enough
])  # fmt: skip
def test_the_default_speed_limit_is_assumed_where_none_is_stated_and_reported_where_it_limits_the_torque(
    options: dict[str, float], changes: dict[str, float], speed: float
) -> None:
    joint = {"gear": 8.0, "torque_limit": 12.0, "speed_limit": 6.0} | changes
    drive = build(drive_settings("odrive", options=options | {"feedback_period": PERIOD}, **joint), PERIOD)
    assert isinstance(drive, Drive)
    assert drive.assumed_speed == pytest.approx(speed)
    said = "vel_limit is not stated: at its default, 2 turn/s" if math.isfinite(speed) else ""
    assert drive.assumption.startswith(said) and bool(drive.assumption) is bool(said)


def host_of(**changes: object) -> Bench:
    return bench(drive_settings("odrive", node=NODE, watchdog=1e3, **changes))


def message(name: str, **signals: float) -> Frame:
    """A command as the database encodes it."""
    kind = kind_of(name)
    values = {signal.name: signals.get(signal.name, 0) for signal in kind.signals}
    return Frame(kind.frame_id, kind.encode(values, scaling=True, strict=False))


def decoded(frames: list[Frame], name: str) -> dict[str, float]:
    """Signals of the last frame of a kind."""
    kind = kind_of(name)
    found = [frame for frame in frames if frame.id == kind.frame_id and not frame.remote]
    assert found, name
    assert len(found[-1].data) == kind.length
    return dict(kind.decode(found[-1].data, decode_choices=False))  # type: ignore[arg-type]


def ask(host: Bench, name: str) -> dict[str, float]:
    """Answer to a remote frame."""
    kind = kind_of(name)
    return decoded(host.ask(Frame(kind.frame_id, remote=True, length=8)), name)


def start(host: Bench, torque: float = 0.0) -> None:
    host.collect(1.0)
    host.send(
        message("Clear_Errors"),
        message("Set_Controller_Mode", Control_Mode=1, Input_Mode=1),
        message("Set_Input_Torque", Input_Torque=torque),
        message("Set_Axis_State", Axis_Requested_State=8),
    )
    host.collect(1.0)
    assert host.node.state == 8


def test_cyclic_messages_decode_by_the_database() -> None:
    host = host_of()
    frames = host.collect(210.0)
    estimates = decoded(frames, "Get_Encoder_Estimates")
    assert estimates["Pos_Estimate"] == pytest.approx(-0.5 / TURN)
    assert estimates["Vel_Estimate"] == 0.0
    beat = decoded(frames, "Heartbeat")
    assert (beat["Axis_Error"], beat["Axis_State"], beat["Procedure_Result"]) == (0, 1, 0)
    counts = {command: len([f for f in frames if f.id == NODE << 5 | command]) for command in (0x01, 0x03, 0x09)}
    assert counts == {0x01: 3, 0x03: 3, 0x09: 105}


def test_answers_decode_by_the_database() -> None:
    host = host_of()
    start(host, torque=0.75)
    host.collect(20.0)
    version = ask(host, "Get_Version")
    assert (version["Protocol_Version"], version["Fw_Version_Major"], version["Fw_Version_Minor"]) == (2, 0, 6)
    assert ask(host, "Get_Bus_Voltage_Current")["Bus_Voltage"] == 48.0
    assert ask(host, "Get_Error")["Active_Errors"] == 0
    assert ask(host, "Get_Temperature")["FET_Temperature"] == pytest.approx(25.0, abs=0.01)
    assert ask(host, "Get_Encoder_Estimates")


def test_torque_commands_act_in_torque_mode_only() -> None:
    host = host_of()
    start(host, torque=1.0)
    host.send(message("Set_Controller_Mode", Control_Mode=2, Input_Mode=1))
    host.collect(1.0)
    assert host.node.motor.torque() == 0.0


def test_a_drive_with_errors_refuses_to_be_enabled() -> None:
    host = host_of()
    start(host)
    host.send(message("Estop"))
    frames = host.collect(101.0)
    assert decoded(frames, "Get_Error")["Disarm_Reason"] == 0x0200_0000
    assert decoded(frames, "Heartbeat")["Axis_Error"] == 0x0200_0000
    assert decoded(frames, "Heartbeat")["Axis_State"] == 1
    host.send(message("Set_Axis_State", Axis_Requested_State=8))
    host.collect(1.0)
    assert host.node.state == 1
    start(host)


def test_above_the_speed_limit_it_disarms() -> None:
    host = host_of()
    start(host)
    host.send(message("Set_Limits", Velocity_Limit=0.5, Current_Limit=10.0))
    host.send(message("Set_Input_Torque", Input_Torque=2.0))
    host.collect(3000.0)

    def speed() -> float:
        return abs(host.emulator.state[1][0]) * 2.0 / TURN  # the motor turns at 2 rad per m

    assert host.node.motor.torque() == pytest.approx((0.5 - speed()) / 6, rel=0.01), "torque fades near the limit"
    host.emulator.plant.actuators[0].push(-4.0, host.now)
    host.collect(3000.0)
    assert host.node.error == 0x8000
    # 20 % above the limit is tolerated; then it coasts under the push
    assert speed() > 0.6


def test_torque_is_limited_by_the_distance_from_the_speed_limit_at_standstill_too() -> None:
    host = bench(drive_settings("odrive", node=NODE, watchdog=1e3), options={"vel_limit": 2})
    start(host)
    host.send(message("Set_Input_Torque", Input_Torque=2.0))
    host.collect(1.0)
    assert host.node.motor.torque() == pytest.approx(2.0 / 6.0, rel=0.01)


def test_remote_frames_do_not_feed_the_watchdog() -> None:
    host = bench(drive_settings("odrive", node=NODE, watchdog=0.02))
    start(host)
    for _ in range(20):
        host.ask(Frame(NODE << 5 | 0x09, remote=True, length=8), 5.0)
    assert (host.node.state, host.node.error) == (1, 0x0100_0000)


def test_the_watchdog_acts_in_time_and_in_every_state() -> None:
    host = bench(drive_settings("odrive", node=NODE, watchdog=0.02))
    start(host)
    host.send(message("Set_Input_Torque", Input_Torque=0.5))
    sent = host.now
    frames = host.collect(40.0)
    errors = [f for f in frames if f.id == NODE << 5 | 0x03 and f.data[3] == 0x01]
    assert 20 * MILLISECOND <= errors[0].time - sent <= 20.5 * MILLISECOND
    assert host.node.motor.torque() == 0.0
    host.send(message("Clear_Errors"))
    host.collect(19.0)
    assert host.node.error == 0
    host.collect(2.0)
    assert host.node.error == 0x0100_0000


def test_a_slow_clock_lengthens_its_periods() -> None:
    host = bench(
        drive_settings("odrive", node=NODE, watchdog=1e3),
        faults=[{"kind": "clock_drift", "at": 0, "drive": "a", "ppm": 100.0, "since": "power_on"}],
    )
    times = [f.time for f in host.collect(4001.0) if f.id == NODE << 5 | 0x09]
    assert (times[2000] - times[1000]) / 1000 == pytest.approx(2 * MILLISECOND * (1 + 100e-6), rel=1e-9)


def test_a_torque_of_nan_is_zero() -> None:
    host = host_of()
    host.collect(1.0)
    host.send(Frame(0x6B, bytes.fromhex("0100000001000000")), Frame(0x6E, struct.pack("<f4x", float("nan"))))
    host.send(Frame(0x67, bytes.fromhex("0800000000000000")))
    host.collect(2.0)
    assert host.node.motor.torque() == 0.0


def test_an_encoder_node_measures_a_coordinate() -> None:
    sensor = SensorSettings("y", "main", "odrive", NODE, gear=4.0, options={"feedback_period": 0.005})
    host = bench(drive_settings("odrive", node=1, watchdog=1e3), sensors=[sensor], lag=0.001)
    host.emulator.plant.actuators[1].command(3.0, host.now)
    frames = host.collect(102.0)
    t, lag = 0.1, 0.001
    y = 3.0 / 2.0 * (t**2 / 2 - lag * t + lag**2)  # behind a current loop that lags
    position = decoded(frames, "Get_Encoder_Estimates")["Pos_Estimate"]
    assert position == pytest.approx(4.0 * y / TURN, rel=1e-5)
    assert decoded(frames, "Heartbeat")["Axis_Error"] == 0
