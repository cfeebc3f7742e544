"""Disturbances of frames on a wire, or between the wire and a receiver; and faults of the loop itself."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

import numpy as np

from hil.emulator.station import Station
from hil.frame import Frame
from hil.loop.clock import World
from servoctl.types import Array


class Selection(NamedTuple):
    """The frames that a disturbance concerns."""

    direction: str = "any"  # `any`, `to_host` or `from_host`
    identity: int | None = None  # id of the frames under the mask; None: all ids
    mask: int = 0  # bits of the id that count

    def has(self, frame: Frame, sender: Station, receiver: Station | None) -> bool:
        """Whether a frame is one of the selected ones; a receiver of None stands for all stations."""
        if self.identity is not None and (frame.id ^ self.identity) & self.mask:
            return False
        if self.direction == "from_host":
            return sender.host
        return self.direction == "any" or (not sender.host and (receiver is None or receiver.host))


Delays = Callable[[Frame, Station], list[int]]
"""A frame and its receiver -> the delays [ns] with which the receiver gets it, none if it is lost."""


class Disturbance(NamedTuple):
    """A disturbance of the selected frames on a wire, or in an adapter behind it; by default it disturbs nothing."""

    selection: Selection
    delays: Delays = lambda frame, receiver: [0]
    destroys: Callable[[], bool] = lambda: False  # whether every station sees an error in the frame that ends now

    def corrupts(self, frame: Frame, sender: Station) -> bool:
        return self.selection.has(frame, sender, None) and self.destroys()

    def deliveries(self, frame: Frame, sender: Station, receiver: Station) -> list[int]:
        """Delays with which a receiver gets a frame [ns]."""
        return self.delays(frame, receiver) if self.selection.has(frame, sender, receiver) else [0]


def loss(random: Random, p: float = 1.0, burst: int = 1) -> Delays:
    """Loses a frame at a receiver with probability p and the next ones, `burst` frames in total."""
    left = 0

    def delays(frame: Frame, receiver: Station) -> list[int]:
        nonlocal left
        if not left and random.random() < p:
            left = burst
        if left:
            left -= 1
            return []
        return [0]

    return delays


def lateness(world: World, random: Random, constant: int, jitter: int, spike: int, p: float) -> Delays:
    """Delays frames, in order, by a constant, a uniform part and, with probability p, a spike [ns]."""
    last: dict[Station, int] = {}

    def delays(frame: Frame, receiver: Station) -> list[int]:
        delay = constant + round(jitter * random.random())
        if spike and random.random() < p:
            delay += spike
        last[receiver] = arrival = max(last.get(receiver, 0), world.now + delay)
        return [arrival - world.now]

    return delays


def repetition(random: Random, count: int, age: int, p: float) -> Delays:
    """Delivers a frame with probability p `count` more times, each `age` [ns] after the one before."""
    return lambda frame, receiver: [number * age for number in range(count + 1)] if random.random() < p else [0]


class HostFaults:
    """The faults of the loop that act now."""

    def __init__(self) -> None:
        self.stalled = 0  # [ns] time for which the loop must stall at its next tick; faults set it and the following
        # what becomes of its torques: `nan`, `inf`, or `step` and what is added [actuator units]; None: nothing
        self.output: tuple[str, float] | None = None

    def stall(self) -> int:
        """Time for which the loop must stall now [ns], usually 0; the stall is over afterwards."""
        stall, self.stalled = self.stalled, 0
        return stall

    @property
    def tampers(self) -> bool:
        return self.output is not None

    def tamper(self, u: Array) -> Array:
        if self.output is None:
            return u
        value, step = self.output
        return u + step if value == "step" else np.full_like(u, float(value))
