"""Opens the buses that a config names, says what to do if one cannot be opened, and recognises emulated drives.

Design: emulated drives on a loopback bus answer a frame that no real drive uses, with an id of 29 bits. The loop asks,
an emulator answers whether it is free, and the loop tells it when the task begins, because scripted faults may be timed
from there. After a run with old samples the loop asks how late the emulator was; before a calibration it asks for a
hand, which moves the machine from the beginning of the task on. None of these frames is sent on a real bus.
"""

import errno
import importlib
import importlib.util
import inspect
import ipaddress
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import can
from can.interfaces import BACKENDS

from hil.bus.base import Bus, BusError, close_all
from hil.bus.load import BusRates
from hil.bus.python_can import PythonCanBus
from hil.frame import Frame
from hil.loop.clock import Clock, nanoseconds
from servoctl.errors import in_one_line, suggestion

REQUEST = 0x1FFF5E50  # id of the question, 29 bits
REPLY = 0x1FFF5E51  # id of the answer, 29 bits
BEGINNING = 0x1FFF5E52  # id of the frame that announces the start of the task, 29 bits
LATENESS_REQUEST = 0x1FFF5E53  # id of the question how late the emulator was, 29 bits
LATENESS = 0x1FFF5E54  # id of the answer: the largest lateness in microseconds, an unsigned integer of 64 bits, 29 bits
HAND = 0x1FFF5E55  # id of the frame that asks for a hand: its time in microseconds, as in `LATENESS`, 29 bits

VERSION = 2
PAYLOAD = b"servoctl"[:7] + bytes([VERSION])
"""Payload of the frames without a number; its version changes with what loop and emulator must agree on."""
BUSY = PAYLOAD[:7] + bytes([0x80 | VERSION])  # payload of the answer while another loop uses the drives

QUESTION = Frame(REQUEST, PAYLOAD, extended=True)  # asks for an emulator of this version
FREE, TAKEN = Frame(REPLY, PAYLOAD, extended=True), Frame(REPLY, BUSY, extended=True)
"""Answers of an emulator that is free, or busy with another loop."""
START = Frame(BEGINNING, PAYLOAD, extended=True)  # announces the start of the task
LATENESS_QUESTION = Frame(LATENESS_REQUEST, PAYLOAD, extended=True)
"""Asks how late the emulator was since it powered its drives on."""


def same(frame: Frame, other: Frame) -> bool:
    """Whether a frame that was received is one of those above."""
    return frame.extended and not frame.remote and (frame.id, frame.data) == (other.id, other.data)


