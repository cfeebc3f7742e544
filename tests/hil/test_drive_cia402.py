"""The CiA 402 driver: what it says to its drive is in `conversations.txt`."""

import struct
from itertools import pairwise

import pytest
from drive_host import Host
from emulation import drive_settings

from hil.drives.base import Condition, DriveError
from hil.frame import Frame

NODE, PERIOD = 1, 0.002
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
