"""The kinds of fault: what each does to emulated drives, its parameters, and how it ends."""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, NamedTuple, Protocol

from hil.emulator.disturbances import Corruption, Delay, Disturbance, Duplicate, HostFaults, Loss, Selection
from hil.emulator.motor import Motor
from hil.emulator.node import EmulatedDrive, EmulatedNode
from hil.emulator.plant import SimulatedPlant
from hil.emulator.station import Station
from hil.emulator.timers import Timer
from hil.emulator.wire import EmulatedBus, EmulatedWire
from hil.frame import CLASSIC_SIZE, FD_SIZES, Frame
from hil.loop.clock import SECOND, World, nanoseconds
from servoctl.tree.fields import NumberField, in_words

End = Callable[[], None]  # ends the effect of a fault
Begin = Callable[..., End | None]  # starts a fault by its injector and parameters; returns what ends it
REBOOT_TIME = 0.3  # [s] time of a reboot if the fault gives none

TARGETS = {
    "bus": "a bus, or all",
    "node": "a drive or an encoder node (`drive` is required)",
    "drive": "a drive (`drive` is required)",
    "host_or_node": "the host's connection, or that of a node where `drive` is given",
    "host": "the computer that runs the loop",
}
"""Target of a kind -> in words."""


@dataclass(frozen=True)
class Fault:
    """One fault of the script."""

    kind: str  # one of `KINDS`
    at: float  # [s] when it begins
    duration: float | None  # [s] how long it lasts; None: to the end
    since: str  # start of the time `at`: `power_on`, or `engaged`
    drive: str | None  # name of the node that it acts on; None: none, or all
    bus: str | None  # name of the bus that it acts on; None: none, or all
    parameters: Mapping[str, Any]  # name -> value, for all parameters of its kind


class FaultTargets(Protocol):
    """Interface of the emulated drives to faults; `Emulator` has it."""

    world: World  # time of the drives
    plant: SimulatedPlant
    nodes: dict[str, EmulatedNode]  # name -> drive or encoder node
    wires: dict[str, EmulatedWire]
    buses: dict[str, EmulatedBus]  # name -> the host's controller on that wire
    host_faults: HostFaults

    def drive(self, name: str) -> EmulatedDrive:
        """The drive of that name."""


def schedule(faults: Iterable[Fault], since: str, emulator: FaultTargets, seed: int) -> None:
    """Schedules the faults whose time counts from now.

    Args:
        faults: The script.
        since: The present event, `power_on` or `engaged`; faults whose time counts from the other one are left out.
        seed: Seed of the run; each fault has its own stream.
    """
    for number, fault in enumerate(faults):
        if fault.since == since:
            FaultInjector(fault, emulator, f"{seed}/fault {number}").schedule()


class FaultInjector:
    """Starts one fault of the script at its time, and ends it; the functions of the kinds act by it.

    Args:
        seed: Seed of its random numbers.
    """

    def __init__(self, fault: Fault, emulator: FaultTargets, seed: str) -> None:
        self.fault, self.emulator, self.world = fault, emulator, emulator.world
        self.random = random.Random(seed)

    def schedule(self) -> None:
        """Schedules the start of the fault, counted from now."""
        self.world.after(nanoseconds(self.fault.at), self._begin)

    def _begin(self) -> None:
        end = KINDS[self.fault.kind].begin(self, **self.fault.parameters)
        if end is not None and self.fault.duration is not None:
            self.world.after(nanoseconds(self.fault.duration), end)

    @property
    def node(self) -> EmulatedNode:
        """The drive or encoder node that is meant."""
        assert self.fault.drive is not None
        return self.emulator.nodes[self.fault.drive]

    @property
    def drive(self) -> EmulatedDrive:
        """The drive that is meant."""
        assert self.fault.drive is not None
        return self.emulator.drive(self.fault.drive)

    @property
    def motor(self) -> Motor:
        """The motor of the drive."""
        return self.drive.motor

    @property
    def wires(self) -> list[EmulatedWire]:
        """The wire that is meant, or all."""
        wires = self.emulator.wires
        return list(wires.values()) if self.fault.bus is None else [wires[self.fault.bus]]

    @property
    def stations(self) -> list[tuple[EmulatedWire, Station]]:
        """The node's station, or else the host's on each bus that is meant."""
        if self.fault.drive is not None:
            return [(self.emulator.wires[self.node.settings.bus], self.node.station)]
        return [(wire, self.emulator.buses[wire.name].station) for wire in self.wires]

    def disturb(self, make: Callable[..., Disturbance], which: Mapping[str, Any], *values: Any) -> End:
        """Disturbs the selected frames on the wires by `make(selection, *values)`."""
        disturbance = make(Selection(self.random, which["direction"], which["id"], which["mask"]), *values)
        return partial(_all, [_disturb(wire, disturbance) for wire in self.wires])

    def send_often(self, frame: Frame, period: Callable[[EmulatedWire], int]) -> End:
        """Sends a frame on each wire, with a period [ns]."""
        ends: list[End] = []
        for wire in self.wires:
            # one frame on the wire and one behind it: a full bus leaves no gap for others
            intruder = wire.attach("intruder", _ignore, frozenset(), capacity=2)
            timer = Timer(self.world, partial(_send, intruder, frame))
            timer.start(period(wire))
            ends += [timer.stop, partial(wire.power, intruder, False)]
        return partial(_all, ends)

    def at_motor(self, act: Callable[[int, Any, int], None], begin: Any, end: Any) -> End:
        """Acts on the machine at the motor, with one value now and another at the end."""
        index, world = self.motor.index, self.world
        act(index, begin, world.now)
        return lambda: act(index, end, world.now)


