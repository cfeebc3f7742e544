"""Bus load against Davis et al. 2007, the bits that the recorder counts, and error frames against Linux' error.h."""

from collections.abc import Callable

import numpy as np
import pytest

from hil.bus import Link
from hil.bus.base import Report, report, worse
from hil.bus.load import BusLoad, BusRates, FrameTraffic, frame_bits, worst_load
from hil.frame import BRS, EXTENDED, FD, REMOTE, SENT, Frame
from hil.recorder.files import MOST, BusBits
from hil.recorder.memory import FRAME
from hil.safety.plan import Phase
from hil.session.reporter import bus_loads
from servoctl.run_folder.trajectory import Trajectory

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
    assert report(Frame(classes, bytes.fromhex(data), error=True)) == Report(link, sentence)


def test_no_error_frame_makes_the_decoder_raise() -> None:
    for classes in range(0x800):
        assert report(Frame(classes, bytes([classes % 256] * 8), error=True)).sentence


def test_links_are_ordered_by_severity() -> None:
    order = [Link.ACTIVE, Link.WARNING, Link.PASSIVE, Link.OFF, Link.DOWN]
    for i, low in enumerate(order):
        for high in order[i:]:
            assert worse(low, high) is high
            assert worse(high, low) is high
