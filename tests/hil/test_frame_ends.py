"""What the frames of a drive can say, by the tables of its maker, and limits beyond it."""

from math import inf

import numpy as np
import pytest

from hil.assembly.prepare import load
from hil.drives import Drive
from hil.drives.settings import RUNAWAY
from hil.frame import Frame
from hil.protocols.registry import build, problems
from servoctl.errors import ConfigError
from tests.hil.emulation import drive_settings
from tests.hil.rigs import SCREW, lift

GEAR = 2.0

FASTEST = {
    # ids and layouts as the makers give them; the speed is the largest number of its field
    "mit": (Frame(0, bytes.fromhex("017ffffff7ff"), time=1), {"motor": "ak80-6_v1.1"}, 22.5, 12.0),
    "robstride": (Frame(0x0280_01FD, bytes.fromhex("7fffffff7fff012c"), True, time=1), {"motor": "rs-02"}, 44.0, 17.0),
    "cia402": (
        Frame(0x181, bytes.fromhex("00000000ffffff7f"), time=1), {"counts_per_turn": 1000, "velocity_unit": 1e-6},
        2147.483647, 4.0 * 32.767,
    ),
}  # fmt: skip


@pytest.mark.parametrize("protocol", FASTEST)
def test_the_range_of_the_frames_is_that_of_the_maker_and_its_end_counts_as_beyond(protocol: str) -> None:
    frame, options, speed, torque = FASTEST[protocol]
    settings = drive_settings(protocol, options=options, torque_limit=5.0, speed_limit=1.0)
    drive = build(settings, 0.002)
    assert isinstance(drive, Drive)
    drive.accept(frame)
    assert drive.sample is not None and abs(drive.sample.velocity) * GEAR == pytest.approx(speed, rel=1e-12)
    ends = drive.ends
    assert speed * (1 - 1 / 2000) < ends.speed < np.nextafter(speed, inf)
    assert ends.torque == pytest.approx(torque, rel=1e-12)


@pytest.mark.parametrize("protocol", ["odrive", "moteus"])
def test_single_precision_has_no_end_that_a_speed_could_reach(protocol: str) -> None:
    settings = drive_settings(protocol)
    drive = build(settings, 0.002)
    assert isinstance(drive, Drive) and drive.ends.speed == inf


@pytest.mark.parametrize("protocol", ["odrive", "moteus"])
def test_far_from_zero_a_position_is_as_coarse_as_single_precision(protocol: str) -> None:
    """Neighbours of 10,000 turns are 2^-10 turns apart, more than a step of the encoder."""
    far = np.float32(10_000.0)
    for limit, turns in ((1.0, 2.0**-14), (2 * np.pi * 9_999 / GEAR, float(np.nextafter(far, 0) - far))):
        options = {"encoder_bits": 14}
        drive = build(drive_settings(protocol, options=options, offset=0.0, position_limits=(-limit, limit)), 0.002)
        assert drive.quantum()[0] == drive.visible() == pytest.approx(abs(turns) * 2 * np.pi / GEAR)


@pytest.mark.parametrize("protocol", FASTEST)
def test_a_speed_limit_whose_runaway_no_frame_can_say_is_refused_with_the_largest_that_fits(protocol: str) -> None:
    _, options, speed, _ = FASTEST[protocol]
    settings = drive_settings(protocol, options=options, torque_limit=5.0, speed_limit=speed / GEAR / 1.1)
    (problem,) = problems(settings, 0.002)
    assert problem.path == ("speed_limit",) and "all that is faster looks like that" in problem.what
    largest = float(problem.what.partition("lower it to at most ")[2].partition(",")[0])
    assert 0.98 * speed < RUNAWAY * largest * GEAR < speed  # three digits, rounded down
    assert problems(drive_settings(protocol, options=options, torque_limit=5.0, speed_limit=largest), 0.002) == []


def tolerance(gear: float, *sets: str) -> float:
    setup = load(lift(gear).config, [*lift(gear).overrides, "hil.safety.start_tolerance=", *sets], "vm")
    return setup.settings.drives[0].start_tolerance


def test_the_start_tolerance_never_takes_a_wrong_turn_of_the_motor_for_the_start_pose() -> None:
    assert tolerance(50.0) == 0.02
    for gear in (SCREW, 2000.0):
        assert tolerance(gear) == pytest.approx(0.45 * 2 * np.pi / gear)
    assert tolerance(SCREW, "hil.drives.F.absolute=true") == 0.02
    with pytest.raises(ConfigError, match=r"more than half a turn of the motor of F, 0\.005: .*at most 0\.0045"):
        tolerance(SCREW, "hil.safety.start_tolerance=0.02")
    assert tolerance(SCREW, "hil.safety.start_tolerance=0.02", "hil.drives.F.absolute=true") == 0.02
