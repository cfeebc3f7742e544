"""CAN FD: bits and times of frames against frames written out bit by bit, and frames through every kind of bus."""

import random
from typing import Any

import can
import pytest

from hil.bus import socketcan
from hil.bus.load import BusLoad, BusRates, FrameTraffic, frame_bits
from hil.bus.open import open_bus
from hil.emulator.wire import EmulatedBus, EmulatedWire
from hil.frame import FD_SIZES, Frame
from hil.loop.clock import SECOND, WallClock, World
from tests.hil.interfaces import EACH, keys_of
from tests.hil.test_bus_python_can import FRAMES

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
