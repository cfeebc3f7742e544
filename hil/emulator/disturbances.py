"""Disturbances of frames on a wire, and between the wire and a receiver."""

import random

from hil.emulator.disturbance import Disturbance
from hil.emulator.station import Station
from hil.frame import Frame


class Selected(Disturbance):
    """A disturbance of selected frames.

    Args:
        random_numbers: Its random numbers.
        direction: `any`, `to_host` or `from_host`.
        identity: Id of the frames under the mask; None: all ids.
        mask: Bits of the id that count.
    """

    def __init__(self, random_numbers: random.Random, direction: str, identity: int | None, mask: int) -> None:
        self.random = random_numbers
        self._direction, self._identity, self._mask = direction, identity, mask

    def concerns(self, frame: Frame, sender: Station, receiver: Station | None) -> bool:
        """Whether a frame is one of the selected ones; a receiver of None stands for all stations."""
        if self._identity is not None and (frame.id ^ self._identity) & self._mask:
            return False
        if self._direction == "from_host":
            return sender.host
        return self._direction == "any" or (not sender.host and (receiver is None or receiver.host))


class Loss(Selected):
    """Loss of frames at a receiver, alone or in bursts."""

    def lose(self, p: float, burst: int) -> "Loss":
        """Loses a frame with probability p and the next ones, `burst` frames in total."""
        self._p, self._burst, self._left = p, burst, 0
        return self

    def deliveries(self, frame: Frame, sender: Station, receiver: Station) -> list[tuple[int, Frame]]:
        if not self.concerns(frame, sender, receiver):
            return [(0, frame)]
        if not self._left and self.random.random() < self._p:
            self._left = self._burst
        if self._left:
            self._left -= 1
            return []
        return [(0, frame)]


class Delay(Selected):
    """Delay of frames in an adapter; their order stays."""

    def delay(self, constant: int, jitter: int, spike: int, p: float) -> "Delay":
        """Delays by a constant, a uniform part and, with probability p, a spike [ns]."""
        self._constant, self._jitter, self._spike, self._p = constant, jitter, spike, p
        self._last: dict[Station, int] = {}
        return self

    def deliveries(self, frame: Frame, sender: Station, receiver: Station) -> list[tuple[int, Frame]]:
        if not self.concerns(frame, sender, receiver):
            return [(0, frame)]
        delay = self._constant + round(self._jitter * self.random.random())
        if self._spike and self.random.random() < self._p:
            delay += self._spike
        arrival = max(self._last.get(receiver, 0), frame.time + delay)
        self._last[receiver] = arrival
        return [(arrival - frame.time, frame)]


class Duplicate(Selected):
    """Repetition of frames."""

    def repeat(self, count: int, age: int, p: float) -> "Duplicate":
        """Delivers a frame with probability p `count` more times, each `age` [ns] after the one before."""
        self._count, self._age, self._p = count, age, p
        return self

    def deliveries(self, frame: Frame, sender: Station, receiver: Station) -> list[tuple[int, Frame]]:
        if not self.concerns(frame, sender, receiver) or self.random.random() >= self._p:
            return [(0, frame)]
        return [(number * self._age, frame) for number in range(self._count + 1)]


class Corruption(Selected):
    """Corruption of frames, which every station detects."""

    def corrupt(self, p: float) -> "Corruption":
        """Corrupts a frame with probability p, repetitions included."""
        self._p = p
        return self

    def corrupts(self, frame: Frame, sender: Station) -> bool:
        return self.concerns(frame, sender, None) and self.random.random() < self._p
