"""The MIT driver in conversation with a scripted motor that answers every frame."""

import math
import struct
from collections.abc import Iterable

import pytest
from drive_conversation import MILLISECOND, Conversation, Peer, drive_settings, on_the_wire

from hil.drives.base import Condition, DriveError
from hil.drives.linear_ranges import tables
from hil.drives.mit import MitDrive
from hil.drives.settings import DriveSettings, SensorSettings
from hil.frame import Frame
from hil.protocols import registry as protocols
from servoctl.errors import ConfigError

NODE = 3
PERIOD = 0.001
OPTIONS = {"motor": "ak80-9"}  # 12.5 rad, 50 rad/s, 18 N m
ENABLE, DISABLE, CLEAR = (bytes.fromhex("ff" * 7 + code) for code in ("fc", "fd", "fb"))
ZERO = bytes.fromhex("7fff7ff0000007ff")


def settings(**changes) -> DriveSettings:
    return drive_settings("mit", **({"node": NODE, "gear": 2.0, "options": OPTIONS} | changes))


class Motor(Peer):
    """One motor, which answers every frame.

    Args:
        status: Kind of status in its replies.
        watchdog: Time-out of its watchdog [ms]; None: it has none.

    Attributes:
        registers: Of a Damiao: register -> four bytes.
    """

    def __init__(self, status: str = "none", watchdog: int | None = None) -> None:
        self.status, self.watchdog = status, watchdog
        self.enabled = self.lost = self.refuses = False
        self.error = 0
        self.heard = 0
        self.frames: list[tuple[bool, bytes]] = []
        self.registers = {10: struct.pack("<I", 1), 9: struct.pack("<I", 20 * (watchdog or 0))}
        self.registers |= {21 + i: struct.pack("<f", most) for i, most in enumerate((12.5, 50.0, 18.0))}

    def take(self, frame: Frame, now: int) -> Iterable[Frame]:
        if self.status == "damiao" and frame.id == 0x7FF:
            assert frame.data[:3] == bytes((NODE, 0, 0x33)) and frame.data[4:] == bytes(4)
            return [Frame(0, frame.data[:4] + self.registers[frame.data[3]])]
        assert frame.id == NODE
        if self.watchdog and self.enabled and now - self.heard > self.watchdog * MILLISECOND:
            self.enabled, self.lost = False, True
        self.heard = now
        self.frames.append((self.enabled, frame.data))
        if frame.data == ENABLE and not (self.error or self.lost or self.refuses):
            self.enabled = True
        elif frame.data == DISABLE:
            self.enabled = False
        elif frame.data == CLEAR:
            self.error, self.lost = 0, False
        return [Frame(0, self.reply())]

    def reply(self, position: int = 0x9999, velocity: int = 0x7FF, torque: int = 0x8E3) -> bytes:
        first, rest = NODE, b""
        if self.status == "damiao":
            first |= (self.error or (0xD if self.lost else int(self.enabled))) << 4
            rest = bytes((30, 30))
        elif self.status == "cubemars":
            rest = bytes((30, self.error))
        return bytes((first,)) + (position << 24 | velocity << 12 | torque).to_bytes(5, "big") + rest


def conversation(motor: Motor, **changes) -> tuple[MitDrive, Conversation]:
    options = OPTIONS | {"status": motor.status} | changes.pop("options", {})
    drive = protocols.build(settings(options=options, **changes), PERIOD)
    assert isinstance(drive, MitDrive)
    return drive, Conversation(motor, [drive])


@pytest.mark.parametrize("status", ["none", "cubemars", "damiao"])
def test_a_motor_is_brought_up_enabled_and_disabled(status: str) -> None:
    motor = Motor(status)
    drive, talk = conversation(motor)
    for steps in (drive.identify(), drive.configure(), drive.test_watchdog()):
        talk.run(steps)
    assert drive.condition is Condition.DISABLED and not drive.watchdog
    assert {data for _, data in motor.frames} == {ZERO, DISABLE}
    motor.frames.clear()
    talk.forget()
    talk.run(drive.enable(4.0))
    rest = {"none": "", "cubemars": "1E 00", "damiao": "1E 1E"}[status]  # temperature and fault, or two temperatures
    enabled = "RX 000  13 99 99 7F F8 E3 1E 1E" if status == "damiao" else ""  # status 1
    assert [line for line in talk.lines if line != "TX 003 7F FF 7F F0 00 00 07 1C"] == on_the_wire(
        f"""
        RX 000  03 99 99 7F F8 E3 {rest}   # after the first torque, -2 N m at the motor
        TX 003  FF FF FF FF FF FF FF FC    # enable
        {enabled}
        """
    )
    assert talk.lines[0] == "TX 003 7F FF 7F F0 00 00 07 1C"
    assert drive.condition is Condition.ENABLED and motor.enabled
    seed = drive.command(4.0).data  # -2 N m at the motor
    assert {data for _, data in motor.frames} == {seed, ENABLE}
    assert seed.hex() == "7fff7ff00000071c"
    for _ in range(3):
        for frame in drive.disable_frames():
            talk.send(frame)
        talk.pump(lambda: False, 0.06)
    assert drive.condition is Condition.DISABLED and not motor.enabled
    assert drive.rejected == 0


def test_late_replies_to_older_commands_do_not_prove_that_a_motor_is_off() -> None:
    """Its frames have no status: replies that wait in a queue look like answers to the command to disable."""
    motor = Motor()
    drive, talk = conversation(motor)
    talk.run(drive.configure())
    talk.run(drive.enable(0.0))
    drive.disable_frames()
    for k in range(60):
        drive.accept(Frame(0, motor.reply(), time=talk.now + k * MILLISECOND))
        assert drive.condition is Condition.ENABLED and not drive.confirmed_off
    for k in range(60, 102):
        drive.accept(Frame(0, motor.reply(), time=talk.now + k * MILLISECOND))
    assert drive.confirmed_off


