"""CiA 402: objects, driver and emulated drive against the tables of the standard and python-canopen.

What driver and drive say to each other is in `conversations.txt`.
"""

import math
import struct
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import canopen
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hil.codecs import cia402
from hil.codecs.cia402 import Cia402State
from hil.drives.base import Condition, DriveError
from hil.drives.cia402_setup import CONTROLWORD, ERROR_CODE, POSITION, STATUSWORD, TARGET_TORQUE, TORQUE, VELOCITY
from hil.drives.table import TableDrive
from hil.emulator.cia402 import following
from hil.emulator.objects import communication_objects, drive_objects
from hil.frame import Frame
from tests.hil.canopen_objects import node_dictionary
from tests.hil.drive_host import Host
from tests.hil.emulation import MILLISECOND, Bench, bare_drive, bench, drive_settings

NODE, PERIOD = 1, 0.002
I16, I32, U16 = st.integers(-(2**15), 2**15 - 1), st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**16 - 1)


DICTIONARY = node_dictionary()


def driver(rated: float = 1.0) -> TableDrive:
    units = {"counts_per_turn": 100_000, "velocity_unit": 0.01}
    return bare_drive("cia402", node=NODE, rated_torque=rated, torque_limit=0.5 * rated, options=units)


DRIVE = driver()


