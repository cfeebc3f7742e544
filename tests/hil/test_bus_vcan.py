"""Buses on a real SocketCAN interface, against the independent programs of can-utils."""

import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hil.bus import BusError, Link
from hil.bus.open import open_bus
from hil.frame import FD_SIZES, Frame
from hil.loop.clock import SECOND, WallClock
from tests.hil.interfaces import absent, keys_of

pytestmark = pytest.mark.vcan

ENOUGH = 5 * SECOND
SMALL = 4096
"""Receive buffer for a handful of frames [byte]."""

Keys = dict[str, Any]


@pytest.fixture
def keys() -> Iterator[Keys]:
    with keys_of("socketcan") as keys:
        yield keys


def tool(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if found is None:
        absent(f"there is no {name} (apt-get install can-utils)")
    return found


def test_a_frame_of_cansend_arrives(keys: Keys) -> None:
    clock = WallClock()
    bus = open_bus("main", {**keys, "fd": True}, clock)
    for text, frame in [
        ("123#DEADBEEF", Frame(0x123, bytes.fromhex("DEADBEEF"))),
        ("1ABCDEF0#", Frame(0x1ABCDEF0, extended=True)),
        ("069#R8", Frame(0x069, remote=True, length=8)),
        ("123##1" + "A5" * 64, Frame(0x123, b"\xa5" * 64, fd=True, brs=True)),
        ("1ABCDEF0##0" + "01" * 12, Frame(0x1ABCDEF0, b"\x01" * 12, extended=True, fd=True)),
    ]:
        subprocess.run([tool("cansend"), "vcan0", text], check=True)
        received = bus.receive(clock.now() + ENOUGH)
        assert received is not None and received.at(0) == frame
    bus.close()


@pytest.mark.parametrize(
    ("text", "link", "reason"),
    [
        ("20000004#0008000000000000", Link.WARNING, "many transmit errors"),
        ("20000004#0010000000000000", Link.PASSIVE, "error passive by receive errors"),
        ("20000040#0000000000000000", Link.OFF, "bus-off: check cables, termination and bit rate"),
        ("20000020#0000000000000000", Link.ACTIVE, "no acknowledgement: no other node on the bus, or a broken cable"),
    ],
)
def test_an_error_frame_of_cansend_is_decoded(keys: Keys, text: str, link: Link, reason: str) -> None:
    clock = WallClock()
    bus = open_bus("main", keys, clock)
    subprocess.run([tool("cansend"), "vcan0", text], check=True)
    subprocess.run([tool("cansend"), "vcan0", "001#"], check=True)
    received = bus.receive(clock.now() + ENOUGH)
    assert received is not None and received.id == 1
    assert (bus.health.link, bus.health.reason, bus.health.errors) == (link, reason, 1)
    bus.close()


@pytest.mark.parametrize("fd", [False, True], ids=["classic", "fd"])
def test_candump_logs_what_was_sent_and_what_we_received(keys: Keys, tmp_path: Path, fd: bool) -> None:
    clock, chance, log = WallClock(), random.Random(7), tmp_path / "candump.log"
    keys = {**keys, "fd": fd}
    frames = [random_frame(chance, fd) for _ in range(4000)]
    if fd:
        assert {len(frame.data) for frame in frames if frame.fd} == set(FD_SIZES)
    sender, receiver = open_bus("sender", keys, clock), open_bus("receiver", keys, clock)
    received: list[Frame] = []
    with log.open("w") as output:
        candump = subprocess.Popen([tool("candump"), "-L", "-r", "8000000", "vcan0"], stdout=output)
        try:
            started = wait_for_candump(sender, log)
            for i, frame in enumerate(frames):
                sender.send(frame)
                while i % 200 == 0 and (got := receiver.receive(0)) is not None:
                    received.append(got)
            wait_until(lambda: len(log.read_text().splitlines()) >= started + len(frames))
        finally:
            candump.terminate()
            candump.wait()
    while (got := receiver.receive(0)) is not None:
        received.append(got)
    lines = log.read_text().splitlines()
    logged = [parsed(line) for line in lines]
    assert [frame for _, frame in logged[started:]] == frames
    assert [frame.at(0) for frame in received[-len(frames) :]] == frames
    assert receiver.health.lost == receiver.health.invalid == 0
    stamps = [stamp for stamp, _ in logged[started:]]  # of the kernel, on its own clock
    times = [frame.time / SECOND for frame in received[-len(frames) :]]
    differences = sorted(ours - theirs for ours, theirs in zip(times, stamps, strict=True))
    first, third = differences[len(frames) // 4], differences[3 * len(frames) // 4]
    assert third - first < 0.001  # stamps of the same moments, one offset; read, they were up to 200 frames late
    sender.close()
    receiver.close()


def random_frame(chance: random.Random, fd: bool) -> Frame:
    """A classic frame, or on an FD bus mostly one of its 16 sizes, with and without bit rate switch."""
    extended, remote = chance.random() < 0.5, chance.random() < 0.1
    identity = chance.randrange(1 << (29 if extended else 11))
    if fd and chance.random() < 0.8:
        data = chance.randbytes(chance.choice(FD_SIZES))
        return Frame(identity, data, extended, fd=True, brs=chance.random() < 0.5)
    if remote:
        return Frame(identity, extended=extended, remote=True, length=chance.randrange(9))
    return Frame(identity, chance.randbytes(chance.randrange(9)), extended)


def parsed(line: str) -> tuple[float, Frame]:
    """A line of `candump -L`: `(1700000000.000000) vcan0 123#DEADBEEF`; of an FD frame `123##1DEADBEEF`."""
    stamp, _, text = line.split()[:3]
    identity, _, data = text.partition("#")
    extended = len(identity) == 8
    if data.startswith("#"):
        frame = Frame(int(identity, 16), bytes.fromhex(data[2:]), extended, fd=True, brs=bool(int(data[1], 16) & 1))
    elif data.startswith("R"):
        frame = Frame(int(identity, 16), extended=extended, remote=True, length=int(data[1:] or "0"))
    else:
        frame = Frame(int(identity, 16), bytes.fromhex(data), extended)
    return float(stamp.strip("()")), frame


def wait_for_candump(sender: Any, log: Path) -> int:
    """Sends until candump logs it and nothing more comes; returns the number of lines."""

    def listens() -> bool:
        sender.send(Frame(0x7FF))
        return bool(log.read_text())

    wait_until(listens)
    lines = -1
    while lines != (lines := len(log.read_text().splitlines())):
        time.sleep(0.3)
    return lines


def wait_until(done: Any) -> None:
    for _ in range(600):
        if done():
            return
        time.sleep(0.05)
    pytest.fail("candump did not keep up within 30 s")


def test_frames_without_room_in_the_receive_buffer_are_counted(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = WallClock()
    monkeypatch.setattr("hil.bus.python_can.RECEIVE_BUFFER", SMALL)
    slow, sender = open_bus("slow", keys, clock), open_bus("sender", keys, clock)
    for i in range(500):
        sender.send(Frame(i))
    received = 0
    while slow.receive(0) is not None:
        received += 1
    assert slow.health.lost > 0
    assert received + slow.health.lost == 500
    sender.close()
    slow.close()
    assert slow.health.lost + slow.health.received == 500


def test_echoes_from_the_kernel_are_dropped(keys: Keys) -> None:
    clock = WallClock()
    bus = open_bus("main", {**keys, "receive_own_messages": True}, clock)
    bus.send(Frame(0x123, b"\x01"))
    subprocess.run([tool("cansend"), "vcan0", "123#01"], check=True)
    received = bus.receive(clock.now() + ENOUGH)
    assert received is not None and received.id == 0x123
    assert (bus.health.echoes, bus.health.received) == (1, 1)
    bus.close()


def test_an_interface_that_goes_down_takes_the_bus_down_until_an_operator_resets_it(keys: Keys) -> None:
    clock = WallClock()
    bus = open_bus("main", keys, clock)
    bus.send(Frame(1))
    with interface_down():
        with pytest.raises(BusError, match=r"bus main: the interface is down \(ip link set NAME up\)"):
            bus.receive(clock.now() + ENOUGH)
        with pytest.raises(BusError, match="bus main: the interface is down"):
            bus.send(Frame(1))
        assert (bus.health.link, bus.health.sent, bus.health.refused) == (Link.DOWN, 1, 1)
        with pytest.raises(BusError, match=r"interface 'vcan0' is down \(sudo ip link set vcan0 up\)"):
            open_bus("main", keys, clock)
    bus.send(Frame(1))
    assert (bus.health.link, bus.health.sent) == (Link.DOWN, 2)
    bus.close()


class interface_down:  # noqa: N801
    """vcan0 down; up again at the end."""

    def __enter__(self) -> None:
        try:
            subprocess.run([tool("ip"), "link", "set", "vcan0", "down"], check=True, capture_output=True)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"vcan0 cannot be taken down: {error.stderr.decode().strip()}")

    def __exit__(self, *_: object) -> None:
        subprocess.run([tool("ip"), "link", "set", "vcan0", "up"], check=True)
