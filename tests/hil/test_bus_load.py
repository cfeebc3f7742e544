"""Bits and times of frames, classic and FD, against frames written out bit by bit; load against Davis et al. 2007.

Also the bits that the recorder counts, error frames against Linux' error.h, and FD frames through every kind of bus.
"""

import random
from collections.abc import Callable
from typing import Any

import can
import numpy as np
import pytest

from hil.bus import Link, socketcan
from hil.bus.base import report, worse
from hil.bus.load import BusLoad, BusRates, FrameTraffic, frame_bits, worst_load
from hil.bus.open import open_bus
from hil.emulator.wire import EmulatedBus, EmulatedWire
from hil.frame import BRS, EXTENDED, FD, FD_SIZES, REMOTE, SENT, Frame
from hil.loop.clock import SECOND, WallClock, World
from hil.recorder.files import MOST, BusBits
from hil.recorder.memory import FRAME
from hil.safety.plan import Phase
from hil.session.reporter import bus_loads
from servoctl.run_folder.trajectory import Trajectory
from tests.hil.interfaces import EACH, keys_of
from tests.hil.test_bus_python_can import FRAMES

# Bits of one cycle of six axes: worst case of every frame, summed by hand (55 + 10 s, extended 80 + 10 s).
CYCLES = [
    ("odrive, 8 + 8 bytes", [FrameTraffic(8, 12)], 1620),
    ("odrive with torques", [FrameTraffic(8, 18)], 2430),
    ("mit, 8 + 6 bytes", [FrameTraffic(8, 6), FrameTraffic(6, 6)], 1500),
    ("29 bits, 8 + 8 bytes", [FrameTraffic(8, 12, True)], 1920),
    ("cia402: SYNC, 4 + 8 bytes", [FrameTraffic(0, 1), FrameTraffic(4, 6), FrameTraffic(8, 6)], 1435),
    ("cia402 with a second TPDO", [FrameTraffic(0, 1), FrameTraffic(4, 12), FrameTraffic(8, 6)], 2005),
    ("cia402, shared RPDO", [FrameTraffic(8, 1), FrameTraffic(4, 1), FrameTraffic(0, 1), FrameTraffic(8, 6)], 1095),
]


def cyclic(frames: list[FrameTraffic]) -> Callable[[float], list[FrameTraffic]]:
    """Frames of a cycle; `rate` is their number per cycle."""
    return lambda period: [each._replace(rate=each.rate / period) for each in frames]


@pytest.mark.parametrize(("size", "standard", "extended"), [(0, 55, 80), (4, 95, 120), (8, 135, 160)])
def test_most_bits_of_a_frame(size: int, standard: int, extended: int) -> None:
    assert (frame_bits(size), frame_bits(size, True)) == ((standard, 0), (extended, 0))


@pytest.mark.parametrize(("frames", "bits"), [row[1:] for row in CYCLES], ids=[row[0] for row in CYCLES])
@pytest.mark.parametrize("allowed", [1.0, 0.8, 0.6])
@pytest.mark.parametrize("bitrate", [1_000_000, 500_000])
def test_the_highest_rate_of_a_cycle(frames: list[FrameTraffic], bits: int, allowed: float, bitrate: int) -> None:
    assert worst_load(cyclic(frames)(1.0), BusRates(bitrate, bitrate)) == pytest.approx(bits / bitrate)
    for period in (0.01, 0.0004):  # one that fits, one that does not
        load = BusLoad(cyclic(frames), period, BusRates(bitrate, bitrate), allowed)
        assert load.load == pytest.approx(bits / period / bitrate)
        assert load.highest_rate == pytest.approx(allowed * bitrate / bits, rel=1e-9)
        assert load.fits == (bits / period / bitrate <= allowed)


def test_traffic_that_does_not_depend_on_the_rate_is_subtracted_first() -> None:
    def traffic(period: float) -> list[FrameTraffic]:
        return [FrameTraffic(8, 100.0), FrameTraffic(8, 1.0 / period)]  # 13,500 bit/s always

    load = BusLoad(traffic, 0.002, BusRates(1_000_000, 1_000_000), 0.7)
    assert load.highest_rate == pytest.approx((0.7e6 - 13_500) / 135)
    assert load.load == pytest.approx(0.0135 + 0.0675)


