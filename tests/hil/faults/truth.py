"""When the true drives of a run make torque, whatever the loop believes."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from hil.emulator.emulator import Emulator
from hil.emulator.node import EmulatedDrive
from servoctl.types import Array


class Off(NamedTuple):
    """When a drive first went off."""

    time: int  # [ns]
    v: Array  # velocities of the machine then


class TruthMonitor:
    """Notes when drives make torque, from a moment on.

    Args:
        emulator: It has the drives.
        grace: How long a drive that went off may be on before it counts as enabled again [ns].

    Attributes:
        onset: That moment [ns].
        off: Name of a drive -> when it first went off; those that were off at the onset, then.
        enabled: Names of the drives that ever made torque.
    """

    def __init__(self, emulator: Emulator, grace: int = 0) -> None:
        self._emulator, self._world, self._grace = emulator, emulator.world, grace
        self._drives = {name: node for name, node in emulator.nodes.items() if isinstance(node, EmulatedDrive)}
        self.names = list(self._drives)
        self.onset = 0
        self.off: dict[str, Off] = {}
        self.enabled: set[str] = set()
        self._began = False
        self._again: set[str] = set()
        self._on_since: dict[str, int] = {}  # drives that are on though they went off before
        for name, drive in self._drives.items():
            drive.motor.told = partial(self._changed, name)

    def begin(self, after: int = 0) -> None:
        """Starts after a time [ns]."""
        self.onset = self._world.now + after
        self._world.at(self.onset, self._begin)

    def _begin(self) -> None:
        self._began = True
        for name, drive in self._drives.items():
            if not drive.motor.enabled:
                self._note_off(name)

    def _changed(self, name: str, word: str) -> None:
        """Called by a motor that has got or lost its torque."""
        if word == "torque on":
            self.enabled.add(name)
            if name in self.off:
                self._on_since[name] = self._world.now
        elif word == "torque off" and self._began:
            self._note_off(name)
            if self._is_long(self._on_since.pop(name, None)):
                self._again.add(name)

    def _note_off(self, name: str) -> None:
        self.off.setdefault(name, Off(self._world.now, self._emulator.state[1].copy()))

    def _is_long(self, since: int | None) -> bool:
        return since is not None and self._world.now - since >= self._grace

    @property
    def enabled_again(self) -> list[str]:
        """Names of the drives that were enabled again, for longer than the grace, after they went off."""
        return sorted(self._again | {name for name, since in self._on_since.items() if self._is_long(since)})

    @property
    def all_off(self) -> int | None:
        """When the last drive first went off [ns]; None while one has not."""
        return max(off.time for off in self.off.values()) if len(self.off) == len(self.names) else None

    @property
    def on(self) -> list[str]:
        """Names of the drives that make torque now."""
        return [name for name, drive in self._drives.items() if drive.motor.enabled]

    def problems(self, told: Sequence[str] = ()) -> list[str]:
        """A sentence for each drive that was enabled again, and for each that has torque, but for those of `told`."""
        sentences = [f"{name} was enabled again" for name in self.enabled_again]
        sentences += [f"{name} is on at the end" for name in self.on if name not in told]
        for name, drive in self._drives.items():
            if name not in told and not drive.motor.shorted and abs(torque := drive.motor.torque()) > 1e-6:
                sentences.append(f"{name} has {torque:.3g} N m at the end")
        return sentences
