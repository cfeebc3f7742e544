"""CiA 402 process data: types of objects, the state machine, and PDO maps of python-canopen as a second reader."""

import math

import canopen
from canopen_objects import node_dictionary
from emulation import bare_drive
from hypothesis import given
from hypothesis import strategies as st

from hil.codecs import cia402
from hil.codecs.cia402 import Cia402State
from hil.drives.cia402_setup import CONTROLWORD, ERROR_CODE, POSITION, STATUSWORD, TARGET_TORQUE, TORQUE, VELOCITY
from hil.drives.table import TableDrive
from hil.emulator.objects import communication_objects, drive_objects
from hil.frame import Frame

NODE = 5
I16, I32, U16 = st.integers(-(2**15), 2**15 - 1), st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**16 - 1)


DICTIONARY = node_dictionary()


def driver(rated: float = 1.0) -> TableDrive:
    units = {"counts_per_turn": 100_000, "velocity_unit": 0.01}
    return bare_drive("cia402", node=NODE, rated_torque=rated, torque_limit=0.5 * rated, options=units)


DRIVE = driver()


# By hand from CiA 301 and CiA 402; integer letters as in `struct`.
STANDARD = {
    "B": [(0x1029, 1), *((0x1800 + n, 2) for n in range(4)), *((0x1600 + n, 0) for n in range(4))],
    "H": [(0x1017, 0), (0x603F, 0), (0x6040, 0), (0x6041, 0), (0x6072, 0)],
    "I": [(0x1000, 0), (0x1016, 1), (0x1400, 1), (0x1A00, 1), (0x6076, 0), (0x6085, 0), (0x6502, 0)],
    "b": [(0x6060, 0), (0x6061, 0)],
    "h": [(0x6007, 0), (0x605A, 0), (0x605B, 0), (0x605C, 0), (0x605E, 0), (0x6071, 0), (0x6077, 0), (0x60B2, 0)],
    "i": [(0x6064, 0), (0x606C, 0)],
}  # fmt: skip


def test_every_object_has_the_type_of_the_standard_in_driver_and_emulated_drive() -> None:
    emulated = communication_objects(NODE, {}) | drive_objects(500)
    for letter, keys in STANDARD.items():
        for key in keys:
            assert cia402.OBJECTS[key][1].format == f"<{letter}"
    assert {key for key in cia402.OBJECTS if key[0] >= 0x6000} < {key for keys in STANDARD.values() for key in keys}
    for key, (_, form) in cia402.OBJECTS.items():
        assert emulated[key].form is form


def pdo_map(direction: str, entries: list[int]) -> canopen.pdo.base.PdoMap:
    """A PDO of python-canopen with these entries (index << 16 | bits), as ours are mapped."""
    node = canopen.RemoteNode(NODE, DICTIONARY)
    found = getattr(node, direction)[1]
    found.clear()
    for entry in entries:
        found.add_variable(entry >> 16, entry >> 8 & 0xFF, entry & 0xFF)
    return found


@given(U16, I16)
def test_python_canopen_reads_our_command(controlword: int, torque: int) -> None:
    found = pdo_map("rpdo", [CONTROLWORD, TARGET_TORQUE])
    data = cia402.CONTROLWORD.written(bytes(cia402.COMMAND_SIZE), controlword)
    found.data = bytearray(cia402.TARGET.written(data, torque))
    assert [found[index].raw for index in range(2)] == [controlword, torque]


@given(I32, I32)
def test_we_read_the_feedback_of_python_canopen(position: int, velocity: int) -> None:
    found = pdo_map("tpdo", [POSITION, VELOCITY])
    found[0].raw, found[1].raw = position, velocity
    sample = [position * (math.tau / 100_000), velocity * 0.01]
    assert list(DRIVE.motion.values(bytes(found.data)).values()) == sample


@given(U16, I16, U16)
def test_we_read_the_status_of_python_canopen(word: int, torque: int, error: int) -> None:
    found = pdo_map("tpdo", [STATUSWORD, TORQUE, ERROR_CODE])
    found[0].raw, found[1].raw, found[2].raw = word, torque, error
    data, drive = bytes(found.data), driver()
    fields = cia402.STATUSWORD, cia402.TORQUE, cia402.ERROR
    assert [field.reader()(data) for field in fields] == [word, torque, error]
    drive.accept(Frame(0x280 + NODE, data, time=1))
    if cia402.state_of(word) is None:
        assert drive.rejected == 1
    else:
        assert drive.next_torque == torque * 1.0 / 1000 and drive.saturated == bool(word >> 11 & 1)


# Bits 6, 5, 3, 2, 1, 0 of the statusword as CiA 402 prints them; x is any.
PRINTED = {
    "0x0000": Cia402State.NOT_READY,
    "1x0000": Cia402State.SWITCH_ON_DISABLED,
    "010001": Cia402State.READY,
    "010011": Cia402State.SWITCHED_ON,
    "010111": Cia402State.ENABLED,
    "000111": Cia402State.QUICK_STOP,
    "0x1111": Cia402State.FAULT_REACTION,
    "0x1000": Cia402State.FAULT,
}


def printed(word: int) -> Cia402State | None:
    bits = [str(word >> bit & 1) for bit in (6, 5, 3, 2, 1, 0)]
    fits = [state for row, state in PRINTED.items() if all(a in ("x", b) for a, b in zip(row, bits, strict=True))]
    assert len(fits) <= 1
    return fits[0] if fits else None


def test_every_statusword_is_decoded_as_the_standard_prints_it() -> None:
    by_low_byte = [printed(word) for word in range(0x100)]
    for word in range(0x10000):
        assert cia402.state_of(word) is by_low_byte[word & 0xFF]


def test_python_canopen_knows_the_same_states() -> None:
    from canopen.profiles.p402 import State402

    names = {
        "NOT READY TO SWITCH ON": Cia402State.NOT_READY,
        "SWITCH ON DISABLED": Cia402State.SWITCH_ON_DISABLED,
        "READY TO SWITCH ON": Cia402State.READY,
        "SWITCHED ON": Cia402State.SWITCHED_ON,
        "OPERATION ENABLED": Cia402State.ENABLED,
        "QUICK STOP ACTIVE": Cia402State.QUICK_STOP,
        "FAULT REACTION ACTIVE": Cia402State.FAULT_REACTION,
        "FAULT": Cia402State.FAULT,
    }
    for name, (mask, value) in State402.SW_MASK.items():
        assert {cia402.state_of(word) for word in range(0x80) if word & mask == value} == {names[name]}


def test_heartbeats_and_emergencies_are_decoded() -> None:
    assert [cia402.nmt_state(bytes((byte,))) for byte in (0, 4, 5, 127, 0x85, 3)] == [0, 4, 5, 127, 5, None]
    assert cia402.emergency(bytes.fromhex("3081110102030405")) == (0x8130, 0x11, bytes((1, 2, 3, 4, 5)))


def test_an_error_code_has_a_text() -> None:
    assert cia402.error_text(0x0000) == ""
    assert cia402.error_text(0x8130) == "heartbeat of the master lost (0x8130)"
    assert cia402.error_text(0x2320) == "current error (0x2320)"
    assert cia402.error_text(0xFF01) == "device specific error (0xFF01)"
    assert cia402.error_text(0xB000) == "unknown error (0xB000)"