def test_for_a_bus_that_fits_the_highest_rate_is_given() -> None:
    assert BusLoad(cyclic([FrameTraffic(8, 12)]), 0.0025, BusRates(1_000_000, 1_000_000), 0.7).sentence == (
        "64.8% of 1000000 bit/s at worst, at 400 Hz, where max_bus_load allows 70.0%: 432 Hz would still fit"
    )


def test_for_a_bus_that_is_too_full_the_remedies_are_given() -> None:
    assert BusLoad(cyclic([FrameTraffic(8, 12)]), 0.002, BusRates(500_000, 500_000), 0.7).sentence == (
        "162.0% of 500000 bit/s at worst, at 500 Hz, where max_bus_load allows 70.0%: at most 216 Hz fit "
        "(hil.period of 0.00463 s or more, or spread the drives over more buses, or a higher bit rate)"
    )
    hopeless = BusLoad(lambda period: [FrameTraffic(8, 8000.0)], 0.002, BusRates(1_000_000, 1_000_000), 0.7)
    assert hopeless.highest_rate == 0
    assert hopeless.sentence.endswith("no rate fits (spread the drives over more buses)")


def test_the_proposed_period_fits() -> None:
    for axes in range(1, 40):
        traffic = cyclic([FrameTraffic(8, 2 * axes), FrameTraffic(0, 1)])
        sentence = BusLoad(traffic, 1e-5, BusRates(1_000_000, 1_000_000), 0.7).sentence
        proposed = float(sentence.split("hil.period of ")[1].split(" s")[0])
        assert BusLoad(traffic, proposed, BusRates(1_000_000, 1_000_000), 0.7).fits


def frame(seconds: float, bus: int, flags: int, length: int) -> bytes:
    return FRAME.pack(round(seconds * 1e9), 0x181, bus, flags, length, bytes(8))


def test_bits_are_counted_per_bus_and_window() -> None:
    bits = BusBits()
    bits.add(frame(0.001, 0, 0, 8) + frame(0.002, 0, SENT, 4) + frame(0.021, 1, EXTENDED, 8))
    bits.add(frame(0.05, 0, REMOTE, 8))
    said = bits.as_dict()
    assert said["window"] == 0.02
    assert said["bits"] == [[135 + 95, 0, 55], [0, 160, 0]]
    assert "data_bits" not in said  # no FD frame


def test_a_long_run_has_longer_windows_and_loses_no_bit() -> None:
    bits = BusBits()
    for second in range(1000):
        bits.add(frame(second, 0, 0, 8) * 3)
    said = bits.as_dict()
    assert len(said["bits"][0]) <= MOST and np.sum(said["bits"]) == 3000 * 135
    assert said["window"] == 0.02 * 2**7


def test_frames_that_enable_the_drives_are_not_the_loop() -> None:
    """Else the end of a run said 77 %, where `check` and its start had said at most 68 %."""
    t = np.arange(0.2, 0.4, 0.01)
    stage = np.where(t < 0.255, Phase.ENABLING.number, Phase.ZERO.number)
    stage[-3:] = Phase.OVER.number
    bits = np.full(20, 0.6 * 0.02 * 1e6)
    bits[5], bits[12] = 1.02 * 0.02 * 1e6, 0.77 * 0.02 * 1e6
    columns = {"t": t, "stage": stage.astype(float)}
    run = Trajectory(columns, {}, {"bus_bits": {"window": 0.02, "bits": [bits.tolist()]}})
    assert bus_loads(run, {"main": {"bitrate": 1_000_000}})["main"] == pytest.approx((0.6, 0.6, 1.02))
    stage[:] = Phase.ENABLING.number
    assert bus_loads(Trajectory({"t": t, "stage": stage.astype(float)}, {}, run.metadata), {"main": {}}) == {}


def test_bits_at_the_data_bit_rate_are_counted_apart() -> None:
    bits = BusBits()
    bits.add(frame(0.001, 0, FD | BRS, 64) + frame(0.002, 0, FD, 64) + frame(0.003, 0, FD | BRS | EXTENDED, 12))
    bits.add(frame(0.004, 0, 0, 8))
    switched, plain = frame_bits(64, False, True, True), frame_bits(64, False, True)
    long = frame_bits(12, True, True, True)
    said = bits.as_dict()
    assert said["bits"] == [[switched.nominal + plain.nominal + long.nominal + 135]]
    assert said["data_bits"] == [[switched.data + long.data]]
    assert plain == (sum(switched), 0)


