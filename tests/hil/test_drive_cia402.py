"""The CiA 402 driver in conversation with a scripted drive, whose object dictionary python-canopen serves."""

import math
import struct
from collections.abc import Iterable
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import canopen
import pytest
from canopen_objects import node_dictionary
from drive_conversation import MILLISECOND, Conversation, Peer, drive_settings, on_the_wire

from hil.drives import cia402_setup as setup
from hil.drives.base import Condition, Drive, DriveError, Feedback
from hil.drives.cia402 import Cia402Drive, Cia402Encoder
from hil.drives.cia402_setup import Cia402Options
from hil.drives.options import options_of
from hil.drives.sdo import Objects, Transfer
from hil.drives.settings import DriveSettings, SensorSettings
from hil.frame import Frame
from hil.protocols import registry as protocols

NODE = 5
PERIOD = 0.001
RATED = 0.5
OPTIONS = {"counts_per_turn": 4096, "velocity_unit": "rpm"}

STATUSWORD = {
    "disabled": 0x0240,
    "ready": 0x0221,
    "on": 0x0233,
    "enabled": 0x0237,
    "stopping": 0x0217,
    "fault": 0x0208,
    "reacting": 0x020F,
}


def settings(**changes) -> DriveSettings:
    return drive_settings(
        "cia402", **({"node": NODE, "gear": 50.0, "rated_torque": RATED, "options": OPTIONS} | changes)
    )


