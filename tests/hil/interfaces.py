"""Interfaces of python-can that need no hardware, each for one test alone."""

import fcntl
import os
import socket
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest

BITRATE = 1_000_000
EACH = ["virtual", "udp_multicast", pytest.param("socketcan", marks=pytest.mark.vcan)]


@contextmanager
def keys_of(interface: str) -> Iterator[dict[str, Any]]:
    """What a config says of a bus that is there; skips with the reason where it is not."""
    if interface == "virtual":
        yield {"interface": interface, "bitrate": BITRATE, "channel": f"test-{uuid.uuid4()}"}
    elif interface == "udp_multicast":
        yield _multicast()
    else:
        with _vcan() as channel:
            yield {"interface": interface, "bitrate": BITRATE, "channel": channel}


def _multicast() -> dict[str, Any]:
    group, port = "239.74.163.2", _free_port()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 0)
            probe.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + bytes(4))
            probe.settimeout(1.0)
            probe.bind(("", port))
            probe.sendto(b"probe", (group, port))
            probe.recv(16)
        except OSError as error:
            pytest.skip(f"no multicast on this machine: {error}")
    keys = {"interface": "udp_multicast", "bitrate": BITRATE, "channel": group}
    return {**keys, "port": port, "hop_limit": 0}


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _vcan() -> Iterator[str]:
    """The one vcan0 of this machine, for one process at a time."""
    flags = Path("/sys/class/net/vcan0/flags")
    if not (hasattr(socket, "AF_CAN") and flags.exists() and int(flags.read_text(), 16) & 1):
        absent("there is no vcan0 that is up")
    with open(Path(tempfile.gettempdir()) / "servoctl-tests-vcan0.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield "vcan0"


def absent(what: str) -> NoReturn:
    """Skips, or fails where the run is meant for a real SocketCAN."""
    if os.environ.get("SERVOCTL_VCAN_REQUIRED"):
        pytest.fail(what)
    pytest.skip(what)
