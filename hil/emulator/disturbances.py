"""Disturbances of frames on a wire, or between the wire and a receiver; and faults of the loop itself."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

import numpy as np

from hil.emulator.station import Station
from hil.frame import Frame
from servoctl.types import Array


class Selection(NamedTuple):
    """The frames that a disturbance concerns."""

    random: Random  # random numbers of the disturbance
    direction: str  # `any`, `to_host` or `from_host`
    identity: int | None  # id of the frames under the mask; None: all ids
    mask: int  # bits of the id that count

    def has(self, frame: Frame, sender: Station, receiver: Station | None) -> bool:
        """Whether a frame is one of the selected ones; a receiver of None stands for all stations."""
        if self.identity is not None and (frame.id ^ self.identity) & self.mask:
            return False
        if self.direction == "from_host":
            return sender.host
        return self.direction == "any" or (not sender.host and (receiver is None or receiver.host))


class Disturbance:
    """A disturbance of the selected frames on a wire, or in an adapter behind it; this one disturbs nothing."""

    def __init__(self, selection: Selection) -> None:
        self._selection, self._random = selection, selection.random

    def corrupts(self, frame: Frame, sender: Station) -> bool:
        """Whether every station sees an error in this frame."""
        return False

    def deliveries(self, frame: Frame, sender: Station, receiver: Station) -> list[tuple[int, Frame]]:
        """Frames that a receiver gets for a frame, each with its delay [ns]."""
        selected = self._selection.has(frame, sender, receiver)
        return [(delay, frame) for delay in self._delays(frame, receiver)] if selected else [(0, frame)]

    def _delays(self, frame: Frame, receiver: Station) -> list[int]:
        """Delays with which a receiver gets a selected frame [ns]."""
        return [0]


class Loss(Disturbance):
    """Loses a frame at a receiver with probability p and the next ones, `burst` frames in total."""

    def __init__(self, selection: Selection, p: float, burst: int) -> None:
        super().__init__(selection)
        self._p, self._burst, self._left = p, burst, 0

    def _delays(self, frame: Frame, receiver: Station) -> list[int]:
        if not self._left and self._random.random() < self._p:
            self._left = self._burst
        if self._left:
            self._left -= 1
            return []
        return [0]


class Delay(Disturbance):
    """Delays frames, in order, by a constant, a uniform part and, with probability p, a spike [ns]."""

    def __init__(self, selection: Selection, constant: int, jitter: int, spike: int, p: float) -> None:
        super().__init__(selection)
        self._constant, self._jitter, self._spike, self._p = constant, jitter, spike, p
        self._last: dict[Station, int] = {}

    def _delays(self, frame: Frame, receiver: Station) -> list[int]:
        delay = self._constant + round(self._jitter * self._random.random())
        if self._spike and self._random.random() < self._p:
            delay += self._spike
        arrival = max(self._last.get(receiver, 0), frame.time + delay)
        self._last[receiver] = arrival
        return [arrival - frame.time]


class Duplicate(Disturbance):
    """Delivers a frame with probability p `count` more times, each `age` [ns] after the one before."""

    def __init__(self, selection: Selection, count: int, age: int, p: float) -> None:
        super().__init__(selection)
        self._count, self._age, self._p = count, age, p

    def _delays(self, frame: Frame, receiver: Station) -> list[int]:
        return [number * self._age for number in range(self._count + 1)] if self._random.random() < self._p else [0]


class Corruption(Disturbance):
    """Corrupts a frame with probability p, repetitions included; every station detects it."""

    def __init__(self, selection: Selection, p: float) -> None:
        super().__init__(selection)
        self._p = p

    def corrupts(self, frame: Frame, sender: Station) -> bool:
        return self._selection.has(frame, sender, None) and self._random.random() < self._p


class HostFaults:
    """The faults of the loop that act now."""

    def __init__(self) -> None:
        self._stall = 0
        self._outputs: list[tuple[str, float]] = []

    def stall(self) -> int:
        """Time for which the loop must stall now [ns], usually 0; the stall is over afterwards."""
        stall, self._stall = self._stall, 0
        return stall

    @property
    def tampers(self) -> bool:
        return bool(self._outputs)

    def tamper(self, u: Array) -> Array:
        for value, step in self._outputs:
            u = u + step if value == "step" else np.full_like(u, float(value))
        return u

    def begin_stall(self, duration: int) -> None:
        """Makes the loop stall at its next tick [ns]."""
        self._stall = duration

    def begin_output(self, value: str, step: float) -> Callable[[], None]:
        """Sends `nan`, `inf`, or with `step` a step more [actuator units], until the returned function is called."""
        entry = (value, step)
        self._outputs.append(entry)
        return lambda: self._outputs.remove(entry)
