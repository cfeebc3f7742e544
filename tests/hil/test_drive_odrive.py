"""The ODrive driver in conversation with a scripted axis."""

import math
import struct
from collections.abc import Iterable
from typing import Any

import pytest
from drive_conversation import MILLISECOND, Conversation, Peer, drive_settings, on_the_wire

from hil.drives.base import Condition, Drive, DriveError, Feedback
from hil.drives.odrive import OdriveDrive, OdriveEncoder
from hil.drives.settings import DriveSettings, SensorSettings
from hil.frame import Frame
from hil.protocols import registry as protocols

NODE = 3
PERIOD = 0.0025


def settings(**changes) -> DriveSettings:
    return drive_settings(**({"protocol": "odrive", "node": NODE, "gear": 8.0} | changes))


class Axis(Peer):
    """A scripted axis.

    Args:
        period: Period of the encoder estimates [ms].
        firmware: Major, minor, revision.
        watchdog: Time-out of its watchdog [ms]; None: not enabled.
    """

    def __init__(self, period: int = 1, firmware: tuple[int, int, int] = (0, 6, 10), watchdog: int | None = 50) -> None:
        self.period, self.firmware, self.watchdog = period, firmware, watchdog
        self.state, self.error, self.fed = 1, 0, 0
        self.torques: list[float] = []
        self.calibrated = True
        self.sticky = 0

    def take(self, frame: Frame, now: int) -> Iterable[Frame]:
        assert frame.id >> 5 == NODE
        command = frame.id & 0x1F
        if frame.remote:
            return [Frame(NODE << 5, bytes((2, 4, 4, 58, *self.firmware, 0)))] if command == 0 else []
        if command == 0x0E:
            self.torques.append(struct.unpack_from("<f", frame.data)[0])
            self.fed = now
        elif command == 0x18:
            self.error = self.sticky
        elif command == 0x07 and not (self.error or (frame.data[0] == 8 and not self.calibrated)):
            self.state = frame.data[0]
        return []

    def tick(self, now: int) -> Iterable[Frame]:
        if self.watchdog and now - self.fed > self.watchdog * MILLISECOND:
            self.error, self.state = self.error | 0x0100_0000, 1
        if now % (self.period * MILLISECOND) == 0:
            yield Frame(NODE << 5 | 9, struct.pack("<ff", 0.25, -2.0))
        if now % (100 * MILLISECOND) == 0:
            yield Frame(NODE << 5 | 1, struct.pack("<IBBBx", self.error, self.state, 0, 1))


def conversation(axis: Axis, **changes) -> tuple[OdriveDrive, Conversation]:
    drive = protocols.build(settings(**changes), PERIOD)
    assert isinstance(drive, OdriveDrive)
    return drive, Conversation(axis, [drive])


def test_bring_up_sets_mode_and_limits_before_closed_loop_control() -> None:
    drive, talk = conversation(Axis(), options={"current_limit": 20})
    talk.run(drive.identify())
    assert [line for line in talk.lines if line[3:6] != "069"] == on_the_wire(
        """
        TX 06E  00 00 00 00 00 00 00 00   # torque 0 feeds the watchdog
        RX 061  00 00 00 00 01 00 01 00   # heartbeat: no error, IDLE
        TX 060  remote 8                  # Get_Version?
        RX 060  02 04 04 3A 00 06 0A 00   # protocol 2, firmware 0.6.10
        """
    )
    talk.forget()
    talk.run(drive.configure())
    talk.run(drive.enable(4.0))
    for frame in drive.disable_frames():
        talk.send(frame)
    assert [line for line in talk.lines if line[3:6] != "069"] == on_the_wire(
        """
        TX 067  01 00 00 00 00 00 00 00   # Set_Axis_State IDLE
        TX 06B  01 00 00 00 01 00 00 00   # Set_Controller_Mode torque, passthrough
        TX 06F  91 1D 85 41 00 00 A0 41   # Set_Limits 16.64 turn/s, 20 A
        TX 06E  00 00 00 00 00 00 00 00   # Set_Input_Torque 0
        RX 061  00 00 00 00 01 00 01 00   # heartbeat: IDLE
        TX 06E  00 00 00 BF 00 00 00 00   # Set_Input_Torque -0.5 N m at the motor
        TX 067  08 00 00 00 00 00 00 00   # Set_Axis_State CLOSED_LOOP_CONTROL
        RX 061  00 00 00 00 08 00 01 00   # heartbeat: CLOSED_LOOP_CONTROL
        TX 067  01 00 00 00 00 00 00 00   # Set_Axis_State IDLE
        """
    )


def test_bring_up_clears_a_watchdog_that_expired_long_ago() -> None:
    axis = Axis()
    drive, talk = conversation(axis, options={"current_limit": 20})
    axis.error = 0x0100_0000  # it was not fed after power-on
    talk.run(drive.identify())
    assert drive.condition is Condition.FAULT
    talk.run(drive.configure())
    talk.run(drive.test_watchdog())
    assert drive.condition is Condition.DISABLED and drive.fault == ""
    assert set(axis.torques) == {0.0}
    axis.torques.clear()
    talk.run(drive.enable(4.0))
    assert drive.condition is Condition.ENABLED
    assert set(axis.torques) == {-0.5}  # gear 8, sign -1; repeated to feed the watchdog
    speed, current = struct.unpack("<ff", next(each.data for each in talk.sent if each.id & 0x1F == 0x0F))
    # torque fades within 1.5 N m / vel_gain below it, 1/6 N m per turn/s
    assert speed == pytest.approx(6.0 * 8.0 / (2 * math.pi) + 1.5 * 6) and current == 20.0