def _set(target: object, name: str, value: object, apply: End | None = None) -> End:
    """Sets an attribute until the end; `apply` is called after both changes."""
    before = getattr(target, name)
    setattr(target, name, value)
    end = partial(setattr, target, name, before)
    if apply is None:
        return end
    apply()
    return partial(_all, [end, apply])


def _disturb(wire: EmulatedWire, disturbance: Disturbance) -> End:
    wire.disturbances.append(disturbance)
    return partial(wire.disturbances.remove, disturbance)


def _send(station: Station, frame: Frame) -> None:
    station.send(frame)


def _ignore(frame: Frame) -> None:
    """Ignores received frames."""


def _all(ends: Iterable[End]) -> None:
    for end in ends:
        end()


class Option(NamedTuple):
    """A parameter of a fault."""

    read: Callable[[Any], Any]  # checks a value; raises ValueError with a sentence
    default: Any  # value if it is left out
    meaning: str


class FaultKind(NamedTuple):
    """A kind of fault."""

    text: str  # what happens
    target: str  # one of `TARGETS`
    begin: Begin
    options: Mapping[str, Option] = {}
    special: bool = False  # whether only nodes have it whose emulation names it


def number(meaning: str, expected: str, default: float | None, **bounds: Any) -> Option:
    """A number, or a constant expression."""
    return Option(NumberField(expected, **bounds).read, default, meaning)


def time(meaning: str, default: float | None) -> Option:
    """A time from 0 on [s]."""
    return number(meaning, "a time >= 0 [s]", default, least=0.0)


def word(meaning: str, known: Sequence[str], default: str) -> Option:
    """One of several words."""

    def read(value: Any) -> str:
        if value in known:
            return str(value)
        raise ValueError(f"expected {', '.join(known[:-1])} or {known[-1]}, got {in_words(value)}")

    return Option(read, default, meaning)


def _share(meaning: str, default: float) -> Option:
    return number(meaning, "a share from 0 to 1", default, least=0.0, below=1.0 + 1e-12)


def _count(meaning: str) -> Option:
    return number(meaning, "a number >= 1", 1, least=1, whole=True)


def _identity(meaning: str, default: int | None) -> Option:
    return number(meaning, "an id from 0 to 0x1FFFFFFF", default, least=0, below=1 << 29, whole=True)


def _code(meaning: str, default: int | None) -> Option:
    return number(meaning, "an error code of the protocol", default, least=0, below=1 << 32, whole=True)


def _flag(meaning: str, default: bool) -> Option:
    def read(value: Any) -> bool:
        if isinstance(value, bool):
            return value
        raise ValueError(f"expected true or false, got {in_words(value)}")

    return Option(read, default, meaning)


_LONG = f"{', '.join(map(str, FD_SIZES[9:-1]))} or {FD_SIZES[-1]}"


def _size(meaning: str, default: int) -> Option:
    def read(value: Any) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and value in FD_SIZES:
            return value
        what = f"a number of bytes from 0 to {CLASSIC_SIZE}, or of an FD frame {_LONG}"
        raise ValueError(f"expected {what}, got {in_words(value)}")

    return Option(read, default, meaning)