def lateness_answer(lateness: int) -> Frame:
    """The largest lateness of the emulator [ns]."""
    return Frame(LATENESS, (lateness // 1000).to_bytes(8, "little"), extended=True)


def hand(duration: float) -> Frame:
    """The frame that asks for a hand that moves the machine for a time [s]."""
    return Frame(HAND, round(1e6 * duration).to_bytes(8, "little"), extended=True)


def hand_time(frame: Frame) -> float | None:
    """The time for which a hand is asked for [s]; None for another frame."""
    return _microseconds(frame, HAND)


def _microseconds(frame: Frame, identity: int) -> float | None:
    fits = frame.extended and not frame.remote and frame.id == identity and len(frame.data) == 8
    return int.from_bytes(frame.data, "little") / 1e6 if fits else None


def emulator_lateness(bus: Bus, clock: Clock, timeout: float) -> float | None:
    """The largest lateness of the emulator on a loopback bus [s]; None if it does not answer in time [s]."""
    bus.send(LATENESS_QUESTION)
    until = clock.now() + nanoseconds(timeout)
    while (frame := bus.receive(until)) is not None:
        if (lateness := _microseconds(frame, LATENESS)) is not None:
            return lateness
    return None


def answers_as_emulator(bus: Bus, clock: Clock, timeout: float) -> bool:
    """Whether an emulator of this version answers in time [s]; it sends one frame and discards what comes before the
    answer.

    The bus is a loopback bus (`is_loopback`): nothing may be sent to real drives before they are checked.

    Raises BusError if the bus is down, or another loop uses the emulated drives.
    """
    bus.send(QUESTION)
    until = clock.now() + nanoseconds(timeout)
    while (frame := bus.receive(until)) is not None:
        if same(frame, FREE):
            return True
        if same(frame, TAKEN):
            raise BusError(f"bus {bus.name}: another loop has the emulated drives (end it, or wait until they are off)")
    return False


_SYSTEM_TIME = {"socketcan", "udp_multicast", "virtual"}  # they stamp frames with the system time of arrival
_OWN_KEYS = {"interface", "channel", "bitrate", "fd", "data_bitrate", "data_sample_point"}
_NOT_FOR_CONFIGS = {"self", "can_filters", "args", "kwargs"}
_CLOCK = 80_000_000  # of FD controllers that python-can sets up by a bit timing [Hz]
_SAMPLE_POINT = 75.0  # where the config gives none [%]


def open_bus(
    name: str,  # its name in the config
    # `interface`, `channel`, `bitrate` [bit/s], `fd`, `data_bitrate` [bit/s], `data_sample_point`, and the keys that
    # python-can takes for this interface
    keys: Mapping[str, Any],
    clock: Clock,  # the run's clock
) -> PythonCanBus:
    """Opens one bus and sends nothing on it; BusError with the reason and the remedy if it cannot be opened."""
    where, rates = f"bus {name}", BusRates.of(keys)
    interface, channel = keys["interface"], keys["channel"]
    if interface == "socketcan":
        if sys.platform != "linux":
            raise BusError(f"{where}: interface: socketcan exists on Linux only")
        from hil.bus.socketcan import check_interface  # imports what only Linux has

        check_interface(where, str(channel), rates, keys.get("data_sample_point"))
    elif interface == "udp_multicast" and importlib.util.find_spec("msgpack") is None:
        raise BusError(f"{where}: udp_multicast needs msgpack (pip install 'servoctl[hil]')")
    try:
        accepted = _accepted(interface)
    except Exception as error:  # importing an interface may load its driver
        raise BusError(f"{where}: {_explained(interface, '', error)}") from error
    rest = {key: value for key, value in keys.items() if key not in _OWN_KEYS}
    if "bitrate" in accepted:
        rest["bitrate"] = rates.nominal
    if rates.fd:
        rest |= _fd_arguments(where, accepted, rates, keys.get("data_sample_point"))
    try:
        bus = can.Bus(interface=interface, channel=channel, ignore_config=True, **rest)
        return PythonCanBus(
            name,
            bus,
            clock,
            echoes=bool(keys.get("receive_own_messages")) or interface == "udp_multicast",
            system_time=interface in _SYSTEM_TIME and not keys.get("preserve_timestamps"),
            socketcan=interface == "socketcan" and not keys.get("preserve_timestamps"),
            fd=rates.fd,
        )
    except Exception as error:  # drivers raise many kinds
        raise BusError(f"{where}: {_explained(interface, channel, error)}") from error


def open_buses(buses: Mapping[str, Mapping[str, Any]], clock: Clock) -> dict[str, Bus]:
    """Opens buses by name; BusError, with all of them closed, if one cannot be opened."""
    opened: dict[str, Bus] = {}
    try:
        for name, keys in buses.items():
            opened[name] = open_bus(name, keys, clock)
    except BusError:
        close_all(opened.values())
        raise
    return opened


def _fd_arguments(where: str, accepted: set[str], rates: BusRates, sample_point: float | None) -> dict[str, Any]:
    """What the constructor of an interface takes to carry FD frames."""
    if "protocol" in accepted:
        return {"protocol": can.CanProtocol.CAN_FD}
    arguments: dict[str, Any] = {"fd": True} if "fd" in accepted else {}
    if "data_bitrate" in accepted:
        arguments["data_bitrate"] = rates.data
    elif "timing" in accepted:
        point = _SAMPLE_POINT if sample_point is None else 100.0 * sample_point
        try:
            arguments["timing"] = can.BitTimingFd.from_sample_point(
                _CLOCK, rates.nominal, _SAMPLE_POINT, rates.data, point
            )
        except ValueError as error:
            raise BusError(f"{where}: data_bitrate: no bit timing gives {rates} ({in_one_line(error)})") from error
    return arguments


def is_loopback(keys: Mapping[str, Any]) -> bool:
    """Whether frames on a bus cannot leave this machine, so that an emulator may answer on it."""
    interface, hops = keys.get("interface"), keys.get("hop_limit")
    return interface == "virtual" or (interface == "udp_multicast" and type(hops) is int and hops == 0)


def key_problems(keys: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Keys of a bus with which python-can cannot open it, and why; the keys of a driver only if it is installed."""
    interface, channel = keys["interface"], keys.get("channel")
    if interface not in BACKENDS:
        known = ["emulated", *sorted(BACKENDS)]
        remedy = f"{suggestion(str(interface), known)} there are: {', '.join(known)}".lstrip()
        yield "interface", f"unknown: '{interface}' ({remedy})"
        return
    if isinstance(channel, bool) or not (isinstance(channel, int) or (isinstance(channel, str) and channel)):
        examples = {"socketcan": "can0", "udp_multicast": "239.74.163.2", "virtual": "main", "pcan": "PCAN_USBBUS1"}
        example = f", such as {examples[interface]}" if interface in examples else ""
        problem = "missing" if channel is None else f"got {channel!r}"
        yield "channel", f"{problem} (expected the name of the {interface} channel{example})"
    elif interface == "udp_multicast" and not _is_multicast(str(channel)):
        yield "channel", f"'{channel}' is not a multicast address (such as 239.74.163.2)"
    try:
        accepted = _accepted(interface)
    except Exception:  # importing an interface may load its driver
        return
    there_are = f"there are: {', '.join(sorted(accepted | _OWN_KEYS))}"
    for key in keys:
        if key not in accepted | _OWN_KEYS:
            yield key, f"{interface} has no such key ({suggestion(key, accepted) or there_are})"
    if keys.get("fd") and not accepted & {"protocol", "fd", "data_bitrate", "timing"}:
        yield "fd", f"python-can's {interface} carries no FD frames (socketcan, pcan and kvaser do)"


def _is_multicast(channel: str) -> bool:
    try:
        return ipaddress.ip_address(channel).is_multicast
    except ValueError:
        return False


def _accepted(interface: str) -> set[str]:
    """Keys that the constructor of an interface knows: python-can ignores others silently."""
    module, cls = BACKENDS[interface]
    interface_class = getattr(importlib.import_module(module), cls)
    names: set[str] = set()
    for each in interface_class.__mro__:
        if "__init__" in vars(each) and each is not object:
            names |= set(inspect.signature(each.__init__).parameters)
    return names - _NOT_FOR_CONFIGS


def _explained(interface: str, channel: str | int, error: Exception) -> str:
    number = getattr(error, "errno", None) or getattr(error.__cause__, "errno", None)
    if isinstance(error, can.CanInterfaceNotImplementedError | ImportError):
        return f"interface: {interface} cannot be used here: {error} (install its driver or package)"
    if isinstance(error, PermissionError) or number in (errno.EPERM, errno.EACCES):
        return f"no permission to open {interface} '{channel}' (a serial adapter: join the group dialout)"
    if interface == "udp_multicast" and number in (errno.ENODEV, errno.ENETUNREACH, errno.EADDRNOTAVAIL):
        return f"no route for multicast '{channel}' (sudo ip route add 224.0.0.0/4 dev lo)"
    return f"{interface} '{channel}' cannot be opened: {in_one_line(error)}"
