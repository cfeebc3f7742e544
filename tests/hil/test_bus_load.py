"""Bus load, against Davis et al. 2007 and rates worked out by hand."""

from collections.abc import Callable

import pytest

from hil.bus.load import BusRates, FrameTraffic, describe_load, frame_bits, worst_load

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
    assert worst_load(cyclic(frames)(1.0), BusRates.classic(bitrate)) == pytest.approx(bits / bitrate)
    for period in (0.01, 0.0004):  # one that fits, one that does not
        load = describe_load(cyclic(frames), period, BusRates.classic(bitrate), allowed)
        assert load.load == pytest.approx(bits / period / bitrate)
        assert load.highest_rate == pytest.approx(allowed * bitrate / bits, rel=1e-9)
        assert load.fits == (bits / period / bitrate <= allowed)


@pytest.mark.parametrize(("axes", "rate"), [(1, 2593), (2, 1296), (3, 864), (4, 648), (6, 432), (8, 324), (12, 216)])
def test_the_highest_rate_for_axes_with_two_frames_of_eight_bytes(axes: int, rate: int) -> None:
    assert (
        round(describe_load(cyclic([FrameTraffic(8, 2 * axes)]), 0.0025, BusRates.classic(1_000_000), 0.7).highest_rate)
        == rate
    )


def test_traffic_that_does_not_depend_on_the_rate_is_subtracted_first() -> None:
    def traffic(period: float) -> list[FrameTraffic]:
        return [FrameTraffic(8, 100.0), FrameTraffic(8, 1.0 / period)]  # 13,500 bit/s always

    load = describe_load(traffic, 0.002, BusRates.classic(1_000_000), 0.7)
    assert load.highest_rate == pytest.approx((0.7e6 - 13_500) / 135)
    assert load.load == pytest.approx(0.0135 + 0.0675)


def test_for_a_bus_that_fits_the_highest_rate_is_given() -> None:
    assert describe_load(cyclic([FrameTraffic(8, 12)]), 0.0025, BusRates.classic(1_000_000), 0.7).sentence == (
        "64.8% of 1000000 bit/s at worst, at 400 Hz, where max_bus_load allows 70.0%: 432 Hz would still fit"
    )


def test_for_a_bus_that_is_too_full_the_remedies_are_given() -> None:
    assert describe_load(cyclic([FrameTraffic(8, 12)]), 0.002, BusRates.classic(500_000), 0.7).sentence == (
        "162.0% of 500000 bit/s at worst, at 500 Hz, where max_bus_load allows 70.0%: at most 216 Hz fit "
        "(hil.period of 0.00463 s or more, or spread the drives over more buses, or a higher bit rate)"
    )
    hopeless = describe_load(lambda period: [FrameTraffic(8, 8000.0)], 0.002, BusRates.classic(1_000_000), 0.7)
    assert hopeless.highest_rate == 0
    assert hopeless.sentence.endswith("no rate fits (spread the drives over more buses)")


def test_the_proposed_period_fits() -> None:
    for axes in range(1, 40):
        traffic = cyclic([FrameTraffic(8, 2 * axes), FrameTraffic(0, 1)])
        sentence = describe_load(traffic, 1e-5, BusRates.classic(1_000_000), 0.7).sentence
        proposed = float(sentence.split("hil.period of ")[1].split(" s")[0])
        assert describe_load(traffic, proposed, BusRates.classic(1_000_000), 0.7).fits
