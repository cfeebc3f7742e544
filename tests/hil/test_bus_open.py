"""Which error and remedy each mistake in opening a bus gets."""

import errno
import socket
from typing import Any

import can
import pytest
import yaml

from hil.bus import BusError, socketcan
from hil.bus import open as opening
from hil.bus.open import is_loopback, key_problems, open_bus
from hil.loop.clock import VirtualClock
from tests.hil.interfaces import keys_of
from tests.refused import table

VIRTUAL = {"interface": "virtual", "channel": "main", "bitrate": 1_000_000}
MULTICAST = {"interface": "udp_multicast", "channel": "239.74.163.2", "bitrate": 1_000_000, "hop_limit": 0}
SOCKETCAN = {"interface": "socketcan", "channel": "can0", "bitrate": 1_000_000}


@pytest.mark.parametrize(("keys", "said"), [(words[0], said) for _, words, said in table("buses")])
def test_an_error_names_the_mistake_and_its_remedy(keys: str, said: list[str]) -> None:
    problems = "\n".join(f"{key}: {what}" for key, what in key_problems(yaml.safe_load(f"{{{keys}}}")))
    assert all(sentence in problems for sentence in said), problems


def test_a_channel_that_a_driver_cannot_open_is_named() -> None:
    with pytest.raises(BusError, match=r"bus main: .*slcan"):
        open_bus("main", {"interface": "slcan", "channel": "/no/such/tty", "bitrate": 1_000_000}, VirtualClock())


def test_multicast_without_msgpack_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BusError, match=r"udp_multicast needs msgpack \(pip install 'servoctl\[hil\]'\)"):
        open_bus("main", MULTICAST, VirtualClock())


@pytest.mark.parametrize(
    ("error", "keys", "said"),
    [
        (PermissionError(errno.EACCES, "Permission denied"), VIRTUAL, r"no permission to open virtual 'main'"),
        (
            can.CanInterfaceNotImplementedError("no driver"),
            VIRTUAL,
            r"virtual cannot be used here: no driver \(install",
        ),
        (can.CanInitializationError("taken"), VIRTUAL, r"'main' cannot be opened: CanInitializationError: taken"),
        (
            OSError(errno.ENODEV, "No such device"),
            MULTICAST,
            r"no route for multicast '239.74.163.2' \(sudo ip route add",
        ),
    ],
)
def test_errors_of_a_driver_are_explained(
    error: Exception, keys: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("msgpack")

    def refuse(*_: Any, **__: Any) -> can.BusABC:
        raise error

    monkeypatch.setattr(opening.can, "Bus", refuse)
    with pytest.raises(BusError, match=f"bus main: .*{said}"):
        open_bus("main", keys, VirtualClock())


def has_socketcan() -> bool:
    try:
        socket.socket(socket.AF_CAN, socket.SOCK_RAW, socket.CAN_RAW).close()
    except OSError:
        return False
    return True


@pytest.mark.skipif(has_socketcan(), reason="this kernel has SocketCAN")
def test_a_kernel_without_socketcan_is_reported() -> None:
    with pytest.raises(BusError, match=r"this kernel has no SocketCAN .* sudo modprobe can_raw; .*emulated"):
        open_bus("main", SOCKETCAN, VirtualClock())


@pytest.mark.vcan
def test_a_missing_interface_is_reported() -> None:
    with keys_of("socketcan"):
        with pytest.raises(
            BusError,
            match=r"there is no interface 'can7' \(CAN interfaces: .*vcan0.*; "
            r"plug it in, then: sudo ip link set can7 up type can bitrate 1000000\)",
        ):
            open_bus("main", {**SOCKETCAN, "channel": "can7"}, VirtualClock())
        with pytest.raises(BusError, match=r"sudo ip link add vcan7 type vcan; sudo ip link set vcan7 up\)"):
            open_bus("main", {**SOCKETCAN, "channel": "vcan7"}, VirtualClock())
        with pytest.raises(BusError, match=r"'lo' is not a CAN interface \(CAN interfaces: .*vcan0"):
            open_bus("main", {**SOCKETCAN, "channel": "lo"}, VirtualClock())


DATA = {"fd": True, "data_bitrate": 5_000_000, "data_sample_point": 0.666}


@pytest.mark.vcan
@pytest.mark.parametrize(
    ("settings", "more", "said"),
    [
        (
            {"bittiming": {"bitrate": 500_000}}, {},
            r"bitrate: 'vcan0' runs at 500000 bit/s, not at 1000000 \(sudo ip link set",
        ),
        (
            {"bittiming": {"bitrate": 1_000_000}, "state": "BUS-OFF"}, {},
            r"'vcan0' is bus-off \(sudo ip link set vcan0 down; ",
        ),
        (
            {"data_bittiming": {"bitrate": 2_000_000}}, DATA,
            r"data_bitrate: 'vcan0' sends the data of FD frames at 2000000 bit/s, not at 5000000 \(sudo ip link set",
        ),
        (
            {"data_bittiming": {"bitrate": 5_000_000, "sample_point": "0.750"}}, DATA,
            r"data_sample_point: 'vcan0' samples data bits at 0.75 of their time, not at 0.666 \(sudo ip link set",
        ),
    ],
)  # fmt: skip
def test_a_controller_with_another_rate_or_sample_point_or_in_bus_off_is_refused(
    settings: dict[str, Any], more: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vcan has no controller, so the output of `ip` for one is inserted."""
    monkeypatch.setattr(socketcan, "_settings", lambda channel: settings)
    with keys_of("socketcan") as keys, pytest.raises(BusError, match=said):
        open_bus("main", {**keys, **more}, VirtualClock())


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (VIRTUAL, True),
        (MULTICAST, True),
        ({**MULTICAST, "hop_limit": 1}, False),
        ({**MULTICAST, "hop_limit": False}, False),
        ({key: value for key, value in MULTICAST.items() if key != "hop_limit"}, False),
        (SOCKETCAN, False),
        ({**SOCKETCAN, "channel": "vcan0"}, False),
        ({**SOCKETCAN, "hop_limit": 0}, False),
        ({}, False),
    ],
)
def test_a_bus_is_loopback_only_if_its_frames_cannot_leave_the_machine(keys: dict[str, Any], expected: bool) -> None:
    assert is_loopback(keys) is expected