GOLDEN = [
    (0x001, "", Link.DOWN, "the controller did not send in time"),
    (0x002, "05", Link.ACTIVE, "arbitration lost in bit 5"),
    (0x002, "", Link.ACTIVE, "arbitration lost"),
    (0x004, "0001", Link.ACTIVE, "receive buffer of the controller full, frames lost"),
    (0x004, "0002", Link.ACTIVE, "transmit buffer of the controller full, frames lost"),
    (0x004, "0004", Link.WARNING, "many receive errors"),
    (0x004, "0008", Link.WARNING, "many transmit errors"),
    (0x004, "0010", Link.PASSIVE, "error passive by receive errors"),
    (0x004, "0020", Link.PASSIVE, "error passive by transmit errors"),
    (0x004, "0040", Link.ACTIVE, "error active again"),
    (0x004, "000c", Link.WARNING, "many receive errors; many transmit errors"),
    (0x004, "0024", Link.PASSIVE, "many receive errors; error passive by transmit errors"),
    (0x004, "", Link.ACTIVE, "unspecified problem of the controller"),
    (0x008, "00000408", Link.ACTIVE, "protocol error: stuff"),
    (0x008, "00008819", Link.ACTIVE, "protocol error: cannot send a dominant bit, while sending"),
    (0x008, "", Link.ACTIVE, "protocol error: unspecified"),
    (0x010, "0000000004", Link.ACTIVE, "the transceiver reports a fault of the wires"),
    (0x020, "", Link.ACTIVE, "no acknowledgement: no other node on the bus, or a broken cable"),
    (0x040, "0000000000000000", Link.OFF, "bus-off: check cables, termination and bit rate"),
    (0x080, "", Link.ACTIVE, "bus error"),
    (0x100, "", Link.ACTIVE, "the controller restarted"),
    (
        0x204,
        "0020000000008007",
        Link.PASSIVE,
        "error passive by transmit errors; 128 transmit and 7 receive errors counted",
    ),
    (0x041, "", Link.DOWN, "bus-off: check cables, termination and bit rate; the controller did not send in time"),
    (0x140, "", Link.OFF, "bus-off: check cables, termination and bit rate; the controller restarted"),
    (0x400, "", Link.ACTIVE, "error frame of unknown class 0x400"),
]


@pytest.mark.parametrize(("classes", "data", "link", "sentence"), GOLDEN)
def test_an_error_frame_is_decoded(classes: int, data: str, link: Link, sentence: str) -> None:
    assert report(Frame(classes, bytes.fromhex(data), error=True)) == (link, sentence)


def test_no_error_frame_makes_the_decoder_raise() -> None:
    for classes in range(0x800):
        link, sentence = report(Frame(classes, bytes([classes % 256] * 8), error=True))
        assert link in Link and sentence


def test_links_are_ordered_by_severity() -> None:
    order = [Link.ACTIVE, Link.WARNING, Link.PASSIVE, Link.OFF, Link.DOWN]
    for i, low in enumerate(order):
        for high in order[i:]:
            assert worse(low, high) is high
            assert worse(high, low) is high


ENOUGH = 5 * SECOND
RATES = BusRates(1_000_000, 5_000_000, True)

# payload -> worst time of a frame at 1 and 5 Mbit/s [us]: id of 11 bits, then of 29
TIMES = {
    3: (46.6, 69.8),
    8: (56.6, 79.8),
    16: (72.6, 95.8),
    20: (81.6, 104.8),
    24: (89.6, 112.8),
    32: (105.6, 128.8),
    48: (137.6, 160.8),
    64: (169.6, 192.8),
}


def random_frame(chance: random.Random, size: int | None = None, extended: bool | None = None) -> Frame:
    """Half of the frames have long runs of equal bits, which random bytes hardly ever have."""
    long = chance.random() < 0.5 if extended is None else extended
    number = chance.choice(FD_SIZES) if size is None else size
    data = chance.randbytes(number)
    if chance.random() < 0.5:
        data = bytes(chance.choice((0, 0xFF, 0x0F, 0xF0, 0x87)) for _ in data)
    identity = chance.randrange(1 << (29 if long else 11)) if chance.random() < 0.7 else 0
    return Frame(identity, data, long, fd=True, brs=chance.random() < 0.7)


