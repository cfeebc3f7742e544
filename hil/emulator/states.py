"""The state machine of a CiA 402 drive, as a table.

Source: IEC 61800-7-201, the finite state automaton of the power drive system; transitions by their numbers there.
"""

from enum import Enum


class DriveState(Enum):
    """States; the value is their part of the statusword."""

    NOT_READY = 0x0000
    SWITCH_ON_DISABLED = 0x0040
    READY_TO_SWITCH_ON = 0x0021
    SWITCHED_ON = 0x0023
    OPERATION_ENABLED = 0x0027
    QUICK_STOP_ACTIVE = 0x0007
    FAULT_REACTION_ACTIVE = 0x000F
    FAULT = 0x0008


class ControlwordCommand(Enum):
    """Commands of a controlword: mask and value of its bits 7, 3, 2, 1 and 0."""

    SHUTDOWN = (0b1000_0111, 0b0110)
    SWITCH_ON = (0b1000_1111, 0b0111)  # where operation is enabled: disable operation
    ENABLE_OPERATION = (0b1000_1111, 0b1111)
    QUICK_STOP = (0b1000_0110, 0b0010)
    DISABLE_VOLTAGE = (0b1000_0010, 0b0000)
    FAULT_RESET = (0b1000_0000, 0b1000_0000)


def command_of(controlword: int) -> ControlwordCommand:
    """The command in a controlword: exactly one fits each."""
    for command in ControlwordCommand:
        mask, value = command.value
        if controlword & mask == value:
            return command
    raise AssertionError("every pattern of the five bits is in the table")


_S, _C = DriveState, ControlwordCommand

TRANSITIONS: dict[tuple[DriveState, ControlwordCommand], DriveState] = {
    (_S.SWITCH_ON_DISABLED, _C.SHUTDOWN): _S.READY_TO_SWITCH_ON,  # 2
    (_S.READY_TO_SWITCH_ON, _C.SWITCH_ON): _S.SWITCHED_ON,  # 3
    (_S.READY_TO_SWITCH_ON, _C.ENABLE_OPERATION): _S.OPERATION_ENABLED,  # 3, then 4
    (_S.READY_TO_SWITCH_ON, _C.QUICK_STOP): _S.SWITCH_ON_DISABLED,  # 7
    (_S.READY_TO_SWITCH_ON, _C.DISABLE_VOLTAGE): _S.SWITCH_ON_DISABLED,  # 7
    (_S.SWITCHED_ON, _C.ENABLE_OPERATION): _S.OPERATION_ENABLED,  # 4
    (_S.SWITCHED_ON, _C.SHUTDOWN): _S.READY_TO_SWITCH_ON,  # 6
    (_S.SWITCHED_ON, _C.QUICK_STOP): _S.SWITCH_ON_DISABLED,  # 10
    (_S.SWITCHED_ON, _C.DISABLE_VOLTAGE): _S.SWITCH_ON_DISABLED,  # 10
    (_S.OPERATION_ENABLED, _C.SWITCH_ON): _S.SWITCHED_ON,  # 5
    (_S.OPERATION_ENABLED, _C.SHUTDOWN): _S.READY_TO_SWITCH_ON,  # 8
    (_S.OPERATION_ENABLED, _C.QUICK_STOP): _S.QUICK_STOP_ACTIVE,  # 11
    (_S.OPERATION_ENABLED, _C.DISABLE_VOLTAGE): _S.SWITCH_ON_DISABLED,  # 9
    (_S.QUICK_STOP_ACTIVE, _C.DISABLE_VOLTAGE): _S.SWITCH_ON_DISABLED,  # 12
    (_S.QUICK_STOP_ACTIVE, _C.ENABLE_OPERATION): _S.OPERATION_ENABLED,  # 16, if 0x605A is 5 or more
    (_S.FAULT, _C.FAULT_RESET): _S.SWITCH_ON_DISABLED,  # 15
}
"""State and command -> state after the transition of that number; other pairs change nothing."""


def following(state: DriveState, controlword: int, before: int, quick_stop_option: int) -> DriveState:
    """State after a controlword.

    Args:
        state: State before.
        controlword: New controlword.
        before: Previous controlword: the rising edge of bit 7 resets a fault.
        quick_stop_option: Value of 0x605A; from 5 on the drive stays in quick stop and can be enabled from there.
    """
    after = TRANSITIONS.get((state, command_of(controlword)), state)
    no_edge = state is _S.FAULT and before & 0x80
    must_stop = (
        state is DriveState.QUICK_STOP_ACTIVE and after is DriveState.OPERATION_ENABLED and quick_stop_option < 5
    )
    return state if no_edge or must_stop else after
