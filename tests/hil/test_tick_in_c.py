"""A run whose ticks C does equals one whose frames the drivers read, to the bit; what is not ordinary is given back."""

import math
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hil.core.compiled import library
from hil.core.constants import GIVEN_BACK, UNKNOWN
from hil.drives.base import Condition
from hil.drives.table import TableDrive
from hil.drives.wire import Message
from hil.frame import Frame
from hil.protocols.registry import build
from hil.rig import ticks_in_c
from hil.rig.ticks_in_c import fill_encoding, fill_message, frame_reader, in_order, watched_ids
from tests.faces import on_drives
from tests.hil.by_drivers import compare
from tests.hil.emulation import SHORT, drive_settings

WORKING = {
    "cia402": [Frame(0x281, bytes.fromhex("270005000000"), time=1)],
    "odrive": [Frame(0x021, bytes.fromhex("0000000008000000"), time=1)],
    "mit": [Frame(0x010, bytes.fromhex("117fff7ff7ff1e1e"), time=1)],
    "robstride": [Frame(0x0280_01FD, bytes.fromhex("7fff7fff7fff012c"), True, time=1)],
    "moteus": [Frame(0x100, bytes.fromhex("21000a2f010000803e000000c00000a03f210f00"), time=1, fd=True)],
}
"""Protocol -> frames after which a driver with node 1 counts its drive as enabled."""

