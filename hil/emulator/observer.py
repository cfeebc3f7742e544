"""Checks the commands of the loop on the wire: finite, within the limits, and no torque after a disable.

Design: it decodes frames from the tables of the protocols and shares no code with the drivers or the emulated drives.
"""

from collections.abc import Mapping, Sequence

from hil.drives.settings import DriveSettings
from hil.emulator.commands import CommandFindings, CommandReader, Violation
from hil.emulator.station import Station
from hil.emulator.wire import EmulatedWire
from hil.frame import Frame
from hil.loop.virtual_time import World

WAITING = 0.6  # part of a period by which the wait for samples can delay a command, compared with the next one


class CommandObserver:
    """Checks the torque commands of some drives, on the wires that `watch` is called with.

    Args:
        world: Its time.
        drives: Settings of the drives.
        kinds: Protocol -> class that reads commands to its drives.
    """

    def __init__(self, world: World, drives: Sequence[DriveSettings], kinds: Mapping[str, type[CommandReader]]) -> None:
        self._world = world
        self.findings = CommandFindings(largest={drive.name: 0.0 for drive in drives})  # what it has found so far
        self._readers = [kinds[drive.protocol](self.findings, drive) for drive in drives]

    def watch(self, wire: EmulatedWire) -> None:
        """Checks the frames on a wire."""
        readers: dict[int, list[CommandReader]] = {}
        families: dict[int, dict[int, list[CommandReader]]] = {}  # mask -> the bits under it -> readers
        for reader in [each for each in self._readers if each.bus == wire.name]:
            for identity in reader.identities:
                readers.setdefault(identity, []).append(reader)
            if reader.family is not None:
                families.setdefault(reader.family.mask, {}).setdefault(reader.family.value, []).append(reader)

        def tap(frame: Frame, sender: Station) -> None:
            if not sender.host or frame.remote:
                return
            number = frame.id | frame.extended << 29
            for reader in readers.get(number, ()):
                reader.see(frame, sender)
            for mask, members in families.items():
                for reader in members.get(number & mask, ()):
                    reader.see(frame, sender)

        wire.taps.append(tap)

    def report(self) -> list[Violation]:
        """All violations by time, including torques that were not enabled in time."""
        for reader in self._readers:
            reader.settle(self._world.now)
        return sorted(self.findings.violations, key=lambda violation: violation[:3])
