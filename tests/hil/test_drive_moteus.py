"""The driver of a moteus in conversation with a scripted axis, which reads and writes frames by the maker's package."""

import io
import math
from collections.abc import Iterable
from typing import Any

import pytest
from drive_conversation import MILLISECOND, Conversation, Peer, drive_settings

from hil.assembly.prepare import load
from hil.codecs import moteus as codec
from hil.codecs import moteus as registers
from hil.drives.base import Condition, DriveError
from hil.drives.moteus import MoteusDrive
from hil.drives.settings import DriveSettings
from hil.frame import FD_SIZES, Frame
from hil.protocols import registry as protocols

pytest.importorskip("moteus", reason="the package moteus reads and writes the frames")
from moteus import multiplex, protocol

NODE, PERIOD = 3, 0.0025


def settings(**changes) -> DriveSettings:
    return drive_settings("moteus", **({"node": NODE, "gear": 8.0, "fd": True, "brs": True} | changes))


class Axis(Peer):
    """A scripted drive: mode, watchdog, registers and settings as the maker documents them.

    Args:
        settings: Changes of its settings.
        registers: Changes of its registers.
        watchdog: Factor of the time in a command; 0: it ignores it.
    """

    def __init__(self, settings=None, registers=None, watchdog: float = 1.0) -> None:
        self.settings = {"servo.timeout_mode": "15", "servopos.position_min": "nan", "servopos.position_max": "nan"}
        self.settings |= settings or {}
        self.registers = {0x100: 0x20, 0x101: 0x10A, 0x102: 5, 0x120: 1, 0x121: 2, 0x122: 3, 0x00C: 2} | (
            registers or {}
        )
        self.watchdog = watchdog
        self.mode, self.fault, self.position = 0, 0, 0.25
        self.expires: float | None = None
        self.torques: list[float] = []
        self.text = b""
        self.refuses = self.mute = False

    def take(self, frame: Frame, now: int) -> Iterable[Frame]:
        assert frame.extended and frame.fd and frame.brs and frame.id == 0x8000 | NODE
        assert len(frame.data) in FD_SIZES and len(frame.data) <= 64
        answer, command = io.BytesIO(), {}
        writer = protocol.Writer(answer)
        for part in multiplex.parse_frame(frame.data):
            if isinstance(part, multiplex.StreamSubframe):
                self.stream(part, answer)
            elif part.type is multiplex.SubframeType.WRITE:
                command[part.register] = protocol.scale_register(part.register, part.resolution, part.value)
            elif part.type is multiplex.SubframeType.READ:
                writer.write_int8(0x21 | part.resolution << 2)
                writer.write_varuint(part.register)
                writer.write(self.value(part.register), part.resolution)
        if command:
            assert next(iter(command)) == 0, "the mode must come first"
            self.obey(command, now)
        return [] if self.mute or not answer.getvalue() else [reply(answer.getvalue())]

    def value(self, register: int) -> float:
        measured = {0: self.mode, 1: self.position, 2: -2.0, 3: 1.25, 15: self.fault}
        return measured[register] if register in measured else self.registers[register]

    def stream(self, part, answer: io.BytesIO) -> None:
        if part.type is multiplex.SubframeType.STREAM_CLIENT_TO_SERVER:
            words = part.data.decode().split()
            assert words[:2] == ["conf", "get"] and part.data.endswith(b"\n")
            self.text += self.settings.get(words[2], "ERR error reading").encode() + b"\r\n"
        else:
            sent, self.text = self.text[:4], self.text[4:]  # a long answer comes in parts
            answer.write(bytes([0x41, 1, len(sent)]) + sent)

    def obey(self, command: dict[int, float], now: int) -> None:
        mode = int(command[0])
        if mode == 0:
            self.mode, self.fault, self.expires = 0, 0, None
        elif self.mode not in (1, 11) and not self.refuses:
            self.mode = mode
            if mode == 10:
                assert math.isnan(command[0x20]) and command[0x23] == command[0x24] == command[0x2B] == 0
                self.torques.append(command[0x22])
                self.expires = now + self.watchdog * command[0x27] * 1e9 if self.watchdog else None

    def tick(self, now: int) -> Iterable[Frame]:
        if self.mode == 10 and self.expires is not None and now >= self.expires:
            self.mode = 11
        return []


def reply(data: bytes) -> Frame:
    return Frame(NODE << 8, registers.padded(data), fd=True, brs=True)


def conversation(axis: Axis, **changes) -> tuple[MoteusDrive, Conversation]:
    drive = protocols.build(settings(**changes), PERIOD)
    assert isinstance(drive, MoteusDrive)
    return drive, Conversation(axis, [drive])


def state(mode: int, fault: int = 0, position: float = 0.25) -> Frame:
    axis = Axis()
    axis.mode, axis.fault, axis.position = mode, fault, position
    (frame,) = axis.take(Frame(0x8000 | NODE, codec.query(), True, fd=True, brs=True), 0)
    return frame


