"""The kinds of fault: what each does to emulated drives, its parameters, and how it ends.

Design: a kind is one row of `KINDS`; the script, its errors and the documentation read it.
"""

from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any, NamedTuple

from hil.emulator.emulator import Begin, End, FaultInjector, each_of, ignore
from hil.emulator.station import Station
from hil.emulator.wire import MOST_OFF, Delays, Disturbance
from hil.frame import CLASSIC_SIZE, FD_SIZES, Frame
from hil.loop.clock import SECOND, World, nanoseconds
from servoctl.tree.fields import NumberField, only

REBOOT_TIME = 0.3  # [s] time of a reboot if the fault gives none

TARGETS = {  # target of a kind -> in words
    "bus": "a bus, or all",
    "node": "a drive or an encoder node (`drive` is required)",
    "drive": "a drive (`drive` is required)",
    "host_or_node": "the host's connection, or that of a node where `drive` is given",
    "host": "the computer that runs the loop",
}


class Option(NamedTuple):
    read: Callable[[Any], Any]  # checks a value; raises ValueError with a sentence
    default: Any  # value if it is left out
    meaning: str


class FaultKind(NamedTuple):
    target: str  # one of `TARGETS`
    text: str  # what happens
    begin: Begin  # starts it by a `FaultInjector` and its parameters; returns what ends it, None: nothing does
    options: Mapping[str, Option]  # its parameters
    needs: str  # what not every node has and it acts on: `PROTOCOL` or `BRAKE`; empty: nothing


PROTOCOL, BRAKE = "protocol", "brake"  # the node's emulation names the kind; the drive has a brake


def number(meaning: str, default: float | None, expected: str, **bounds: Any) -> Option:
    return Option(NumberField(expected, **bounds).read, default, meaning)


def word(meaning: str, known: tuple[str, ...], default: str) -> Option:
    return _value(meaning, default, f"{', '.join(known[:-1])} or {known[-1]}", known.__contains__)


def _value(meaning: str, default: Any, expected: str, fits: Callable[[Any], bool]) -> Option:
    return Option(only(fits, expected), default, meaning)


time = partial(number, expected="a time >= 0 [s]", least=0.0)
_share = partial(number, expected="a share from 0 to 1", least=0.0, below=1.0 + 1e-12)
_count = partial(number, default=1, expected="a number >= 1", least=1, whole=True)
_identity = partial(number, expected="an id from 0 to 0x1FFFFFFF", least=0, below=1 << 29, whole=True)
_code = partial(number, expected="an error code of the protocol", least=0, below=1 << 32, whole=True)
_flag = partial(_value, expected="true or false", fits=lambda value: isinstance(value, bool))

_LONG = f"{', '.join(map(str, FD_SIZES[9:-1]))} or {FD_SIZES[-1]}"


_size = partial(
    _value,
    expected=f"a number of bytes from 0 to {CLASSIC_SIZE}, or of an FD frame {_LONG}",
    fits=lambda value: type(value) is int and value in FD_SIZES,
)


def _payload(meaning: str) -> Option:
    def fits(value: Any) -> bool:
        try:
            return isinstance(value, str) and len(bytes.fromhex(value)) in FD_SIZES
        except ValueError:
            return False

    return _value(meaning, "", f"up to {CLASSIC_SIZE} bytes, or with fd {_LONG}, in hexadecimal, quoted", fits)


_P = _share("share of the frames", 1.0)
_FD = _flag("whether they are FD frames", False)
_WHICH = {
    "direction": word("which frames: `any`, `to_host` or `from_host`", ("any", "to_host", "from_host"), "any"),
    "id": _identity("only frames with this id; left out: all", None),
    "mask": number(
        "which bits of the id count", (1 << 29) - 1, "a mask of id bits", least=0, below=1 << 29, whole=True
    ),
}


def loss(random: Random, p: float = 1.0, burst: int = 1) -> Delays:
    """Loses a frame at a receiver with probability p and the next ones, `burst` frames in total."""
    left = 0

    def delays(frame: Frame, receiver: Station) -> list[int]:
        nonlocal left
        if not left and random.random() < p:
            left = burst
        if left:
            left -= 1
            return []
        return [0]

    return delays


