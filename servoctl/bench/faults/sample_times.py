"""Arrival times of each node's samples at the host: they decide if a run that ended as stale had stale samples."""

from itertools import pairwise

from hil.emulator.emulator import Emulator
from hil.frame import Frame
from hil.loop import SECOND
from servoctl.bench.faults.scenario import PERIOD, SAMPLES

LOOKED_AT = 2 * PERIOD
"""Longest time between two checks of the ages: a tick that misses a sample waits for it and checks late [s]."""


class SampleTimes:
    """Records when samples reach the host's controller."""

    def __init__(self, emulator: Emulator, protocol: str) -> None:
        """Records the samples of all nodes of a machine with this protocol."""
        self._heard: dict[str, list[int]] = {name: [] for name in SAMPLES[protocol]}
        names = {identity: name for name, identity in SAMPLES[protocol].items()}
        station = emulator.buses["main"].station
        receive = station.receive

        def take(frame: Frame) -> None:
            if frame.id in names:
                self._heard[names[frame.id]].append(frame.time)
            receive(frame)

        station.receive = take

    def problems(self, stale: float, since: int, until: int, subject: str | None) -> list[str]:
        """Sentences about an ending that contradicts the ages of the samples.

        Args:
            stale: Age of a sample that must stop the machine [s].
            since: Start of the fault [ns].
            until: Time of the event that ended the run, else the end of the task [ns].
            subject: The node that was reported as stale; None if the run went on.
        """
        if subject is not None:
            silent = (until - max(time for time in self._heard[subject] if time <= until)) / SECOND
            return [f"{subject} was heard {1e3 * silent:.2f} ms before"] if silent < stale else []
        return [
            f"{name} was not heard for {1e3 * silent:.2f} ms"
            for name in self._heard
            if (silent := self._longest(name, since, until)) >= stale + LOOKED_AT
        ]

    def _longest(self, name: str, since: int, until: int) -> float:
        """Longest time between two samples of a node, both after the fault [s]."""
        times = [time for time in self._heard[name] if since <= time <= until]
        return max((b - a for a, b in pairwise(times)), default=0) / SECOND
