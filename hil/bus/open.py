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
import struct
import sys
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any

import can
from can.interfaces import BACKENDS

from hil.bus.base import Bus, BusError, close_all
from hil.bus.load import BusRates
from hil.bus.python_can import PythonCanBus
from hil.frame import Frame
from hil.loop.clock import Clock, nanoseconds
from servoctl.errors import in_one_line, suggestion

EMULATOR = 0x1FFF5E50  # id of the frames between loop and emulator, 29 bits

VERSION = 3  # changes with what loop and emulator must agree on
_PAYLOAD = struct.Struct("<2sBBI")  # mark, version, message, time [microseconds]
_MARK = b"sc"


class EmulatorMessage(IntEnum):
    """The messages between loop and emulator; some have a time."""

    ARE_YOU_FREE = 0  # of the loop
    FREE = 1
    TAKEN = 2  # another loop uses the drives
    BEGUN = 3  # of the loop: the task begins
    HOW_LATE = 4  # of the loop
    LATENESS = 5  # the largest lateness since the drives were powered on
    HAND = 6  # of the loop: it asks for a hand that moves the machine for a time


def emulator_frame(message: EmulatorMessage, time: float = 0.0) -> Frame:
    """The frame of a message, with a time [s]."""
    microseconds = min(round(1e6 * time), 0xFFFF_FFFF)
    return Frame(EMULATOR, _PAYLOAD.pack(_MARK, VERSION, message, microseconds), extended=True)


def emulator_message(frame: Frame) -> tuple[EmulatorMessage, float] | None:
    """The message in a frame, and its time [s]; None for every other frame, those of other versions too."""
    if frame.id != EMULATOR or not frame.extended or frame.remote or len(frame.data) != _PAYLOAD.size:
        return None
    mark, version, number, microseconds = _PAYLOAD.unpack(frame.data)
    known = (mark, version) == (_MARK, VERSION) and number < len(EmulatorMessage)
    return (EmulatorMessage(number), microseconds / 1e6) if known else None


def _answers(
    bus: Bus, clock: Clock, message: EmulatorMessage, timeout: float
) -> Iterator[tuple[EmulatorMessage, float]]:
    """Sends a message on a loopback bus; the answers within a time [s]. Other frames are discarded."""
    bus.send(emulator_frame(message))
    until = clock.now() + nanoseconds(timeout)
    while (frame := bus.receive(until)) is not None:
        if (answer := emulator_message(frame)) is not None:
            yield answer


def emulator_lateness(bus: Bus, clock: Clock, timeout: float) -> float | None:
    """The largest lateness of the emulator on a loopback bus [s]; None if it does not answer in time [s]."""
    answers = _answers(bus, clock, EmulatorMessage.HOW_LATE, timeout)
    return next((time for answer, time in answers if answer is EmulatorMessage.LATENESS), None)


def answers_as_emulator(bus: Bus, clock: Clock, timeout: float) -> bool:
    """Whether an emulator of this version answers in time [s]; it sends one frame and discards what comes before the
    answer.

    The bus is a loopback bus (`is_loopback`): nothing may be sent to real drives before they are checked.

    Raises BusError if the bus is down, or another loop uses the emulated drives.
    """
    for answer, _ in _answers(bus, clock, EmulatorMessage.ARE_YOU_FREE, timeout):
        if answer is EmulatorMessage.FREE:
            return True
        if answer is EmulatorMessage.TAKEN:
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
