"""The ODrive driver: what it says to its axis is in `conversations.txt`."""

import math

import pytest
from drive_host import PERIOD, Host
from emulation import drive_settings

from hil.drives.base import Condition, Drive
from hil.protocols.registry import build


def test_a_watchdog_that_expires_again_during_the_test_of_another_drive_is_reset_again() -> None:
    host = Host(drive_settings("odrive", speed_limit=1.0))
    host.order("identify")
    steps, drive = host.drive.reset(), host.drive
    step = next(steps)
    host.send(*step.send)
    drive.quiet = True  # the bus stays quiet for another drive
    host.until(step.done, host.tick)
    assert drive.fault == "WATCHDOG_TIMER_EXPIRED (0x1000000)"
    drive.quiet = False
    host.perform(steps)
    assert drive.condition is Condition.DISABLED


@pytest.mark.parametrize(("options", "is_set"), [({}, False), ({"current_limit": 20.0}, True)])
def test_limits_that_stay_as_they_are_in_the_drive_are_reported(options: dict[str, float], is_set: bool) -> None:
    drive = build(drive_settings("odrive", options=options | {"feedback_period": PERIOD}), PERIOD)
    assert isinstance(drive, Drive)
    assert ("its own current and speed limits stay as they are saved" not in drive.unverified) is is_set
    assert "control mode cannot be read back" in drive.unverified


@pytest.mark.parametrize(("options", "changes", "speed"), [
    # 12 N m at a gear of 8 take 9 turn/s below the limit, at 1/6 N m per turn/s; 0.5 N m take 0.375 turn/s
    ({}, {}, 0.0), ({}, {"torque_limit": 0.5}, (2 - 0.375) * math.tau / 8), ({"vel_limit": 17}, {}, math.inf),
    ({"current_limit": 20.0}, {}, math.inf),
    ({}, {"torque_limit": 0.5, "speed_limit": 1.0}, math.inf),  # 2 turn/s are enough
])  # fmt: skip
def test_the_default_speed_limit_is_assumed_where_none_is_stated_and_reported_where_it_limits_the_torque(
    options: dict[str, float], changes: dict[str, float], speed: float
) -> None:
    joint = {"gear": 8.0, "torque_limit": 12.0, "speed_limit": 6.0} | changes
    drive = build(drive_settings("odrive", options=options | {"feedback_period": PERIOD}, **joint), PERIOD)
    assert isinstance(drive, Drive)
    assert drive.assumed_speed == pytest.approx(speed)
    said = "vel_limit is not stated: at its default, 2 turn/s" if math.isfinite(speed) else ""
    assert drive.assumption.startswith(said) and bool(drive.assumption) is bool(said)
