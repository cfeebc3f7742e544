"""The MIT driver: what it says to its drive is in `conversations.txt`."""

import math

import pytest
from drive_host import Host
from emulation import MILLISECOND, bare_drive, drive_settings

from hil.drives.base import Condition
from hil.drives.linear_ranges import tables
from hil.drives.settings import SensorSettings
from hil.frame import Frame
from hil.protocols.registry import build
from servoctl.errors import ConfigError

AK80 = {"motor": "ak80-9"}  # 12.5 rad, 50 rad/s, 18 N m


def reply(position: int = 0x9999) -> bytes:
    return bytes([1]) + (position << 24 | 0x7FF8E3).to_bytes(5, "big")


def test_late_replies_to_older_commands_do_not_prove_that_a_motor_is_off() -> None:
    """Its frames have no status: replies that wait in a queue look like answers to the command to disable."""
    host = Host(drive_settings("mit", options=AK80))
    host.order("identify, configure, enable 0")
    drive, began = host.drive, host.clock.now()
    drive.disable_frames()
    for k in range(102):
        drive.accept(Frame(0, reply(), time=began + k * MILLISECOND))
        assert k >= 60 or (drive.condition is Condition.ENABLED and not drive.confirmed_off)
    assert drive.confirmed_off and drive.condition is Condition.DISABLED


def test_a_position_is_followed_over_the_ends_of_its_range() -> None:
    drive = bare_drive("mit", options=AK80)
    span, step, angle = 25.0, 1.7, 0.0
    for count in [*range(40), *range(40, -40, -1)]:
        angle = count * step
        wrapped = (angle + 12.5) % span / span
        drive.accept(Frame(0, reply(round(wrapped * 65535))))
        assert drive.sample.position == pytest.approx(angle, abs=span / 65535)
    assert angle < -60


def test_every_table_of_ranges_is_complete() -> None:
    assert len(tables()) > 15
    for name, ranges in tables().items():
        assert all(value > 0 for value in ranges), name
    assert tables()["rs-01"].position == pytest.approx(4 * math.pi)


def test_mit_has_no_encoder_nodes() -> None:
    with pytest.raises(ConfigError, match="mit has no encoder nodes: it measures only in reply to commands"):
        build(SensorSettings("x2", "main", "mit", 3, options=AK80), 0.002)
