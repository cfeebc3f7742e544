"""The driver of a moteus: what it says to its drive is in `conversations.txt`."""

import pytest
from drive_host import PERIOD, Host
from emulation import drive_settings

from hil.assembly.prepare import load
from hil.codecs import moteus as codec
from hil.drives.base import Condition, DriveError
from hil.drives.moteus import MoteusDrive
from hil.drives.settings import DriveSettings
from hil.frame import Frame
from hil.protocols.registry import build

NODE, OTHER = 1, 0x8501
"""The id of the drive, and that of a command by another master."""


def settings(node: int = NODE) -> DriveSettings:
    return drive_settings("moteus", node=node)


def state(mode: int, node: int = NODE, **kind: bool) -> Frame:
    data = bytes.fromhex(f"2100{mode:02X}2F010000803E000000C00000A03F210F00")
    return Frame(node << 8, codec.padded(data), fd=True, brs=True, **kind)


def test_bounds_of_the_drive_inside_those_of_the_config_are_refused() -> None:
    # 10 rad at the joint, offset 0.25, sign -1, gear 2: -3.104 rev at the shaft; -10 rad: 3.263 rev
    host = Host(settings())
    host.node._configured |= {"servopos.position_min": -3.2, "servopos.position_max": 3.3}
    host.order("identify, configure")
    host.node._configured["servopos.position_max"] = 3.2
    said = r"position_min and position_max are -3\.2 and 3\.2 rev, .* -3\.104 and 3\.263 rev"
    with pytest.raises(DriveError, match=said):
        host.order("configure")


def test_every_fault_of_the_documentation_has_a_name() -> None:
    for code in range(32, 51):
        assert codec.fault_text(code).endswith(f"(fault {code})") and "unknown" not in codec.fault_text(code)


def test_a_drive_that_goes_off_while_others_are_still_being_enabled_is_not_enabled_again() -> None:
    drive = Host(settings()).drive
    handshake = drive.enable(1.0)  # not continued: a stop has begun
    next(handshake)
    assert codec.commanded_mode(drive.alive_frames()[0].data) == codec.IN_POSITION
    drive.accept(state(10))
    assert drive.alive_frames() == ()
    drive.accept(state(0))
    assert codec.commanded_mode(drive.alive_frames()[0].data) is None
    handshake.close()


def test_quick_stop_shorts_the_phases() -> None:
    drive = Host(settings()).drive
    (brake,), (stop,) = drive.quick_stop_frames(0.0), drive.disable_frames()
    assert [codec.commanded_mode(frame.data) for frame in (brake, stop)] == [codec.BRAKE, codec.STOPPED]
    assert drive.torque_bytes(brake) is None and drive.torque_bytes(drive.command(2.0)) == bytes.fromhex("000080bf")


@pytest.mark.parametrize(("node", "extended"), [(7, False), (8, True), (126, True)])
def test_replies_of_ids_above_7_have_29_bits(node: int, extended: bool) -> None:
    drive = build(settings(node), PERIOD)
    drive.accept(state(10, node, extended=extended))
    assert drive.sample is not None and drive.rejected == 0
    down, up = MoteusDrive.traffic(settings(node), PERIOD)
    assert (up.size, up.extended, down.size, down.extended) == (32, True, 20, extended)
    assert up.fd and up.brs and down.fd and down.brs


def test_six_drives_fit_on_one_bus_up_to_554_hz() -> None:
    (of_main,) = load("coordinated_robots_moteus", (), "vm").settings.loads.values()
    assert of_main.highest_rate == pytest.approx(554.0, abs=1.0)


@pytest.mark.parametrize("mode", [codec.STOPPED, codec.BRAKE])
@pytest.mark.parametrize("heard", [False, True])
def test_after_a_stop_of_another_master_no_torque_leaves(mode: int, heard: bool) -> None:
    """A reply shows the stop one command late, and that command enables the drive again: our stop takes it back."""
    host = Host(settings())
    host.order("identify, configure, enable 0")
    drive = host.drive

    def torques(ticks: int) -> int:
        before = len(host.sent)
        for _ in range(ticks):
            host.tick(1.0 if drive.condition is Condition.ENABLED else None)
        return sum(drive.torque_bytes(frame) is not None for frame in host.sent[before:])

    def commanded(data: bytes) -> None:
        host.node.receive(Frame(OTHER, data, True, fd=True, brs=True))

    assert torques(3) == 3
    commanded(codec.mode_command(mode))
    if heard:
        drive.accept(Frame(OTHER, bytes([1, 0, mode]), True, fd=True))
    assert torques(5) == (0 if heard else 1)
    assert host.node.mode == mode and drive.condition is (Condition.DISABLED if mode == 0 else Condition.STOPPING)
    commanded(codec.torque_command(1.0, 0.05))
    assert torques(3) == 0 and drive.condition is Condition.STOPPING  # not ours
    host.order("reset, enable 0")
    assert drive.condition is Condition.ENABLED


def test_a_drive_that_is_out_of_touch_gets_a_stop_and_no_torque_until_it_is_enabled_again() -> None:
    host = Host(settings())
    host.order("identify, configure, enable 0")
    drive = host.drive
    drive.out_of_touch()
    assert drive.condition is Condition.UNKNOWN
    (stop,) = drive.alive_frames()
    assert codec.commanded_mode(stop.data) == codec.STOPPED
    host.order("reset")
    assert drive.condition is Condition.DISABLED
    drive.out_of_touch()
    assert drive.condition is Condition.DISABLED
    assert all(codec.commanded_mode(frame.data) is None for frame in drive.alive_frames())


def test_a_written_mode_is_read_in_every_size() -> None:
    for data in ("01000f", "05000f00", "09000f000000", "02000f05", "01000f1100"):
        assert codec.commanded_mode(bytes.fromhex(data)) == 15
    for data in ("", "0100", "11000f", "0d0000007041", "012000", "05000f"):
        assert codec.commanded_mode(bytes.fromhex(data)) is None