def test_bring_up_checks_the_drive_and_commands_torque_in_position_mode() -> None:
    axis = Axis()
    drive, talk = conversation(axis)
    talk.run(drive.identify())
    talk.run(drive.configure())
    assert drive.condition is Condition.DISABLED and axis.torques == []
    talk.run(drive.enable(4.0))
    assert drive.condition is Condition.ENABLED
    assert set(axis.torques) == {-0.5}  # gear 8, sign -1: from the first moment, at the shaft of the drive
    for frame in drive.disable_frames():
        talk.send(frame)
    assert axis.mode == 0 and drive.confirmed_off is False, "the answer to a stop shows the mode before it"
    for frame in drive.disable_frames():
        talk.send(frame)
    assert drive.confirmed_off


def test_the_watchdog_is_tested_without_torque_while_queries_show_the_mode() -> None:
    axis = Axis()
    drive, talk = conversation(axis)
    talk.run(drive.identify())
    began = talk.now
    talk.run(drive.test_watchdog())
    assert set(axis.torques) == {0.0} and axis.mode == 0
    assert 50 <= (talk.now - began) / MILLISECOND < 60
    assert not drive.quiet and drive.condition is Condition.DISABLED


@pytest.mark.parametrize(("watchdog", "said"), [(0.0, "the watchdog in that command was 0.05 s"), (4.0, "mode 10")])
def test_a_watchdog_that_does_not_run_out_in_time_is_refused(watchdog: float, said: str) -> None:
    drive, talk = conversation(Axis(watchdog=watchdog))
    with pytest.raises(DriveError, match=said):
        talk.run(drive.test_watchdog())
    assert not drive.quiet


def test_the_timeout_mode_is_read_through_the_console_and_compared() -> None:
    drive, talk = conversation(Axis({"servo.timeout_mode": "12"}))
    with pytest.raises(
        DriveError, match=r"servo\.timeout_mode is 12, the config says 15: .* the shaft coasts \(.*conf set"
    ):
        talk.run(drive.configure())
    drive, talk = conversation(Axis({"servo.timeout_mode": "12"}), brake=True, options={"timeout_mode": 12})
    talk.run(drive.configure())


def test_bounds_of_the_drive_inside_those_of_the_config_are_refused() -> None:
    # 3 rad at the joint, offset 0.5, sign -1, gear 8: -3.18 rev at the shaft; -3 rad: 4.46 rev
    wide, narrow = {"servopos.position_min": "-3.2"}, {"servopos.position_max": "4.4"}
    drive, talk = conversation(Axis(wide))
    talk.run(drive.configure())
    drive, talk = conversation(Axis(wide | narrow))
    with pytest.raises(
        DriveError, match=r"position_min and position_max are -3\.2 and 4\.4 rev, .* -3\.183 and 4\.456 rev"
    ):
        talk.run(drive.configure())


@pytest.mark.parametrize(("home", "least", "said"), [
    (1, "output", r"its home state is rotor: .* set home: rotor"), (0, "rotor", "its home state is relative"),
    (1, "rotor", ""), (2, "output", ""), (0, "relative", ""),
])  # fmt: skip
def test_a_drive_that_does_not_know_its_position_is_refused(home: int, least: str, said: str) -> None:
    drive, talk = conversation(Axis(registers={0x00C: home}), options={"home": least})
    if not said:
        talk.run(drive.identify())
        return
    with pytest.raises(DriveError, match=said):
        talk.run(drive.identify())


@pytest.mark.parametrize(("verb", "changes", "error", "said"), [
    ("identify", {"registers": {0x102: 4}}, DriveError, "version 4 of the register map, version 5 or later is needed"),
    ("identify", {"mode": 10}, DriveError, r"is in position \(mode 10\) already"),
    ("identify", {"mute": True}, TimeoutError, r"an answer to a query \(is the id right, are both bit rates"),
    ("configure", {"settings": {}}, DriveError, r"answers 'ERR error reading' to conf get servo\.timeout_mode"),
    ("enable", {"refuses": True}, TimeoutError, "mode 10, position"),
])  # fmt: skip
def test_a_drive_that_cannot_be_brought_up_is_named(
    verb: str, changes: dict[str, Any], error: type[Exception], said: str
) -> None:
    axis = Axis()
    for name, value in changes.items():
        setattr(axis, name, getattr(axis, name) | value if name == "registers" else value)
    drive, talk = conversation(axis)
    steps = drive.enable(0.0) if verb == "enable" else getattr(drive, verb)()
    with pytest.raises(error, match=said):
        talk.run(steps)


def test_a_drive_whose_watchdog_ran_out_is_only_enabled_after_a_reset() -> None:
    axis = Axis()
    axis.mode = 11
    drive, talk = conversation(axis)
    talk.run(drive.identify())
    assert drive.fault == "its watchdog ran out: timeout (mode 11)" and drive.condition is Condition.STOPPING
    with pytest.raises(DriveError, match="in fault"):
        talk.run(drive.enable(0.0))
    talk.run(drive.reset())
    talk.run(drive.enable(0.0))
    assert axis.mode == 10


