"""A conversation of a driver with a scripted drive, in virtual time, and the bytes that were exchanged.

A test compares `Conversation.lines` with the conversation that it expects, written as text:

    assert talk.lines == on_the_wire(
        '''
        TX 205  06 00 38 FF         # shutdown, target torque -200
        RX 285  21 02 14 00 00 00   # ready to switch on
        '''
    )
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from hil.drives.base import Drive, Node, Steps
from hil.drives.settings import DriveSettings
from hil.frame import Frame
from hil.protocols import registry as protocols
from servoctl.errors import ConfigError

MILLISECOND = 1_000_000


def drive_settings(protocol: str, node: int, **changes: Any) -> DriveSettings:
    """Settings of a drive `u1` whose sign and offset count."""
    values = {"name": "u1", "bus": "main", "protocol": protocol, "node": node, "sign": -1, "offset": 0.5}
    limits = {"torque_limit": 12.0, "torque_rate_limit": 400.0, "speed_limit": 6.0, "position_limits": (-3.0, 3.0)}
    return DriveSettings(**(values | limits | changes))  # type: ignore[arg-type]


def problems_of(settings: DriveSettings, period: float) -> list[str]:
    """The sentences with which these settings are refused."""
    with pytest.raises(ConfigError) as caught:
        protocols.build(settings, period)
    return caught.value.problems


class Peer:
    """The other side: answers frames, and sends frames by itself."""

    def take(self, frame: Frame, now: int) -> Iterable[Frame]:
        return ()

    def tick(self, now: int) -> Iterable[Frame]:
        return ()


class Conversation:
    """Passes frames to and fro in ticks of one millisecond; each tick feeds the watchdogs of drives that are not quiet.

    Args:
        peer: The other side.
        nodes: The drivers under test.

    Attributes:
        sent: Frames of handshakes, in order, without the commands of the ticks and what feeds watchdogs.
        torque: Torque that each tick commands, as the loop does; None: no command yet.
        lines: All frames in order as `TX` or `RX`, id and bytes. A frame like the last one of its id is left out, so
            that cyclic frames show only what changes.
    """

    def __init__(self, peer: Peer, nodes: Sequence[Node]) -> None:
        self.sent: list[Frame] = []
        self.lines: list[str] = []
        self._last: dict[int, str] = {}
        self.torque: float | None = None
        self.now = 0
        self._peer = peer
        self._nodes = nodes

    def send(self, frame: Frame) -> None:
        self.sent.append(frame)
        self._exchange(frame)

    def of(self, *ids: int) -> list[str]:
        """The lines of some ids."""
        return [line for line in self.lines if int(line.split()[1], 16) in ids]

    def forget(self) -> None:
        """Starts the lines afresh."""
        self.lines.clear()
        self._last.clear()

    def pump(self, done: Callable[[], bool], limit: float) -> bool:
        until = self.now + round(limit * 1e9)
        while not done() and self.now < until:
            self.now += MILLISECOND
            for node in self._nodes:
                if isinstance(node, Drive) and not node.quiet:
                    commands = [] if self.torque is None else [node.command(self.torque)]
                    for frame in (*commands, *node.alive_frames()):
                        self._exchange(frame)
            self._deliver(self._peer.tick(self.now))
        return done()

    def run(self, steps: Steps) -> None:
        for step in steps:
            for _ in range(step.attempts):
                for frame in step.send:
                    self.send(frame)
                if self.pump(step.done, step.limit):
                    break
            else:
                steps.close()
                raise TimeoutError(step.expected)

    def _exchange(self, frame: Frame) -> None:
        self._write("TX", frame)
        self._deliver(self._peer.take(frame, self.now))

    def _write(self, direction: str, frame: Frame) -> None:
        line = f"{direction} {frame.id:03X} {f'remote {frame.length}' if frame.remote else frame.data.hex(' ').upper()}"
        if self._last.get(frame.id) != line:
            self._last[frame.id] = line
            self.lines.append(line.strip())

    def _deliver(self, frames: Iterable[Frame]) -> None:
        for frame in frames:
            self._write("RX", frame)
            stamped = frame.at(self.now)
            for node in self._nodes:
                if node.takes(frame.id):
                    node.accept(stamped)


def on_the_wire(text: str) -> list[str]:
    """The lines of a conversation in a test, without spaces at will and comments after `#`."""
    lines = (" ".join(line.partition("#")[0].split()) for line in text.splitlines())
    return [line for line in lines if line]
