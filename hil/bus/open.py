"""Opens the buses that a config names, and says what is missing where one cannot be opened."""

import difflib
import errno
import importlib
import importlib.util
import inspect
import ipaddress
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import can
from can.interfaces import BACKENDS

from hil.bus.base import BusError
from hil.bus.multicast import RawMulticast
from hil.bus.python_can import RECEIVE_BUFFER, Filter, PythonCanBus
from hil.bus.raw import Raw, RawSocketCan
from hil.loop.clock import Clock
from servoctl.errors import in_one_line

MULTICAST_PORT = 43113
"""Of `udp_multicast` where a config gives none: python-can's."""

_SYSTEM_TIME = {"socketcan", "udp_multicast", "virtual"}  # their frames carry the system time of arrival
_OWN_KEYS = {"interface", "channel", "bitrate", "fd"}
_NOT_YOURS = {"self", "can_filters", "args", "kwargs"}


def open_bus(
    name: str,
    keys: Mapping[str, Any],
    clock: Clock,
    filters: Sequence[Filter] = (),
    receive_buffer: int = RECEIVE_BUFFER,
) -> PythonCanBus:
    """Opens one bus; nothing is sent on it.

    Args:
        name: As the config calls it.
        keys: `interface`, `channel`, `bitrate` [bit/s] and whatever else python-can takes for this interface.
        clock: The run's.
        filters: What is let in; none lets everything in.
        receive_buffer: Size to ask of the kernel [byte].

    Raises:
        BusError: It cannot be opened: says why, and what to do.
    """
    where = f"bus {name}"
    interface = _known_interface(where, keys)
    channel, bitrate = _channel(where, interface, keys), _bitrate(where, keys)
    if keys.get("fd"):
        raise BusError(f"{where}: fd: only classic CAN is supported (leave it out)")
    if interface == "socketcan":
        if sys.platform != "linux":
            raise BusError(f"{where}: interface: socketcan is there on Linux only")
        from hil.bus.socketcan import check_interface  # of Linux only

        check_interface(where, str(channel), bitrate)
    elif interface == "udp_multicast":
        _check_multicast(where, str(channel))
    accepted = _accepted(where, interface)
    rest = {key: value for key, value in keys.items() if key not in _OWN_KEYS}
    for key in rest:
        if key not in accepted:
            raise BusError(f"{where}: {key}: {interface} has no such key ({_closest(key, accepted)})")
    if "bitrate" in accepted:
        rest["bitrate"] = bitrate
    if interface == "socketcan" and filters:  # the others filter in Python, which PythonCanBus does better
        rest["can_filters"] = [
            {"can_id": each.id, "can_mask": each.mask, "extended": each.extended} for each in filters
        ]
    raw = _raw(interface, channel, keys)
    try:
        bus = can.Bus(interface=interface, channel=channel, ignore_config=True, **rest)
        return PythonCanBus(
            name,
            bus,
            clock,
            filters,
            echoes=bool(keys.get("receive_own_messages")) or (interface == "udp_multicast" and raw is None),
            system_time=interface in _SYSTEM_TIME and not keys.get("preserve_timestamps"),
            receive_buffer=receive_buffer,
            raw=raw,
        )
    except Exception as error:  # drivers raise what they like
        raise BusError(f"{where}: {_explained(interface, channel, error)}") from error


def _raw(interface: str, channel: str | int, keys: Mapping[str, Any]) -> Callable[[socket.socket], Raw] | None:
    """What knows the bytes on a bus's socket; None where they are python-can's affair."""
    if sys.platform != "linux" or keys.get("preserve_timestamps"):
        return None
    if interface == "socketcan":
        return RawSocketCan
    if interface == "udp_multicast" and "." in str(channel):  # an address of version 4
        port = keys.get("port", MULTICAST_PORT)
        return lambda opened: RawMulticast(opened, str(channel), port)
    return None


