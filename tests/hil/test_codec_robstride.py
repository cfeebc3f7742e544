"""RobStride's own protocol: golden frames, and another implementation as an independent reader."""

import random
import struct

import can
import pytest
from emulation import bare_drive

from hil.codecs import robstride as codec
from hil.drives.settings import Quantity
from hil.drives.table import TableDrive
from hil.frame import Frame

pytest.importorskip("robstride", reason="the package robstride reads and writes the same frames")
from robstride import client

MOTOR, HOST = 5, 0xFD


def driver() -> TableDrive:
    """An RS-02, whose ranges are 4 pi rad, 44 rad/s and 17 N m."""
    return bare_drive("robstride", node=MOTOR, torque_limit=17.0)


def sent(torque: float) -> tuple[int, bytes]:
    frame = driver().encoding.frame_of(torque)
    assert frame.extended
    return frame.id, frame.data


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
    return 2 << 24 | mode << 22 | faults << 16 | MOTOR << 8 | HOST, struct.pack(">4H", *numbers)


def test_golden_frames() -> None:
    assert sent(2.0) == (0x018F0E05, bytes.fromhex("7fff7fff00000000"))
    assert sent(0.0)[0] == driver().encoding.frame.id == 0x017FFF05
    assert codec.identifier(codec.ENABLE, HOST, MOTOR) == 0x0300FD05
    assert codec.identifier(codec.STOP, HOST, MOTOR) == 0x0400FD05
    assert codec.stop(clear=True) == bytes.fromhex("0100000000000000")
    assert codec.write_parameter(codec.CAN_TIMEOUT, 1000) == bytes.fromhex("28700000e8030000")


def test_the_package_sends_the_same_frames() -> None:
    answer = feedback(0, 0, 0x8000, 0x8000, 0x8000, 250)
    wire = Wire(answer, answer, answer, (0x1100_05FD, bytes.fromhex("0570000000000000")))
    other = client.Client(wire, host_can_id=HOST)
    other.enable(MOTOR)
    other.disable(MOTOR)
    other.write_param(MOTOR, "run_mode", client.RunMode.Operation)
    other.read_param(MOTOR, "run_mode")
    assert wire.sent == [
        (codec.identifier(codec.ENABLE, HOST, MOTOR), bytes(8)),
        (codec.identifier(codec.STOP, HOST, MOTOR), codec.stop(clear=False)),
        (codec.identifier(codec.WRITE, HOST, MOTOR), codec.write_parameter(codec.RUN_MODE, 0)),
        (codec.identifier(codec.READ, HOST, MOTOR), codec.read_parameter(codec.RUN_MODE)),
    ]


def test_the_package_reads_feedback_as_we_do() -> None:
    numbers = random.Random(1)
    for _ in range(2000):
        frame = feedback(0, numbers.randrange(0x20), *(numbers.randrange(0x10000) for _ in range(4)))
        drive = driver()
        drive.accept(Frame(*frame, extended=True, time=1))
        theirs = client.Client(Wire(frame), host_can_id=HOST).enable(MOTOR)
        assert drive.sample is not None
        assert drive.sample[:3] == pytest.approx((theirs.angle, theirs.velocity, theirs.torque), abs=1e-9)
        assert drive.gauges[0] == pytest.approx(theirs.temp) and Quantity.TEMPERATURE in drive.shows
        assert codec.mode_and_faults(frame[0])[1] == sum(error.value for error in theirs.errors)


@pytest.mark.parametrize("mode", range(4))
@pytest.mark.parametrize("faults", [0, 0x01, 0x20, 0x3F])
def test_mode_and_faults_are_in_the_id(mode: int, faults: int) -> None:
    frame = feedback(mode, faults, 0, 0, 0, 0)
    assert codec.mode_and_faults(frame[0]) == (mode, faults)
    assert frame[0] & codec.FEEDBACK_BITS == codec.identifier(codec.FEEDBACK, MOTOR, HOST)


def test_a_parameter_that_the_motor_does_not_have() -> None:
    assert codec.parameter(0x1100_05FD, bytes.fromhex("28700000e8030000")) == (codec.CAN_TIMEOUT, 1000)
    assert codec.parameter(0x1101_05FD, bytes.fromhex("2870000000000000")) == (codec.CAN_TIMEOUT, None)


def test_faults_have_a_text_with_their_bits() -> None:
    assert codec.fault_text(0) == ""
    assert codec.fault_text(0x21) == "under-voltage | not calibrated (fault bits 0x21)"
