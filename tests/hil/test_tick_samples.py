"""The tick in C accepts and refuses samples as hil.sensing.plausibility and hil.sensing.scale do, to the bit."""

import math
import random
from typing import Any

import numpy as np
import pytest

from hil.core.library import library
from hil.drives.base import Sample
from hil.sensing import plausibility, scale
from hil.sensing.channels import Channel
from hil.sensing.plausibility import AxisMemory, judge
from hil.sensing.scale import ScaleMemory, compare

STATE = ("accepted_position", "accepted_velocity", "accepted_torque", "travel", "rates", "before")
SCALE = ("scale_start", "scale_moved", "scale_path")
NEW = ("position", "velocity", "torque", "expected")
TIMES = ("accepted_time", "seen", "still_since", "scale_since", "scale_beyond")


class OneChannel:
    """A tick in C with one channel."""

    def __init__(self, channel: Channel) -> None:
        ffi, self._functions = library()
        self._tick = ffi.new("tick *")
        self._channel = ffi.new("tick_channel *")
        for name in ("resolution", "speed_limit", "leap", "interval", "held", "position_error", "speed_error"):
            setattr(self._channel, name, getattr(channel, name))
        self._channel.visible = channel.visible or channel.resolution
        self._tick.channel = self._channel
        for name in ("margin", "steps", "stuck_travel", "stuck_time", "stuck_window"):
            setattr(self._tick, name, getattr(plausibility, name.upper()))
        for name in ("window", "longest", "share", "enough", "told", "gap"):
            setattr(self._tick, f"scale_{name}", getattr(scale, name.upper()))
        self._numbers = {name: ffi.new("double *") for name in (*STATE, *SCALE, *NEW)}
        self._times = {name: ffi.new("long long *") for name in TIMES}
        for name, cell in (*self._numbers.items(), *self._times.items()):
            setattr(self._tick, name, cell)

    def accepts(
        self, memory: AxisMemory, window: ScaleMemory, sample: Sample, rate: float, expected: float
    ) -> tuple[Any, ...] | None:
        """Its state after a sample; None: it gives the tick back."""
        assert memory.accepted is not None
        values = (*memory.accepted[:3], memory.travel, rate, 0.0, *window[1:4], *sample[:3], expected)
        times = (memory.accepted.time, memory.seen, memory.moved, window.since, window.beyond)
        for cell, value in zip(self._numbers.values(), values, strict=True):
            cell[0] = value
        for cell, time in zip(self._times.values(), times, strict=True):
            cell[0] = time
        if self._functions.tick_accept(self._tick, 0, sample.time):
            return None
        return (*(self._numbers[name][0] for name in (*STATE, *SCALE)), *(cell[0] for cell in self._times.values()))


def bits(values: tuple[Any, ...]) -> bytes:
    return np.array(values, dtype=float).tobytes()


@pytest.mark.parametrize("speed_limit", [2.0, math.inf])
def test_samples_of_a_joint_that_moves_rests_and_jumps(speed_limit: float) -> None:
    channel = Channel(
        "a", 1e-4, speed_limit=speed_limit, leap=1e-3, interval=0.0025, visible=2e-4, held=0.4,
        position_error=1e-4, speed_error=1e-3,
    )  # fmt: skip
    chance, machine = random.Random(11), OneChannel(channel)
    memory, rate, expected = AxisMemory(Sample(0.3, 0.0, 0.0, 0), 0), 0.0, 0.0
    window = ScaleMemory(0, 0.3)
    accepted = stuck = refused = restarted = misfits = judged = 0
    for _ in range(20_000):
        last = memory.accepted
        assert last is not None
        elapsed = chance.choice((1_000_000, 2_500_000, 2_500_123, 30_000_000))
        if chance.random() < 0.02:  # the model and the joint go on at other speeds
            expected, rate = (
                chance.choice((0.0, chance.uniform(-0.5, 0.5))),
                chance.choice((0.0, chance.uniform(-1, 1))),
            )
        moved = rate * elapsed / 1e9 + chance.choice((0.0, 0.0, 1e-4, chance.uniform(-0.02, 0.02)))
        velocity = math.nan if chance.random() < 0.005 else rate + chance.uniform(-0.1, 0.1) * bool(rate)
        sample = Sample(last.position + moved, velocity, chance.random(), last.time + elapsed)
        then, finding = judge(channel, "m", memory, sample, rate, expected)
        compared, _ = compare(channel, "m", window, last, sample)
        misfit = compared.beyond > window.beyond  # Python decides whether it stops the machine
        state = machine.accepts(memory, window, sample, rate, expected)
        if finding is not None or math.isnan(velocity) or misfit:
            assert state is None
            stuck += finding is not None and "stands still" in finding.reason
            refused += finding is not None and "jumped" in finding.reason
            misfits += finding is None and misfit
            memory, expected = AxisMemory(sample, sample.time, 0, 0.0, sample.time), 0.0
            memory = memory._replace(accepted=sample._replace(velocity=0.0))
            window = compared if misfit else window._replace(position=window.position + moved)
            continue
        accepted += 1
        restarted += sample.position == last.position and then.moved == sample.time
        judged += compared.since == sample.time and elapsed <= scale.GAP * channel.interval * 1e9
        assert state is not None
        moments = (sample.time, then.seen, then.moved, compared.since, compared.beyond)
        assert bits(state) == bits((*sample[:3], then.travel, velocity, rate, *compared[1:4], *moments))
        memory, window = then, compared
    assert accepted > 8_000 and stuck > 20 and refused > 500 and restarted > 10
    assert misfits > 20 and judged > 20
