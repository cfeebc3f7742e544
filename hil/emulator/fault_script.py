"""The fault script of a config, read and checked."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hil.drives.settings import DriveSettings, SensorSettings
from hil.emulator.emulator import Fault
from hil.emulator.faults import BRAKE, KINDS, FaultKind, Option, number, time, word
from hil.emulator.node import EmulatedDrive, EmulatedNode
from hil.frame import CLASSIC_SIZE
from servoctl.config.document import Problem
from servoctl.errors import remedy
from servoctl.tree.fields import in_words

TIMES = {  # parameters that every kind has
    "at": time("when it begins [s]", 0.0),
    "for": number("how long it lasts [s]; left out: to the end of the run", None, "a positive time [s]", above=0.0),
    "since": word(
        "what `at` counts from: `engaged`, the start of the task, or `power_on`", ("power_on", "engaged"), "engaged"
    ),
}

_COMMON = ("kind", *TIMES, "drive", "bus")

NEEDS = {"mask": "id", "spike": "spike_p", "spike_p": "spike", "clear": "for"}
"""Parameter -> the one without which it does nothing."""


def read_faults(
    entries: Iterable[Mapping[str, Any]],  # of the config, each `{kind, at, for, since, drive, bus, ...}`
    nodes: Iterable[SensorSettings],  # drives and sensors
    classes: Mapping[str, type[EmulatedNode]],  # name -> class that emulates it; without one it has every fault
    buses: Mapping[str, bool],  # name -> whether it carries FD frames
) -> tuple[list[Fault], list[Problem]]:
    """Reads a script; returns the faults, and all problems of the entries, each with its position in the script."""
    faults, problems, named = [], [], {node.name: node for node in nodes}
    for i, entry in enumerate(entries):
        reader = _Entry(i, entry, named, classes, buses)
        fault = reader.fault()
        problems += reader.problems
        if fault is not None and not reader.problems:
            faults.append(fault)
    return faults, problems


@dataclass
class _Entry:
    """Reads one entry of a script and collects its problems."""

    _index: int
    _entry: Mapping[str, Any]
    _nodes: Mapping[str, SensorSettings]
    _classes: Mapping[str, type[EmulatedNode]]
    _buses: Mapping[str, bool]
    problems: list[Problem] = field(default_factory=list)

    def fault(self) -> Fault | None:
        entry = self._entry
        name = entry.get("kind")
        if not isinstance(name, str) or name not in KINDS:
            hint = remedy(str(name), KINDS)
            self._wrong("kind", "missing" if name is None else f"no such fault: {in_words(name)} ({hint})")
            return None
        kind = KINDS[name]
        for unknown in [key for key in entry if key not in (*_COMMON, *kind.options)]:
            self._wrong(str(unknown), f"unknown key ({remedy(str(unknown), [*_COMMON, *kind.options])})")
        at, duration, since = (self._read(key, option) for key, option in TIMES.items())
        drive = self._one_of("drive", list(self._nodes))
        bus = self._one_of("bus", list(self._buses))
        self._check_place(name, kind, drive, bus)
        parameters = {key: self._read(key, option) for key, option in kind.options.items()}
        code = parameters["code"] if name == "drive_fault" else None
        if drive is not None and code is not None and (problem := self._unfit_code(drive, code)):
            self._wrong("code", problem)
        for key, other in NEEDS.items():
            if parameters.get(key) and key in entry and other not in entry:
                self._wrong(key, f"does nothing without `{other}` (give it, or leave this out)")
        if name == "output" and "step" in entry and parameters["value"] != "step":
            self._wrong("step", f"does nothing with value {parameters['value']} (set value: step, or leave this out)")
        self._check_frames(parameters, drive, bus)
        if name == "stall" and self._entry.get("for") is None:
            self._wrong("for", "missing (how long the loop stalls [s])")
        return Fault(name, kind.begin, at, duration, since, drive, bus, parameters)

    def _check_place(self, name: str, kind: FaultKind, drive: str | None, bus: str | None) -> None:
        nodes = self._nodes
        if kind.target in ("node", "drive"):
            fit = [each for each, node in nodes.items() if isinstance(node, DriveSettings) or kind.target == "node"]
            if drive is None and "drive" not in self._entry:
                what = "drive or sensor" if kind.target == "node" else "drive"
                self._wrong("drive", f"missing (which {what}: {', '.join(fit)})")
            if drive is not None and drive not in fit:
                self._wrong("drive", f"{drive} is a sensor, and {name} needs a drive ({', '.join(fit)})")
            elif drive is not None and not self._has(drive, name):
                able = ", ".join(each for each in fit if self._has(each, name))
                lacks, none = f"speaks {nodes[drive].protocol}, where there is no {name}", "no node of this rig has it"
                if kind.needs == BRAKE:
                    lacks, none = f"has no brake, and a {name} needs one", "declare brake: true, if it has one"
                self._wrong("drive", f"{drive} {lacks} ({f'nodes that have it: {able}' if able else none})")
        elif kind.target in ("bus", "host") and "drive" in self._entry:
            self._wrong("drive", f"a {name} concerns no single drive (name a bus, or ids)")
        if kind.target in ("node", "drive", "host") and "bus" in self._entry:
            self._wrong("bus", f"a {name} concerns no bus")
        if kind.target == "host_or_node" and drive is None and bus is None and len(self._buses) > 1:
            self._wrong("bus", f"missing (which of {', '.join(self._buses)})")

    def _has(self, drive: str, kind: str) -> bool:
        """Whether a node has what a kind of fault acts on."""
        if KINDS[kind].needs == BRAKE:
            node = self._nodes[drive]
            return isinstance(node, DriveSettings) and node.brake
        everywhere = not KINDS[kind].needs or drive not in self._classes
        return everywhere or kind in self._classes[drive].special_faults

    def _unfit_code(self, drive: str, code: int) -> str | None:
        """Why the protocol of a node cannot report an error code as a fault; None if it can."""
        node, emulated = self._nodes[drive], self._classes.get(drive)
        if emulated is None or not issubclass(emulated, EmulatedDrive):
            return None
        first, last = emulated.error_codes(node)
        if first <= code <= last:
            return None
        status = node.options.get("status")
        spoken = f"{node.protocol} with status {status}" if status else node.protocol
        return f"expected an error code of {spoken}, {first} to {last}, got {code}"

    def _check_frames(self, parameters: Mapping[str, Any], drive: str | None, bus: str | None) -> None:
        """FD frames, and payloads that only they have, need a bus that carries them."""
        if "fd" in parameters:
            fd = parameters["fd"]
            for name in self._buses if bus is None else [bus]:
                if fd and not self._buses[name]:
                    self._wrong("fd", f"true, but bus '{name}' is classic (name another bus, or set fd: true there)")
        else:
            fd = drive is not None and self._nodes[drive].fd
        for key in ("size", "length", "data"):
            value = parameters.get(key, 0)
            size = len(bytes.fromhex(value)) if isinstance(value, str) else value
            if size > CLASSIC_SIZE and not fd:
                self._wrong(key, f"{size} bytes, a classic frame has at most {CLASSIC_SIZE}")

    def _read(self, key: str, option: Option) -> Any:
        if key not in self._entry:
            return option.default
        try:
            return option.read(self._entry[key])
        except ValueError as error:
            self._wrong(key, str(error))
            return option.default

    def _one_of(self, key: str, known: list[str]) -> str | None:
        value = self._entry.get(key)
        if key in self._entry and value not in known:
            self._wrong(key, f"no such {key}: {in_words(value)} ({remedy(str(value), known)})")
            return None
        return None if value is None else str(value)

    def _wrong(self, key: str, what: str) -> None:
        self.problems.append(Problem((self._index, key), what))
