"""The emulated RobStride motor against the package robstride; what the driver says to it is in `conversations.txt`."""

from typing import Any

import can
import pytest
from drive_host import Host
from emulation import Bench, bench, drive_settings

from hil.codecs import robstride as codec
from hil.drives.base import DriveError
from hil.emulator.robstride import RobStride
from hil.emulator.timers import Watchdog
from hil.frame import Frame

NODE, HOST = 5, 0xFD


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