def lateness(world: World, random: Random, constant: int, jitter: int, spike: int, p: float) -> Delays:
    """Delays frames, in order, by a constant, a uniform part and, with probability p, a spike [ns]."""
    last: dict[Station, int] = {}

    def delays(frame: Frame, receiver: Station) -> list[int]:
        delay = constant + round(jitter * random.random())
        if spike and random.random() < p:
            delay += spike
        last[receiver] = arrival = max(last.get(receiver, 0), world.now + delay)
        return [arrival - world.now]

    return delays


def repetition(random: Random, count: int, age: int, p: float) -> Delays:
    """Delivers a frame with probability p `count` more times, each `age` [ns] after the one before."""
    return lambda frame, receiver: [number * age for number in range(count + 1)] if random.random() < p else [0]


def _bus_off(at: FaultInjector, restart: float | None) -> End:
    for wire, station in at.stations:
        if restart is not None:
            station.restart = nanoseconds(restart)
        wire.count(station, tec=MOST_OFF)
    return each_of(partial(wire.restart, station) for wire, station in at.stations)


def _delay(at: FaultInjector, delay: float, jitter: float, spike: float, spike_p: float, **which: Any) -> End:
    times = nanoseconds(delay), nanoseconds(jitter), nanoseconds(spike)
    return at.disturb(which, delays=lateness(at.world, at.random, *times, spike_p))


def _babble(at: FaultInjector, id: int, load: float, size: int, fd: bool) -> End:
    frame = Frame(id, bytes(size), extended=id > 0x7FF, fd=fd, brs=fd)
    return at.send_often(frame, lambda wire: round(wire.frame_time(frame) / max(load, 1e-3)))


def _foreign_frames(at: FaultInjector, id: int, data: str, extended: bool, fd: bool, period: float) -> End:
    frame = Frame(id, bytes.fromhex(data), extended or id > 0x7FF, fd=fd, brs=fd)
    return at.send_often(frame, lambda wire: nanoseconds(period))


def _wrong_length(at: FaultInjector, length: int, p: float) -> End:
    def mangle(identity: int, data: bytes) -> bytes:
        return data.ljust(length, b"\0")[:length] if at.random.random() < p else data

    return at.set(at.node, mangle=mangle)


