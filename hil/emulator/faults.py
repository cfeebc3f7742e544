"""The kinds of fault: what each does to emulated drives, its parameters, and how it ends.

Design: a kind is one function under `kind_of`: its name, its sentence and its parameters are those of the script. It
starts the fault by a `FaultInjector` and returns what ends it; None: nothing does.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from hil.emulator.disturbances import Corruption, Delay, Duplicate, Loss, Selection
from hil.emulator.emulator import Begin, End, FaultInjector, each_of, ignore
from hil.frame import CLASSIC_SIZE, FD_SIZES, Frame
from hil.loop.clock import SECOND, nanoseconds
from servoctl.tree.fields import NumberField, in_words

REBOOT_TIME = 0.3  # [s] time of a reboot if the fault gives none

TARGETS = {  # target of a kind -> in words
    "bus": "a bus, or all",
    "node": "a drive or an encoder node (`drive` is required)",
    "drive": "a drive (`drive` is required)",
    "host_or_node": "the host's connection, or that of a node where `drive` is given",
    "host": "the computer that runs the loop",
}


def _set(target: object, name: str, value: object, apply: End = lambda: None) -> End:
    """Sets an attribute until the end; `apply` is called after both changes."""
    before = getattr(target, name)
    setattr(target, name, value)
    apply()
    return each_of([partial(setattr, target, name, before), apply])


class Option(NamedTuple):
    read: Callable[[Any], Any]  # checks a value; raises ValueError with a sentence
    default: Any  # value if it is left out
    meaning: str


class FaultKind(NamedTuple):
    text: str  # what happens
    target: str  # one of `TARGETS`
    begin: Begin
    options: Mapping[str, Option]
    special: bool  # whether only nodes have it whose emulation names it


KINDS: dict[str, FaultKind] = {}  # kinds of fault by name

SPECIAL = True  # only nodes have this kind whose emulation names it


def kind_of(target: str, special: bool = False, /, **options: Option) -> Callable[[Begin], Begin]:
    """Makes a function a kind of fault, with these parameters; the other arguments as in `FaultKind`."""

    def register(begin: Begin) -> Begin:
        text = " ".join((begin.__doc__ or "").split()).rstrip(".")
        KINDS[begin.__name__] = FaultKind(text[:1].lower() + text[1:], target, begin, options, special)
        return begin

    return register


def number(meaning: str, expected: str, default: float | None, **bounds: Any) -> Option:
    return Option(NumberField(expected, **bounds).read, default, meaning)


def time(meaning: str, default: float | None) -> Option:
    """A time from 0 on [s]."""
    return number(meaning, "a time >= 0 [s]", default, least=0.0)


def word(meaning: str, known: tuple[str, ...], default: str) -> Option:
    return _value(meaning, f"{', '.join(known[:-1])} or {known[-1]}", default, known.__contains__)


def _value(meaning: str, expected: str, default: Any, fits: Callable[[Any], bool]) -> Option:
    def read(value: Any) -> Any:
        if fits(value):
            return value
        raise ValueError(f"expected {expected}, got {in_words(value)}")

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
    return _value(meaning, "true or false", default, lambda value: isinstance(value, bool))


_LONG = f"{', '.join(map(str, FD_SIZES[9:-1]))} or {FD_SIZES[-1]}"


def _size(meaning: str, default: int) -> Option:
    expected = f"a number of bytes from 0 to {CLASSIC_SIZE}, or of an FD frame {_LONG}"
    return _value(meaning, expected, default, lambda value: type(value) is int and value in FD_SIZES)


def _payload(meaning: str) -> Option:
    def fits(value: Any) -> bool:
        try:
            return isinstance(value, str) and len(bytes.fromhex(value)) in FD_SIZES
        except ValueError:
            return False

    return _value(meaning, f"up to {CLASSIC_SIZE} bytes, or with fd {_LONG}, in hexadecimal, quoted", "", fits)


_P = _share("share of the frames", 1.0)
_FD = _flag("whether they are FD frames", False)
_WHICH = {
    "direction": word("which frames: `any`, `to_host` or `from_host`", ("any", "to_host", "from_host"), "any"),
    "id": _identity("only frames with this id; left out: all", None),
    "mask": number("which bits of the id count", "a mask of id bits", 0x7FF, least=0, below=1 << 29, whole=True),
}

# on the wire, or behind it


@kind_of("bus", p=_P, burst=_count("how many are lost in a row [-]"), **_WHICH)
def lost(at: FaultInjector, p: float, burst: int, **which: Any) -> End:
    """Frames are lost."""
    return at.disturb(Loss, which, p, burst)


@kind_of(
    "bus",
    delay=time("delay of every frame [s]", 0.001),
    jitter=time("random addition, at most [s]", 0.0),
    spike=time("rare addition [s]", 0.0),
    spike_p=_share("share of frames with a spike", 0.0),
    **_WHICH,
)
def delay(at: FaultInjector, delay: float, jitter: float, spike: float, spike_p: float, **which: Any) -> End:
    """Frames arrive late."""
    return at.disturb(Delay, which, nanoseconds(delay), nanoseconds(jitter), nanoseconds(spike), spike_p)


@kind_of("bus", n=_count("how many times more [-]"), age=time("how much later [s]", 0.0), p=_P, **_WHICH)
def duplicate(at: FaultInjector, n: int, age: float, p: float, **which: Any) -> End:
    """Frames arrive again."""
    return at.disturb(Duplicate, which, n, nanoseconds(age), p)


@kind_of("bus", p=_P, **_WHICH)
def corruption(at: FaultInjector, p: float, **which: Any) -> End:
    """Frames are destroyed on the wire; controllers send them again."""
    return at.disturb(Corruption, which, p)


@kind_of("host_or_node")
def cut(at: FaultInjector) -> End:
    """A plug is out: nothing is sent or received."""
    for wire, station in at.stations:
        wire.connect(station, False)
    return each_of(partial(wire.connect, station, True) for wire, station in at.stations)


@kind_of("host_or_node", restart=time("time until it restarts [s]; left out: as it is set up", None))
def bus_off(at: FaultInjector, restart: float | None) -> End:
    """The CAN controller goes bus-off."""
    for wire, station in at.stations:
        if restart is not None:
            station.restart = nanoseconds(restart)
        wire.force_off(station)
    return each_of(partial(wire.restart, station) for wire, station in at.stations)


@kind_of(
    "bus",
    id=_identity("id of its frames; 0 wins every arbitration", 0),
    load=_share("share of the bus", 0.5),
    size=_size("bytes per frame", 8),
    fd=_FD,
)
def babble(at: FaultInjector, id: int, load: float, size: int, fd: bool) -> End:
    """Another node fills the bus."""
    frame = Frame(id, bytes(size), extended=id > 0x7FF, fd=fd, brs=fd)
    return at.send_often(frame, lambda wire: round(wire.frame_time(frame) / max(load, 1e-3)))


@kind_of("node", length=_size("bytes per frame", 3), p=_P)
def wrong_length(at: FaultInjector, length: int, p: float) -> End:
    """Frames of the node have a wrong length."""

    def mangle(identity: int, data: bytes) -> bytes:
        return data.ljust(length, b"\0")[:length] if at.random.random() < p else data

    return _set(at.node, "mangle", mangle)


@kind_of(
    "bus",
    id=_identity("their id", 0x7F0),
    data=_payload("their bytes in hexadecimal, quoted"),
    extended=_flag("whether the id has 29 bits", False),
    fd=_FD,
    period=number("time from one to the next [s]", "a positive time [s]", 0.01, above=0.0),
)
def foreign_frames(at: FaultInjector, id: int, data: str, extended: bool, fd: bool, period: float) -> End:
    """Frames of an unknown node."""
    frame = Frame(id, bytes.fromhex(data), extended or id > 0x7FF, fd=fd, brs=fd)
    return at.send_often(frame, lambda wire: nanoseconds(period))


@kind_of("node", collide=_flag("whether it sends at the same time; else half a millisecond later", True))
def id_clash(at: FaultInjector, collide: bool) -> End:
    """A second node answers under the same ids."""
    settings = at.node.settings
    wire = at.emulator.wires[settings.bus]
    second = wire.attach("intruder", ignore, frozenset(), restart=None)

    def mangle(identity: int, data: bytes) -> bytes:
        other = Frame(identity, bytes(byte ^ 0xFF for byte in data), fd=settings.fd, brs=settings.brs)
        if collide:
            second.send(other)
        else:
            at.world.after(SECOND // 2000, partial(second.send, other))
        return data

    return each_of([_set(at.node, "mangle", mangle), partial(wire.power, second, False)])


# in a drive


@kind_of(
    "drive",
    code=_code("error code of the protocol; left out: over-current", None),
    clear=_flag("whether it is gone after `for`", False),
)
def drive_fault(at: FaultInjector, code: int | None, clear: bool) -> End | None:
    """The drive reports a fault and goes off."""
    at.drive.trip(at.drive.usual_code if code is None else code)
    return at.drive.clear_fault if clear else None


@kind_of("node")
def reboot(at: FaultInjector) -> None:
    """The node restarts; it is away for `for`, or 0.3 s."""
    at.node.reboot(nanoseconds(REBOOT_TIME if at.fault.duration is None else at.fault.duration))


@kind_of("drive")
def refuse_enable(at: FaultInjector) -> End:
    """The drive does not let itself be enabled."""
    return _set(at.node, "refuses", True)


@kind_of("drive", SPECIAL)
def wrong_mode(at: FaultInjector) -> End:
    """The drive is in another control mode than it was told."""
    return _set(at.node, "wrong_mode", True)


@kind_of(
    "node",
    SPECIAL,
    index=number("index of the object", "an index", None, least=0, below=1 << 16, whole=True),
    code=_code("SDO abort code", 0x0800_0020),
)
def sdo_abort(at: FaultInjector, index: int | None, code: int) -> End:
    """An object of the dictionary refuses access."""
    aborts = at.node.aborts
    aborts[index] = code

    def end() -> None:
        aborts.pop(index, None)

    return end


@kind_of("node")
def silent(at: FaultInjector) -> End:
    """The node sends nothing."""
    return _set(at.node, "silent", True)


@kind_of("node", delay=time("how much [s]", 0.002))
def late(at: FaultInjector, delay: float) -> End:
    """The node answers late."""
    return _set(at.node, "delay", nanoseconds(delay))


@kind_of("node", ppm=number("by how much [parts per million]", "parts per million", 100.0))
def clock_drift(at: FaultInjector, ppm: float) -> End:
    """The clock of the node is slow."""
    at.node.set_drift(ppm)
    return partial(at.node.set_drift, 0.0)


@kind_of("node", SPECIAL, of=word("whose: `drive` or `master`", ("drive", "master"), "drive"))
def heartbeat_loss(at: FaultInjector, of: str) -> End:
    """Heartbeats are lost."""
    if of == "drive":
        return _set(at.node, "heart_stopped", True)
    loss = Loss(Selection(at.random, "from_host", *at.node.heartbeat_ids()), 1.0, 1)
    return at.emulator.wires[at.node.settings.bus].disturb(loss)


# in an encoder


@kind_of("node", delta=number("by how much [joint unit]", "a displacement of the joint", 0.1))
def encoder_jump(at: FaultInjector, delta: float) -> End:
    """The encoder's zero jumps."""
    return _set(at.node.encoder, "jump", at.node.encoder.jump + delta)


