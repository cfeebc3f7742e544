"""The emulated wire against the CAN specification and against published arithmetic."""

import random
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hil.bus import BusError, Link
from hil.bus.load import BusRates, frame_bits
from hil.emulator.station import Station
from hil.emulator.wire import MOST_OFF, Disturbance, EmulatedBus, EmulatedWire
from hil.frame import FD_SIZES, Frame
from hil.loop.clock import VirtualClock, World

MILLISECOND = 1_000_000
SLOW = BusRates(1_000_000, 1_000_000)
FAST = BusRates(1_000_000, 5_000_000, True)


def most_bits(frame: Frame) -> int:
    return frame_bits(len(frame.data), frame.extended).nominal


def connect(wire: EmulatedWire, station: Station, connected: bool) -> None:
    """Plugs a cable in, or out, as the fault `cut` does."""
    station.connected = connected
    wire.refresh()


class Bench:
    """A wire with some stations that keep what they hear."""

    def __init__(self, names: str = "ab", rates: BusRates = SLOW) -> None:
        self.world = World()
        self.wire = EmulatedWire(self.world, "main", rates)
        self.heard: dict[str, list[tuple[int, Frame]]] = {name: [] for name in names}
        self.stations = {name: self.wire.attach(self._ear(name)) for name in names}

    def _ear(self, name: str) -> Callable[[Frame], None]:
        return lambda frame: self.heard[name].append((self.world.now, frame))

    def __getitem__(self, name: str) -> Station:
        return self.stations[name]


@pytest.mark.parametrize("size", FD_SIZES)
@pytest.mark.parametrize(("fd", "extended"), [(False, False), (True, False), (True, True)])
def test_a_frame_arrives_after_its_bits_in_both_rates_without_the_interframe_space(
    size: int, fd: bool, extended: bool
) -> None:
    size = size if fd else min(size, 8)
    bench, frame = Bench(rates=FAST), Frame(0x123, bytes(range(size)), extended, fd=fd, brs=fd)
    bits = frame_bits(size, extended, fd, fd)
    bench["a"].send(frame)
    bench.world.advance(MILLISECOND)
    ((moment, received),) = bench.heard["b"]
    assert moment == 1000 * (bits.nominal - 3) + 200 * bits.data
    assert received == frame and not bench.heard["a"]


def test_frames_follow_each_other_by_the_interframe_space() -> None:
    bench = Bench(rates=BusRates(500_000, 500_000))
    first, second = Frame(0x10, b"\x55"), Frame(0x11, b"\xaa\x55")
    bench["a"].send(first)
    bench["a"].send(second)
    bench.world.advance(MILLISECOND)
    assert bench.heard["b"][1][0] == 2000 * (most_bits(first) + most_bits(second) - 3)


def test_a_bus_hands_over_each_frame_when_it_ends_and_counts_error_frames() -> None:
    bench = Bench("ab")
    bus, got = EmulatedBus(bench.wire), list[tuple[int, int]]()
    for i in range(12):
        bench["ab"[i % 2]].send(Frame(0x20 + i, bytes(i % 5)))
    bench.world.at(400_000, lambda: bench.wire.tell(bus.station, 0x004, 0x08))
    while (frame := bus.receive(2 * MILLISECOND)) is not None:
        got.append((bench.world.now - frame.time, frame.id))
    assert got == [(0, 0x20 + i) for i in range(12)] and bus.health.errors == 1


def test_arbitration_goes_by_the_identifier_fields() -> None:
    # by the specification: 11 bits before 29 of the same base, data before remote, then the smallest id
    wanted = [
        Frame(0x080),
        Frame(0x100),
        Frame(0x100, remote=True, length=4),
        Frame(0x100 << 18, extended=True),
        Frame(0x100 << 18 | 1, extended=True),
        Frame(0x101),
        Frame(0x7FF),
    ]
    names = "abcdefg"
    shuffled = list(wanted)
    random.Random(3).shuffle(shuffled)
    bench = Bench(names)
    seen: list[Frame] = []
    bench.wire.taps.append(lambda frame, sender: seen.append(frame.at(0)))
    for name, frame in zip(names, shuffled, strict=True):
        bench[name].send(frame)
    bench.world.advance(2 * MILLISECOND)
    assert seen == wanted


def corrupt(count: int) -> Disturbance:
    """Voids the next frames."""
    left = iter(range(count))
    return Disturbance(destroys=lambda: next(left, None) is not None)