def _payload(meaning: str, default: str) -> Option:
    def read(value: Any) -> str:
        try:
            if isinstance(value, str) and len(bytes.fromhex(value)) in FD_SIZES:
                return value
        except ValueError:
            pass
        what = f"up to {CLASSIC_SIZE} bytes, or with fd {_LONG}, in hexadecimal, quoted"
        raise ValueError(f"expected {what}, got {in_words(value)}")

    return Option(read, default, meaning)


_P = _share("share of the frames", 1.0)
_FD = _flag("whether they are FD frames", False)
_WHICH = {
    "direction": word("which frames: `any`, `to_host` or `from_host`", ("any", "to_host", "from_host"), "any"),
    "id": _identity("only frames with this id; left out: all", None),
    "mask": number("which bits of the id count", "a mask of id bits", 0x7FF, least=0, below=1 << 29, whole=True),
}


def _sets(name: str, *parts: str) -> Begin:
    """Sets an attribute of the node, or of a part of it, to the kind's only parameter, or to true."""

    def begin(at: FaultInjector, **parameters: Any) -> End:
        (value,) = parameters.values() or (True,)
        return _set(reduce(getattr, parts, at.node), name, value)

    return begin


def _cut(at: FaultInjector) -> End:
    for wire, station in at.stations:
        wire.connect(station, False)
    return partial(_all, [partial(wire.connect, station, True) for wire, station in at.stations])


def _bus_off(at: FaultInjector, restart: float | None) -> End:
    for wire, station in at.stations:
        if restart is not None:
            station.restart = nanoseconds(restart)
        wire.force_off(station)
    return lambda: _all([partial(wire.restart, station) for wire, station in at.stations])


def _delay(at: FaultInjector, delay: float, jitter: float, spike: float, spike_p: float, **which: Any) -> End:
    return at.disturb(Delay, which, nanoseconds(delay), nanoseconds(jitter), nanoseconds(spike), spike_p)


def _babble(at: FaultInjector, id: int, load: float, size: int, fd: bool) -> End:
    frame = Frame(id, bytes(size), extended=id > 0x7FF, fd=fd, brs=fd)
    return at.send_often(frame, lambda wire: round(wire.frame_time(frame) / max(load, 1e-3)))


def _foreign_frames(at: FaultInjector, id: int, data: str, extended: bool, fd: bool, period: float) -> End:
    frame = Frame(id, bytes.fromhex(data), extended or id > 0x7FF, fd=fd, brs=fd)
    return at.send_often(frame, lambda wire: nanoseconds(period))


def _wrong_length(at: FaultInjector, length: int, p: float) -> End:
    def mangle(identity: int, data: bytes) -> bytes:
        return data.ljust(length, b"\0")[:length] if at.random.random() < p else data

    return _set(at.node, "mangle", mangle)