@kind_of("node")
def encoder_stuck(at: FaultInjector) -> End:
    """The encoder's value stands still."""
    at.node.encoder.freeze(True)
    return partial(at.node.encoder.freeze, False)


@kind_of("node", SPECIAL)
def encoder_nan(at: FaultInjector) -> End:
    """The encoder sends a value that is not a number."""
    return _set(at.node.encoder, "invalid", True)


@kind_of(
    "node",
    range=number("after this angle of the motor [rad]", "a positive angle of the motor [rad]", 25, above=0),
)
def encoder_wrap(at: FaultInjector, range: float) -> End:
    """The encoder's value wraps round."""
    return _set(at.node.encoder, "wrap", range)


@kind_of("node")
def encoder_flip(at: FaultInjector) -> End:
    """The encoder counts the other way round."""
    return _set(at.node.encoder, "flipped", True)


@kind_of("node", rate=number("how fast [joint unit/s]", "a rate of the joint", 0.1))
def encoder_drift(at: FaultInjector, rate: float) -> End:
    """The encoder's zero drifts."""
    at.node.encoder.drifting = at.world.now
    return _set(at.node.encoder, "drift", rate)


# in an actuator


@kind_of("drive", factor=_share("share of the limit that is left", 0.1))
def derating(at: FaultInjector, factor: float) -> End:
    """The drive gives less torque than its limit."""
    motor, settings = at.motor, at.drive.settings
    if motor.actuator.limit == float("inf"):
        motor.limit(abs(settings.motor_torque(settings.torque_limit)))
    return _set(motor.actuator, "derating", factor, motor.refresh)


