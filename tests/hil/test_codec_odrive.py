"""CANSimple: round trips, and ODrive's own DBC as an independent reader and writer."""

import math
from collections.abc import Mapping

import pytest
from emulation import bare_drive
from hypothesis import given
from hypothesis import strategies as st
from odrive_database import odrive_database

from hil.codecs import odrive
from hil.codecs.field import Field, packed

NODE = 3
FLOAT32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


DRIVE = bare_drive("odrive", node=NODE, torque_limit=2.0)


def input_torque(torque: float) -> bytes:
    return DRIVE.encoding.frame_of(torque).data


def message(name: str):
    return odrive_database().get_message_by_name(f"Axis{NODE}_{name}")


def of(numbers: Mapping[Field, float]) -> bytes:
    return packed(odrive.SIZE, numbers)


def shaft(data: bytes) -> tuple[float, ...]:
    """Position [rad] and velocity [rad/s] of encoder estimates."""
    return tuple(DRIVE.motion.values(data).values())


def fields(name: str, data: bytes) -> list[float]:
    decoded = message(name).decode(data, decode_choices=False)
    return [decoded[signal.name] for signal in message(name).signals]


COMMANDS = {
    "Get_Version": odrive.GET_VERSION, "Heartbeat": odrive.HEARTBEAT, "Estop": odrive.ESTOP,
    "Get_Error": odrive.GET_ERROR, "Set_Axis_State": odrive.SET_AXIS_STATE,
    "Get_Encoder_Estimates": odrive.GET_ENCODER_ESTIMATES, "Set_Controller_Mode": odrive.SET_CONTROLLER_MODE,
    "Set_Input_Torque": odrive.SET_INPUT_TORQUE, "Set_Limits": odrive.SET_LIMITS, "Clear_Errors": odrive.CLEAR_ERRORS,
}  # fmt: skip


@pytest.mark.parametrize("node", [0, 3, 7])
def test_the_dbc_has_the_same_ids(node: int) -> None:
    for name, command in COMMANDS.items():
        assert odrive_database().get_message_by_name(f"Axis{node}_{name}").frame_id == odrive.identifier(node, command)


def test_the_dbc_has_the_same_commands_of_a_master() -> None:
    of_node = [each for each in odrive_database().messages if each.name.startswith("Axis3_")]
    answers = {"Get_Version", "Heartbeat", "TxSdo"} | {
        each.name[6:] for each in of_node if each.name[6:].startswith("Get_")
    }
    commands = {each.frame_id & 0x1F for each in of_node if each.name[6:] not in answers}
    assert commands == set(odrive.MASTER_COMMANDS)


def test_the_dbc_names_the_same_errors_and_states() -> None:
    signals = {signal.name: signal.choices for signal in message("Heartbeat").signals}
    assert {code: str(name) for code, name in signals["Axis_State"].items()} == dict(enumerate(odrive.STATES))
    named = {code: str(name) for code, name in signals["Axis_Error"].items() if code}
    assert named.items() <= odrive.ERRORS.items()
    assert set(odrive.ERRORS) - set(named) == {0x20000}  # came with 0.6.11


@given(FLOAT32)
def test_the_dbc_decodes_our_torque(torque: float) -> None:
    assert fields("Set_Input_Torque", input_torque(torque)) == [torque]


@given(FLOAT32, FLOAT32)
def test_encoder_estimates_of_the_dbc_are_decoded(position: float, velocity: float) -> None:
    data = message("Get_Encoder_Estimates").encode({"Pos_Estimate": position, "Vel_Estimate": velocity})
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
    decoded = message(name).decode(data, decode_choices=False)
    data = message(name).encode(decoded, strict=False)  # without the bits of no signal
    for signal, field in FIELDS[name].items():
        number = decoded[signal]
        assert field.number(data) == pytest.approx(number, rel=0, nan_ok=True)
        again = message(name).decode(of({field: number}), decode_choices=False)[signal]
        assert again == pytest.approx(number, rel=0, nan_ok=True)


@given(st.binary(min_size=8, max_size=8))
def test_the_dbc_has_the_same_firmware(data: bytes) -> None:
    decoded = message("Get_Version").decode(data, decode_choices=False)
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