def test_a_corrupted_frame_counts_8_at_the_sender_and_1_elsewhere_and_is_sent_again() -> None:
    bench = Bench("abc")
    bench.wire.disturbances.append(corrupt(2))
    frame = Frame(0x42, b"x")
    bench["a"].send(frame)
    bench.world.advance(MILLISECOND)
    assert len(bench.heard["b"]) == 1
    assert (bench["a"].tec, bench["b"].rec, bench["c"].rec) == (2 * 8 - 1, 2 - 1, 2 - 1)
    # each void frame ends in a flag and a delimiter in place of the end of frame
    assert bench.heard["b"][0][0] == 1000 * (3 * most_bits(frame) + 2 * 7 - 3)


def test_a_corrupted_fd_frame_ends_in_a_flag_at_the_nominal_rate() -> None:
    bench, frame = Bench(rates=FAST), Frame(0x123, bytes(range(48)), fd=True, brs=True)
    bench.wire.disturbances.append(corrupt(1))
    bench["a"].send(frame)
    bench.world.advance(MILLISECOND)
    bits = frame_bits(48, False, True, True)
    once = 1000 * bits.nominal + 200 * bits.data
    assert [moment for moment, _ in bench.heard["b"]] == [once + 1000 * (14 - 7) + once - 3000]
    assert bench.wire.errors == 1


def test_a_classic_and_an_fd_frame_with_one_id_destroy_each_other() -> None:
    bench = Bench(rates=FAST)
    bench["a"].send(Frame(0x10, b"\x01", fd=True, brs=True))
    bench["b"].send(Frame(0x10, b"\x01"))
    bench.world.advance(50 * MILLISECOND)
    assert bench.wire.errors > 0