# By hand from CiA 301 and CiA 402; integer letters as in `struct`.
STANDARD = {
    "B": [(0x607E, 0), (0x1029, 1), *((0x1800 + n, 2) for n in range(4)), *((0x1600 + n, 0) for n in range(4))],
    "H": [(0x1017, 0), (0x603F, 0), (0x6040, 0), (0x6041, 0), (0x6072, 0), (0x6073, 0),
          (0x60E0, 0), (0x60E1, 0)],
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
    assert [field.number(data) for field in fields] == [word, torque, error]
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


NO_OBJECT = 0x0602_0000  # abort code


def configured(orders: str = "identify, configure") -> Host:
    host = Host(drive_settings("cia402", node=NODE))
    host.order(orders)
    return host


def controlword(host: Host, torque: float = 0.0) -> int:
    return int(struct.unpack_from("<H", host.drive.command(torque).data)[0])


def test_commands_after_a_failed_enabling_do_not_enable_the_drive() -> None:
    host = configured("identify, configure, refuse")
    with pytest.raises(DriveError, match="state operation enabled"):
        host.order("enable 0")
    assert controlword(host) == 0


def test_later_commands_keep_the_controlword_of_disable_and_quick_stop() -> None:
    host = configured("identify, configure, enable 0")
    assert controlword(host) == 15
    for word, frames in ((2, host.drive.quick_stop_frames), (0, lambda torque: host.drive.disable_frames())):
        assert frames(0.0)[-1].data == struct.pack("<Hh", word, 0)
        assert controlword(host, 1.0) == word


@pytest.mark.parametrize("nmt", [4, 127])
def test_a_drive_that_leaves_nmt_state_operational_is_in_fault(nmt: int) -> None:
    drive = configured().drive
    drive.accept(Frame(0x700 + NODE, bytes((nmt,)), time=123))
    assert drive.condition is Condition.FAULT and "left NMT state operational" in drive.fault
    assert drive.alive == 123
    drive.accept(Frame(0x700 + NODE, bytes((5,))))
    assert drive.condition is Condition.DISABLED


def test_a_drive_that_has_restarted_is_in_fault_until_it_is_configured() -> None:
    host = configured()
    for state in (0, 5):
        host.drive.accept(Frame(0x700 + NODE, bytes((state,))))
    assert host.drive.condition is Condition.FAULT and host.drive.fault.startswith("restarted")
    host.order("configure")
    assert host.drive.condition is Condition.DISABLED


def test_our_heartbeat_is_sent_three_times_within_the_watchdog() -> None:
    drive = Host(drive_settings("cia402")).drive
    sent = [index for index in range(160) if drive.routine_frames()]
    assert sent[0] == 0 and len(sent) == 20  # every 8th tick of 2 ms, watchdog 50 ms
    assert max(b - a for a, b in pairwise(sent)) * PERIOD <= 0.05 / 3


def test_reactions_that_a_drive_does_not_have_are_let_in_and_named() -> None:
    host = Host(drive_settings("cia402", node=NODE))
    host.node.aborts = dict.fromkeys((0x6007, 0x605A, 0x605E), NO_OBJECT)
    host.order("identify, configure")
    doubts = host.drive.doubts
    assert [doubt[:6] for doubt in doubts] == ["0x6007", "0x605A", "0x605E"]
    assert "when the bus is cut" in doubts[0] and all("is absent" in doubt for doubt in doubts)
    assert host.node.values[0x605C, 0] == 1 and host.node.values[0x6085, 0] > 1


def upload(host: Bench, index: int, sub: int = 0) -> bytes:
    """SDO answer to a read."""
    answers = host.ask(Frame(0x600 + NODE, struct.pack("<BHB4x", 0x40, index, sub)))
    (answer,) = [frame for frame in answers if frame.id == 0x580 + NODE]
    return answer.data


def read(host: Bench, index: int, sub: int = 0, form: str = "I") -> int:
    data = upload(host, index, sub)
    assert data[0] & 0xE0 == 0x40, data.hex()
    return int(struct.unpack_from("<" + form, data, 4)[0])


def write(host: Bench, index: int, value: int, size: int, sub: int = 0) -> int:
    """Writes by SDO; returns 0 or the abort code."""
    data = (value % (1 << 8 * size)).to_bytes(size, "little").ljust(4, b"\0")
    request = struct.pack("<BHB", 0x23 | (4 - size) << 2, index, sub) + data
    answers = host.ask(Frame(0x600 + NODE, request))
    (answer,) = [frame for frame in answers if frame.id == 0x580 + NODE]
    if answer.data[0] == 0x80:
        return int(struct.unpack_from("<I", answer.data, 4)[0])
    assert answer.data[0] == 0x60
    return 0


def powered(**settings: Any) -> Bench:
    """A drive that has booted."""
    host = bench(drive_settings("cia402", **settings))
    host.collect(1.0)
    return host


def set_up(host: Bench, kind: int = 1) -> Bench:
    """The same drive with PDOs of the recommended layout, torque mode, operational."""
    layout = ((0x1400, 0x1600, (0x6040_0010, 0x6071_0010)), (0x1800, 0x1A00, (0x6064_0020, 0x606C_0020)),
              (0x1801, 0x1A01, (0x6041_0010, 0x6077_0010, 0x603F_0010)))  # fmt: skip
    for comm, maps, mapped in layout:
        identity = {0x1400: 0x200, 0x1800: 0x180, 0x1801: 0x280}[comm] + NODE
        assert not write(host, comm, identity | 1 << 31, 4, 1)
        assert not write(host, maps, 0, 1)
        for place, entry in enumerate(mapped):
            assert not write(host, maps, entry, 4, place + 1)
        assert not write(host, maps, len(mapped), 1)
        assert not write(host, comm, kind, 1, 2)
        assert not write(host, comm, identity, 4, 1)
    assert not write(host, 0x6060, 10, 1)
    assert not write(host, 0x6072, 2000, 2)
    host.send(Frame(0, bytes([1, NODE])))
    host.collect(1.0)
    return host


def tick(host: Bench, controlword: int, thousandths: int = 0) -> list[Frame]:
    """One cycle of 2 ms: SYNC, then the command."""
    host.send(Frame(0x80), Frame(0x200 + NODE, struct.pack("<Hh", controlword, thousandths)))
    return host.collect(2.0)


def enable(host: Bench, thousandths: int = 0) -> None:
    for controlword in (0x06, 0x07, 0x0F):
        for _ in range(3):
            tick(host, controlword, thousandths)
    assert host.node.state is Cia402State.ENABLED


# By hand from the table of controlwords (bits 7, 3, 2, 1, 0) and the transitions that each names.
ROWS = [
    # pattern of bits 7, 3, 2, 1, 0; transitions: from -> to
    ("0x110", {"SWITCH_ON_DISABLED": "READY", "SWITCHED_ON": "READY",
               "ENABLED": "READY"}),
    ("00111", {"READY": "SWITCHED_ON", "ENABLED": "SWITCHED_ON"}),
    ("01111", {"SWITCHED_ON": "ENABLED", "READY": "ENABLED"}),
    ("0x01x", {"ENABLED": "QUICK_STOP", "READY": "SWITCH_ON_DISABLED",
               "SWITCHED_ON": "SWITCH_ON_DISABLED"}),
    ("0xx0x", {"READY": "SWITCH_ON_DISABLED", "ENABLED": "SWITCH_ON_DISABLED",
               "SWITCHED_ON": "SWITCH_ON_DISABLED", "QUICK_STOP": "SWITCH_ON_DISABLED"}),
]  # fmt: skip


def expected(state: Cia402State, word: int, before: int, option: int) -> Cia402State:
    if word & 0x80:
        edge = not before & 0x80
        return Cia402State.SWITCH_ON_DISABLED if edge and state is Cia402State.FAULT else state
    bits = "".join(str(word >> place & 1) for place in (7, 3, 2, 1, 0))
    for pattern, transitions in ROWS:
        if all(want in ("x", have) for want, have in zip(pattern, bits, strict=True)):
            if pattern == "01111" and state is Cia402State.QUICK_STOP and option >= 5:
                return Cia402State.ENABLED  # transition 16
            return Cia402State[transitions.get(state.name, state.name)]
    raise AssertionError(bits)


@pytest.mark.parametrize("option", [2, 6])
@pytest.mark.parametrize("state", Cia402State)
def test_every_controlword_follows_the_table_of_transitions(state: Cia402State, option: int) -> None:
    for word in range(256):
        for before in (0x00, 0x80):
            assert following(state, word, before, option) is expected(state, word, before, option), hex(word)


def test_it_boots_and_waits() -> None:
    host = bench(drive_settings("cia402"))
    assert [(f.id, f.data) for f in host.collect(1.0)] == [(0x701, b"\0")]
    assert not write(host, 0x1017, 10, 2)
    beats = [frame for frame in host.collect(35.0) if frame.id == 0x701]
    assert [frame.data for frame in beats] == 3 * [b"\x7f"]
    assert {b.time - a.time for a, b in pairwise(beats)} == {10 * MILLISECOND}


def test_a_controlword_acts_at_the_next_sync_and_shows_at_the_one_after() -> None:
    host = set_up(powered())
    seen = []
    for _ in range(3):
        (status,) = [f for f in tick(host, 0x06) if f.id == 0x281]
        seen.append(struct.unpack("<HhH", status.data)[0] & 0x6F)
    assert seen == [0x40, 0x40, 0x21]


def test_max_torque_clamps_and_sets_the_limit_bit() -> None:
    host = set_up(powered())
    assert not write(host, 0x6072, 100, 2)
    enable(host)
    for _ in range(4):
        tick(host, 0x0F, 300)
    assert read(host, 0x6077, form="h") == 100
    assert read(host, 0x6041, form="H") & 1 << 11
    assert read(host, 0x6041, form="H") & 1 << 12


def test_further_limits_clamp_torque_and_polarity_turns_what_its_bits_say() -> None:
    host = set_up(powered())
    for index, limit in ((0x60E0, 200), (0x60E1, 150), (0x6073, 250)):
        assert not write(host, index, limit, 2)
    enable(host)
    for target, torque in ((300, 200), (-300, -150)):
        for _ in range(4):
            tick(host, 0x0F, target)
        assert read(host, 0x6077, form="h") == torque and read(host, 0x6041, form="H") & 1 << 11
    for _ in range(100):
        tick(host, 0x0F, 100)
    forwards = [read(host, index, form="i") > 0 for index in (0x6064, 0x606C)]
    for polarity, turned in ((0x00, (False, False)), (0x80, (True, False)), (0xC0, (True, True))):
        assert not write(host, 0x607E, polarity, 1)
        now = [read(host, index, form="i") > 0 for index in (0x6064, 0x606C)]
        assert [a != b for a, b in zip(now, forwards, strict=True)] == list(turned)
    assert not write(host, 0x607E, 0xE0, 1)
    for _ in range(4):
        tick(host, 0x0F, 100)
    assert read(host, 0x6077, form="h") == 100 and host.node.motor.torque() < 0.0


@pytest.mark.parametrize(
    ("index", "sub", "value", "size", "code"),
    [(0x6041, 0, 1, 2, 0x0601_0002), (0x5555, 0, 1, 1, 0x0602_0000), (0x1018, 9, 1, 4, 0x0609_0011),
     (0x6060, 0, 99, 1, 0x0609_0030), (0x6071, 0, 1, 4, 0x0607_0010), (0x6007, 0, 4, 2, 0x0609_0030)],
)  # fmt: skip
def test_sdo_refuses_with_the_code_of_the_standard(index: int, sub: int, value: int, size: int, code: int) -> None:
    host = powered()
    assert write(host, index, value, size, sub) == code


def test_a_mapping_changes_only_while_the_pdo_is_off_and_accepts_only_mappable_objects() -> None:
    host = powered()
    assert write(host, 0x1A00, 0, 1)
    assert not write(host, 0x1800, 0x8000_0181, 4, 1)
    assert write(host, 0x1A00, 0x6064_0020, 4, 1)  # entries only while their number is 0
    assert not write(host, 0x1A00, 0, 1)
    assert write(host, 0x1A00, 0x6064_0010, 4, 1) == 0x0604_0041  # 32 bits, not 16
    assert write(host, 0x1A00, 0x6502_0020, 4, 1) == 0x0604_0041  # not for PDOs
    for place in (1, 2, 3):
        assert not write(host, 0x1A00, 0x6064_0020, 4, place)
    assert write(host, 0x1A00, 3, 1) == 0x0604_0042  # twelve bytes
    assert not write(host, 0x1600 - 0x200, 0x8000_0201, 4, 1)
    assert not write(host, 0x1600, 0, 1)
    assert write(host, 0x1600, 0x6041_0010, 4, 1) == 0x0604_0041  # nobody writes a statusword
    assert write(host, 0x1600, 2, 1) == 0x0604_0041  # its second entry is empty


def test_an_event_timer_repeats_a_pdo_and_a_change_sends_it_at_once() -> None:
    host = powered()
    assert not write(host, 0x1800, 10, 2, 5)  # TPDO1 carries the statusword, as it is delivered
    host.send(Frame(0, bytes([1, NODE])))
    times = [f.time / MILLISECOND for f in host.collect(35.5) if f.id == 0x181]
    assert [round(b - a) for a, b in pairwise(times)] == [10, 10, 10]
    assert [f.data[0] & 0x6F for f in host.ask(Frame(0x201, b"\x06\x00"), 1.0) if f.id == 0x181] == [0x21]


def test_a_short_pdo_is_reported_and_changes_nothing() -> None:
    host = set_up(powered(), kind=255)
    frames = host.ask(Frame(0x201, b"\x0f\x00"))
    assert [struct.unpack_from("<HB", f.data) for f in frames if f.id == 0x81] == [(0x8210, 0x10)]
    assert host.node.state is Cia402State.SWITCH_ON_DISABLED


@pytest.mark.parametrize(
    ("option", "state", "error"),
    [(0, Cia402State.ENABLED, 0), (1, Cia402State.FAULT, 0x8130), (2, Cia402State.SWITCH_ON_DISABLED, 0),
     (3, Cia402State.SWITCH_ON_DISABLED, 0)],
)  # fmt: skip
def test_a_lost_heartbeat_acts_as_0x6007_says(option: int, state: Cia402State, error: int) -> None:
    host = set_up(powered())
    assert not write(host, 0x6007, option, 2)
    assert not write(host, 0x1016, 127 << 16 | 20, 4, 1)
    beat = Frame(0x700 + 127, b"\x05")
    host.collect(100.0)  # no heartbeat has come yet: nothing is watched
    for controlword in (0x06, 0x07, 0x0F, 0x0F, 0x0F, 0x0F):
        host.send(beat)
        tick(host, controlword)
        tick(host, controlword)
    assert host.node.state is Cia402State.ENABLED
    last = host.now
    host.send(beat)
    frames = host.collect(60.0)
    (emergency,) = [f for f in frames if f.id == 0x81]
    assert struct.unpack_from("<HB", emergency.data) == (0x8130, 0x11)
    # the heartbeat itself takes less than a tenth of a millisecond, the emergency no more than two
    assert 20 * MILLISECOND <= emergency.time - last <= 20.4 * MILLISECOND
    assert host.node.state is state
    assert host.node.values[0x603F, 0] == error
    assert read(host, 0x1001, form="B") & 0x10
    assert host.node.nmt == 127


@pytest.mark.parametrize(("option", "end"), [(2, "SWITCH_ON_DISABLED"), (6, "QUICK_STOP")])
def test_a_quick_stop_brakes_and_ends_as_0x605a_says(option: int, end: str) -> None:
    host = set_up(powered())
    assert not write(host, 0x605A, option, 2)
    enable(host)
    for _ in range(100):
        tick(host, 0x0F, 500)
    speed = abs(host.emulator.state[1][0])
    assert speed > 0.3
    for _ in range(10):
        tick(host, 0x02)
    assert abs(host.emulator.state[1][0]) < speed
    for _ in range(1500):
        tick(host, 0x02)
    assert host.node.state is Cia402State[end]
    # it brakes down to 1 % of the speed limit
    assert abs(host.emulator.state[1][0]) <= 0.2


def test_a_fault_reaction_coasts_if_it_is_configured() -> None:
    speeds = {}
    for reaction, option in (("coast", 0), ("ramp", 2)):
        host = set_up(powered())
        assert not write(host, 0x605E, option, 2)
        enable(host)
        for _ in range(100):
            tick(host, 0x0F, 500)
        host.node.trip(0x2310)
        before = host.emulator.state[1][0]
        host.collect(500.0)
        speeds[reaction] = host.emulator.state[1][0] / before
        assert host.node.state in (Cia402State.FAULT, Cia402State.FAULT_REACTION)
    assert speeds["coast"] == pytest.approx(1.0, abs=1e-9)
    assert 0.0 < speeds["ramp"] < 0.95


class Wires(canopen.Network):
    """python-canopen's network on the emulated bus: whoever waits for an answer lets time pass."""

    def __init__(self, host: Bench) -> None:
        super().__init__()
        self._host = host

    def send_message(self, can_id: int, data: bytes, remote: bool = False) -> None:
        self._host.send(Frame(can_id, bytes(data), remote=remote))
        self.pump(2.0)

    def pump(self, milliseconds: float) -> None:
        for frame in self._host.collect(milliseconds):
            self.notify(frame.id, bytearray(frame.data), frame.time / 1e9)


@pytest.fixture
def master() -> Iterator[tuple[Bench, canopen.RemoteNode, Wires]]:
    host = bench(drive_settings("cia402"))
    network = Wires(host)
    node = canopen.RemoteNode(NODE, node_dictionary())
    network.add_node(node)
    node.sdo.RESPONSE_TIMEOUT = 0.0
    network.pump(2.0)
    yield host, node, network


def test_the_sdo_client_of_python_canopen_reads_and_writes(
    master: tuple[Bench, canopen.RemoteNode, Wires],
) -> None:
    _, node, _ = master
    assert node.sdo[0x6076].raw == 4000
    assert node.sdo[0x6502].raw & 1 << 9
    for index, value in ((0x6072, 1234), (0x6007, 3), (0x6071, -250), (0x6060, 10)):
        node.sdo[index].raw = value
        assert node.sdo[index].raw == value
    assert node.sdo[0x6061].raw == 10
    with pytest.raises(canopen.SdoAbortedError) as refused:
        node.sdo[0x6041].raw = 1
    assert refused.value.code == 0x0601_0002


def test_nmt_and_emergencies_of_python_canopen_agree(master: tuple[Bench, canopen.RemoteNode, Wires]) -> None:
    host, node, network = master
    node.sdo[0x1017].raw = 10
    for state in ("OPERATIONAL", "STOPPED", "PRE-OPERATIONAL"):
        node.nmt.state = state
        network.pump(15.0)
        assert node.nmt.state == state
    host.node.trip(0x3210)
    network.pump(2.0)
    assert [error.code for error in node.emcy.active] == [0x3210]
