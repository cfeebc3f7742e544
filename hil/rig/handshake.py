"""Verbs of several drives, side by side, at a pace that a controller's queue takes."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from hil.drives.base import Drive, DriveError, HandshakeStep, Node, Steps
from hil.frame import Frame
from hil.loop import Clock, nanoseconds

BURST = 5
"""Frames that go out on one bus at one look: half of the queue that a SocketCAN interface has as it comes."""


class StepInProgress(NamedTuple):
    """A step in progress.

    Attributes:
        step: What it is.
        left: Frames that are still to be sent.
        deadline: When it must be over [ns]; it counts from the last frame.
    """

    step: HandshakeStep
    left: Sequence[Frame]
    deadline: int


class Handshake:
    """Generators of steps in progress, one per node."""

    def __init__(
        self, verbs: Mapping[Node, Steps], send: Callable[[str, Frame], None], clock: Clock, limit: float
    ) -> None:
        """Begins.

        Args:
            verbs: Node -> what it does.
            send: Takes the name of a bus and a frame.
            clock: The run's.
            limit: Time for all of it [s].
        """
        self._verbs, self._send, self._clock, self._limit = dict(verbs), send, clock, limit
        self._end = clock.now() + nanoseconds(limit)
        self._steps: dict[Node, StepInProgress] = {}
        self._room: dict[str, int] = {}

    def advance(self) -> bool:
        """Goes on as far as the drives have come; returns whether every verb is over.

        Raises:
            DriveError: A drive refuses, or a step has taken too long; names every such drive.
        """
        wrong: list[str] = []
        self._room = {}
        for node in list(self._verbs):
            try:
                late = self._advance(node)
            except DriveError as error:
                wrong.append(f"{node.settings.name}: {error}")
                continue
            if late is not None:
                wrong.append(late)
        if wrong:
            self.abandon()
            raise DriveError("\n".join(wrong))
        if self._verbs and self._clock.now() > self._end:
            names = ", ".join(node.settings.name for node in self._verbs)
            self.abandon()
            raise DriveError(f"{names}: not ready within {self._limit:g} s")
        return not self._verbs

    def _advance(self, node: Node) -> str | None:
        """Takes one node's verb on; a sentence where a step has taken too long."""
        while True:
            begun = self._steps.get(node)
            if begun is None:
                step = next(self._verbs[node], None)
                if step is None:
                    del self._verbs[node]
                    return None
                begun = StepInProgress(step, step.send, 0)
            if begun.left or not begun.deadline:
                begun = self._sent(node, begun)
                self._steps[node] = begun
                if begun.left:
                    return None
            step = begun.step
            if not step.done():
                late = self._clock.now() > begun.deadline
                return f"{node.settings.name}: {step.expected} within {step.limit:g} s" if late else None
            del self._steps[node]

    def _sent(self, node: Node, begun: StepInProgress) -> StepInProgress:
        """As many of a step's frames as there is room for now."""
        bus = node.settings.bus
        room = self._room.get(bus, BURST)
        for frame in begun.left[:room]:
            self._send(bus, frame)
        left = begun.left[room:]
        self._room[bus] = max(0, room - len(begun.left))
        return StepInProgress(begun.step, left, self._clock.now() + nanoseconds(begun.step.limit))

    def abandon(self) -> None:
        """Ends what is not over; no drive stays quiet, whatever ending the verb of another one raises."""
        verbs, self._verbs = self._verbs, {}
        failure: Exception | None = None
        for node, steps in verbs.items():
            try:
                steps.close()
            except Exception as error:
                failure = failure or error
            if isinstance(node, Drive):
                node.quiet = False
        if failure is not None:
            raise failure
