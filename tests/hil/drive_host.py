"""A driver in conversation with an emulated drive, in virtual time, and the bytes that were exchanged."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from hil.drives.base import HandshakeStep, Node, Steps
from hil.drives.settings import DriveSettings, SensorSettings
from hil.frame import Frame
from hil.loop import nanoseconds
from hil.protocols.registry import build
from hil.rig.dispatch import Dispatch
from hil.rig.handshake import Handshake
from servoctl.mechanics.plant import Plant
from tests.hil.emulation import MILLISECOND, bench

PERIOD = 0.002  # [s]


class Host:
    """A loop without a law: it brings an emulated drive up and commands one torque.

    Args:
        settings: Of the driver.
        plant: The machine; None: `Axes`.
        changes: Of the settings of the emulated drive, where they differ; `options` are added.

    Attributes:
        instead: Pattern of a frame of the drive, `ID#BYTES` -> what the driver gets in its place; "": nothing.
        lines: All frames in order as `TX` or `RX`, id and bytes. A frame like the last one of its id is left out, so
            that cyclic frames show only what changes.
    """

    def __init__(self, settings: SensorSettings, plant: Plant | None = None, **changes: Any) -> None:
        options = changes.pop("options", {})
        there = replace(settings, **changes, options={**settings.options, **options})
        drives, sensors = ([there], []) if isinstance(there, DriveSettings) else ([], [there])
        self.bench = bench(*drives, sensors=sensors, plant=plant)
        self.node: Any = self.bench.emulator.nodes[settings.name]
        self.drive: Any = build(settings, PERIOD)
        self.instead: Mapping[str, str] = {}
        self.sent, self.received, self.lines = list[Frame](), list[Frame](), list[str]()
        self._last: dict[int, str] = {}
        self.clock = self.bench.emulator.clock
        self.dispatch = Dispatch({"main": self.bench.bus}, [self.drive], self.clock, self._record)
        self.dispatch.taker = self._take
        self.clock.sleep_until(100 * MILLISECOND)

    def _record(self, bus: int, sent: bool, frame: Frame, time: int) -> None:
        (self.sent if sent else self.received).append(frame)
        data = f"remote {frame.length}" if frame.remote else frame.data.hex(" ").upper()
        line = f"{'TX' if sent else 'RX'} {frame.id:03X} {data}".strip()
        if self._last.get(frame.id) != line:
            self._last[frame.id] = line
            self.lines.append(line)

    def forget(self) -> None:
        """Starts the lines afresh."""
        self.lines.clear()
        self._last.clear()

    def _take(self, bus: str, frame: Frame) -> None:
        """Gives the driver a frame of the drive, or what it gets in its place."""
        text = f"{frame.id:03X}#{frame.data.hex().upper()}"
        for pattern, other in self.instead.items():
            if match := re.fullmatch(pattern, text):
                text = match.expand(other)
                break
        identity, _, data = text.partition("#")
        if identity:
            kind = {"extended": frame.extended, "fd": frame.fd, "brs": frame.brs, "time": frame.time}
            self.dispatch.deliver(bus, Frame(int(identity, 16), bytes.fromhex(data), **kind))

    def perform(self, steps: Steps) -> None:
        """Runs a handshake to its end."""
        handshake = Handshake({self.drive: steps}, self.dispatch.send, self.clock, 5.0)
        while not handshake.advance():
            self.tick()

    def tick(self, torque: float | None = None) -> None:
        """One period: SYNC, a command where there is a torque, what feeds the watchdog, and the answers."""
        end = self.clock.now() + nanoseconds(PERIOD)
        self.dispatch.synchronise()
        if torque is not None:
            self.dispatch.send("main", self.drive.command(torque))
        self.dispatch.keep_alive()
        self.dispatch.wait(end, lambda: "main")

    def bring_up(self, torque: float = 0.0) -> None:
        self.order("identify, configure, test_watchdog, rearm")
        self.drive.enable_requested = True
        self.perform(_fresh(self.drive))
        self.perform(self.drive.enable(torque))

    def order(self, text: str) -> None:
        """Does what a text says: handshakes, `disable`, `quick_stop`; `trip CODE` and `refuse` change the drive."""
        for verb, *numbers in (words.split() for words in text.split(", ") if words):
            if verb == "trip":
                self.node.trip(int(numbers[0], 16))
            elif verb == "refuse":
                self.node.refuses = True
            elif verb == "disable":
                self.send(*self.drive.disable_frames())
            elif verb == "quick_stop":
                self.send(*self.drive.quick_stop_frames(0.0))
            else:
                self.perform(getattr(self.drive, verb)(*map(float, numbers)))
                continue
            for _ in range(15):
                self.tick()

    def send(self, *frames: Frame) -> None:
        for frame in frames:
            self.dispatch.send("main", frame)

    def until(self, done: Callable[[], bool], each: Callable[[], None]) -> int:
        """Periods until a condition holds."""
        for count in range(500):
            if done():
                return count
            each()
        raise AssertionError("never came true")


def _fresh(drive: Node) -> Steps:
    before = drive.sample
    yield HandshakeStep([], lambda: drive.sample is not before, 0.5, "a sample")
