"""How a bus behaves: the same tests for every interface of python-can that needs no hardware."""

import errno
import socket
import sys
from collections.abc import Iterator
from typing import Any

import can
import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hil.bus import BusError, Link
from hil.bus.open import EMULATOR, EmulatorMessage, emulator_frame, emulator_message, open_bus
from hil.bus.python_can import PythonCanBus
from hil.frame import Frame
from hil.loop.clock import SECOND, VirtualClock, WallClock
from tests.hil.interfaces import EACH, keys_of

ENOUGH = 5 * SECOND
"""Time in which a frame certainly arrives [ns]."""

Keys = dict[str, Any]


@pytest.fixture(params=EACH)
def keys(request: pytest.FixtureRequest) -> Iterator[Keys]:
    with keys_of(request.param) as keys:
        yield keys


class Pair:
    """Two buses on one channel."""

    def __init__(self, keys: Keys) -> None:
        self.clock = WallClock()
        self.ours = open_bus("ours", keys, self.clock)
        self.theirs = open_bus("theirs", keys, self.clock)

    def __enter__(self) -> "Pair":
        return self

    def __exit__(self, *_: object) -> None:
        self.ours.close()
        self.theirs.close()

    def take(self, bus: PythonCanBus, count: int) -> list[Frame]:
        """Receives exactly `count` frames; returns them without their times."""
        frames = [bus.receive(self.clock.now() + ENOUGH) for _ in range(count)]
        assert bus.receive(self.clock.now()) is None
        return [frame.at(0) for frame in frames if frame is not None]


FRAMES = [
    Frame(0x000),
    Frame(0x7FF, b"\x01"),
    Frame(0x123, bytes(range(8))),
    Frame(0x123, bytes(range(8)), extended=True),
    Frame(0x1FFFFFFF, b"\xff\x00\xff", extended=True),
    Frame(0x069, remote=True, length=8),
    Frame(0x080, remote=True),
    Frame(0x1ABCDEF, remote=True, length=3, extended=True),
]


def test_frames_arrive_as_they_were_sent(keys: Keys) -> None:
    with Pair(keys) as pair:
        for frame in FRAMES:
            pair.ours.send(frame)
        assert pair.take(pair.theirs, len(FRAMES)) == FRAMES
        assert pair.ours.health.sent == pair.theirs.health.received == len(FRAMES)
        assert pair.theirs.health.link is Link.ACTIVE
        assert pair.ours.receive(pair.clock.now()) is None, "own frames do not come back"
        assert (pair.ours.health.received, pair.ours.health.lost) == (0, 0)


def test_equal_frames_of_two_senders_are_received_by_both(keys: Keys) -> None:
    with Pair(keys) as pair:
        request = Frame(0x069, remote=True, length=8)
        for _ in range(3):
            pair.ours.send(request)
            pair.theirs.send(request)
        assert pair.take(pair.ours, 3) == [request] * 3
        assert pair.take(pair.theirs, 3) == [request] * 3


def test_a_frame_has_its_time_of_arrival(keys: Keys) -> None:
    with Pair(keys) as pair:
        before = pair.clock.now()
        assert pair.ours.receive(0) is None  # the queue is empty: a frame received now came later
        for frame in FRAMES:
            pair.theirs.send(frame)
        frames = [pair.ours.receive(pair.clock.now() + ENOUGH) for _ in FRAMES]
        after = pair.clock.now()
        times = [frame.time for frame in frames if frame is not None]
        assert len(times) == len(FRAMES)
        assert times == sorted(times)
        assert before <= times[0]
        assert times[-1] <= after


def test_receiving_until_a_past_time_takes_a_frame_that_is_already_there(keys: Keys) -> None:
    with Pair(keys) as pair:
        assert pair.ours.receive(pair.clock.now() - SECOND) is None
        pair.theirs.send(FRAMES[2])
        pair.theirs.send(FRAMES[3])
        assert pair.ours.receive(pair.clock.now() + ENOUGH) is not None
        second = pair.ours.receive(0)
        assert second is not None and second.extended


def test_error_frames_are_left_out_and_the_worst_link_stays(keys: Keys) -> None:
    with Pair(keys) as pair:
        for classes, data in ((0x004, "0008"), (0x040, ""), (0x100, ""), (0x004, "0040")):
            pair.theirs.send(Frame(classes, bytes.fromhex(data).ljust(8, b"\0"), error=True))
        pair.theirs.send(FRAMES[1])
        assert pair.take(pair.ours, 1) == [FRAMES[1]]
        health = pair.ours.health
        assert (health.link, health.errors, health.received) == (Link.OFF, 4, 1)
        assert health.reason == "bus-off: check cables, termination and bit rate"


def test_opening_a_bus_sends_nothing(keys: Keys) -> None:
    clock = WallClock()
    listening = open_bus("listening", keys, clock)
    with Pair(keys) as pair:
        pair.theirs.send(FRAMES[0])
        first = listening.receive(clock.now() + ENOUGH)
        assert first is not None and first.at(0) == FRAMES[0]
    listening.close()