def test_without_a_current_limit_the_limits_in_the_drive_stay() -> None:
    drive, talk = conversation(Axis())
    talk.run(drive.configure())
    assert [frame.id & 0x1F for frame in talk.sent] == [0x07, 0x0B, 0x0E]


def test_a_watchdog_that_is_off_is_reported_without_torque() -> None:
    axis = Axis(watchdog=None)
    drive, talk = conversation(axis)
    with pytest.raises(TimeoutError, match="enable_watchdog"):
        talk.run(drive.test_watchdog())
    assert not drive.quiet
    assert set(axis.torques) == {0.0}


def test_a_watchdog_that_is_slower_than_in_the_config_is_reported() -> None:
    drive, talk = conversation(Axis(watchdog=700), watchdog=0.05)
    with pytest.raises(TimeoutError, match=r"watchdog_timeout = 0\.05"):
        talk.run(drive.test_watchdog())


@pytest.mark.parametrize(("changes", "said"), [
    ({"period": 10}, r"sends an encoder estimate every 0\.01 s, feedback_period says 0\.001"),
    ({"firmware": (0, 5, 6)}, r"speaks CANSimple 2 with firmware 0\.5\.6"),
    ({"watchdog": None, "state": 8}, "is in state CLOSED_LOOP_CONTROL already"),
])  # fmt: skip
def test_another_feedback_period_an_old_firmware_and_an_axis_that_is_on_are_refused(
    changes: dict[str, Any], said: str
) -> None:
    axis = Axis()
    vars(axis).update(changes)
    drive, talk = conversation(axis)
    with pytest.raises(DriveError, match=said):
        talk.run(drive.identify())


def test_enabling_times_out_if_the_axis_is_not_calibrated() -> None:
    axis = Axis()
    axis.calibrated = False
    drive, talk = conversation(axis)
    talk.run(drive.configure())
    with pytest.raises(TimeoutError, match="CLOSED_LOOP_CONTROL"):
        talk.run(drive.enable(0.0))


def test_a_watchdog_that_expires_again_during_the_test_of_another_drive_is_reset_again() -> None:
    axis = Axis()
    drive, talk = conversation(axis)
    steps = drive.reset()
    step = next(steps)
    for frame in step.send:
        talk.send(frame)
    drive.quiet = True  # the bus stays quiet for another drive
    assert talk.pump(step.done, step.limit)
    assert drive.fault == "WATCHDOG_TIMER_EXPIRED (0x1000000)"
    drive.quiet = False
    talk.run(steps)
    assert drive.condition is Condition.DISABLED


def test_an_error_that_stays_is_reported() -> None:
    axis = Axis(watchdog=0)
    drive, talk = conversation(axis)
    axis.sticky = 0x200
    with pytest.raises(DriveError, match=r"is in state IDLE after Clear_Errors: DC_BUS_UNDER_VOLTAGE \(0x200\)"):
        talk.run(drive.reset())


def test_an_encoder_node_only_asks_for_the_version() -> None:
    sensor = SensorSettings("x2", "main", "odrive", NODE, gear=100.0, options={"encoder_bits": 14})
    node = protocols.build(sensor, PERIOD)
    assert type(node) is OdriveEncoder and not isinstance(node, Drive) and node.feedback is Feedback.CYCLIC
    talk = Conversation(Axis(watchdog=None), [node])
    talk.run(node.identify())
    assert node.sample.position == pytest.approx(2 * math.pi * 0.25 / 100)
    assert node.quantum()[0] == pytest.approx(2 * math.pi / 2**14 / 100)
    assert [frame.remote for frame in talk.sent] == [True]


def test_limits_that_stay_as_they_are_in_the_drive_are_reported() -> None:
    note = "its own current and speed limits stay as they are saved"
    for options, is_set in (({}, False), ({"current_limit": 20.0}, True)):
        drive = protocols.build(settings(options=options), PERIOD)
        assert isinstance(drive, OdriveDrive)
        assert (note not in drive.unverified) is is_set
        assert "control mode cannot be read back" in drive.unverified


def test_the_default_speed_limit_is_assumed_where_none_is_stated_and_reported_where_it_limits_the_torque() -> None:
    # 12 N m at a gear of 8 take 9 turn/s below the limit, at 1/6 N m per turn/s; 0.5 N m take 0.375 turn/s
    for options, changes, speed in (
        ({}, {}, 0.0),
        ({}, {"torque_limit": 0.5}, (2 - 0.375) * math.tau / 8),
        ({"vel_limit": 17}, {}, math.inf),
        ({"current_limit": 20.0}, {}, math.inf),
        ({}, {"torque_limit": 0.5, "speed_limit": 1.0}, math.inf),  # 2 turn/s are enough
    ):
        drive = protocols.build(settings(options=options, **changes), PERIOD)
        assert isinstance(drive, OdriveDrive)
        assert drive.assumed_speed == pytest.approx(speed), (options, changes)
        assert bool(drive.assumption) is math.isfinite(speed)
        assert drive.assumption.startswith("vel_limit is not stated: at its default, 2 turn/s") or not drive.assumption
