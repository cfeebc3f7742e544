"""No frame makes a driver raise, and an invalid frame changes only the count of rejected frames."""

import math
import struct

import pytest
from fuzz import frames

from hil.drives.base import Drive
from hil.drives.settings import DriveSettings
from hil.frame import Frame
from hil.protocols import registry as protocols

LIMITS = {"torque_limit": 2.0, "torque_rate_limit": 400.0, "speed_limit": 6.0, "position_limits": (-3.0, 3.0)}
OPTIONS = {
    "cia402": {"counts_per_turn": 4096, "velocity_unit": 0.1},
    "mit": {"motor": "ak80-9", "status": "cubemars"},
    "moteus": {},
    "odrive": {},
    "robstride": {"motor": "rs-02"},
}
VALID = {
    "cia402": [
        Frame(0x000, bytes((1, 4))),
        Frame(0x083, struct.pack("<HB5x", 0, 0)),
        Frame(0x183, struct.pack("<ii", -1024, 60)),
        Frame(0x283, struct.pack("<HhH", 0x0237, 20, 0)),
        Frame(0x583, bytes(8)),
        Frame(0x703, bytes((5,))),
    ],
    "mit": [
        Frame(0x000, bytes.fromhex("03 9999 7ff 8e3 1e 00".replace(" ", ""))),
        Frame(0x000, bytes.fromhex("03 1999 6ff 7e3 1e 02".replace(" ", ""))),
        Frame(0x000, bytes.fromhex("03 f999 9ff 1e3 1e 00".replace(" ", ""))),
    ],
    "moteus": [
        Frame(0x300, bytes.fromhex("21000a2f010000803e000000c00000a03f210f00"), fd=True, brs=True),
        Frame(0x300, bytes.fromhex("2404000a005000000170ff210f00"), fd=True, brs=True),
        Frame(0x300, bytes.fromhex("29000a0000002101ff"), fd=True),
        Frame(0x300, bytes.fromhex("31ab0101"), fd=True),
        Frame(0x300, bytes.fromhex("41010431350d0a50"), fd=True),
        Frame(0x8003, bytes.fromhex("010000"), extended=True, fd=True),
    ],
    "robstride": [
        Frame(0x0280_03FD, bytes.fromhex("7fff80009999012c"), extended=True),
        Frame(0x0202_03FD, bytes.fromhex("00ff80009999012c"), extended=True),
        Frame(0x1100_03FD, bytes.fromhex("28700000e8030000"), extended=True),
        Frame(0x0180_0003, bytes.fromhex("7fff7fff00000000"), extended=True),
    ],
    "odrive": [
        Frame(0x60, bytes((2, 4, 4, 58, 0, 6, 10, 0))),
        Frame(0x61, struct.pack("<IBBBx", 0, 8, 0, 1)),
        Frame(0x63, struct.pack("<II", 0, 0)),
        Frame(0x69, struct.pack("<ff", 0.25, -2.0)),
        Frame(0x6E, struct.pack("<f4x", 1.0)),
    ],
}


def drive_of(protocol: str) -> Drive:
    options = OPTIONS[protocol]
    fd = protocol == "moteus"
    settings = DriveSettings("u1", "main", protocol, 3, rated_torque=2.0, options=options, fd=fd, brs=fd, **LIMITS)
    drive = protocols.build(settings, 0.0025)
    assert isinstance(drive, Drive)
    return drive


def state(drive: Drive) -> dict[str, object]:
    attributes = vars(drive).items()
    return {name: [*value] if isinstance(value, list) else value for name, value in attributes if name != "rejected"}


def feed(protocol: str, count: int) -> tuple[int, int]:
    drive = drive_of(protocol)
    for frame in VALID[protocol]:
        drive.accept(frame)
    assert drive.rejected == 0
    refused = accepted = 0
    for frame in frames(VALID[protocol], count):
        before, rejected, sample = state(drive), drive.rejected, drive.sample
        drive.accept(frame)
        if drive.rejected > rejected:
            assert drive.rejected == rejected + 1
            assert state(drive) == before
            refused += 1
        elif drive.sample is not sample:
            assert math.isfinite(drive.sample.position) and math.isfinite(drive.sample.velocity)
            assert drive.sample.time == frame.time
            accepted += 1
    return refused, accepted


@pytest.mark.parametrize("protocol", OPTIONS)
def test_ten_thousand_random_frames_raise_nothing_and_change_nothing_invalid(protocol: str) -> None:
    refused, accepted = feed(protocol, 10_000)
    assert refused > 1000 and accepted > 30
