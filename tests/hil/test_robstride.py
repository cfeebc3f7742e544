"""The driver of a RobStride motor against a scripted one, and the emulated motor against the package robstride."""

import math
import struct
from collections.abc import Iterable
from typing import Any

import can
import pytest
from drive_conversation import Conversation, Peer
from drive_conversation import drive_settings as of_protocol
from emulation import Bench, bench, drive_settings

from hil.codecs import robstride as codec
from hil.drives.base import Condition, DriveError
from hil.drives.robstride import RobstrideDrive
from hil.drives.settings import DriveSettings
from hil.emulator.robstride import RobStride
from hil.frame import Frame
from hil.protocols import registry as protocols

NODE, HOST = 5, 0xFD
TIMEOUT = 0x7028
TICK = 0.001
"""Period of a conversation [s]."""


def settings(**changes) -> DriveSettings:
    options = {"motor": "rs-02"} | changes.pop("options", {})
    values = {"node": NODE, "gear": 2.0, "sign": 1, "offset": 0.0, "options": options}
    return of_protocol("robstride", **(values | changes))


class Motor(Peer):
    """A scripted motor.

    Args:
        stuck: Parameters that it does not change.
        missing: Parameters that it does not have.
        works: Whether its canTimeout works.
    """

    def __init__(self, stuck: Iterable[int] = (), missing: Iterable[int] = (), works: bool = True) -> None:
        self.values = {0x7005: 3, TIMEOUT: 0}
        self.stuck, self.missing, self.works = set(stuck), set(missing), works
        self.mode = self.faults = self.fed = 0
        self.timeouts: list[int] = []
        self.torques: list[float] = []

    def take(self, frame: Frame, now: int) -> Iterable[Frame]:
        assert frame.extended and not frame.fd and frame.id & 0xFF == NODE and len(frame.data) == 8
        kind, self.fed = frame.id >> 24, now
        if kind == 1:
            assert frame.data[4:] == bytes(4), "gains"
            self.torques.append(((frame.id >> 8 & 0xFFFF) - 32767.5) * 34 / 65535)
        else:
            assert frame.id >> 8 & 0xFFFF == HOST
        index, value = struct.unpack_from("<H2xI", frame.data)
        if kind == 3 and not self.faults:
            self.mode = 2
        elif kind == 4:
            self.mode, self.faults = 0, 0 if frame.data[0] else self.faults
        elif kind == 18 and index not in self.stuck:
            self.values[index] = value
            self.timeouts += [value] if index == TIMEOUT else []
        elif kind == 17:
            gone = index in self.missing
            data = struct.pack("<HHI", index, 0, 0 if gone else self.values[index])
            return [Frame(17 << 24 | gone << 16 | NODE << 8 | HOST, data, extended=True)]
        return [feedback(self.mode, self.faults)]

    def tick(self, now: int) -> Iterable[Frame]:
        if self.works and self.values[TIMEOUT] and now - self.fed >= self.values[TIMEOUT] * 50_000:
            self.mode = 0
        return []


def feedback(mode: int, faults: int = 0, position: float = 1.0) -> Frame:
    raw = round((position / (4 * math.pi) + 1) / 2 * 65535)
    data = struct.pack(">4H", raw, 0x8000, 0xC000, 300)
    return Frame(2 << 24 | mode << 22 | faults << 16 | NODE << 8 | HOST, data, extended=True)


def conversation(motor: Motor, **changes) -> tuple[RobstrideDrive, Conversation]:
    drive = protocols.build(settings(**changes), TICK)
    assert isinstance(drive, RobstrideDrive)
    return drive, Conversation(motor, [drive])


def test_bring_up_sets_the_watchdog_tests_it_and_enables_with_the_first_torque() -> None:
    motor = Motor()
    drive, talk = conversation(motor)
    for steps in (drive.identify(), drive.configure(), drive.test_watchdog()):
        talk.run(steps)
    assert motor.values == {0x7005: 0, TIMEOUT: 1000}  # 50 ms in steps of 50 us
    assert max(map(abs, motor.torques)) < 17 / 65535 * 1.01, "half a step: zero is not on the wire"
    motor.torques.clear()
    talk.run(drive.enable(4.0))
    assert drive.condition is Condition.ENABLED and motor.mode == 2
    assert motor.torques and motor.torques == pytest.approx(len(motor.torques) * [2.0], abs=6e-4)
    for frame in drive.disable_frames():
        talk.send(frame)
    assert drive.confirmed_off and motor.mode == 0


