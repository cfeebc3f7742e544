"""What the host is handed of each node's samples: whether a verdict on their age is the truth."""

from itertools import pairwise

from hil.emulator.emulator import Emulator
from hil.frame import Frame
from hil.loop import SECOND
from servoctl.bench.faults.scenario import PERIOD, SAMPLES

LOOKED_AT = 2 * PERIOD
"""From one look at ages to the next, at most: a tick that misses a sample waits for it, and looks late [s]."""


class Hearing:
    """Stands between the wire and the host's controller."""

    def __init__(self, emulator: Emulator, protocol: str) -> None:
        """Begins to listen to the nodes of a machine of this protocol."""
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
        """What is wrong with a verdict.

        Args:
            stale: Age of a sample that must stop the machine [s].
            since: Begin of the fault [ns].
            until: The verdict, or the end of the task where there was none [ns].
            subject: The node that was said to be stale; None: the run went on.
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
        """Between two samples of a node, the first of them after the fault [s]."""
        times = [time for time in self._heard[name] if since <= time <= until]
        return max((b - a for a, b in pairwise(times)), default=0) / SECOND
