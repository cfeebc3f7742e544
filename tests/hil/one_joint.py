"""Sensing of one joint whose model expects a speed that the test sets: what becomes of each sample."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np

from hil.drives import Sample
from hil.loop import Implausibility
from hil.loop.clock import nanoseconds
from hil.sensing.channels import Channel
from hil.sensing.sensing import Sensing
from servoctl.engine.ccode import BoundCall
from servoctl.mechanics.model import Model
from servoctl.types import State
from tests.hil.samples import Measurement, sense
from tests.small_plants import Masses

MODEL = Model(Masses("u1", "u1"), {}, State(0.0, np.zeros(1), np.zeros(1)))


class OneJoint:
    """The joint; `expected` is its speed by the model [rad/s], NaN: no model."""

    def __init__(self, channel: Channel, expected: float = math.nan, period: float = 0.0025, **options: Any) -> None:
        self.expected, self.period = expected, period
        times, x, u, p, ahead = (np.zeros(size) for size in (2, 2, 1, 1, 2))

        def evaluate() -> None:
            ahead[:] = x[0] + self.expected * times[1], self.expected

        motion: Any = SimpleNamespace(call=SimpleNamespace(bound=BoundCall(evaluate, [times, x, u, p], [ahead])))
        start = State(0.0, np.zeros(1), np.zeros(1))
        self.sensing = Sensing(MODEL, [channel], start, period, motion=motion, engine="vm", **options)

    def read(self, position: float, time: int, velocity: float = 0.0) -> Measurement:
        """The measurement at the instant of a new sample, at a time [ns]."""
        sample = Sample(position, velocity, math.nan, time)
        return sense(self.sensing, time / 1e9, time, [sample], None if math.isnan(self.expected) else np.zeros(1))

    def tick(self, position: float, tick: int, velocity: float = 0.0) -> Implausibility | None:
        """What is wrong with a sample of a tick."""
        findings = self.read(position, nanoseconds(tick * self.period), velocity).findings
        assert len(findings) < 2
        return findings[0] if findings else None
