"""The fault script of a config: its kinds of fault, read and checked."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hil.emulator.targets import Target
from hil.frame import CLASSIC_SIZE, FD_SIZES
from servoctl.config.document import Problem, in_words
from servoctl.config.fields import NumberField
from servoctl.expression.suggest import remedy


@dataclass(frozen=True)
class Fault:
    """One fault of the script."""

    kind: str  # one of `KINDS`
    at: float  # [s] when it begins
    duration: float | None  # how long it lasts [s]; None: to the end
    since: str  # start of the time `at`: `power_on`, or `engaged`
    drive: str | None  # name of the node that it acts on; None: none, or all
    bus: str | None  # name of the bus that it acts on; None: none, or all
    parameters: Mapping[str, Any]  # name -> value, for all parameters of its kind


Reader = Callable[[Any], Any]


class Option(NamedTuple):
    """A parameter of a fault."""

    read: Reader  # checks a value; raises ValueError with a sentence
    default: Any  # value if it is left out


class FaultKind(NamedTuple):
    """Target and parameters of a kind of fault."""

    # `bus`: on one, or on all; `node`: needs a drive or sensor; `drive`: needs a drive; `host_or_node`: the host,
    # unless a node is named; `host`: neither
    target: str
    options: Mapping[str, Option] = {}  # its parameters
    special: bool = False  # whether only nodes have it whose emulation names it


def _number(expected: str, default: float | None, **bounds: Any) -> Option:
    return Option(NumberField(expected, **bounds).read, default)


def _flag(default: bool) -> Option:
    def read(value: Any) -> bool:
        if isinstance(value, bool):
            return value
        raise ValueError(f"expected true or false, got {in_words(value)}")

    return Option(read, default)


def _word(known: Sequence[str], default: str) -> Option:
    def read(value: Any) -> str:
        if value in known:
            return str(value)
        raise ValueError(f"expected {', '.join(known[:-1])} or {known[-1]}, got {in_words(value)}")

    return Option(read, default)


_LONG = f"{', '.join(map(str, FD_SIZES[9:-1]))} or {FD_SIZES[-1]}"


def _size(default: int) -> Option:
    def read(value: Any) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and value in FD_SIZES:
            return value
        what = f"a number of bytes from 0 to {CLASSIC_SIZE}, or of an FD frame {_LONG}"
        raise ValueError(f"expected {what}, got {in_words(value)}")

    return Option(read, default)


def _payload(default: str) -> Option:
    def read(value: Any) -> str:
        try:
            if isinstance(value, str) and len(bytes.fromhex(value)) in FD_SIZES:
                return value
        except ValueError:
            pass
        what = f"up to {CLASSIC_SIZE} bytes, or with fd {_LONG}, in hexadecimal, quoted"
        raise ValueError(f"expected {what}, got {in_words(value)}")

    return Option(read, default)


def _share(default: float) -> Option:
    return _number("a share from 0 to 1", default, least=0.0, below=1.0 + 1e-12)


def _time(default: float) -> Option:
    return _number("a time >= 0 [s]", default, least=0.0)


_ID = _number("an id from 0 to 0x1FFFFFFF", None, least=0, below=1 << 29, whole=True)
_WHICH = {
    "direction": _word(("any", "to_host", "from_host"), "any"),
    "id": _ID,
    "mask": _number("a mask of id bits", 0x7FF, least=0, below=1 << 29, whole=True),
}
_CODE = _number("an error code of the protocol", None, least=0, below=1 << 32, whole=True)

KINDS: dict[str, FaultKind] = {
    # on the wire, or behind it
    "lost": FaultKind("bus", {"p": _share(1.0), "burst": _number("a number >= 1", 1, least=1, whole=True), **_WHICH}),
    "delay": FaultKind(
        "bus",
        {"delay": _time(0.001), "jitter": _time(0.0), "spike": _time(0.0), "spike_p": _share(0.0), **_WHICH},
    ),
    "duplicate": FaultKind(
        "bus",
        {"n": _number("a number >= 1", 1, least=1, whole=True), "age": _time(0.0), "p": _share(1.0), **_WHICH},
    ),
    "corruption": FaultKind("bus", {"p": _share(1.0), **_WHICH}),
    "cut": FaultKind("host_or_node"),
    "bus_off": FaultKind("host_or_node", {"restart": _number("a time >= 0 [s]", None, least=0.0)}),
    "babble": FaultKind("bus", {"id": Option(_ID.read, 0), "load": _share(0.5), "size": _size(8), "fd": _flag(False)}),
    "wrong_length": FaultKind("node", {"length": _size(3), "p": _share(1.0)}),
    "foreign_frames": FaultKind(
        "bus",
        {
            "id": Option(_ID.read, 0x7F0),
            "data": _payload(""),
            "extended": _flag(False),
            "fd": _flag(False),
            "period": _number("a positive time [s]", 0.01, above=0.0),
        },
    ),
    "id_clash": FaultKind("node", {"collide": _flag(True)}),
    # in a drive
    "drive_fault": FaultKind("drive", {"code": _CODE, "clear": _flag(False)}),
    "reboot": FaultKind("node"),
    "refuse_enable": FaultKind("drive"),
    "wrong_mode": FaultKind("drive", special=True),
    "sdo_abort": FaultKind(
        "node",
        {
            "index": _number("an index", None, least=0, below=1 << 16, whole=True),
            "code": Option(_CODE.read, 0x0800_0020),
        },
        special=True,
    ),
    "silent": FaultKind("node"),
    "late": FaultKind("node", {"delay": _time(0.002)}),
    "clock_drift": FaultKind("node", {"ppm": _number("parts per million", 100.0)}),
    "heartbeat_loss": FaultKind("node", {"of": _word(("drive", "master"), "drive")}, special=True),
    # in an encoder
    "encoder_jump": FaultKind("node", {"delta": _number("a displacement of the joint", 0.1)}),
    "encoder_stuck": FaultKind("node"),
    "encoder_nan": FaultKind("node", special=True),
    "encoder_wrap": FaultKind("node", {"range": _number("a positive angle of the motor [rad]", 25.0, above=0.0)}),
    "encoder_flip": FaultKind("node"),
    "encoder_drift": FaultKind("node", {"rate": _number("a rate of the joint", 0.1)}),
    # in an actuator
    "derating": FaultKind("drive", {"factor": _share(0.1)}),
    "torque_constant": FaultKind("drive", {"factor": _number("a number", 0.5)}),
    "no_torque": FaultKind("drive"),
    "torque_table": FaultKind("drive", {"factor": _number("a positive number", 2.0, above=0.0)}),
    # at the machine
    "brake_stuck": FaultKind("drive"),
    "brake_worn": FaultKind("drive", {"factor": _share(0.0)}),
    "blocked": FaultKind("drive"),
    "push": FaultKind("drive", {"torque": _number("a torque or force at the joint", 1.0)}),
    # in the host: the loop asks for them
    "stall": FaultKind("host"),
    "output": FaultKind(
        "host", {"value": _word(("nan", "inf", "step"), "nan"), "step": _number("a torque at the joint", 1.0)}
    ),
    "clock_step": FaultKind("bus", {"step": _number("a time [s]", 1.0)}),
}
"""Kinds of fault."""

_COMMON = ("kind", "at", "for", "since", "drive", "bus")


def read_faults(
    entries: Iterable[Mapping[str, Any]],
    nodes: Mapping[str, Target],
    buses: Iterable[str],
    fd_buses: Collection[str] = (),
) -> tuple[list[Fault], list[Problem]]:
    """Reads a script.

    Args:
        entries: Entries of the config, each `{kind, at, for, since, drive, bus, ...}`.
        nodes: Name of each drive and sensor -> its properties, as `targets` lists them.
        buses: Names of the buses.
        fd_buses: Names of those that carry FD frames.

    Returns:
        The faults, and all problems of the entries, each with its position in the script.
    """
    known, faults, problems = list(buses), [], []
    for number, entry in enumerate(entries):
        reader = _Entry(str(number), entry, nodes, known, fd_buses)
        fault = reader.fault()
        problems += reader.problems
        if fault is not None and not reader.problems:
            faults.append(fault)
    return faults, problems


class _Entry:
    """Reads one entry of a script and collects its problems."""

    def __init__(
        self,
        number: str,
        entry: Mapping[str, Any],
        nodes: Mapping[str, Target],
        buses: list[str],
        fd_buses: Collection[str],
    ) -> None:
        self._number, self._entry, self._nodes, self._buses, self._fd_buses = number, entry, nodes, buses, fd_buses
        self.problems: list[Problem] = []

    def fault(self) -> Fault | None:
        """The fault; not to be used if there are problems."""
        entry = self._entry
        name = entry.get("kind")
        if not isinstance(name, str) or name not in KINDS:
            hint = remedy(str(name), KINDS)
            self._wrong("kind", "missing" if name is None else f"no such fault: {in_words(name)} ({hint})")
            return None
        kind = KINDS[name]
        for unknown in [key for key in entry if key not in (*_COMMON, *kind.options)]:
            self._wrong(str(unknown), f"unknown key ({remedy(str(unknown), [*_COMMON, *kind.options])})")
        at = self._read("at", _time(0.0))
        duration = self._read("for", _number("a positive time [s]", None, above=0.0))
        since = self._read("since", _word(("power_on", "engaged"), "engaged"))
        drive = self._one_of("drive", list(self._nodes))
        bus = self._one_of("bus", self._buses)
        self._check_place(name, kind, drive, bus)
        parameters = {key: self._read(key, option) for key, option in kind.options.items()}
        if name == "drive_fault" and drive is not None and (code := parameters["code"]) is not None:
            problem = self._nodes[drive].unfit_code(code)
            if problem is not None:
                self._wrong("code", problem)
        self._check_frames(parameters, drive, bus)
        if name == "stall" and self._entry.get("for") is None:
            self._wrong("for", "missing (how long the loop stalls [s])")
        return Fault(name, at, duration, since, drive, bus, parameters)

    def _check_place(self, name: str, kind: FaultKind, drive: str | None, bus: str | None) -> None:
        if kind.target in ("node", "drive"):
            fit = [each for each, target in self._nodes.items() if target.drive or kind.target == "node"]
            if drive is None and "drive" not in self._entry:
                what = "drive or sensor" if kind.target == "node" else "drive"
                self._wrong("drive", f"missing (which {what}: {', '.join(fit)})")
            target = self._nodes.get(drive or "")
            if target is not None and drive not in fit:
                self._wrong("drive", f"{drive} is a sensor, and {name} needs a drive ({', '.join(fit)})")
            elif target is not None and kind.special and not target.has(name):
                able = [each for each in fit if self._nodes[each].has(name)]
                remedy = f"nodes that have it: {', '.join(able)}" if able else "no node of this rig has it"
                self._wrong("drive", f"{drive} speaks {target.protocol}, where there is no {name} ({remedy})")
        elif kind.target in ("bus", "host") and "drive" in self._entry:
            self._wrong("drive", f"a {name} concerns no single drive (name a bus, or ids)")
        if kind.target in ("node", "drive", "host") and "bus" in self._entry:
            self._wrong("bus", f"a {name} concerns no bus")
        if kind.target == "host_or_node" and drive is None and bus is None and len(self._buses) > 1:
            self._wrong("bus", f"missing (which of {', '.join(self._buses)})")

    def _check_frames(self, parameters: Mapping[str, Any], drive: str | None, bus: str | None) -> None:
        """FD frames, and payloads that only they have, need a bus that carries them."""
        if "fd" in parameters:
            fd = parameters["fd"]
            for name in self._buses if bus is None else [bus]:
                if fd and name not in self._fd_buses:
                    self._wrong("fd", f"true, but bus '{name}' is classic (name another bus, or set fd: true there)")
        else:
            target = self._nodes.get(drive or "")
            fd = target is not None and target.fd
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
        self.problems.append(Problem((self._number, key), what))