def _id_clash(at: FaultInjector, collide: bool) -> End:
    settings = at.node.settings
    wire = at.emulator.wires[settings.bus]
    second = wire.attach(ignore, frozenset(), restart=None)

    def mangle(identity: int, data: bytes) -> bytes:
        other = settings.frame(identity, bytes(byte ^ 0xFF for byte in data))
        if collide:
            second.send(other)
        else:
            at.world.after(SECOND // 2000, partial(second.send, other))
        return data

    return each_of([at.set(at.node, mangle=mangle), partial(wire.power, second, False)])


def _drive_fault(at: FaultInjector, code: int | None, clear: bool) -> End | None:
    at.drive.trip(at.drive.usual_code if code is None else code)
    return at.drive.clear_fault if clear else None


def _sdo_abort(at: FaultInjector, index: int | None, code: int) -> End:
    at.node.aborts[index] = code
    return lambda: at.node.aborts.pop(index, None)


def _heartbeat_loss(at: FaultInjector, of: str) -> End:
    if of == "drive":
        return at.set(at.node, heart_stopped=True)
    lost = Disturbance("from_host", *at.node.heartbeat_ids(), loss(at.random))
    return at.emulator.wires[at.node.settings.bus].disturb(lost)


def _encoder_jump(at: FaultInjector, delta: float) -> End:
    at.node.encoder.jump += delta
    return partial(_encoder_jump, at, -delta)


def _blocked(at: FaultInjector, closed: bool = True) -> End:
    at.emulator.plant.brake(at.motor.index, closed, at.world.now)
    return partial(_blocked, at, False)


def _push(at: FaultInjector, torque: float) -> End:
    at.motor.actuator.push(torque, at.world.now)
    return partial(_push, at, -torque)


def _stall(at: FaultInjector) -> None:
    at.emulator.host_faults.stalled = nanoseconds(at.fault.duration or 0.0)


def _clock_step(at: FaultInjector, step: float) -> End:
    buses = [at.emulator.buses[wire.name] for wire in at.wires]
    return each_of(at.set(bus, clock_step=nanoseconds(step)) for bus in buses)


def _kind(target: str, text: str, begin: Begin, needs: str = "", /, **options: Option) -> FaultKind:
    return FaultKind(target, text, begin, options, needs)


KINDS: dict[str, FaultKind] = {  # kinds of fault by name
    # on the wire, or behind it
    "lost": _kind(
        "bus", "frames are lost", lambda at, p, burst, **which: at.disturb(which, delays=loss(at.random, p, burst)),
        p=_P, burst=_count("how many are lost in a row [-]"), **_WHICH,
    ),
    "delay": _kind(
        "bus", "frames arrive late", _delay,
        delay=time("delay of every frame [s]", 0.001), jitter=time("random addition, at most [s]", 0.0),
        spike=time("rare addition [s]", 0.0), spike_p=_share("share of frames with a spike", 0.0), **_WHICH,
    ),
    "duplicate": _kind(
        "bus", "frames arrive again",
        lambda at, n, age, p, **which: at.disturb(which, delays=repetition(at.random, n, nanoseconds(age), p)),
        n=_count("how many times more [-]"), age=time("how much later [s]", 0.0), p=_P, **_WHICH,
    ),
    "corruption": _kind(
        "bus", "frames are destroyed on the wire; controllers send them again",
        lambda at, p, **which: at.disturb(which, destroys=lambda: at.random.random() < p), p=_P, **_WHICH,
    ),
    "cut": _kind(
        "host_or_node", "a plug is out: nothing is sent or received",
        lambda at: each_of(at.set(station, wire.refresh, connected=False) for wire, station in at.stations),
    ),
    "bus_off": _kind(
        "host_or_node", "the CAN controller goes bus-off", _bus_off,
        restart=time("time until it restarts [s]; left out: as it is set up", None),
    ),
    "babble": _kind(
        "bus", "another node fills the bus", _babble,
        id=_identity("id of its frames; 0 wins every arbitration", 0), load=_share("share of the bus", 0.5),
        size=_size("bytes per frame", 8), fd=_FD,
    ),
    "wrong_length": _kind(
        "node", "frames of the node have a wrong length", _wrong_length, length=_size("bytes per frame", 3), p=_P,
    ),
    "foreign_frames": _kind(
        "bus", "frames of an unknown node", _foreign_frames,
        id=_identity("their id", 0x7F0), data=_payload("their bytes in hexadecimal, quoted"),
        extended=_flag("whether the id has 29 bits", False), fd=_FD,
        period=number("time from one to the next [s]", 0.01, "a positive time [s]", above=0.0),
    ),
    "id_clash": _kind(
        "node", "a second node answers under the same ids", _id_clash,
        collide=_flag("whether it sends at the same time; else half a millisecond later", True),
    ),
    # in a drive
    "drive_fault": _kind(
        "drive", "the drive reports a fault and goes off", _drive_fault,
        code=_code("error code of the protocol; left out: over-current", None),
        clear=_flag("whether it is gone after `for`", False),
    ),
    "reboot": _kind(
        "node", "the node restarts; it is away for `for`, or 0.3 s",
        lambda at: at.node.reboot(nanoseconds(REBOOT_TIME if at.fault.duration is None else at.fault.duration)),
    ),
    "refuse_enable": _kind(
        "drive", "the drive does not let itself be enabled", lambda at: at.set(at.node, refuses=True),
    ),
    "wrong_mode": _kind(
        "drive", "the drive is in another control mode than it was told",
        lambda at: at.set(at.node, wrong_mode=True), PROTOCOL,
    ),
    "sdo_abort": _kind(
        "node", "an object of the dictionary refuses access", _sdo_abort, PROTOCOL,
        index=number("index of the object", None, "an index", least=0, below=1 << 16, whole=True),
        code=_code("SDO abort code", 0x0800_0020),
    ),
    "silent": _kind("node", "the node sends nothing", lambda at: at.set(at.node, silent=True)),
    "late": _kind(
        "node", "the node answers late", lambda at, delay: at.set(at.node, delay=nanoseconds(delay)),
        delay=time("how much [s]", 0.002),
    ),
    "clock_drift": _kind(
        "node", "the clock of the node is slow", lambda at, ppm: at.set(at.node, at.node.follow_clock, drift=ppm),
        PROTOCOL, ppm=number("by how much [parts per million]", 100.0, "parts per million"),
    ),
    "heartbeat_loss": _kind(
        "node", "heartbeats are lost", _heartbeat_loss, PROTOCOL,
        of=word("whose: `drive` or `master`", ("drive", "master"), "drive"),
    ),
    # in an encoder
    "encoder_jump": _kind(
        "node", "the encoder's zero jumps", _encoder_jump,
        delta=number("by how much [joint unit]", 0.1, "a displacement of the joint"),
    ),
    "encoder_stuck": _kind(
        "node", "the encoder's value stands still", lambda at: at.set(at.node.encoder, stuck=True),
    ),
    "encoder_nan": _kind(
        "node", "the encoder sends a value that is not a number",
        lambda at: at.set(at.node.encoder, invalid=True), PROTOCOL,
    ),
    "encoder_wrap": _kind(
        "node", "the encoder's value wraps round", lambda at, range: at.set(at.node.encoder, wrap=range),
        range=number("after this angle of the motor [rad]", 25, "a positive angle of the motor [rad]", above=0),
    ),
    "encoder_flip": _kind(
        "node", "the encoder counts the other way round", lambda at: at.set(at.node.encoder, flipped=True),
    ),
    "encoder_drift": _kind(
        "node", "the encoder's zero drifts",
        lambda at, rate: at.set(at.node.encoder, drift=rate, drifting=at.world.now),
        rate=number("how fast [joint unit/s]", 0.1, "a rate of the joint"),
    ),
    # in an actuator
    "derating": _kind(
        "drive", "the drive gives less torque than its limit",
        lambda at, factor: at.set_actuator(limit=factor * at.drive.settings.motor_limit),
        factor=_share("share of the limit that is left", 0.1),
    ),
    "torque_constant": _kind(
        "drive", "the motor gives another torque than the drive says",
        lambda at, factor: at.set_actuator(constant=factor),
        factor=number("how many times as much [-]", 0.5, "a number"),
    ),
    "no_torque": _kind(
        "drive", "the motor makes no torque, and the drive says nothing of it",
        lambda at: at.set_actuator(powered=False),
    ),
    "torque_table": _kind(
        "drive", "the drive reads commands by another torque range",
        lambda at, factor: at.set(at.node, torque_table=factor),
        factor=number("how many times as large [-]", 2.0, "a positive number", above=0.0),
    ),
    # at the machine
    "brake_stuck": _kind(
        "drive", "the brake does not open", lambda at: at.set(at.motor, at.motor.refresh_brake, stuck=True), BRAKE,
    ),
    "brake_worn": _kind(
        "drive", "the brake slides early", lambda at, factor: at.set(at.motor, at.motor.refresh_brake, grip=factor),
        BRAKE, factor=_share("share of its torque that is left; 0: it never closes", 0.0),
    ),
    "blocked": _kind("drive", "a joint is blocked", _blocked),
    "push": _kind(
        "drive", "a hand pushes a joint", _push,
        torque=number("its torque or force [actuator unit]", 1.0, "a torque or force at the joint"),
    ),
    # in the host: the loop asks for them
    "stall": _kind("host", "the loop stands still for `for`, which is required", _stall),
    "output": _kind(
        "host", "the law's output is wrong",
        lambda at, value, step: at.set(at.emulator.host_faults, output=(value, step)),
        value=word("`nan`, `inf`, or `step`", ("nan", "inf", "step"), "nan"),
        step=number("what is added for `step` [actuator unit]", 1.0, "a torque at the joint"),
    ),
    "clock_step": _kind(
        "bus", "the time stamps of received frames jump", _clock_step,
        step=number("by how much [s]", 1.0, "a time [s]"),
    ),
}  # fmt: skip