def test_replies_that_do_not_fit_the_status_are_refused() -> None:
    motor = Motor("none")
    drive, talk = conversation(motor, options={"status": "cubemars"})
    with pytest.raises(DriveError, match="its reply is not 8 bytes, as with status cubemars"):
        talk.run(drive.identify())


def test_enabling_times_out_if_the_motor_does_not_obey() -> None:
    motor = Motor("damiao")
    motor.refuses = True
    drive, talk = conversation(motor)
    talk.run(drive.configure())
    with pytest.raises(TimeoutError, match="command to enable"):
        talk.run(drive.enable(0.0))


def test_only_the_fault_of_a_damiao_is_cleared() -> None:
    for status in ("damiao", "cubemars"):
        motor = Motor(status)
        drive, talk = conversation(motor)
        motor.error = 5
        drive.accept(Frame(0, motor.reply()))
        if status == "damiao":
            talk.run(drive.reset())
            assert talk.lines == on_the_wire(
                """
                TX 003  FF FF FF FF FF FF FF FD   # disable
                RX 000  53 99 99 7F F8 E3 1E 1E   # status 5: sensor fault
                TX 003  FF FF FF FF FF FF FF FB   # clear fault
                RX 000  03 99 99 7F F8 E3 1E 1E   # status 0: disabled
                """
            )
            assert drive.condition is Condition.DISABLED and drive.fault == ""
        else:
            with pytest.raises(TimeoutError, match="switch its power off and on"):
                talk.run(drive.reset())
            assert CLEAR not in {data for _, data in motor.frames}


def test_the_watchdog_test_enables_the_motor_and_sends_no_command() -> None:
    motor = Motor("damiao", watchdog=50)
    drive, talk = conversation(motor, options={"drive_watchdog": True})
    motor.lost = True  # it has received no command for a long time
    talk.run(drive.configure())
    talk.forget()
    talk.run(drive.test_watchdog())
    assert talk.lines == on_the_wire(
        """
        TX 003  FF FF FF FF FF FF FF FD   # disable
        RX 000  D3 99 99 7F F8 E3 1E 1E   # status D: communication lost
        TX 003  FF FF FF FF FF FF FF FB   # clear fault
        RX 000  03 99 99 7F F8 E3 1E 1E   # status 0: disabled
        TX 003  7F FF 7F F0 00 00 07 FF   # zero torque
        TX 003  FF FF FF FF FF FF FF FC   # enable
        RX 000  13 99 99 7F F8 E3 1E 1E   # status 1: enabled
        TX 003  7F FF 7F F0 00 00 07 FF   # zero torque again, then silence; and zero torque after it
        RX 000  D3 99 99 7F F8 E3 1E 1E   # status D: communication lost
        TX 003  FF FF FF FF FF FF FF FD   # disable
        TX 003  FF FF FF FF FF FF FF FB   # clear fault
        RX 000  03 99 99 7F F8 E3 1E 1E   # status 0: disabled
        """
    )
    assert drive.watchdog and not drive.quiet
    assert drive.condition is Condition.DISABLED and drive.fault == ""
    assert {data for _, data in motor.frames} == {ZERO, ENABLE, DISABLE, CLEAR}
    assert sum(enabled and data == ZERO for enabled, data in motor.frames) == 1


def test_a_watchdog_that_does_not_act_is_reported_and_the_motor_disabled() -> None:
    motor = Motor("damiao", watchdog=500)
    drive, talk = conversation(motor, options={"drive_watchdog": True})
    talk.run(drive.configure())
    with pytest.raises(DriveError, match=r"is still enabled after 0\.05 s without a command"):
        talk.run(drive.test_watchdog())
    assert not motor.enabled and not drive.quiet


def test_a_fault_while_its_watchdog_is_tested_is_no_proof_that_it_acts() -> None:
    class Faulty(Motor):
        def take(self, frame: Frame, now: int) -> Iterable[Frame]:
            self.error = 0xA if frame.data == ENABLE else self.error
            return super().take(frame, now)

    drive, talk = conversation(Faulty("damiao", watchdog=50), options={"drive_watchdog": True})
    talk.run(drive.configure())
    with pytest.raises(DriveError, match=r"in fault: over-current"):
        talk.run(drive.test_watchdog())


def test_a_position_is_followed_over_the_ends_of_its_range() -> None:
    drive, _ = conversation(Motor(), gear=1.0, sign=1, offset=0.0)
    span, step, angle = 25.0, 1.7, 0.0
    for count in [*range(40), *range(40, -40, -1)]:
        angle = count * step
        wrapped = (angle + 12.5) % span / span
        drive.accept(Frame(0, Motor().reply(position=round(wrapped * 65535))))
        assert drive.sample.position == pytest.approx(angle, abs=span / 65535)
    assert angle < -60


def test_every_table_of_ranges_is_complete() -> None:
    assert len(tables()) > 15
    for name, ranges in tables().items():
        assert all(value > 0 for value in ranges), name
    assert tables()["rs-01"].position == pytest.approx(4 * math.pi)


def test_mit_has_no_encoder_nodes() -> None:
    with pytest.raises(ConfigError, match="mit has no encoder nodes: it measures only in reply to commands"):
        protocols.build(SensorSettings("x2", "main", "mit", NODE, options=OPTIONS), PERIOD)
