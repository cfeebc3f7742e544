"""Prints the results of loop functions for random, extreme and invalid numbers, run compiled and as Python."""

import math
import random
import struct
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

from hil.bus.error_frames import report
from hil.bus.frame_bits import frame_bits
from hil.bus.multicast import pack
from hil.codecs import cia402, mit, odrive
from hil.drives.sample import Sample
from hil.drives.settings import DriveSettings
from hil.emulator.cia402 import FULL, HALF
from hil.emulator.mit import pack as pack_bits
from hil.emulator.mit import unpack as unpack_bits
from hil.emulator.timers import Timer
from hil.frame import Frame
from hil.loop.clock import nanoseconds
from hil.loop.timing import Distribution
from hil.loop.virtual_time import World
from hil.safety.limits import Limits
from hil.sensing.channels import Channel
from hil.sensing.plausibility import AxisMemory, judge
from hil.sensing.rates import RateFilter

ODD = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 1e-320, 1e16, 1e22, -1e300, math.inf, -math.inf, math.nan]
"""Numbers at which rounding, division and comparison may differ."""

RANGES = mit.Ranges(12.5, 45.0, 18.0, 500.0, 5.0)


def numbers(random_numbers: random.Random, count: int) -> Iterator[float]:
    """Odd ones first, then some of every size."""
    yield from ODD
    for _ in range(count):
        yield random_numbers.uniform(-1.0, 1.0) * 10.0 ** random_numbers.randint(-8, 8)


def show(function: Callable[..., Any], *arguments: Any) -> None:
    """Prints what comes back, to the bit, or what is raised."""
    try:
        said = repr(function(*arguments))
    except (ArithmeticError, ValueError, struct.error) as error:
        said = f"{type(error).__name__}: {error}"
    print(getattr(function, "__qualname__", ""), said)


def codecs(random_numbers: random.Random) -> None:
    """Torques and measurements on the wire, both ways."""
    for number in numbers(random_numbers, 300):
        show(odrive.input_torque, number)
        show(odrive.limits, number, 1.0)
        show(cia402.per_mille, number, 0.5)
        show(cia402.per_mille, number, 3.0)
        show(mit.torque_command, RANGES, number)
        show(pack_bits, number, -12.5, 12.5, 16)
        show(nanoseconds, number)
    for _ in range(300):
        data = random_numbers.randbytes(random_numbers.choice((0, 1, 4, 6, 8)))
        for read in (odrive.heartbeat, odrive.errors, odrive.estimates, odrive.version, cia402.status, cia402.feedback):
            show(read, data)
        show(cia402.emergency, data)
        show(mit.reply, data, RANGES)
        show(report, Frame(random_numbers.getrandbits(10), data, error=True))
        bits = random_numbers.getrandbits(16)
        show(unpack_bits, bits, -12.5, 12.5, 16)
        print((bits * random_numbers.choice((1, -70000)) + HALF & FULL) - HALF)


def frames(random_numbers: random.Random) -> None:
    """Bits on the wire, CRC, datagrams."""
    for extended, remote in product((False, True), repeat=2):
        for _ in range(150):
            size = random_numbers.randint(0, 8)
            data = (
                b""
                if remote
                else bytes(random_numbers.choice((0, 255, random_numbers.getrandbits(8))) for _ in range(size))
            )
            frame = Frame(
                random_numbers.getrandbits(29 if extended else 11), data, extended, remote, length=size * remote
            )
            show(frame_bits, frame)
            show(pack, frame)


def sensing(random_numbers: random.Random) -> None:
    """Plausibility and rates of samples that may be anything."""
    for turn, speed in ((math.inf, 6.0), (math.tau, 6.0), (math.inf, math.inf)):
        channel = Channel("u1", 1e-3, speed_limit=speed, turn=turn, leap=0.1, interval=0.0025)
        memory, track, rates, time = AxisMemory(), None, RateFilter(0.005), 0
        for number in numbers(random_numbers, 400):
            time += random_numbers.choice((0, 1, 2_500_000, 40_000_000))
            position = random_numbers.choice((number, 0.01 * number % 1.0, 0.001))
            memory, finding = judge(channel, "rad", memory, Sample(position, number, 0.0, time), number, number)
            track = rates.update(track, position, time)
            print(finding, memory.accepted, memory.rejected, memory.travel, memory.moved, track)


def limits(random_numbers: random.Random) -> None:
    """Torques that a limit may change."""
    drive = DriveSettings(
        "u1", "main", "cia402", 1, torque_limit=12, torque_rate_limit=400, speed_limit=6, position_limits=(-3, 3)
    )
    limiter = Limits([drive, drive], 0.0025)
    for number in numbers(random_numbers, 400):
        wanted = [number, random_numbers.choice(ODD)]
        show(limiter.apply, wanted, [random_numbers.uniform(-4, 4), random_numbers.choice((math.nan, 0.0))])
        print(limiter.clamped, limiter.blocked, limiter.previous)


def times(random_numbers: random.Random) -> None:
    """Statistics of durations, and timers that drift."""
    kept = Distribution()
    for _ in range(400):
        kept.add(random_numbers.choice((-5, 0, 127, 128, random_numbers.getrandbits(random_numbers.randint(1, 60)))))
    print(kept.as_dict(), [kept.percentile(percent) for percent in (0, 1, 50, 100)])
    world, rung = World(), list[int]()
    timer = Timer(world, lambda: rung.append(world.now))
    timer.start(1_000_003, 5)
    for ppm in (-1e5, 333.3, 1e-3):
        world.advance(world.now + 20_000_000)
        timer.drift_by(ppm)
    print(rung)


if __name__ == "__main__":
    for part in (codecs, frames, sensing, limits, times):
        part(random.Random(part.__name__))