@pytest.mark.parametrize(("size", "times"), TIMES.items())
def test_worst_times_are_those_of_a_table_worked_out_apart(size: int, times: tuple[float, float]) -> None:
    said = tuple(round(1e6 * RATES.seconds(frame_bits(size, long, True, True)), 1) for long in (False, True))
    assert said == times


def test_rates_of_axes_with_two_frames_of_eight_bytes() -> None:
    def highest(axes: int, allowed: float) -> int:
        frames = FrameTraffic(8, 2.0 * axes, fd=True, brs=True)
        load = BusLoad(lambda period: [frames._replace(rate=2.0 * axes / period)], 0.01, RATES, allowed)
        return round(load.highest_rate)

    assert [highest(axes, 1.0) for axes in (6, 7, 8, 9, 12)] == [1472, 1262, 1104, 982, 736]
    assert [highest(axes, 0.7) for axes in (6, 7, 12)] == [1031, 883, 515]
    slow = BusLoad(lambda period: [FrameTraffic(8, 12 / period, fd=True)], 0.01, RATES, 1.0)
    assert round(slow.highest_rate) == 567  # without the switch an FD frame is longer than a classic one: 617
    assert "1000000 and 5000000 bit/s" in slow.sentence


def test_a_classic_bus_takes_no_fd_frame_and_no_bus_a_payload_of_another_size() -> None:
    frame = Frame(1, bytes(12), fd=True, brs=True)
    with pytest.raises(ValueError, match=r"001##10{24}: an FD frame, but bus main is classic"):
        EmulatedBus(EmulatedWire(World(), "main", BusRates(1_000_000, 1_000_000))).send(frame)
    with keys_of("virtual") as keys:
        classic, fd = open_bus("main", keys, WallClock()), open_bus("main", {**keys, "fd": True}, WallClock())
        with pytest.raises(ValueError, match=r"but bus main is classic \(set `fd: true`\)"):
            classic.send(frame)
        with pytest.raises(ValueError, match=r"one of 0, 1, .*, 48, 64 bytes, this one 9"):
            fd.send(Frame(1, bytes(9), fd=True))
        with pytest.raises(ValueError, match="a classic frame has at most 8 bytes, this one 12"):
            fd.send(Frame(1, bytes(12)))
        classic.close()
        fd.close()


@pytest.mark.parametrize("interface", EACH)
def test_frames_of_every_size_go_to_python_can_and_back(interface: str) -> None:
    chance, clock = random.Random(2), WallClock()
    with keys_of(interface) as keys:
        keys = {**keys, "fd": True, "data_bitrate": 5_000_000}
        ours = open_bus("ours", keys, clock)
        rest: dict[str, Any] = {key: keys[key] for key in ("port", "hop_limit") if key in keys}
        rest |= {"protocol": can.CanProtocol.CAN_FD} if interface == "virtual" else {"fd": True}
        with can.Bus(interface=interface, channel=keys["channel"], ignore_config=True, **rest) as peer:
            for size, classic in zip(FD_SIZES, 2 * FRAMES, strict=True):
                for frame in (random_frame(chance, size), classic):
                    ours.send(frame)
                    came = peer.recv(5.0)
                    assert came is not None
                    assert (came.arbitration_id, bytes(came.data), came.is_extended_id) == (
                        frame.id, frame.data, frame.extended
                    )  # fmt: skip
                    assert (came.is_fd, came.bitrate_switch, came.is_remote_frame) == (
                        frame.fd,
                        frame.brs,
                        frame.remote,
                    )
                    assert came.dlc == (frame.length if frame.remote else len(frame.data))
                    peer.send(came)
                    back = ours.receive(clock.now() + ENOUGH)
                    assert back is not None and back.at(0) == frame
                    if interface == "udp_multicast":
                        assert peer.recv(5.0) is not None  # its own echo
        assert ours.health.invalid == 0
        ours.close()


def test_the_command_that_sets_an_interface_up() -> None:
    assert socketcan.up_command("can0", RATES) == (
        "sudo ip link set can0 up type can bitrate 1000000 dbitrate 5000000 fd on"
    )
    assert socketcan.up_command("can1", RATES, 0.666).endswith("dbitrate 5000000 dsample-point 0.666 fd on")
    assert socketcan.up_command("can0", BusRates(500_000, 500_000)) == (
        "sudo ip link set can0 up type can bitrate 500000"
    )
    assert socketcan.up_command("vcan0", RATES) == "sudo ip link set vcan0 mtu 72 up"