def test_a_closed_bus_refuses_to_send_and_may_be_closed_again(keys: Keys) -> None:
    bus = open_bus("main", keys, WallClock())
    bus.close()
    bus.close()
    with pytest.raises(BusError, match="bus main: closed"):
        bus.send(FRAMES[0])
    with pytest.raises(BusError, match="bus main: closed"):
        bus.receive(0)


@pytest.mark.parametrize("interface", ["virtual", "udp_multicast"])
def test_records_that_are_not_classic_frames_are_counted_and_dropped(interface: str) -> None:
    clock = WallClock()
    with keys_of(interface) as keys:
        ours = open_bus("ours", keys, clock)
        rest = {key: keys[key] for key in ("port", "hop_limit") if key in keys}
        peer = can.Bus(interface=interface, channel=keys["channel"], ignore_config=True, **rest)
        peer.send(can.Message(arbitration_id=1, data=bytes(64), is_fd=True, is_extended_id=False))
        peer.send(can.Message(arbitration_id=1, data=bytes(8), is_fd=True, is_extended_id=False))
        peer.send(can.Message(arbitration_id=0x800, is_extended_id=False))
        peer.send(can.Message(arbitration_id=1, data=bytes(9), is_extended_id=False))
        peer.send(can.Message(arbitration_id=1, data=bytes(4), dlc=6, is_extended_id=False))
        peer.send(can.Message(arbitration_id=2, data=b"\x02", is_extended_id=False))
        frame = ours.receive(clock.now() + ENOUGH)
        assert frame is not None and (frame.id, frame.data) == (2, b"\x02")
        assert (ours.health.invalid, ours.health.received) == (5, 1)
        peer.shutdown()
        ours.close()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="IP_MULTICAST_ALL is of Linux")
def test_a_bus_receives_its_own_multicast_group_only() -> None:
    clock = WallClock()
    with keys_of("udp_multicast") as keys, Pair(keys) as pair:
        other = open_bus("other", {**keys, "channel": "239.74.163.3"}, clock)
        other.send(Frame(0x123))
        pair.theirs.send(Frame(0x456))
        assert pair.take(pair.ours, 1) == [Frame(0x456)]
        assert other.receive(clock.now()) is None
        other.close()


def test_a_datagram_that_is_not_a_frame_does_not_take_the_bus_down() -> None:
    with keys_of("udp_multicast") as keys, Pair(keys) as pair:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 0)
            for junk in (b"junk", b"\xc1", b""):
                stranger.sendto(junk, (keys["channel"], keys["port"]))
        pair.theirs.send(FRAMES[2])
        assert pair.take(pair.ours, 1) == [FRAMES[2]]
        assert pair.ours.health.invalid == 3
        assert pair.ours.health.link is Link.ACTIVE


def test_flags_may_be_the_numbers_0_and_1() -> None:
    said = {
        "timestamp": 0.0, "arbitration_id": 5, "is_extended_id": 1, "is_remote_frame": 0, "is_error_frame": 0,
        "channel": None, "dlc": 2, "data": b"ab", "is_fd": 0, "bitrate_switch": 0, "error_state_indicator": 0,
    }  # fmt: skip
    with keys_of("udp_multicast") as keys, Pair(keys) as pair:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 0)
            stranger.sendto(msgpack.packb(said), (keys["channel"], keys["port"]))
        assert pair.take(pair.ours, 1) == [Frame(5, b"ab", extended=True)]
    channel = Scripted()
    bus = PythonCanBus("main", channel, VirtualClock())
    channel.incoming.append(message(FRAMES[2]))
    channel.incoming[0].is_extended_id, channel.incoming[0].is_fd = 1, 0  # type: ignore[assignment]
    assert bus.receive(0) == Frame(0x123, bytes(range(8)), extended=True)
    bus.close()


def test_a_lost_echo_does_not_hide_an_equal_frame_of_another_sender_later() -> None:
    channel = Scripted()
    clock = VirtualClock()
    bus = PythonCanBus("main", channel, clock, echoes=True)
    bus.send(FRAMES[2])
    clock.sleep_until(SECOND)
    channel.incoming.append(message(FRAMES[2]))
    received = bus.receive(0)
    assert received is not None and received.time == SECOND
    bus.close()


