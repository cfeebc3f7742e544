"""A conversation with a scripted peer in virtual time: what drivers are tested against, beside the emulator."""

from collections.abc import Callable, Iterable, Sequence

from hil.drives.base import Drive, Exchange, Node, Steps
from hil.frame import Frame

MILLISECOND = 1_000_000


class Peer:
    """The other side: answers frames, and sends by itself."""

    def take(self, frame: Frame, now: int) -> Iterable[Frame]:
        return ()

    def tick(self, now: int) -> Iterable[Frame]:
        return ()


class Conversation(Exchange):
    """Hands frames to and fro, in ticks of one millisecond; each tick feeds what is not quiet.

    Attributes:
        sent: Frames that went out, in order, but for commands of the ticks and what feeds watchdogs.
        torque: What each tick commands, as the loop does; None: nothing yet.
    """

    def __init__(self, peer: Peer, nodes: Sequence[Node]) -> None:
        self.listeners: list[Callable[[Frame], None]] = []
        self.sent: list[Frame] = []
        self.torque: float | None = None
        self.now = 0
        self._peer = peer
        self._nodes = nodes

    def send(self, frame: Frame) -> None:
        self.sent.append(frame)
        self._deliver(self._peer.take(frame, self.now))

    def pump(self, done: Callable[[], bool], limit: float) -> bool:
        until = self.now + round(limit * 1e9)
        while not done() and self.now < until:
            self.now += MILLISECOND
            for node in self._nodes:
                if isinstance(node, Drive) and not node.quiet:
                    commands = [] if self.torque is None else [node.command(self.torque)]
                    for frame in (*commands, *node.alive_frames()):
                        self._deliver(self._peer.take(frame, self.now))
            self._deliver(self._peer.tick(self.now))
        return done()

    def run(self, steps: Steps) -> None:
        for step in steps:
            for frame in step.send:
                self.send(frame)
            if not self.pump(step.done, step.limit):
                steps.close()
                raise TimeoutError(step.expected)

    def _deliver(self, frames: Iterable[Frame]) -> None:
        for frame in frames:
            stamped = frame.at(self.now)
            for listener in self.listeners:
                listener(stamped)
            for node in self._nodes:
                if frame.id in node.identities:
                    node.accept(stamped)