def test_a_drive_in_fault_is_not_enabled_and_a_stop_clears_it() -> None:
    axis = Axis()
    axis.mode, axis.fault = 1, 35
    drive, talk = conversation(axis)
    talk.run(drive.identify())
    assert drive.condition is Condition.FAULT and drive.confirmed_off
    with pytest.raises(DriveError, match=r"in fault: encoder \(fault 35\) \(reset it first\)"):
        talk.run(drive.enable(0.0))
    talk.run(drive.configure())
    assert drive.condition is Condition.DISABLED


@pytest.mark.parametrize("code", range(32, 51))
def test_every_fault_of_the_documentation_has_a_name(code: int) -> None:
    drive, _ = conversation(Axis())
    drive.accept(state(1, code))
    assert drive.fault.endswith(f"(fault {code})") and "unknown" not in drive.fault


def test_a_drive_that_goes_off_while_others_are_still_being_enabled_is_not_enabled_again() -> None:
    drive, _ = conversation(Axis())
    handshake = drive.enable(1.0)  # not continued: a stop has begun
    next(handshake)
    assert protocol.parse_registers(drive.alive_frames()[0].data).command[0] == 10
    drive.accept(state(10))
    assert drive.alive_frames() == ()
    drive.accept(state(0))
    assert protocol.parse_registers(drive.alive_frames()[0].data).command == {}
    handshake.close()


def test_quick_stop_shorts_the_phases() -> None:
    drive, _ = conversation(Axis())
    (brake,), (stop,) = drive.quick_stop_frames(0.0), drive.disable_frames()
    assert protocol.parse_registers(brake.data).command == {0: 15}
    assert protocol.parse_registers(stop.data).command == {0: 0}
    assert drive.torque_bytes(brake) is None and drive.torque_bytes(drive.command(8.0)) == bytes.fromhex("000080bf")


@pytest.mark.parametrize(("node", "extended"), [(7, False), (8, True), (126, True)])
def test_replies_of_ids_above_7_have_29_bits(node: int, extended: bool) -> None:
    drive = protocols.build(settings(node=node), PERIOD)
    answer = Frame(node << 8, registers.padded(state(10).data), extended=extended, fd=True)
    drive.accept(answer)
    assert drive.sample is not None and drive.rejected == 0
    down, up = MoteusDrive.traffic(settings(node=node), PERIOD)
    assert (up.size, up.extended, down.size, down.extended) == (32, True, 20, extended)
    assert up.fd and up.brs and down.fd and down.brs


def test_six_drives_fit_on_one_bus_up_to_554_hz() -> None:
    (of_main,) = load("coordinated_robots_moteus", (), "vm").settings.loads.values()
    assert of_main.highest_rate == pytest.approx(554.0, abs=1.0)


@pytest.mark.parametrize("mode", [0, 15])
@pytest.mark.parametrize("heard", [False, True])
def test_after_a_stop_of_another_master_no_torque_leaves(mode: int, heard: bool) -> None:
    """A reply shows the stop one command late, and that command enables the drive again: our stop takes it back."""
    axis = Axis()
    drive, talk = conversation(axis)
    talk.run(drive.enable(0.0))

    def ticks(count: int) -> None:
        for _ in range(count):
            if drive.condition is Condition.ENABLED:
                talk.send(drive.command(1.0))
            for frame in drive.alive_frames():
                talk.send(frame)

    ticks(3)
    axis.obey({0: mode}, talk.now)
    if heard:
        drive.accept(Frame(NODE, bytes([1, 0, mode]), fd=True))
    before = len(axis.torques)
    ticks(5)
    assert len(axis.torques) == before + (0 if heard else 1)
    assert axis.mode == mode and drive.condition is (Condition.DISABLED if mode == 0 else Condition.STOPPING)
    axis.obey({0: 10, 0x20: math.nan, 0x22: 0.5, 0x23: 0.0, 0x24: 0.0, 0x2B: 0.0, 0x27: 0.05}, talk.now)
    ticks(3)
    assert drive.condition is Condition.STOPPING and len(axis.torques) == before + (1 if heard else 2)  # not ours
    talk.run(drive.reset())
    talk.run(drive.enable(0.0))
    assert drive.condition is Condition.ENABLED


def test_a_drive_that_is_out_of_touch_gets_a_stop_and_no_torque_until_it_is_enabled_again() -> None:
    axis = Axis()
    drive, talk = conversation(axis)
    talk.run(drive.enable(0.0))
    drive.out_of_touch()
    assert drive.condition is Condition.UNKNOWN
    (stop,) = drive.alive_frames()
    assert codec.commanded_mode(stop.data) == codec.STOPPED
    talk.run(drive.reset())
    assert drive.condition is Condition.DISABLED
    drive.out_of_touch()
    assert drive.condition is Condition.DISABLED and not drive.alive_frames()


def test_a_written_mode_is_read_in_every_size() -> None:
    for data in ("01000f", "05000f00", "09000f000000", "02000f05", "01000f1100"):
        assert codec.commanded_mode(bytes.fromhex(data)) == 15
    for data in ("", "0100", "11000f", "0d0000007041", "012000", "05000f"):
        assert codec.commanded_mode(bytes.fromhex(data)) is None