def test_counters_lead_to_warning_passive_and_bus_off() -> None:
    bench = Bench()
    links = []
    for void in range(1, 33):
        bench.wire.disturbances = [corrupt(1)]
        bench["a"].tec = 8 * (void - 1)
        bench["a"].send(Frame(1))
        bench.world.advance(bench.world.now + 60_000)  # within the second try
        links.append(bench["a"].link)
        bench["a"].queue.clear()
        bench.world.advance(bench.world.now + MILLISECOND // 2)
    assert links.index(Link.WARNING) == 96 // 8 - 1
    assert links.index(Link.PASSIVE) == 128 // 8 - 1
    assert links.index(Link.OFF) == 256 // 8 - 1


def test_a_sender_without_acknowledgement_becomes_passive_and_never_bus_off() -> None:
    bench = Bench()
    connect(bench.wire, bench["a"], False)
    bench["a"].send(Frame(1))
    bench.world.advance(1000 * MILLISECOND)
    assert (bench["a"].tec, bench["a"].link) == (128, Link.PASSIVE)
    connect(bench.wire, bench["a"], True)
    bench.world.advance(bench.world.now + MILLISECOND)
    assert len(bench.heard["b"]) == 1
    assert (bench["a"].tec, bench["a"].link) == (127, Link.WARNING)


def test_two_nodes_with_one_id_and_different_data_drive_each_other_to_bus_off() -> None:
    bench = Bench("abc")
    bench["a"].restart = bench["b"].restart = None
    bench["a"].send(Frame(7, b"\x01"))
    bench["b"].send(Frame(7, b"\x02"))
    bench.world.advance(10 * MILLISECOND)
    assert bench["a"].link is bench["b"].link is Link.OFF
    assert not bench.heard["c"]


def test_bus_off_ends_after_128_times_11_recessive_bits() -> None:
    bench = Bench()
    bench.world.advance(MILLISECOND)
    bench.wire.count(bench["a"], tec=MOST_OFF)
    assert not bench["a"].send(Frame(1))
    bench.world.advance(MILLISECOND + 128 * 11 * 1000 - 1)
    assert bench["a"].link is Link.OFF
    bench.world.advance(MILLISECOND + 128 * 11 * 1000)
    assert (bench["a"].link, bench["a"].tec) == (Link.ACTIVE, 0)


def test_a_restart_waits_for_its_configured_time_or_for_ever() -> None:
    bench = Bench()
    bench["a"].restart, bench["b"].restart = 100 * MILLISECOND, None
    for name in "ab":
        bench.wire.count(bench[name], tec=MOST_OFF)
    bench.world.advance(101 * MILLISECOND)
    assert bench["a"].link is Link.OFF
    bench.world.advance(102 * MILLISECOND)
    assert bench["a"].link is Link.ACTIVE
    bench.world.advance(10_000 * MILLISECOND)
    assert bench["b"].link is Link.OFF
    bench.wire.restart(bench["b"])
    bench.world.advance(bench.world.now + 2 * MILLISECOND)
    assert bench["b"].link is Link.ACTIVE


def test_the_bus_receives_until_a_frame_or_the_deadline() -> None:
    bench = Bench("a")
    bus, clock = EmulatedBus(bench.wire), VirtualClock(bench.world)
    assert bus.receive(5000) is None
    assert clock.now() == 5000
    bench["a"].send(Frame(1, b"q"))
    frame = bus.receive(MILLISECOND)
    assert frame is not None and (frame.data, frame.time) == (b"q", clock.now())
    assert clock.now() < MILLISECOND
    assert bus.receive(clock.now() - 1) is None
    bus.send(Frame(2))
    clock.sleep_until(2 * MILLISECOND)
    assert [f.id for _, f in bench.heard["a"]] == [2]
    assert (bus.health.sent, bus.health.received, bus.health.link) == (1, 1, Link.ACTIVE)


def test_bus_off_is_reported_and_latched() -> None:
    bench = Bench("a")
    bus = EmulatedBus(bench.wire)
    bus.station.restart = 0
    bench.wire.count(bus.station, tec=MOST_OFF)
    with pytest.raises(BusError, match="bus-off"):
        bus.send(Frame(1))
    assert bus.receive(10 * MILLISECOND) is None
    # it has restarted meanwhile, and says so; what was worst stays, with its reason
    assert (bus.health.link, bus.health.errors) == (Link.OFF, 2)
    assert bus.health.reason == "bus-off: check cables, termination and bit rate"
    bus.send(Frame(1))
    bus.receive(11 * MILLISECOND)
    assert [f.id for _, f in bench.heard["a"]] == [1]


def played(quick: bool, seed: int) -> list[object]:
    """What six stations hear of random traffic, and what they count; `quick` lets the wire take its shorter ways."""
    rng = random.Random(seed)
    world = World()
    wire = EmulatedWire(world, "main", BusRates(500_000, 500_000))
    heard: list[object] = []
    stations = [
        wire.attach(partial(lambda i, frame: heard.append((world.now, i, frame)), i), ids)
        for i, ids in enumerate((None, range(0x40), range(0x20, 0x60), (0x11,), None, ()))
    ]
    if not quick:
        connect(wire, wire.attach(heard.append), False)  # while a cable is off, arbitration is not all there is
        wire.disturbances.append(Disturbance())  # one that does nothing
    for _ in range(200):
        station, identity = rng.choice(stations), rng.randrange(0x80)
        frame = Frame(identity, rng.randbytes(rng.randrange(9)), extended=rng.random() < 0.2)
        world.at(rng.randrange(20 * MILLISECOND), partial(station.send, frame))
    for _ in range(3):  # a cable comes off for a while: neither way is plain then
        station, moment = rng.choice(stations), rng.randrange(15 * MILLISECOND)
        world.at(moment, partial(connect, wire, station, False))
        world.at(moment + 3 * MILLISECOND, partial(connect, wire, station, True))
    world.advance(100 * MILLISECOND)
    counts = [(s.tec, s.rec, s.link, len(s.queue)) for s in stations]
    return [*heard, counts, wire.frames, wire.busy, wire.errors]


@settings(max_examples=30)
@given(st.integers(0, 10**6))
def test_the_fast_path_of_undisturbed_frames_equals_the_general_path(seed: int) -> None:
    assert played(quick=True, seed=seed) == played(quick=False, seed=seed)


def test_a_station_that_sent_the_same_frame_as_another_loses_no_later_frame() -> None:
    world = World()
    wire = EmulatedWire(world, "main", BusRates(500_000, 500_000))
    heard: list[int] = []
    wire.attach(lambda frame: heard.append(frame.id))
    one, other = (wire.attach(lambda frame: None, ()) for _ in range(2))
    for station in (one, other):
        station.send(Frame(0x10, b"same"))
    world.advance(MILLISECOND // 20)
    for identity in (0x20, 0x21):
        other.send(Frame(identity))
    world.advance(10 * MILLISECOND)
    assert heard == [0x10, 0x20, 0x21]
