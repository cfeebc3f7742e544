"""RobStride's own protocol: fields, driver and emulated motor against the package robstride.

What driver and motor say to each other is in `conversations.txt`.
"""

import random
import struct
from typing import Any

import can
import pytest

from hil.codecs import robstride as codec
from hil.drives.base import DriveError
from hil.drives.settings import Quantity
from hil.drives.table import TableDrive
from hil.emulator.robstride import RobStride
from hil.emulator.timers import Watchdog
from hil.frame import Frame
from tests.hil.drive_host import Host
from tests.hil.emulation import Bench, bare_drive, bench, drive_settings

pytest.importorskip("robstride", reason="the package robstride reads and writes the same frames")
from robstride import client

NODE, HOST = 5, 0xFD


def driver() -> TableDrive:
    """An RS-02, whose ranges are 4 pi rad, 44 rad/s and 17 N m."""
    return bare_drive("robstride", node=NODE, torque_limit=17.0)


class Wire:
    """A bus that hands the package one answer, and keeps what it sends."""

    def __init__(self, *answers: tuple[int, bytes]) -> None:
        self.answers, self.sent = list(answers), []

    def send(self, message: can.Message) -> None:
        self.sent.append((message.arbitration_id, bytes(message.data)))

    def recv(self, timeout: float) -> can.Message:
        identity, data = self.answers.pop(0)
        return can.Message(arbitration_id=identity, data=data, is_extended_id=True)


def feedback(mode: int, faults: int, *numbers: int) -> tuple[int, bytes]:
    return 2 << 24 | mode << 22 | faults << 16 | NODE << 8 | HOST, struct.pack(">4H", *numbers)


def test_the_package_sends_the_same_frames() -> None:
    answer = feedback(0, 0, 0x8000, 0x8000, 0x8000, 250)
    wire = Wire(answer, answer, answer, (0x1100_05FD, bytes.fromhex("0570000000000000")))
    other = client.Client(wire, host_can_id=HOST)
    other.enable(NODE)
    other.disable(NODE)
    other.write_param(NODE, "run_mode", client.RunMode.Operation)
    other.read_param(NODE, "run_mode")
    assert wire.sent == [
        (codec.identifier(codec.ENABLE, HOST, NODE), bytes(8)),
        (codec.identifier(codec.STOP, HOST, NODE), codec.stop(clear=False)),
        (codec.identifier(codec.WRITE, HOST, NODE), codec.write_parameter(codec.RUN_MODE, 0)),
        (codec.identifier(codec.READ, HOST, NODE), codec.read_parameter(codec.RUN_MODE)),
    ]


def test_the_package_reads_feedback_as_we_do() -> None:
    numbers = random.Random(1)
    for _ in range(2000):
        frame = feedback(0, numbers.randrange(0x20), *(numbers.randrange(0x10000) for _ in range(4)))
        drive = driver()
        drive.accept(Frame(*frame, extended=True, time=1))
        theirs = client.Client(Wire(frame), host_can_id=HOST).enable(NODE)
        assert drive.sample is not None
        assert drive.sample[:3] == pytest.approx((theirs.angle, theirs.velocity, theirs.torque), abs=1e-9)
        assert drive.gauges[0] == pytest.approx(theirs.temp) and Quantity.TEMPERATURE in drive.shows
        assert codec.mode_and_faults(frame[0])[1] == sum(error.value for error in theirs.errors)


def test_faults_have_a_text_with_their_bits() -> None:
    assert codec.fault_text(0) == ""
    assert codec.fault_text(0x21) == "under-voltage | not calibrated (fault bits 0x21)"


def test_a_watchdog_that_does_not_work_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(drive_settings("robstride", node=NODE))
    host.order("identify, configure")
    monkeypatch.setattr(Watchdog, "start", lambda self, timeout: None)
    with pytest.raises(DriveError, match=r"is still enabled after 0\.05 s without a command \(canTimeout\)"):
        host.order("test_watchdog")
    assert not host.drive.quiet and not host.node.motor.enabled


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
    host = bench(drive_settings("robstride", node=NODE, **changes))
    node = host.emulator.nodes["a"]
    assert isinstance(node, RobStride)
    return host, node, client.Client(Line(host), host_can_id=HOST)


def push(host: Bench, torque: float) -> Frame:
    raw = int((torque / 17 + 1) / 2 * 65535 + 0.5)
    (answer,) = host.ask(Frame(1 << 24 | raw << 8 | NODE, bytes.fromhex("7fff7fff00000000"), extended=True), 1.0)
    return answer


def test_the_package_enables_the_emulated_motor_and_reads_its_motion() -> None:
    host, node, package = emulated()
    assert package.enable(NODE).servo_id == NODE
    assert node.mode == 2 and node.motor.enabled
    push(host, 1.25)
    began = host.now
    host.collect(200.0)
    expected = 1.25 * (host.now - began) / 1e9 * 2  # gear 2, sign -1, 2 kg: at the motor
    assert package.read_param(NODE, "mechvel") == pytest.approx(expected, rel=0.02)
    assert package.read_param(NODE, "vbus") == 48.0
    told = package.enable(NODE)
    assert told.velocity == pytest.approx(expected, rel=0.03)
    assert package.disable(NODE).torque == pytest.approx(0.0, abs=6e-4)
    assert node.mode == 0 and not node.motor.enabled


def test_faults_are_in_the_id_of_the_emulated_motor_and_a_stop_clears_them() -> None:
    host, node, package = emulated()
    package.enable(NODE)
    node.trip(0x05)
    answer = push(host, 1.0)
    assert (answer.id >> 16 & 0x3F, answer.id >> 22 & 3) == (0x05, 0)
    package.enable(NODE)
    assert node.mode == 0, "a motor in fault is not enabled"
    host.ask(Frame(codec.identifier(codec.STOP, HOST, NODE), codec.stop(clear=True), extended=True))
    package.enable(NODE)
    assert node.mode == 2