def test_an_echo_that_waited_in_the_queue_for_long_is_still_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    channel, clock = Scripted(), VirtualClock()
    bus = PythonCanBus("main", channel, clock, echoes=True, system_time=True)
    bus.send(FRAMES[2])
    clock.sleep_until(3 * SECOND)  # the loop stood still; the stamp of the kernel says that the echo came long before
    monkeypatch.setattr("hil.bus.python_can.time.time_ns", lambda: 1003 * SECOND)
    channel.incoming.append(message(FRAMES[2], 1000.0))
    assert bus.receive(0) is None
    assert bus.health.echoes == 1
    bus.close()


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=60))
def test_exactly_the_own_frames_are_dropped_in_any_order(script: list[tuple[bool, int]]) -> None:
    channel = Scripted()
    bus = PythonCanBus("main", channel, VirtualClock(), echoes=True)
    foreign = 0
    for ours, identity in script:
        frame = Frame(identity, b"\x01")
        if ours:
            bus.send(frame)
        else:
            foreign += 1
        channel.incoming.append(message(frame))
    received = 0
    while bus.receive(0) is not None:
        received += 1
    assert (received, bus.health.echoes) == (foreign, len(script) - foreign)
    bus.close()


@pytest.mark.parametrize(("step", "expected"), [(0.0, 8.0), (3600.0, 5.0), (-3600.0, 10.0), (-1.0, 9.0)])
def test_after_a_step_of_the_system_time_a_frame_stays_within_certain_times(
    step: float, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue was seen empty at 5 s; a frame came at 8 s and is read at 10 s, after the system time was set."""
    channel, clock = Scripted(), VirtualClock()
    bus = PythonCanBus("main", channel, clock, system_time=True)
    clock.sleep_until(5 * SECOND)
    assert bus.receive(0) is None
    clock.sleep_until(10 * SECOND)
    channel.incoming.append(message(FRAMES[2], 100_000.0))
    monkeypatch.setattr("hil.bus.python_can.time.time_ns", lambda: round((100_002.0 + step) * SECOND))
    frame = bus.receive(0)
    assert frame is not None
    assert frame.time == round(expected * SECOND)
    bus.close()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (can.CanOperationError("Failed to transmit: No buffer space available", errno.ENOBUFS), "transmit queue full"),
        (can.CanOperationError("Transmit buffer full"), "Transmit buffer full"),
        (can.CanOperationError("Failed", errno.ENETDOWN), r"the interface is down \(ip link set"),
        (OSError(errno.ENODEV, "No such device"), "the interface is gone"),
        (can.CanTimeoutError("too slow"), "too slow"),
    ],
)
def test_an_error_of_the_driver_takes_the_bus_down_and_the_next_frame_is_tried_again(
    error: Exception, said: str
) -> None:
    channel = Scripted()
    bus = PythonCanBus("main", channel, VirtualClock())
    channel.error = error
    with pytest.raises(BusError, match=f"bus main: .*{said}"):
        bus.send(FRAMES[1])
    with pytest.raises(BusError, match=f"bus main: .*{said}"):
        bus.receive(0)
    assert (bus.health.link, bus.health.refused, bus.health.sent) == (Link.DOWN, 1, 0)
    channel.error = None
    bus.send(FRAMES[1])
    assert (bus.health.link, bus.health.sent) == (Link.DOWN, 1)
    assert channel.timeouts == [0.0]  # a send never waits
    bus.close()


def test_only_the_exact_question_counts_as_one() -> None:
    data = emulator_frame(EmulatorMessage.ARE_YOU_FREE).data
    assert emulator_message(Frame(EMULATOR, data, extended=True)) == (EmulatorMessage.ARE_YOU_FREE, 0.0)
    assert emulator_message(emulator_frame(EmulatorMessage.HAND, 0.3)) == (EmulatorMessage.HAND, 0.3)
    assert emulator_message(emulator_frame(EmulatorMessage.LATENESS, 1e6)) == (
        EmulatorMessage.LATENESS,
        0xFFFF_FFFF / 1e6,
    )
    for other in (data[:2] + b"\xff" + data[3:], data[:3] + b"\xff" + data[4:], data[:7], b"xx" + data[2:]):
        assert emulator_message(Frame(EMULATOR, other, extended=True)) is None
    assert emulator_message(Frame(EMULATOR, remote=True, extended=True, length=8)) is None
    assert emulator_message(Frame(EMULATOR & 0x7FF, data)) is None
    assert emulator_message(Frame(EMULATOR - 1, data, extended=True)) is None


def message(frame: Frame, timestamp: float = 0.0, dlc: int | None = None) -> can.Message:
    """A frame as a message of python-can."""
    return can.Message(
        timestamp=timestamp,
        arbitration_id=frame.id,
        is_extended_id=frame.extended,
        is_remote_frame=frame.remote,
        dlc=dlc,
        data=frame.data,
    )


class Scripted(can.BusABC):
    """A driver of python-can that a test controls."""

    def __init__(self) -> None:
        self.incoming: list[can.Message] = []
        self.error: Exception | None = None
        self.timeouts: list[float | None] = []
        super().__init__("scripted")

    def send(self, msg: can.Message, timeout: float | None = None) -> None:
        if self.error is not None:
            raise self.error
        self.timeouts.append(timeout)

    def _recv_internal(self, timeout: float | None) -> tuple[can.Message | None, bool]:
        if self.error is not None:
            raise self.error
        return (self.incoming.pop(0) if self.incoming else None), True