@kind_of("drive", factor=number("how many times as much [-]", "a number", 0.5))
def torque_constant(at: FaultInjector, factor: float) -> End:
    """The motor gives another torque than the drive says."""
    return at.at_motor(at.emulator.plant.scale, factor, 1.0)


@kind_of("drive")
def no_torque(at: FaultInjector) -> End:
    """The motor makes no torque, and the drive says nothing of it."""
    return _set(at.motor.actuator, "powered", False, at.motor.refresh)


@kind_of("drive", factor=number("how many times as large [-]", "a positive number", 2.0, above=0.0))
def torque_table(at: FaultInjector, factor: float) -> End:
    """The drive reads commands by another torque range."""
    return _set(at.node, "torque_table", factor)


# at the machine


@kind_of("drive")
def brake_stuck(at: FaultInjector) -> End:
    """The brake does not open."""
    return _set(at.motor, "stuck", True, at.motor.refresh_brake)


@kind_of("drive", factor=_share("share of its torque that is left; 0: it never closes", 0.0))
def brake_worn(at: FaultInjector, factor: float) -> End:
    """The brake slides early."""
    return _set(at.motor, "grip", factor, at.motor.refresh_brake)


@kind_of("drive")
def blocked(at: FaultInjector) -> End:
    """A joint is blocked."""
    return at.at_motor(at.emulator.plant.brake, True, False)


@kind_of("drive", torque=number("its torque or force [actuator unit]", "a torque or force at the joint", 1.0))
def push(at: FaultInjector, torque: float) -> End:
    """A hand pushes a joint."""
    return at.at_motor(at.emulator.plant.push, torque, -torque)


# in the host: the loop asks for them


@kind_of("host")
def stall(at: FaultInjector) -> None:
    """The loop stands still for `for`, which is required."""
    at.emulator.host_faults.begin_stall(nanoseconds(at.fault.duration or 0.0))


@kind_of(
    "host",
    value=word("`nan`, `inf`, or `step`", ("nan", "inf", "step"), "nan"),
    step=number("what is added for `step` [actuator unit]", "a torque at the joint", 1.0),
)
def output(at: FaultInjector, value: str, step: float) -> End:
    """The law's output is wrong."""
    return at.emulator.host_faults.begin_output(value, step)


@kind_of("bus", step=number("by how much [s]", "a time [s]", 1.0))
def clock_step(at: FaultInjector, step: float) -> End:
    """The time stamps of received frames jump."""
    buses = [at.emulator.buses[wire.name] for wire in at.wires]
    return each_of(_set(bus, "clock_step", nanoseconds(step)) for bus in buses)
