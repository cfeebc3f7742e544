"""RobStride's own protocol: another implementation as an independent reader and writer."""

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


def test_faults_have_a_text_with_their_bits() -> None:
    assert codec.fault_text(0) == ""
    assert codec.fault_text(0x21) == "under-voltage | not calibrated (fault bits 0x21)"
