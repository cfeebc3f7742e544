"""Whether a CAN interface of Linux is ready to be opened."""

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
    """Checks that an interface exists, is a CAN interface, is up, and runs at the right bit rate.

    Args:
        where: Beginning of the error text, such as `bus main`.
        channel: Name of the interface, such as `can0`.
        bitrate: Bit rate in the config [bit/s].

    Raises:
        BusError: It is not; the text gives the command that sets it right.
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
    up = f"sudo ip link set {channel} up type can bitrate {bitrate}"
    if channel.startswith("vcan"):
        up = f"sudo ip link set {channel} up"
    with probe:
        kind = _ask(probe, _SIOCGIFHWADDR, channel)
        if kind is None:
            raise BusError(f"{where}: channel: there is no interface '{channel}' ({_how_to_add(channel, up)})")
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
    """Flags or hardware type of an interface; None if it does not exist."""
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
