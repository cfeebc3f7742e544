"""What the Linux kernel says of a CAN interface, before it is opened."""

import errno
import fcntl
import json
import shutil
import socket
import struct
import subprocess
from typing import Any

from hil.bus.base import BusError

_SIOCGIFFLAGS, _SIOCGIFHWADDR = 0x8913, 0x8927
_IFF_UP = 1
_ARPHRD_CAN = 280


def check_interface(where: str, channel: str, bitrate: int) -> None:
    """Refuses an interface that is not there, not CAN, down, or runs at another bit rate.

    Args:
        where: How errors begin: `bus main`.
        channel: Name of the interface: `can0`.
        bitrate: That the config says [bit/s].

    Raises:
        BusError: With what to type.
    """
    try:
        probe = socket.socket(socket.AF_CAN, socket.SOCK_RAW, socket.CAN_RAW)
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EACCES):
            raise BusError(f"{where}: no permission to use CAN sockets") from error
        raise BusError(
            f"{where}: this kernel has no SocketCAN ({error.strerror}); try: sudo modprobe can_raw; "
            "without hardware `interface: emulated` needs none"
        ) from error
    up = f"sudo ip link set {channel} up type can bitrate {bitrate}"
    if channel.startswith("vcan"):
        up = f"sudo ip link set {channel} up"
    with probe:
        kind = _ask(probe, _SIOCGIFHWADDR, channel)
        if kind is None:
            raise BusError(f"{where}: channel: there is no interface '{channel}' ({_what_there_is(channel, up)})")
        if kind != _ARPHRD_CAN:
            raise BusError(f"{where}: channel: '{channel}' is not a CAN interface ({_others(channel)})")
        if not (_ask(probe, _SIOCGIFFLAGS, channel) or 0) & _IFF_UP:
            raise BusError(f"{where}: interface '{channel}' is down ({up})")
    settings = _settings(channel)
    actual = settings.get("bittiming", {}).get("bitrate", bitrate)
    if actual != bitrate:
        again = f"sudo ip link set {channel} down; {up}"
        raise BusError(f"{where}: bitrate: '{channel}' runs at {actual} bit/s, not at {bitrate} ({again})")
    if settings.get("state") == "BUS-OFF":
        raise BusError(f"{where}: '{channel}' is bus-off (sudo ip link set {channel} down; {up})")


def _ask(probe: socket.socket, request: int, channel: str) -> int | None:
    """Flags or hardware type of an interface; None where it is not there."""
    if len(channel.encode()) > 15:
        return None
    try:
        answer = fcntl.ioctl(probe, request, struct.pack("16s24x", channel.encode()))
    except OSError:
        return None
    return int(struct.unpack_from("=H", answer, 16)[0])


def _interfaces() -> list[str]:
    with socket.socket(socket.AF_CAN, socket.SOCK_RAW, socket.CAN_RAW) as probe:
        return [name for _, name in socket.if_nameindex() if _ask(probe, _SIOCGIFHWADDR, name) == _ARPHRD_CAN]


def _others(channel: str) -> str:
    names = [name for name in _interfaces() if name != channel]
    return f"CAN interfaces: {', '.join(names) or 'none'}"


def _what_there_is(channel: str, up: str) -> str:
    make = f"sudo ip link add {channel} type vcan; {up}" if channel.startswith("vcan") else f"plug it in, then: {up}"
    return f"{_others(channel)}; {make}"


def _settings(channel: str) -> dict[str, Any]:
    """What `ip` knows of the controller; empty where there is no `ip`, or nothing to know as with vcan."""
    command = shutil.which("ip", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if command is None:
        return {}
    try:
        run = subprocess.run(
            [command, "-details", "-json", "link", "show", "dev", channel], capture_output=True, timeout=5, check=True
        )
        found = json.loads(run.stdout)[0]["linkinfo"].get("info_data", {})
    except (OSError, subprocess.SubprocessError, ValueError, LookupError):
        return {}
    return dict(found)