def test_with_a_brake_the_watchdog_is_tested_by_a_short_time() -> None:
    motor = Motor()
    drive, talk = conversation(motor, brake=True)
    talk.run(drive.configure())
    talk.run(drive.test_watchdog())
    assert motor.timeouts == [1000, 200, 1000]


def test_a_watchdog_that_does_not_work_is_refused() -> None:
    drive, talk = conversation(Motor(works=False))
    talk.run(drive.configure())
    with pytest.raises(DriveError, match=r"is still enabled after 0\.05 s without a command \(canTimeout\)"):
        talk.run(drive.test_watchdog())
    assert not drive.quiet


@pytest.mark.parametrize(("motor", "said"), [
    (Motor(stuck=[TIMEOUT]), r"its canTimeout \(0x7028\) is 0 after 1000 was written"),
    (Motor(missing=[TIMEOUT]), r"has no parameter canTimeout \(0x7028\) .*drive_watchdog: false"),
    (Motor(stuck=[0x7005]), r"its run_mode \(0x7005\) is 3 after 0 was written"),
])  # fmt: skip
def test_a_parameter_that_is_not_taken_is_refused(motor: Motor, said: str) -> None:
    drive, talk = conversation(motor)
    with pytest.raises(DriveError, match=said):
        talk.run(drive.configure())


def test_without_a_watchdog_cantimeout_is_off_and_said_so() -> None:
    motor = Motor(missing=[TIMEOUT])
    drive, talk = conversation(motor, options={"drive_watchdog": False})
    talk.run(drive.configure())
    talk.run(drive.test_watchdog())
    assert not drive.watchdog and drive.watchdog_known and motor.mode == 0


def test_a_motor_that_runs_already_is_refused() -> None:
    motor = Motor()
    motor.mode = 2
    drive, talk = conversation(motor)
    with pytest.raises(DriveError, match="is in mode run already"):
        talk.run(drive.identify())


class Line:
    """What the package takes for a bus."""

    def __init__(self, host: Bench) -> None:
        self.host = host
        self.answers: list[Frame] = []

    def send(self, message: can.Message) -> None:
        self.answers += self.host.ask(Frame(message.arbitration_id, bytes(message.data), extended=True), 1.0)

    def recv(self, timeout: float) -> can.Message:
        answer = self.answers.pop(0)
        return can.Message(arbitration_id=answer.id, data=answer.data, is_extended_id=True)


def emulated(**changes: Any) -> tuple[Bench, RobStride, Any]:
    robstride = pytest.importorskip("robstride")
    host = bench(drive_settings("robstride", node=NODE, **changes))
    node = host.emulator.nodes["a"]
    assert isinstance(node, RobStride)
    return host, node, robstride.Client(Line(host), host_can_id=HOST)


def push(host: Bench, torque: float) -> Frame:
    raw = int((torque / 17 + 1) / 2 * 65535 + 0.5)
    (answer,) = host.ask(Frame(1 << 24 | raw << 8 | NODE, bytes.fromhex("7fff7fff00000000"), extended=True), 1.0)
    return answer


def test_the_package_enables_the_emulated_motor_and_reads_its_motion() -> None:
    host, node, client = emulated()
    assert client.enable(NODE).servo_id == NODE
    assert node.mode == 2 and node.motor.enabled
    push(host, 1.25)
    began = host.now
    host.collect(200.0)
    expected = 1.25 * (host.now - began) / 1e9 * 2  # gear 2, sign -1, 2 kg: at the motor
    assert client.read_param(NODE, "mechvel") == pytest.approx(expected, rel=0.02)
    assert client.read_param(NODE, "vbus") == 48.0
    told = client.enable(NODE)
    assert told.velocity == pytest.approx(expected, rel=0.03)
    assert client.disable(NODE).torque == pytest.approx(0.0, abs=6e-4)
    assert node.mode == 0 and not node.motor.enabled


def test_faults_are_in_the_id_of_the_emulated_motor_and_a_stop_clears_them() -> None:
    host, node, client = emulated()
    client.enable(NODE)
    node.trip(0x05)
    answer = push(host, 1.0)
    assert (answer.id >> 16 & 0x3F, answer.id >> 22 & 3) == (0x05, 0)
    client.enable(NODE)
    assert node.mode == 0, "a motor in fault is not enabled"
    host.ask(Frame(codec.identifier(codec.STOP, HOST, NODE), codec.stop(clear=True), extended=True))
    client.enable(NODE)
    assert node.mode == 2
