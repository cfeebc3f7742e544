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
    """What a controlword asks for: mask and value of its bits 7, 3, 2, 1 and 0."""

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

TRANSITIONS: dict[tuple[DriveState, ControlwordCommand], tuple[int, ...]] = {
    (_S.SWITCH_ON_DISABLED, _C.SHUTDOWN): (2,),
    (_S.READY_TO_SWITCH_ON, _C.SWITCH_ON): (3,),
    (_S.READY_TO_SWITCH_ON, _C.ENABLE_OPERATION): (3, 4),
    (_S.READY_TO_SWITCH_ON, _C.QUICK_STOP): (7,),
    (_S.READY_TO_SWITCH_ON, _C.DISABLE_VOLTAGE): (7,),
    (_S.SWITCHED_ON, _C.ENABLE_OPERATION): (4,),
    (_S.SWITCHED_ON, _C.SHUTDOWN): (6,),
    (_S.SWITCHED_ON, _C.QUICK_STOP): (10,),
    (_S.SWITCHED_ON, _C.DISABLE_VOLTAGE): (10,),
    (_S.OPERATION_ENABLED, _C.SWITCH_ON): (5,),
    (_S.OPERATION_ENABLED, _C.SHUTDOWN): (8,),
    (_S.OPERATION_ENABLED, _C.QUICK_STOP): (11,),
    (_S.OPERATION_ENABLED, _C.DISABLE_VOLTAGE): (9,),
    (_S.QUICK_STOP_ACTIVE, _C.DISABLE_VOLTAGE): (12,),
    (_S.QUICK_STOP_ACTIVE, _C.ENABLE_OPERATION): (16,),
    (_S.FAULT, _C.FAULT_RESET): (15,),
}
"""State and command -> transitions in order; other pairs change nothing."""

LEADS_TO = {
    2: _S.READY_TO_SWITCH_ON,
    3: _S.SWITCHED_ON,
    4: _S.OPERATION_ENABLED,
    5: _S.SWITCHED_ON,
    6: _S.READY_TO_SWITCH_ON,
    7: _S.SWITCH_ON_DISABLED,
    8: _S.READY_TO_SWITCH_ON,
    9: _S.SWITCH_ON_DISABLED,
    10: _S.SWITCH_ON_DISABLED,
    11: _S.QUICK_STOP_ACTIVE,
    12: _S.SWITCH_ON_DISABLED,
    15: _S.SWITCH_ON_DISABLED,
    16: _S.OPERATION_ENABLED,
}


def following(state: DriveState, controlword: int, before: int, quick_stop_option: int) -> DriveState:
    """State after a controlword.

    Args:
        state: State before.
        controlword: New controlword.
        before: Previous controlword: the rising edge of bit 7 resets a fault.
        quick_stop_option: Value of 0x605A; from 5 on the drive stays in quick stop and can be enabled from there.
    """
    command = command_of(controlword)
    if command is ControlwordCommand.FAULT_RESET and before & 0x80:
        return state
    for transition in TRANSITIONS.get((state, command), ()):
        if transition == 16 and quick_stop_option < 5:
            return state
        state = LEADS_TO[transition]
    return state