def _id_clash(at: FaultInjector, collide: bool) -> End:
    settings = at.node.settings
    wire = at.emulator.wires[settings.bus]
    twin = wire.attach("intruder", _ignore, frozenset(), restart=None)

    def mangle(identity: int, data: bytes) -> bytes:
        other = Frame(identity, bytes(byte ^ 0xFF for byte in data), fd=settings.fd, brs=settings.brs)
        if collide:
            twin.send(other)
        else:
            at.world.after(SECOND // 2000, partial(_send, twin, other))
        return data

    return partial(_all, [_set(at.node, "mangle", mangle), partial(wire.power, twin, False)])


def _drive_fault(at: FaultInjector, code: int | None, clear: bool) -> End | None:
    at.drive.trip(at.drive.usual_code if code is None else code)
    return at.drive.clear_fault if clear else None


def _sdo_abort(at: FaultInjector, index: int | None, code: int) -> End:
    aborts = at.node.aborts
    aborts[index] = code

    def end() -> None:
        aborts.pop(index, None)

    return end


def _clock_drift(at: FaultInjector, ppm: float) -> End:
    at.node.set_drift(ppm)
    return partial(at.node.set_drift, 0.0)


def _heartbeat_loss(at: FaultInjector, of: str) -> End:
    if of == "drive":
        return _set(at.node, "heart_stopped", True)
    loss = Loss(Selection(at.random, "from_host", *at.node.heartbeat_ids()), 1.0, 1)
    return _disturb(at.emulator.wires[at.node.settings.bus], loss)


def _encoder_stuck(at: FaultInjector) -> End:
    at.node.encoder.freeze(True)
    return partial(at.node.encoder.freeze, False)


def _encoder_drift(at: FaultInjector, rate: float) -> End:
    at.node.encoder.drifting = at.world.now
    return _set(at.node.encoder, "drift", rate)


def _derating(at: FaultInjector, factor: float) -> End:
    motor, settings = at.motor, at.drive.settings
    if motor.actuator.limit == float("inf"):
        motor.limit(abs(settings.motor_torque(settings.torque_limit)))
    return _set(motor.actuator, "derating", factor, motor.refresh)


def _clock_step(at: FaultInjector, step: float) -> End:
    buses = [at.emulator.buses[wire.name] for wire in at.wires]
    return partial(_all, [_set(bus, "clock_step", nanoseconds(step)) for bus in buses])


KINDS: dict[str, FaultKind] = {
    # on the wire, or behind it
    "lost": FaultKind(
        "frames are lost", "bus", lambda at, p, burst, **which: at.disturb(Loss, which, p, burst),
        {"p": _P, "burst": _count("how many are lost in a row [-]"), **_WHICH},
    ),
    "delay": FaultKind(
        "frames arrive late", "bus", _delay,
        {
            "delay": time("delay of every frame [s]", 0.001), "jitter": time("random addition, at most [s]", 0.0),
            "spike": time("rare addition [s]", 0.0), "spike_p": _share("share of frames with a spike", 0.0), **_WHICH,
        },
    ),
    "duplicate": FaultKind(
        "frames arrive again", "bus",
        lambda at, n, age, p, **which: at.disturb(Duplicate, which, n, nanoseconds(age), p),
        {"n": _count("how many times more [-]"), "age": time("how much later [s]", 0.0), "p": _P, **_WHICH},
    ),
    "corruption": FaultKind(
        "frames are destroyed on the wire; controllers send them again", "bus",
        lambda at, p, **which: at.disturb(Corruption, which, p), {"p": _P, **_WHICH},
    ),
    "cut": FaultKind("a plug is out: nothing is sent or received", "host_or_node", _cut),
    "bus_off": FaultKind(
        "the CAN controller goes bus-off", "host_or_node", _bus_off,
        {"restart": time("time until it restarts [s]; left out: as it is set up", None)},
    ),
    "babble": FaultKind(
        "another node fills the bus", "bus", _babble,
        {
            "id": _identity("id of its frames; 0 wins every arbitration", 0), "load": _share("share of the bus", 0.5),
            "size": _size("bytes per frame", 8), "fd": _FD,
        },
    ),
    "wrong_length": FaultKind(
        "frames of the node have a wrong length", "node", _wrong_length,
        {"length": _size("bytes per frame", 3), "p": _P},
    ),
    "foreign_frames": FaultKind(
        "frames of an unknown node", "bus", _foreign_frames,
        {
            "id": _identity("their id", 0x7F0), "data": _payload("their bytes in hexadecimal, quoted", ""),
            "extended": _flag("whether the id has 29 bits", False), "fd": _FD,
            "period": number("time from one to the next [s]", "a positive time [s]", 0.01, above=0.0),
        },
    ),
    "id_clash": FaultKind(
        "a second node answers under the same ids", "node", _id_clash,
        {"collide": _flag("whether it sends at the same time; else half a millisecond later", True)},
    ),
    # in a drive
    "drive_fault": FaultKind(
        "the drive reports a fault and goes off", "drive", _drive_fault,
        {
            "code": _code("error code of the protocol; left out: over-current", None),
            "clear": _flag("whether it is gone after `for`", False),
        },
    ),
    "reboot": FaultKind(
        f"the node restarts; it is away for `for`, or {REBOOT_TIME:g} s", "node",
        lambda at: at.node.reboot(nanoseconds(REBOOT_TIME if at.fault.duration is None else at.fault.duration)),
    ),
    "refuse_enable": FaultKind("the drive does not let itself be enabled", "drive", _sets("refuses")),
    "wrong_mode": FaultKind(
        "the drive is in another control mode than it was told", "drive", _sets("wrong_mode"), special=True
    ),
    "sdo_abort": FaultKind(
        "an object of the dictionary refuses access", "node", _sdo_abort,
        {
            "index": number("index of the object", "an index", None, least=0, below=1 << 16, whole=True),
            "code": _code("SDO abort code", 0x0800_0020),
        },
        special=True,
    ),
    "silent": FaultKind("the node sends nothing", "node", _sets("silent")),
    "late": FaultKind(
        "the node answers late", "node", lambda at, delay: _set(at.node, "delay", nanoseconds(delay)),
        {"delay": time("how much [s]", 0.002)},
    ),
    "clock_drift": FaultKind(
        "the clock of the node is slow", "node", _clock_drift,
        {"ppm": number("by how much [parts per million]", "parts per million", 100.0)},
    ),
    "heartbeat_loss": FaultKind(
        "heartbeats are lost", "node", _heartbeat_loss,
        {"of": word("whose: `drive` or `master`", ("drive", "master"), "drive")}, special=True,
    ),
    # in an encoder
    "encoder_jump": FaultKind(
        "the encoder's zero jumps", "node",
        lambda at, delta: _set(at.node.encoder, "jump", at.node.encoder.jump + delta),
        {"delta": number("by how much [joint unit]", "a displacement of the joint", 0.1)},
    ),
    "encoder_stuck": FaultKind("the encoder's value stands still", "node", _encoder_stuck),
    "encoder_nan": FaultKind(
        "the encoder sends a value that is not a number", "node", _sets("invalid", "encoder"), special=True
    ),
    "encoder_wrap": FaultKind(
        "the encoder's value wraps round", "node", _sets("wrap", "encoder"),
        {"range": number("after this angle of the motor [rad]", "a positive angle of the motor [rad]", 25, above=0)},
    ),
    "encoder_flip": FaultKind("the encoder counts the other way round", "node", _sets("flipped", "encoder")),
    "encoder_drift": FaultKind(
        "the encoder's zero drifts", "node", _encoder_drift,
        {"rate": number("how fast [joint unit/s]", "a rate of the joint", 0.1)},
    ),
    # in an actuator
    "derating": FaultKind(
        "the drive gives less torque than its limit", "drive", _derating,
        {"factor": _share("share of the limit that is left", 0.1)},
    ),
    "torque_constant": FaultKind(
        "the motor gives another torque than the drive says", "drive",
        lambda at, factor: at.at_motor(at.emulator.plant.scale, factor, 1.0),
        {"factor": number("how many times as much [-]", "a number", 0.5)},
    ),
    "no_torque": FaultKind(
        "the motor makes no torque, and the drive says nothing of it", "drive",
        lambda at: _set(at.motor.actuator, "powered", False, at.motor.refresh),
    ),
    "torque_table": FaultKind(
        "the drive reads commands by another torque range", "drive", _sets("torque_table"),
        {"factor": number("how many times as large [-]", "a positive number", 2.0, above=0.0)},
    ),
    # at the machine
    "brake_stuck": FaultKind(
        "the brake does not open", "drive", lambda at: _set(at.motor, "stuck", True, at.motor.refresh_brake)
    ),
    "brake_worn": FaultKind(
        "the brake slides early", "drive", lambda at, factor: _set(at.motor, "grip", factor, at.motor.refresh_brake),
        {"factor": _share("share of its torque that is left; 0: it never closes", 0.0)},
    ),
    "blocked": FaultKind(
        "a joint is blocked", "drive", lambda at: at.at_motor(at.emulator.plant.brake, True, False)
    ),
    "push": FaultKind(
        "a hand pushes a joint", "drive", lambda at, torque: at.at_motor(at.emulator.plant.push, torque, -torque),
        {"torque": number("its torque or force [actuator unit]", "a torque or force at the joint", 1.0)},
    ),
    # in the host: the loop asks for them
    "stall": FaultKind(
        "the loop stands still for `for`, which is required", "host",
        lambda at: at.emulator.host_faults.begin_stall(nanoseconds(at.fault.duration or 0.0)),
    ),
    "output": FaultKind(
        "the law's output is wrong", "host",
        lambda at, value, step: at.emulator.host_faults.begin_output(value, step),
        {
            "value": word("`nan`, `inf`, or `step`", ("nan", "inf", "step"), "nan"),
            "step": number("what is added for `step` [actuator unit]", "a torque at the joint", 1.0),
        },
    ),
    "clock_step": FaultKind(
        "the time stamps of received frames jump", "bus", _clock_step,
        {"step": number("by how much [s]", "a time [s]", 1.0)},
    ),
}  # fmt: skip
"""Kinds of fault."""