OPTIONS = {"mit": {"motor": "ak80-9", "status": "damiao", "host": 0x10}}
"""Protocol -> options of the driver, where they are not the usual ones."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        pytest.param("scara_drive", marks=pytest.mark.optimised),
        "two_arms_damiao",
        pytest.param("scara_robstride", marks=pytest.mark.optimised),
    ],
)
def test_protocols_are_equal_to_the_bit(config: str) -> None:
    """CiA 402, ODrive and moteus are compared with their gauges, in the tests of these."""
    left = compare(config, duration=0.12)
    assert left["code"] == 0 and left["ticks"] > 40


def test_the_summary_says_what_did_the_ticks() -> None:
    ran = on_drives("coordinated_robots", duration=0.1, engine="auto").trajectory.summary()
    assert ran["tick"] == "C" and ran["ticks_in_c"] > 30 and ran["given_back"] == {}


def test_noise_prediction_and_clamped_torques_are_equal_to_the_bit() -> None:
    noisy = ("hil.emulation.encoder_noise=2e-5", "hil.prediction=true", "hil.drives.1.torque_rate_limit=20")
    left = compare("coordinated_robots", *noisy, duration=0.5)
    assert left["ticks"] > 180 and left["given_back"] == {}


BOUNDS = "bounds=[{name: joint, position: {theta1: [0, 62*deg]}, acceleration: 20}]"
ADAPTIVE = "law.adaptive={kind: leakage, rate: 20, leak: 1, width: 0.15}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [["estimation.kind=model", BOUNDS], ["law.observer=auto", ADAPTIVE, "hil.emulation.parameters.m=1.05"]],
    ids=["an estimator and bounds", "an observer and an adaptive term"],
)
def test_laws_with_memory_and_bounds_are_equal_to_the_bit(changes: list[str]) -> None:
    left = compare("coordinated_robots", *changes, duration=0.2)
    kept = {name.split(".")[1] for name in left["columns"] if name.startswith("memory.")}
    assert left["ticks"] > 60 and len(kept) >= 2, kept


def test_frames_that_no_table_describes_are_read_by_the_drivers_and_the_run_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ticks_in_c, "TableNode", type("OtherNode", (), {}))
    summary = on_drives("coordinated_robots", *SHORT, duration=0.05).trajectory.summary()
    assert summary["tick"] == "Python, because frames of protocol cia402 are not described for it"
    assert summary["ticks_in_c"] == 0 and summary["status"] == "done"


def test_a_table_with_more_in_a_frame_than_c_has_room_for_is_left_to_the_drivers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """C would read, and write, beyond its own tables."""
    monkeypatch.setattr(ticks_in_c, "MOST_EXPECTS", 0)
    summary = on_drives("coordinated_robots", *SHORT, duration=0.05).trajectory.summary()
    assert summary["tick"] == "Python, because a frame of protocol cia402 holds more than C can read"
    assert summary["ticks_in_c"] == 0 and summary["status"] == "done"


NUMBERS = ("position", "velocity", "torque", "next_torque", "wrapped", "added")


class Bare:
    """The tables of one drive alone."""

    def __init__(self, drive: TableDrive) -> None:
        self.ffi, self.functions = library()
        self.tick = self.ffi.new("tick *")
        self.messages = self.ffi.new("tick_message[]", len(drive.messages))
        for place, message in zip(self.messages, drive.messages, strict=True):
            fill_message(place, message, 0, 0, drive.settings.fd)
        watched = watched_ids([drive], {"main": 0})
        self.watch = self.ffi.new("tick_watched[]", len(watched))
        for place, each in zip(self.watch, watched, strict=True):
            place.mask, place.value, place.bus, place.extended = each
        self.tick.message, self.tick.messages, self.tick.m = self.messages, len(drive.messages), 1
        self.tick.channels, self.gauges = 1, self.ffi.new("double[]", drive.gauges)
        self.tick.healthy = True
        self.tick.gauges = self.gauges
        self.tick.watch, self.tick.watched = self.watch, len(watched)
        self.values = {name: self.ffi.new("double *") for name in NUMBERS}
        self.times = {name: self.ffi.new("long long *") for name in ("sample_time", "alive")}
        for name, value in {**self.values, **self.times}.items():
            setattr(self.tick, name, value)
        self.encoding = self.ffi.new("tick_encoding *")
        fill_encoding(self.encoding, drive.encoding)

    def numbers(self) -> bytes:
        """All numbers that frames bring."""
        cells = [*self.values.values(), *self.times.values()]
        return np.array([*(cell[0] for cell in cells), *self.gauges]).tobytes()

    def take(self, frame: Frame) -> int:
        flags, data = frame.flags, frame.data
        taken: int = self.functions.tick_take(self.tick, 0, frame.id, flags, len(data), data, frame.time)
        return taken


def driver(protocol: str, **changes: Any) -> TableDrive:
    """A driver that counts its drive as enabled."""
    options = {"options": OPTIONS[protocol]} if protocol in OPTIONS else {}
    drive = build(drive_settings(protocol, **{**options, **changes}), 0.002)
    assert isinstance(drive, TableDrive)
    for frame in WORKING[protocol]:
        drive.accept(frame)
    assert drive.condition is Condition.ENABLED
    return drive


def ordinary(message: Message, chance: random.Random) -> bytearray:
    """A payload that a healthy node could send: what is expected of it, and else random bits."""
    data = bytearray(chance.randbytes(message.length))
    for field, mask, value in (*message.selects, *message.expects):
        place, order = slice(field.first, field.first + field.size), "big" if field.big else "little"
        bits = int.from_bytes(data[place], order) & ~(mask << field.shift) | value << field.shift
        data[place] = bits.to_bytes(field.size, order)
    return data


def frames_for(drive: TableDrive, count: int, chance: random.Random) -> Iterator[Frame]:
    """Frames that a healthy node could send, some of them damaged, and frames with all ids that the driver knows."""
    rare = [*sorted(drive.identities), 0x7FF, *(family.value for family in drive.families)]
    for time in range(2, count):
        message = chance.choice(drive.messages)
        identity, data = message.id, ordinary(message, chance)
        if chance.random() < 0.2:
            identity, data = chance.choice(rare), bytearray(chance.randbytes(message.length))
        if chance.random() < 0.2:
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        if chance.random() < 0.1:
            del data[chance.randrange(len(data)) :]
        extended = (identity > 0x7FF) is not (chance.random() < 0.02)
        yield Frame(identity, bytes(data), extended, time=time, fd=drive.settings.fd)


@pytest.mark.parametrize("protocol", WORKING)
def test_what_c_takes_from_a_frame_the_driver_takes_too(protocol: str) -> None:
    drive, taken = driver(protocol, sign=-1, gear=7.3, offset=0.1), 0
    bare = Bare(drive)
    bare.values["next_torque"][0] = drive.next_torque
    if drive.unwrapping is not None:
        assert drive.unwrapping.last is not None
        bare.values["wrapped"][0], bare.values["added"][0] = drive.unwrapping.last, drive.unwrapping.added
    for frame in frames_for(drive, 3000, random.Random(7)):
        before = bare.numbers()
        number = bare.take(frame)
        if number == GIVEN_BACK:
            assert bare.numbers() == before
            continue
        rejected = drive.rejected
        if number == UNKNOWN:
            assert frame.id not in drive.identities and not (frame.extended and drive.takes(frame.id))
            continue
        drive.accept(frame)
        taken += 1
        assert drive.rejected == rejected and (drive.sample is None or in_order([drive], [drive]))
        if drive.sample is not None and drive.sample.time == frame.time:
            values = [bare.values[name][0] for name in ("position", "velocity", "torque")]
            assert np.array(values).tobytes() == np.array(drive.sample[:3]).tobytes()
            assert bare.times["sample_time"][0] == frame.time
        if drive.unwrapping is not None:
            assert (drive.unwrapping.last, drive.unwrapping.added) == (
                bare.values["wrapped"][0], bare.values["added"][0],
            )  # fmt: skip
        assert np.array(list(bare.gauges)).tobytes() == np.array(drive.gauges).tobytes()
        assert not drive.alive or drive.alive == bare.times["alive"][0] or drive.alive == 1
    assert taken > 1000
    assert drive.unwrapping is None or drive.unwrapping.added != 0.0


@pytest.mark.parametrize(
    ("protocol", "taken"), [("cia402", 1), ("odrive", 1), ("mit", 0), ("robstride", 0), ("moteus", 0)]
)
def test_of_a_drive_that_does_not_work_c_takes_samples_that_say_nothing_of_its_state(protocol: str, taken: int) -> None:
    drive, chance = driver(protocol), random.Random(3)
    bare = Bare(drive)
    bare.tick.healthy = False
    frames = [
        Frame(each.id, bytes(ordinary(each, chance)), each.id > 0x7FF, fd=drive.settings.fd) for each in drive.messages
    ]
    numbers = [bare.take(frame) for frame in frames]
    assert [drive.messages[number].sample for number in numbers if number != GIVEN_BACK] == [True] * taken


@pytest.mark.parametrize("protocol", WORKING)
@pytest.mark.parametrize("sign", [1, -1])
def test_c_encodes_every_torque_as_the_driver_does(protocol: str, sign: int) -> None:
    drive, chance = driver(protocol, sign=sign, gear=7.3), random.Random(3)
    bare = Bare(drive)
    encoded = frame_reader(bare.ffi.buffer(bare.encoding.frame, 4 + bare.encoding.length))
    limit = drive.settings.torque_limit
    torques = [0.0, -0.0, limit, -limit, 1e-12, -1e-12, 5e-324, -5e-324]
    torques += [chance.uniform(-limit, limit) * 10.0 ** -chance.randrange(6) for _ in range(2000)]
    for torque in torques:
        carried = bare.functions.tick_encode(bare.encoding, torque)
        command = drive.command(torque)
        assert encoded() == (command.id, command.data)
        assert np.float64(carried).tobytes() == np.float64(drive.carried(torque)).tobytes()


def test_a_torque_that_no_frame_carries_is_not_sent() -> None:
    bare = Bare(driver("cia402"))
    assert all(math.isnan(bare.functions.tick_encode(bare.encoding, torque)) for torque in (1e9, -1e9, math.nan))
