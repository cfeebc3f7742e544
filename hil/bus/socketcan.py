"""Whether a CAN interface of Linux is ready to be opened."""

import errno
import fcntl
import json
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator
from typing import Any

from hil.bus.base import BusError
from hil.bus.load import BusRates

_SIOCGIFFLAGS, _SIOCGIFMTU, _SIOCGIFHWADDR = 0x8913, 0x8921, 0x8927
_IFF_UP = 1
_ARPHRD_CAN = 280
_CANFD_MTU = 72
_SAMPLE_POINT_TOLERANCE = 0.02


def check_interface(where: str, channel: str, rates: BusRates, data_sample_point: float | None = None) -> None:
    """Checks that an interface exists, is a CAN interface, is up, and runs at the right bit rates.

    The error begins with `where`, such as `bus main`, and gives the command that sets the interface right.
    """
    try:
        probe = socket.socket(socket.AF_CAN, socket.SOCK_RAW, socket.CAN_RAW)
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EACCES):
            raise BusError(f"{where}: no permission to use CAN sockets") from error
        raise BusError(
            f"{where}: this kernel has no SocketCAN ({error.strerror}); try: sudo modprobe can_raw; "
            "`interface: emulated` needs neither SocketCAN nor hardware"
        ) from error
    up = up_command(channel, rates, data_sample_point)
    again = f"sudo ip link set {channel} down; {up}"
    with probe:
        kind = _ask(probe, _SIOCGIFHWADDR, channel)
        if kind is None:
            raise BusError(f"{where}: channel: there is no interface '{channel}' ({_how_to_add(channel, up)})")
        if kind != _ARPHRD_CAN:
            raise BusError(f"{where}: channel: '{channel}' is not a CAN interface ({_others(channel)})")
        if not (_ask(probe, _SIOCGIFFLAGS, channel) or 0) & _IFF_UP:
            raise BusError(f"{where}: interface '{channel}' is down ({up})")
        if rates.fd and _ask(probe, _SIOCGIFMTU, channel) != _CANFD_MTU:
            raise BusError(f"{where}: fd: '{channel}' carries no FD frames ({again})")
    settings = _settings(channel)
    for key, what in _differences(settings, rates, data_sample_point):
        raise BusError(f"{where}: {key}: '{channel}' {what} ({again})")
    if settings.get("state") == "BUS-OFF":
        raise BusError(f"{where}: '{channel}' is bus-off ({again})")


def _differences(
    settings: dict[str, Any], rates: BusRates, data_sample_point: float | None
) -> Iterator[tuple[str, str]]:
    """Keys of the config that the controller's settings do not fit, and what the controller does instead."""
    nominal, data = settings.get("bittiming", {}), settings.get("data_bittiming", {})
    actual = nominal.get("bitrate", rates.nominal)
    if actual != rates.nominal:
        yield "bitrate", f"runs at {actual} bit/s, not at {rates.nominal}"
    if not rates.fd:
        return
    actual = data.get("bitrate", rates.data)
    if actual != rates.data:
        yield "data_bitrate", f"sends the data of FD frames at {actual} bit/s, not at {rates.data}"
    point = float(data.get("sample_point", "nan"))
    if data_sample_point is not None and abs(point - data_sample_point) > _SAMPLE_POINT_TOLERANCE:
        yield "data_sample_point", f"samples data bits at {point:g} of their time, not at {data_sample_point:g}"


def up_command(channel: str, rates: BusRates, data_sample_point: float | None = None) -> str:
    """The command that sets an interface up; arguments as for `check_interface`."""
    if channel.startswith("vcan"):
        return f"sudo ip link set {channel} {'mtu 72 ' if rates.fd else ''}up"
    up = f"sudo ip link set {channel} up type can bitrate {rates.nominal}"
    if rates.fd:
        up += f" dbitrate {rates.data}"
        up += "" if data_sample_point is None else f" dsample-point {data_sample_point:g}"
        up += " fd on"
    return up


def describe_interface(channel: str) -> str:
    """What an interface of this machine carries, in words: frames, bit rates, sample points; vcan has no bit rates."""
    with socket.socket(socket.AF_CAN, socket.SOCK_RAW, socket.CAN_RAW) as probe:
        up = (_ask(probe, _SIOCGIFFLAGS, channel) or 0) & _IFF_UP
        fd = _ask(probe, _SIOCGIFMTU, channel) == _CANFD_MTU
    settings, parts = _settings(channel), ["up" if up else "down", "CAN FD" if fd else "classic CAN"]
    for key, words in (("bittiming", ""), ("data_bittiming", "FD data at ")):
        timing = settings.get(key, {})
        if "bitrate" in timing:
            parts.append(f"{words}{timing['bitrate']} bit/s, sample point {timing.get('sample_point', 'unknown')}")
    return ", ".join(parts)


def _ask(probe: socket.socket, request: int, channel: str) -> int | None:
    """Flags, MTU or hardware type of an interface; None if it does not exist."""
    if len(channel.encode()) > 15:
        return None
    try:
        answer = fcntl.ioctl(probe, request, struct.pack("16s24x", channel.encode()))
    except OSError:
        return None
    return int(struct.unpack_from("=H", answer, 16)[0])


def _others(channel: str) -> str:
    with socket.socket(socket.AF_CAN, socket.SOCK_RAW, socket.CAN_RAW) as probe:
        known = [name for _, name in socket.if_nameindex() if _ask(probe, _SIOCGIFHWADDR, name) == _ARPHRD_CAN]
    names = [name for name in known if name != channel]
    return f"CAN interfaces: {', '.join(names) or 'none'}"


def _how_to_add(channel: str, up: str) -> str:
    make = f"sudo ip link add {channel} type vcan; {up}" if channel.startswith("vcan") else f"plug it in, then: {up}"
    return f"{_others(channel)}; {make}"


def _settings(channel: str) -> dict[str, Any]:
    """Settings of the controller as `ip` reports them; empty without `ip`, or if there are none, as for vcan."""
    command = shutil.which("ip", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if command is None:
        return {}
    try:
        run = subprocess.run(
            [command, "-details", "-json", "link", "show", "dev", channel], capture_output=True, timeout=5, check=True
        )
        settings = json.loads(run.stdout)[0]["linkinfo"].get("info_data", {})
    except (OSError, subprocess.SubprocessError, ValueError, LookupError):
        return {}
    return dict(settings)