class Wire(canopen.Network):
    """Collects the frames that a local node sends."""

    def __init__(self) -> None:
        super().__init__()
        self.out: list[Frame] = []

    def send_message(self, can_id: int, data: Any, remote: bool = False) -> None:
        self.out.append(Frame(can_id, bytes(data)))

    def send_periodic(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(stop=lambda: None, update=lambda data: None)  # heartbeats come from `Axis.tick`


class Axis(Peer):
    """A scripted drive. python-canopen serves its objects; NMT, process data and the state machine are scripted here.

    Args:
        dictionary: Its objects; None: all that the driver uses.

    Attributes:
        objects: Values of its objects, as the node itself reads and writes them.
        deaf: Whether it ignores the loss of our heartbeat.
        mute: Whether it answers no SDO request.
        stubborn: Whether it stays in fault until its communication is reset, as an EPOS4 does.
        shows: Index -> value that it reports whatever was written.
    """

    def __init__(self, dictionary: canopen.ObjectDictionary | None = None) -> None:
        self._wire = Wire()
        self._node = canopen.LocalNode(NODE, dictionary or node_dictionary())
        self._wire.add_node(self._node)
        self._node.add_write_callback(self._written)
        self._node.add_read_callback(lambda index, **_: self.shows.get(index))
        self.writes: list[tuple[int, int, int]] = []
        self.shows: dict[int, int] = {}
        self.objects = self._node.sdo
        self.objects[0x6076].raw = round(1000 * RATED)
        self.objects[0x6041].raw = STATUSWORD["disabled"]
        self.state, self.nmt, self.torque = "disabled", 127, 0
        self.deaf = self.mute = self.stubborn = False
        self.torques: list[tuple[str, int]] = []
        self._heartbeat_time: int | None = None
        self._code, self._raised, self._held = 0, False, False

    def _written(self, index: int, subindex: int, od: Any, data: bytes) -> None:
        self.writes.append((index, subindex, int.from_bytes(data, "little")))
        if index == 0x6060:
            self.objects[0x6061].raw = int.from_bytes(data, "little", signed=True)

    def take(self, frame: Frame, now: int) -> Iterable[Frame]:
        if frame.id == 0x600 + NODE and not self.mute:
            self._wire.notify(frame.id, bytearray(frame.data), now)
            answers, self._wire.out = self._wire.out, []
            return answers
        if frame.id == 0:
            assert frame.data[1] == NODE
            return self._manage(frame.data[0])
        if frame.id == 0x77F:
            self._heartbeat_time = now
        if frame.id == 0x200 + NODE and self.nmt == 5:
            self._obey(*struct.unpack("<Hh", frame.data))
        return []

    def _manage(self, order: int) -> list[Frame]:
        if order == 130:
            self.nmt, self._heartbeat_time, self._held = 127, None, False
            return [Frame(0x700 + NODE, bytes(1))]
        assert order == 1
        self.nmt = 5
        return [Frame(0x700 + NODE, bytes((5,)))]

    def _obey(self, controlword: int, torque: int) -> None:
        self.torques.append((self.state, torque))
        raised, self._raised = controlword & 0x80 and not self._raised, bool(controlword & 0x80)
        moves = {
            ("disabled", 6): "ready",
            ("ready", 7): "on",
            ("on", 15): "enabled",
            ("enabled", 2): "stopping",
        }
        if self.state == "fault":
            if raised and not self._held:
                self.state, self._code = "disabled", 0
        elif controlword == 0:
            self.state = "disabled"
        else:
            self.state = moves.get((self.state, controlword), self.state)

    def fail(self, code: int) -> Frame:
        self.state, self._code, self._held = "fault", code, self.stubborn
        return Frame(0x80 + NODE, struct.pack("<HB5x", code, 1))

    def tick(self, now: int) -> Iterable[Frame]:
        consumer = self.objects[0x1016][1].raw
        limit = (consumer & 0xFFFF) * MILLISECOND
        if limit and self._heartbeat_time is not None and now - self._heartbeat_time > limit and not self.deaf:
            assert consumer >> 16 == 127
            self._heartbeat_time, self.nmt = None, 127
            yield self.fail(0x8130)
        if self.nmt == 5:
            yield Frame(0x180 + NODE, struct.pack("<ii", -1024, 60))
            if now % (10 * MILLISECOND) == 0:
                yield Frame(0x280 + NODE, struct.pack("<HhH", STATUSWORD[self.state], 20, self._code))
        if now % (100 * MILLISECOND) == 0:
            yield Frame(0x700 + NODE, bytes((self.nmt,)))


def conversation(axis: Axis, **changes) -> tuple[Cia402Drive, Conversation]:
    drive = protocols.build(settings(**changes), PERIOD)
    assert isinstance(drive, Cia402Drive)
    return drive, Conversation(axis, [drive])


def brought_up(axis: Axis) -> tuple[Cia402Drive, Conversation]:
    drive, talk = conversation(axis)
    talk.run(drive.identify())
    talk.run(drive.configure())
    return drive, talk


def test_identification_reads_profile_modes_rated_torque_and_state() -> None:
    drive, talk = conversation(Axis())
    talk.run(drive.identify())
    assert talk.lines == on_the_wire(
        """
        TX 605  40 00 10 00 00 00 00 00   # device type?
        RX 585  43 00 10 00 92 01 02 00   # 0x00020192: profile 402
        TX 605  40 02 65 00 00 00 00 00   # supported drive modes?
        RX 585  43 02 65 00 00 02 00 00   # bit 9: cyclic synchronous torque
        TX 605  40 76 60 00 00 00 00 00   # motor rated torque?
        RX 585  43 76 60 00 F4 01 00 00   # 500 mN m
        TX 605  40 41 60 00 00 00 00 00   # statusword?
        RX 585  4B 41 60 00 40 02 00 00   # switch on disabled, remote
        """
    )


def test_a_pdo_is_mapped_in_the_order_that_cia_301_prescribes() -> None:
    axis = Axis()
    drive, _ = brought_up(axis)
    first = [write for write in axis.writes if write[0] in (0x1801, 0x1A01)]
    assert first == [
        (0x1801, 1, 0x8000_0000),  # all PDOs are switched off first, and keep their ids: here 0
        (0x1801, 1, 0x8000_0000 | 0x280 + NODE),
        (0x1A01, 0, 0),
        (0x1A01, 1, 0x6041_0010),
        (0x1A01, 2, 0x6077_0010),
        (0x1A01, 3, 0x603F_0010),
        (0x1A01, 0, 3),
        (0x1801, 2, 10),
        (0x1801, 1, 0x280 + NODE),
    ]
    assert drive.condition is Condition.DISABLED and drive.fault == "" and drive.foreign == ""


def test_configuration_resets_the_communication_first_and_starts_the_node_and_clears_its_fault_last() -> None:
    drive, talk = conversation(Axis())
    talk.run(drive.configure())
    talk.pump(lambda: False, 0.01)
    assert talk.lines[:2] == on_the_wire(
        """
        TX 000  82 05   # NMT reset communication
        RX 705  00      # boot-up
        """
    )
    assert talk.lines[talk.lines.index("TX 605 23 16 10 01 32 00 7F 00") :] == on_the_wire(
        """
        TX 605  23 16 10 01 32 00 7F 00   # consumer heartbeat: node 127, 50 ms
        RX 585  60 16 10 01 00 00 00 00
        TX 605  40 16 10 01 00 00 00 00   # read back
        RX 585  43 16 10 01 32 00 7F 00
        TX 000  01 05                     # NMT start
        RX 705  05                        # operational
        TX 77F  05                        # our heartbeat
        RX 185  00 FC FF FF 3C 00 00 00   # position -1024, velocity 60
        RX 285  40 02 14 00 00 00         # switch on disabled, torque 20
        TX 205  00 00 00 00               # fault reset by an edge, though there is no fault
        TX 205  80 00 00 00
        TX 205  00 00 00 00
        """
    )


def test_configuration_sets_every_object() -> None:
    axis = Axis()
    brought_up(axis)
    objects = axis.objects
    for index in range(1, 4):
        assert objects[0x1400 + index][1].raw >> 31
    assert [objects[0x1800 + index][1].raw >> 31 for index in range(4)] == [0, 0, 1, 1]
    assert (objects[0x1400][1].raw, objects[0x1400][2].raw) == (0x200 + NODE, 255)
    assert [objects[0x1600][sub].raw for sub in range(3)] == [2, 0x6040_0010, 0x6071_0010]
    assert (objects[0x1800][1].raw, objects[0x1800][2].raw) == (0x180 + NODE, 1)
    assert [objects[0x1A00][sub].raw for sub in range(3)] == [2, 0x6064_0020, 0x606C_0020]
    assert [objects[index].raw for index in (0x6007, 0x605A, 0x605E, 0x6060)] == [3, 2, 2, 10]
    assert objects[0x6072].raw == 480  # 12 N m over gear 50 is 0.24 N m of 0.5 N m
    assert objects[0x1016][1].raw == 127 << 16 | 50
    assert objects[0x1017].raw == 100


def refused(axis: Axis, match: str, verb: str = "identify") -> None:
    drive, talk = conversation(axis)
    with pytest.raises(DriveError, match=match):
        talk.run(getattr(drive, verb)())
    assert not any(frame.id == 0x200 + NODE for frame in talk.sent)


@pytest.mark.parametrize(("index", "value", "said"), [
    (0x1000, 0x0002_0191, r"says profile 401, not 402"),
    (0x6502, 0x1A5, r"0x6502 \(Supported drive modes\) is 0x1A5: no cyclic synchronous torque"),
    (0x6076, 510, r"0x6076 \(Motor rated torque\) is 0\.51 N m, the config's rated_torque is 0\.5 N m"),
    (0x6041, STATUSWORD["enabled"], "is in state operation enabled already"),
])  # fmt: skip
def test_a_node_that_is_not_the_drive_of_the_config_or_is_enabled_is_refused(index: int, value: int, said: str) -> None:
    axis = Axis()
    axis.objects[index].raw = value
    refused(axis, said)


def test_a_drive_that_does_not_answer_is_asked_twice_on_the_clock_of_the_run() -> None:
    axis = Axis()
    axis.mute = True
    drive, talk = conversation(axis)
    with pytest.raises(TimeoutError, match=r"0x1000 \(Device type\) cannot be read: no SDO response"):
        talk.run(drive.identify())
    assert talk.now == pytest.approx(0.6e9)  # asked twice


def test_a_drive_that_does_not_enter_torque_mode_is_refused() -> None:
    axis = Axis()
    axis.shows[0x6061] = 0
    drive, talk = conversation(axis)
    with pytest.raises(TimeoutError, match=r"0x6061 \(Modes of operation display\) reads 10"):
        talk.run(drive.configure())
    assert sum(frame.data[:4] == bytes.fromhex("40616000") for frame in talk.sent) == 50  # every 10 ms for 0.5 s


def test_a_drive_that_does_not_keep_a_value_is_refused() -> None:
    axis = Axis()
    axis.shows[0x6007] = 0
    refused(axis, r"0x6007 \(Abort connection option code\) was set to 3 and reads 0", "configure")


def test_the_error_names_an_object_that_the_drive_does_not_have() -> None:
    dictionary = node_dictionary()
    del dictionary[0x6072]
    refused(Axis(dictionary), r"0x6072 .* cannot be set to .*: .*Object does not exist", "configure")


def test_enabling_makes_three_state_transitions_with_the_torque_from_the_start() -> None:
    axis = Axis()
    drive, talk = brought_up(axis)
    talk.torque = 5.0
    talk.forget()
    axis.torques.clear()
    talk.run(drive.enable(5.0))
    assert talk.of(0x205, 0x285) == on_the_wire(
        """
        TX 205  06 00 38 FF         # shutdown, torque -200
        RX 285  21 02 14 00 00 00   # ready to switch on
        TX 205  07 00 38 FF         # switch on, torque -200
        RX 285  33 02 14 00 00 00   # switched on
        TX 205  0F 00 38 FF         # enable operation, torque -200
        RX 285  37 02 14 00 00 00   # operation enabled
        """
    )
    assert drive.condition is Condition.ENABLED
    assert {torque for _, torque in axis.torques} == {-200}  # -5/50 N m of 0.5 N m
    assert [state for state, _ in axis.torques if state] and axis.state == "enabled"
    assert struct.unpack("<Hh", drive.command(0.0).data) == (15, 0)


def test_enabling_stops_if_the_drive_does_not_change_its_state() -> None:
    axis = Axis()
    drive, talk = brought_up(axis)
    axis._obey = lambda controlword, torque: None
    talk.torque = 0.0
    with pytest.raises(TimeoutError, match="state ready to switch on"):
        talk.run(drive.enable(0.0))
    assert struct.unpack("<Hh", drive.command(0.0).data) == (0, 0)


def test_a_drive_that_does_not_obey_the_controlword_is_refused() -> None:
    axis = Axis()
    drive, talk = brought_up(axis)
    talk.torque = 0.0
    steps = drive.enable(0.0)
    next(steps)
    drive.accept(Frame(0x280 + NODE, struct.pack("<HhH", 0x0021, 0, 0)))
    with pytest.raises(DriveError, match="remote bit"):
        next(steps)


def test_the_watchdog_test_stops_our_heartbeat_and_configures_the_drive_again() -> None:
    axis = Axis()
    axis.stubborn = True  # its communication has to be reset before the fault
    drive, talk = brought_up(axis)
    talk.torque = 0.0
    talk.forget()
    talk.run(drive.test_watchdog())
    talk.run(drive.rearm())
    assert talk.of(0x000, 0x085, 0x205, 0x285, 0x705) == on_the_wire(
        """
        RX 285  40 02 14 00 00 00         # our heartbeat is silent
        RX 705  05                        # operational
        RX 085  30 81 01 00 00 00 00 00   # emergency 0x8130: heartbeat lost
        TX 000  82 05                     # NMT reset communication
        RX 705  00                        # boot-up
        TX 000  01 05                     # NMT start
        RX 705  05                        # operational
        TX 205  00 00 00 00
        RX 285  08 02 14 00 30 81         # fault 0x8130
        TX 205  80 00 00 00               # fault reset
        RX 285  40 02 14 00 00 00         # switch on disabled
        TX 205  00 00 00 00
        """
    )
    assert drive.condition is Condition.DISABLED and drive.fault == "" and not drive.quiet
    assert {torque for _, torque in axis.torques} == {0}
    assert not {state for state, _ in axis.torques} & {"ready", "on", "enabled"}
    talk.run(drive.enable(0.0))
    assert drive.condition is Condition.ENABLED


def test_a_watchdog_that_does_not_act_is_reported() -> None:
    axis = Axis()
    axis.deaf = True
    drive, talk = brought_up(axis)
    with pytest.raises(TimeoutError, match="0x1016 does not act"):
        talk.run(drive.test_watchdog())
    assert not drive.quiet


def test_a_watchdog_cannot_be_tested_before_it_is_armed() -> None:
    drive, talk = conversation(Axis())
    with pytest.raises(DriveError, match="not armed yet"):
        talk.run(drive.test_watchdog())


def test_a_drive_in_fault_is_not_enabled_and_is_reset_by_an_edge_of_bit_7() -> None:
    axis = Axis()
    drive, talk = brought_up(axis)
    talk.torque = 0.0
    emergency = axis.fail(0x2310)
    drive.accept(emergency)
    assert drive.condition is Condition.FAULT and drive.fault == "emergency: over-current (0x2310)"
    with pytest.raises(DriveError, match="in fault: emergency: over-current"):
        talk.run(drive.enable(0.0))
    talk.forget()
    talk.run(drive.reset())
    assert talk.of(0x205, 0x285) == on_the_wire(
        """
        TX 205  00 00 00 00
        RX 285  08 02 14 00 10 23   # fault 0x2310: over-current
        TX 205  80 00 00 00         # fault reset
        RX 285  40 02 14 00 00 00   # switch on disabled
        TX 205  00 00 00 00
        """
    )
    assert drive.condition is Condition.DISABLED and drive.fault == ""


def test_a_fault_that_stays_is_reported() -> None:
    axis = Axis()
    axis.stubborn = True
    drive, talk = brought_up(axis)
    talk.torque = 0.0
    drive.accept(axis.fail(0x2310))
    with pytest.raises(TimeoutError, match="needs a new bring-up"):
        talk.run(drive.reset())


def test_later_commands_keep_the_controlword_of_disable_and_quick_stop() -> None:
    drive, talk = brought_up(Axis())
    talk.torque = 0.0
    talk.run(drive.enable(0.0))
    first = drive.quick_stop_frames(0.0)
    assert [frame.data.hex() for frame in first] == ["2b5a600006000000", "02000000"]  # without a brake it then holds
    for frames, controlword in ((drive.quick_stop_frames(0.0), 2), (drive.disable_frames(), 0)):
        assert [frame.data for frame in frames] == [struct.pack("<Hh", controlword, 0)]
    talk.forget()
    for stop in (partial(drive.quick_stop_frames, 0.0), drive.disable_frames):
        for frame in stop():
            talk.send(frame)
        talk.pump(lambda: False, 0.02)
    assert talk.of(0x205, 0x285) == on_the_wire(
        """
        TX 205  02 00 00 00         # quick stop
        RX 285  17 02 14 00 00 00   # quick stop active
        TX 205  00 00 00 00         # disable voltage
        RX 285  40 02 14 00 00 00   # switch on disabled
        """
    )
    drive.quick_stop_frames(0.0)
    assert struct.unpack("<Hh", drive.command(1.0).data)[0] == 2


def accept(drive: Drive, identifier: int, data: bytes, time: int = 7) -> None:
    assert identifier in drive.identities
    drive.accept(Frame(identifier, data, time=time))


@pytest.mark.parametrize("nmt", [4, 127])
def test_a_drive_that_leaves_nmt_state_operational_is_in_fault(nmt: int) -> None:
    drive, _ = brought_up(Axis())
    accept(drive, 0x700 + NODE, bytes((nmt,)), time=123)
    assert drive.condition is Condition.FAULT and "left NMT state operational" in drive.fault
    assert drive.alive == 123
    accept(drive, 0x700 + NODE, bytes((5,)))
    assert drive.condition is Condition.DISABLED


def test_a_drive_that_has_restarted_is_in_fault_until_it_is_configured() -> None:
    drive, talk = brought_up(Axis())
    accept(drive, 0x700 + NODE, bytes((0,)))
    accept(drive, 0x700 + NODE, bytes((5,)))
    assert drive.condition is Condition.FAULT and drive.fault.startswith("restarted")
    talk.run(drive.configure())
    assert drive.condition is Condition.DISABLED


def test_our_heartbeat_is_sent_three_times_within_the_watchdog() -> None:
    drive, _ = conversation(Axis())
    sent = [bool(drive.routine_frames()) for _ in range(160)]
    assert sent[0] and sum(sent) == 10  # every 16th tick of 1 ms, watchdog 50 ms
    every = [index for index, was_sent in enumerate(sent) if was_sent]
    assert max(b - a for a, b in pairwise(every)) * PERIOD <= 0.05 / 3


def test_an_encoder_node_is_mapped_and_started() -> None:
    node = protocols.build(SensorSettings("x2", "main", "cia402", NODE, options=OPTIONS), PERIOD)
    assert type(node) is Cia402Encoder and not isinstance(node, Drive) and node.feedback is Feedback.SYNC
    axis = Axis()
    talk = Conversation(axis, [node])
    talk.run(node.identify())
    assert node.sample.position == pytest.approx(-math.pi / 2)
    assert axis.objects[0x1800][2].raw == 1 and axis.objects[0x1400][1].raw >> 31
    assert (8, 1000) in [(each.size, each.rate) for each in Cia402Encoder.traffic(node.settings, PERIOD)]


def result(steps: Transfer[Any]) -> Any:
    """What a transfer returns that needs no frame."""
    with pytest.raises(StopIteration) as ended:
        next(steps)
    return ended.value.value


class Strict:
    """Objects of a drive that keeps bit 30 of a COB-ID, and takes another id only for a PDO that is off."""

    def __init__(self, **values: int) -> None:
        self.values = {
            (0x1800, 1): 1 << 30 | 0x181,
            **{(int(key[1:], 16), 0): value for key, value in values.items()},
        }

    def read(self, index: int, sub: int = 0) -> Transfer[int]:
        yield from ()
        return self.values.get((index, sub), 0)

    def has(self, index: int, sub: int = 0) -> Transfer[bool]:
        yield from ()
        return (index, sub) in self.values

    def write(self, index: int, value: int, sub: int = 0) -> Transfer[None]:
        yield from ()
        if (index, sub) == (0x1800, 1):
            before = self.values[index, sub]
            assert before & setup.INVALID or not (value ^ before) & 0x7FF, "another id while the PDO is on"
            value |= 1 << 30
        self.values[index, sub] = value

    def offer(self, index: int, value: int) -> Transfer[bool]:
        if (index, 0) not in self.values:
            return False
        yield from self.write(index, value)
        return True

    set = write
    check = Objects.check


def test_a_drive_that_keeps_bit_30_and_changes_ids_only_while_a_pdo_is_off_is_let_in() -> None:
    strict = Strict()
    result(setup.map_feedback(strict, 5))  # type: ignore[arg-type]
    assert strict.values[0x1800, 1] == 1 << 30 | 0x185


def test_reactions_that_a_drive_does_not_have_are_let_in_and_named() -> None:
    strict = Strict(x605B=1, x605C=0, x6085=0)
    options = options_of(Cia402Options, settings())
    doubts = result(setup.set_reactions(strict, settings(), options))  # type: ignore[arg-type]
    assert [doubt[:6] for doubt in doubts] == ["0x6007", "0x605A", "0x605E"]
    assert "when the bus is cut" in doubts[0] and all("is absent" in doubt for doubt in doubts)
    assert strict.values[0x605C, 0] == 1 and strict.values[0x6085, 0] > 1


def test_a_drive_without_a_heartbeat_consumer_is_let_in_only_if_the_config_says_so() -> None:
    dictionary = node_dictionary()
    del dictionary[0x1016]
    refused(Axis(dictionary), "0x1016:1 .* keeps its last torque .*drive_watchdog: false", "configure")
    unwatched = protocols.build(settings(options=OPTIONS | {"drive_watchdog": False}), PERIOD)
    assert isinstance(unwatched, Drive) and not unwatched.watchdog
    assert list(unwatched.test_watchdog()) == []