def is_loopback(keys: Mapping[str, Any]) -> bool:
    """Whether a bus cannot leave this machine, so that what answers on it can be an emulator."""
    interface, hops = keys.get("interface"), keys.get("hop_limit")
    return interface == "virtual" or (interface == "udp_multicast" and type(hops) is int and hops == 0)


def _known_interface(where: str, keys: Mapping[str, Any]) -> str:
    interface = keys.get("interface")
    if interface in BACKENDS:
        return str(interface)
    known = ["emulated", *sorted(BACKENDS)]
    said = "missing" if interface is None else f"unknown: '{interface}'"
    close = difflib.get_close_matches(str(interface), known, n=1)
    hint = f"did you mean '{close[0]}'? " if close else ""
    raise BusError(f"{where}: interface: {said} ({hint}there are: {', '.join(known)})")


def _channel(where: str, interface: str, keys: Mapping[str, Any]) -> str | int:
    channel = keys.get("channel")
    if isinstance(channel, int) and not isinstance(channel, bool):
        return channel
    if isinstance(channel, str) and channel:
        return channel
    examples = {"socketcan": "can0", "udp_multicast": "239.74.163.2", "virtual": "main", "pcan": "PCAN_USBBUS1"}
    example = f", such as {examples[interface]}" if interface in examples else ""
    said = "missing" if channel is None else f"got {channel!r}"
    raise BusError(f"{where}: channel: {said} (expected the name of the {interface} channel{example})")


def _bitrate(where: str, keys: Mapping[str, Any]) -> int:
    bitrate = keys.get("bitrate")
    if isinstance(bitrate, int) and not isinstance(bitrate, bool) and bitrate > 0:
        return bitrate
    said = "missing" if bitrate is None else f"got {bitrate!r}"
    raise BusError(f"{where}: bitrate: {said} (expected a whole number [bit/s], such as 1000000)")


def _check_multicast(where: str, channel: str) -> None:
    try:
        multicast = ipaddress.ip_address(channel).is_multicast
    except ValueError:
        multicast = False
    if not multicast:
        raise BusError(f"{where}: channel: '{channel}' is not a multicast address (such as 239.74.163.2)")
    if importlib.util.find_spec("msgpack") is None:
        raise BusError(f"{where}: udp_multicast needs msgpack (pip install 'servoctl[hil]')")


def _accepted(where: str, interface: str) -> set[str]:
    """Keys that the constructor of an interface knows; python-can lets others pass without a word."""
    module, cls = BACKENDS[interface]
    try:
        found = getattr(importlib.import_module(module), cls)
    except Exception as error:  # drivers are loaded on import
        raise BusError(f"{where}: {_explained(interface, '', error)}") from error
    names: set[str] = set()
    for each in found.__mro__:
        if "__init__" in vars(each) and each is not object:
            names |= set(inspect.signature(each.__init__).parameters)
    return names - _NOT_YOURS


def _closest(key: str, accepted: set[str]) -> str:
    close = difflib.get_close_matches(key, accepted, n=1)
    return f"did you mean '{close[0]}'?" if close else f"there are: {', '.join(sorted(accepted | _OWN_KEYS - {'fd'}))}"


def _explained(interface: str, channel: str | int, error: Exception) -> str:
    number = getattr(error, "errno", None) or getattr(error.__cause__, "errno", None)
    if isinstance(error, can.CanInterfaceNotImplementedError | ImportError):
        return f"interface: {interface} cannot be used here: {error} (install its driver or package)"
    if isinstance(error, PermissionError) or number in (errno.EPERM, errno.EACCES):
        return f"no permission to open {interface} '{channel}' (a serial adapter: join the group dialout)"
    if interface == "udp_multicast" and number in (errno.ENODEV, errno.ENETUNREACH, errno.EADDRNOTAVAIL):
        return f"no route for multicast '{channel}' (sudo ip route add 224.0.0.0/4 dev lo)"
    return f"{interface} '{channel}' cannot be opened: {in_one_line(error)}"
