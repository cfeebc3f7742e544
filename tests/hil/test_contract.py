"""What every protocol promises, of our own and of a package: its ids, its torques, its bring-up, and its table.

The judges are the physics of the simulated machine, the bits on the emulated wire, and a reader of the protocol,
which shares no code with the driver.

Emulated drives and drivers use the same tables of frames: where a number lies, ids, codes. Each of these tables is
judged by frames of another implementation, and by golden frames. The observer reads the loop's commands by
tables of its own, so that an error in a codec shows there too.
"""

import ast
import math
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

import hil.codecs
from hil.bus.load import FrameTraffic, worst_load
from hil.codecs.field import bits_in
from hil.drives.base import Condition, Drive, DriveError, Feedback
from hil.drives.settings import DriveSettings, SensorSettings
from hil.drives.table import TableDrive
from hil.drives.wire import Message
from hil.emulator.station import key
from hil.frame import Frame
from hil.loop import nanoseconds
from hil.protocols.registry import build, node_class
from hil.rig.handshake import Handshake
from servoctl.errors import ConfigError
from tests.hil import command_observer
from tests.hil.command_observer import READERS, CommandFindings
from tests.hil.drive_host import Host
from tests.hil.emulation import TURN, drive_settings
from tests.hil.fuzz import frames
from tests.refused import table

PERIOD = 0.002  # [s]
ENCODERS = {
    "cia402 encoder": SensorSettings("x", "main", "cia402", 1, 2.0, -1, 0.25, drive_settings("cia402").options),
    "odrive encoder": SensorSettings("x", "main", "odrive", 1, 2.0, -1, 0.25, drive_settings("odrive").options),
}
DAMIAO = {"motor": "dm4310", "status": "damiao", "drive_watchdog": True, "host": 0x11}
CASES: dict[str, DriveSettings] = {
    "cia402": drive_settings("cia402"),
    "odrive": drive_settings("odrive", speed_limit=1.0),
    "mit": drive_settings("mit", options={"motor": "ak80-9"}),
    "cubemars": drive_settings("mit", options={"motor": "ak80-9", "status": "cubemars"}),
    "damiao": drive_settings("mit", options=DAMIAO),
    "moteus": drive_settings("moteus", options={"source": 9}),
    "robstride": drive_settings("robstride"),
    "acme": replace(drive_settings("mit"), protocol="acme", node=3, options={}),
}


@pytest.fixture(params=CASES)
def settings(request: pytest.FixtureRequest) -> DriveSettings:
    """Settings of a drive with a gear of 2 and an inverted sign; the package is installed where they need it."""
    if request.param == "acme":
        request.getfixturevalue("acme")
    return CASES[request.param]


JOINT = {
    "sign": -1, "offset": 0.5, "torque_limit": 12.0, "torque_rate_limit": 400.0, "speed_limit": 6.0,
    "position_limits": (-3.0, 3.0), "fd": False, "brs": False, "rated_torque": None,
}  # fmt: skip
USUAL: dict[str, dict[str, Any]] = {
    "cia402": {"node": 5, "gear": 50.0, "rated_torque": 0.5, "options": {"counts_per_turn": 4096, "velocity_unit": 1}},
    "odrive": {"node": 3, "gear": 8.0, "options": {}},
    "mit": {"node": 3, "gear": 2.0, "options": {"motor": "ak80-9"}},
    "moteus": {"node": 3, "gear": 8.0, "fd": True, "brs": True, "options": {}},
    "robstride": {"node": 5, "gear": 2.0, "sign": 1, "offset": 0.0, "options": {"motor": "rs-02"}},
}
"""Protocol -> settings that are fine; the cases of `refusals/drives.txt` change them, or have `more` options."""


@pytest.mark.parametrize(("words", "said"), [row[1:] for row in table("drives")])
def test_every_setting_that_does_not_fit_is_refused_with_its_remedy(words: list[str], said: list[str]) -> None:
    protocol, text = words
    changes = USUAL[protocol] | yaml.safe_load(f"{{{text}}}")
    changes["options"] = changes["options"] | changes.pop("more", {})
    with pytest.raises(ConfigError) as refused:
        build(replace(drive_settings(protocol, "u1"), **(JOINT | changes)), 0.0025 if protocol == "moteus" else 0.001)
    found = refused.value.problems
    assert len(found) == len(said) and all(a.startswith(f"u1: {b}") for a, b in zip(found, said, strict=True)), found


def driver(settings: DriveSettings) -> Drive:
    drive = build(settings, PERIOD)
    assert isinstance(drive, Drive)
    return drive


def test_ids_are_reserved_and_read(settings: DriveSettings) -> None:
    drive, ids = driver(settings), node_class(settings).reserved_ids(settings)
    assert not ids.exclusive & ids.shared
    reserved, bits = ids.exclusive | ids.shared, drive.command_bits
    assert drive.command(0.0).id & bits in {identity & bits for identity in reserved}
    for frame in (*drive.alive_frames(), *drive.disable_frames(), *drive.quick_stop_frames(0.0)):
        assert frame.id in reserved or drive.takes(frame.id), "an id that holds data stands for those that differ in it"
    assert drive.identities <= reserved
    assert not isinstance(drive, TableDrive) or all(drive.takes(message.id) for message in drive.messages)


def torques(limit: float) -> list[float]:
    chance = random.Random(4)
    return sorted(
        [*(limit * share / 20 for share in range(-20, 21)), *(chance.uniform(-limit, limit) for _ in range(200))]
    )


def test_a_torque_is_rounded_towards_zero_by_less_than_a_step(settings: DriveSettings) -> None:
    """Where no frame carries zero, the smallest torque that one carries stands for it."""
    drive, limit = driver(settings), settings.torque_limit
    step, smallest = 1.01 * max(drive.quantum()[2], 1e-6 * limit), abs(drive.carried(0.0))
    assert smallest <= step / 2
    carried = [drive.carried(torque) for torque in torques(limit)]
    for torque, each in zip(torques(limit), carried, strict=True):
        assert abs(each - torque) <= step and abs(each) <= max(abs(torque), smallest) * (1 + 1e-12)
        assert each * torque >= 0.0 or abs(torque) < smallest
        assert drive.torque_bytes(drive.command(torque)) is not None
    assert all(before <= after for before, after in pairwise(carried))


def test_a_torque_that_is_not_finite_or_beyond_its_limit_is_never_in_a_frame(settings: DriveSettings) -> None:
    drive, limit = driver(settings), settings.torque_limit
    for wrong in (math.nan, math.inf, -math.inf, 1.001 * limit, -1.001 * limit):
        with pytest.raises(ValueError, match=rf"{settings.name}: torque .* is not finite and within \+-{limit:g}"):
            drive.command(wrong)
    for wrong in (math.nan, math.inf, -math.inf, 1e300) if isinstance(drive, TableDrive) else ():
        with pytest.raises(ValueError, match="torque"):
            drive.encoding.frame_of(wrong)


FOREIGN = {
    "cia402": [
        Frame(0x000, bytes((1, 1))), Frame(0x000, bytes((130, 0))), Frame(0x080), Frame(0x201, bytes(4)),
        Frame(0x301, bytes(8)), Frame(0x501, bytes(8)), Frame(0x601, bytes(8)), Frame(0x77F, bytes((5,))),
    ],
    "odrive": [Frame(0x02E, bytes(8)), Frame(0x027, bytes(8)), Frame(0x029, remote=True, length=8)],
    "mit": [Frame(1, bytes.fromhex("ff" * 7 + "fc"))],
    "moteus": [
        Frame(identity, bytes.fromhex("01000a"), extended=True, fd=True) for identity in (0x8001, 0x8501, 0x901)
    ],
    "robstride": [
        Frame(identity, bytes(8), extended=True) for identity in (0x0180_0001, 0x0300_AA01, 0x0400_FD01, 0x1200_FD01)
    ],
}  # fmt: skip
"""Protocol -> frames to node 1 that only a master sends."""


@pytest.mark.parametrize(("protocol", "frame"), [(name, frame) for name, frames in FOREIGN.items() for frame in frames])
def test_frames_of_another_master_are_noticed(protocol: str, frame: Frame) -> None:
    drive = driver(CASES[protocol])
    assert drive.takes(frame.id)
    drive.accept(frame)
    assert str(frame) in drive.foreign or "another master commands this drive" in drive.foreign


def frames_of(text: str) -> list[Frame]:
    """Frames as `ID#BYTES`, of FD as `ID##BYTES`; an id of eight digits has 29 bits."""
    parts = [(word.partition("#")[0], word.rpartition("#")[2], "##" in word) for word in text.split()]
    return [Frame(int(a, 16), bytes.fromhex(data), len(a) == 8, fd=fd, brs=fd, time=9) for a, data, fd in parts]


CONDITIONS = [
    [cell.strip() for cell in line.split("  |")]
    for line in Path(__file__).with_name("conditions.txt").read_text().splitlines()
    if not line.startswith("#")
]


@pytest.mark.parametrize(("case", "frames", "counts_as", "fault"), CONDITIONS)
def test_the_condition_of_a_drive_is_what_it_has_said_last(case: str, frames: str, counts_as: str, fault: str) -> None:
    drive = driver(CASES[case])
    assert drive.condition is Condition.UNKNOWN
    for frame in frames_of(frames):
        drive.accept(frame)
    condition, _, off = counts_as.partition(" ")
    assert (drive.condition, drive.fault) == (Condition[condition], fault)
    assert drive.confirmed_off is (off == "off")
    assert (drive.rejected, drive.foreign) == (0, "")
    if fault:
        with pytest.raises(DriveError, match="in fault: "):
            next(drive.enable(0.0))


@dataclass(frozen=True)
class Conversation:
    """A line of `conversations.txt`, and what is on the wire then."""

    case: str
    changes: dict[str, Any]  # of the settings
    before: str
    orders: str
    instead: dict[str, str]
    error: str
    shown: str  # pattern of the lines that are compared; "": those with the ids of the expected ones
    lines: list[str]


def conversations() -> Iterator[Any]:
    text = Path(__file__).with_name("conversations.txt").read_text()
    for number, (head, *said) in enumerate(re.findall(r"^(\w.*)\n((?: .*\n)*)", text, re.MULTILINE), 1):
        subject, orders, instead, error, *shown = (cell.strip() for cell in head.split("  |"))
        case, _, changes = subject.partition(" {")
        before, _, orders = orders.rpartition("/")
        pairs = dict(re.split(" -> ?", pair) for pair in instead.split("; ") if pair)
        lines = [" ".join(line.partition("#")[0].split()) for line in said[0].splitlines()]
        settings = yaml.safe_load(f"{{{changes}") if changes else {}
        found = Conversation(case, settings, before.strip(), orders, pairs, error, "".join(shown), lines)
        yield pytest.param(found, id=f"{number}-{case}-{orders.strip()}")


@pytest.mark.parametrize("talk", list(conversations()))
def test_driver_and_drive_converse_as_their_documents_say(talk: Conversation) -> None:
    """And where the drive says something else, the driver refuses it with a remedy, and nothing is left on."""
    changes = dict(talk.changes)
    there, options = changes.pop("drive", {}), changes.pop("options", {})
    usual = CASES[talk.case] if talk.case in CASES else ENCODERS[talk.case]
    host = Host(replace(usual, **changes, options={**usual.options, **options}), **there)
    host.order(talk.before)
    host.forget()
    host.instead = talk.instead
    if talk.error:
        with pytest.raises(DriveError) as refused:
            host.order(talk.orders)
        assert str(refused.value).startswith("a: ") and talk.error in str(refused.value)
        assert not host.drive.quiet
        assert talk.instead or not any(drive.motor.enabled for drive in host.bench.emulator.drives.values())
    else:
        host.order(talk.orders)
    shown = talk.shown or "|".join({" ".join(line.split()[:2]) for line in talk.lines})
    assert [line for line in host.lines if talk.lines and re.match(shown, line)] == talk.lines


SAMPLES: dict[str, tuple[str, tuple[float, ...], tuple[float, ...]]] = {
    "cia402": (
        "281#370A9CFF0000 181#00FCFFFF3C000000", (-1024e-5 * TURN, 60e-3 * TURN, -0.4),
        (1e-5 * TURN, 1e-3 * TURN, 4e-3),
    ),
    "odrive": ("029#0000803E000000C0", (TURN / 4, -2 * TURN, math.nan), (0.0, 0.0, 2.0**-21)),
    "mit": ("000#0199997FF8E3", (-12.5 + 0.6 * 25, -50 / 4095, 2.0), (25 / 65535, 100 / 4095, 36 / 4095)),
    "moteus": ("109##21000A2F010000803E000000C00000A03F210F00", (TURN / 4, -2 * TURN, 1.25), (0.0, 0.0, 2.0**-21)),
    "moteus, in integers": ("109##2404000A00C409E0B1C4FF210F00", (TURN / 4, -5 * TURN, -0.6), (0.0, 0.0, 2.0**-21)),
    "robstride": (
        "028001FD#7FFFFFFFC000012C", (-2 * TURN / 65535, 44.0, 17 * 32769 / 65535),
        (8 * math.pi / 65535, 88 / 65535, 34 / 65535),
    ),
}  # fmt: skip
"""Frames -> position [rad], velocity [rad/s] and torque [N m] of the motor, by the maker's document; their steps."""


@pytest.mark.parametrize("case", SAMPLES)
def test_a_sample_is_converted_to_the_joint_and_has_the_time_of_its_frame(case: str) -> None:
    text, (position, velocity, torque), steps = SAMPLES[case]
    drive = driver(CASES[case.partition(",")[0]])
    for frame in frames_of(text):
        drive.accept(frame)
    joint = -position / 2.0 + 0.25, -velocity / 2.0, -torque * 2.0  # gear 2, sign -1, offset 0.25
    assert drive.sample is not None and drive.sample[:3] == pytest.approx(joint, rel=1e-6, abs=1e-9, nan_ok=True)
    assert drive.sample.time == 9
    for found, step, gear in zip(drive.quantum(), steps, (0.5, 0.5, 2.0), strict=True):
        assert not step or found == pytest.approx(step * gear, rel=1e-6)


INVALID = {
    "cia402": "181#00 181#00000000000000 281#370200 081#3081 701#0505 281#00000000000000",
    "odrive": "020#0204043A00060A 021#00000000 023#00000000 029#0000803E0000C07F 029#0000807F00000000 029#00",
    "mit": "000#01 000#0199997FF8 000#0199997FF8E31E", "cubemars": "000#0199997FF8E3", "damiao": "011#0199997FF8E3",
    "moteus": "109## 109##21 109##2400 109##4101 109##99 109##218080 109##2F010000803E 109##50505050 00000109##21000A "
    "109##2C04000000C07F0000C07F0000C07F0000C07F2D0F0000C07F",
    "robstride": "028001FD# 028001FD#7FFF80 110001FD#287000 028001FD#7FFF80009999012C00",
}  # fmt: skip
"""Frames with ids of a node that say nothing: too short, too long, with ids of the other length, without a number."""


@pytest.mark.parametrize(
    ("case", "frame"), [(case, each) for case, text in INVALID.items() for each in frames_of(text)]
)
def test_a_frame_that_says_nothing_is_counted_and_changes_nothing(case: str, frame: Frame) -> None:
    drive = driver(CASES[case])
    drive.accept(frame)
    assert (drive.rejected, drive.condition, drive.sample, drive.fault) == (1, Condition.UNKNOWN, None, "")
    assert not drive.alive


def state(drive: Drive) -> dict[str, object]:
    attributes = vars(drive).items()
    return {name: [*value] if isinstance(value, list) else value for name, value in attributes if name != "rejected"}


@pytest.mark.parametrize("case", [case for case in CASES if case != "acme"])
def test_no_frame_makes_a_driver_raise_and_one_that_it_refuses_changes_only_the_count_of_those(case: str) -> None:
    said = [*(row[1] for row in CONDITIONS if row[0] == case), *(SAMPLES[case][:1] if case in SAMPLES else ())]
    valid = [frame for text in said for frame in frames_of(text)]
    drive, refused, accepted = driver(CASES[case]), 0, 0
    for frame in frames(valid, 10_000):
        before, rejected, sample = state(drive), drive.rejected, drive.sample
        drive.accept(frame)
        if drive.rejected > rejected:
            assert drive.rejected == rejected + 1 and state(drive) == before
            refused += 1
        elif drive.sample is not None and drive.sample is not sample:
            assert math.isfinite(drive.sample.position) and math.isfinite(drive.sample.velocity)
            assert drive.sample.time == frame.time
            accepted += 1
    assert refused > 500 and accepted > 30


@pytest.mark.parametrize("name", ["enable", "test_watchdog"])
def test_what_a_drive_said_before_it_was_enabled_does_not_prove_that_it_is_off(
    settings: DriveSettings, name: str
) -> None:
    host = Host(settings)
    host.order("identify, configure, reset")
    if name == "enable":
        host.drive.enable_requested = True  # by the rig
    elif settings not in (CASES["damiao"], CASES["moteus"], CASES["robstride"]):
        return

    def cut(word: str) -> None:
        host.instead = {".*": ""}

    host.node.motor.told = cut
    handshake = Handshake({host.drive: getattr(host.drive, name)(0.0)}, host.dispatch.send, host.clock, 5.0)
    while not host.instead:
        handshake.advance()
        host.tick()
    handshake.abandon()
    for _ in range(3):
        host.send(*host.drive.disable_frames())
        host.tick()
    assert host.drive.possibly_on and not host.drive.confirmed_off
    host.instead = {}
    host.until(lambda: host.drive.confirmed_off, lambda: host.order("disable"))


def test_a_torque_that_a_frame_carries_is_sent_as_it_is(settings: DriveSettings) -> None:
    chance, limit = random.Random(5), settings.torque_limit
    for drive in (driver(replace(settings, gear=gear, sign=sign)) for gear in (1.0, 1.7, 2.3) for sign in (1, -1)):
        step = drive.quantum()[2] or limit
        for torque in (chance.uniform(-limit, limit) for _ in range(300)):
            carried = drive.carried(torque)
            assert drive.carried(carried) == pytest.approx(carried, abs=1e-6 * step)


@pytest.mark.parametrize(
    ("case", "idle"),
    [
        ("odrive", "00" * 8),
        ("damiao", "7fff7ff0000007ff"),
        ("moteus", "11001f01110f"),
        ("robstride", "7fff7fff00000000"),
    ],
)
def test_a_drive_that_is_not_enabled_gets_zero_torque_or_a_query_in_every_tick_and_an_enabled_one_nothing(
    case: str, idle: str
) -> None:
    drive = driver(CASES[case])
    assert [frame.data.hex() for frame in drive.alive_frames()] == [idle]
    drive.command(1.0)
    assert drive.alive_frames() == ()
    assert [frame.data.hex() for frame in drive.alive_frames()] == [idle]
    for frame in frames_of(next(row[1] for row in CONDITIONS if row[0] == case and row[2] == "ENABLED")):
        drive.accept(frame)
    assert drive.alive_frames() == (), "its watchdog must notice a loop that hangs"


def test_the_reader_reads_what_the_driver_sends(settings: DriveSettings) -> None:
    drive, limit = driver(settings), settings.torque_limit
    drive.take_as_enabled()
    for torque in torques(limit):
        findings = CommandFindings(largest={settings.name: 0.0})
        reader = READERS[settings.protocol](findings, replace(settings, torque_rate_limit=math.inf))
        assert reader.takes(key(drive.command(torque)))
        reader.enable()
        reader.read(drive.command(torque))
        assert not findings.violations and findings.commands == 1
        sent, carried = findings.largest[settings.name], abs(drive.carried(torque))
        assert sent == pytest.approx(carried, abs=1e-6 * limit)
        assert sent <= carried * (1 + 1e-9) or not isinstance(drive, TableDrive)


def test_a_drive_comes_up_makes_its_torque_and_goes_off(settings: DriveSettings) -> None:
    host = Host(settings)
    drive, torque = host.drive, 0.03 * settings.torque_limit
    motor, plant, world = host.bench.node.motor, host.bench.emulator.plant, host.bench.emulator.world
    host.bring_up(torque)
    assert drive.condition is Condition.ENABLED and not drive.fault and motor.enabled
    for share in (1.0, -1.0, 0.5):
        for _ in range(6):
            host.tick(share * torque)
        assert plant.torques(world.now)[motor.index] == pytest.approx(drive.carried(share * torque), rel=1e-5)
    sample, (q, v) = drive.sample, host.bench.emulator.state
    assert sample is not None and sample.position == pytest.approx(q[0], abs=max(2 * drive.quantum()[0], 1e-2))
    assert sample.velocity == pytest.approx(v[0], abs=max(2 * drive.quantum()[1], 1e-2))

    def stop() -> None:
        for frame in drive.disable_frames():
            host.dispatch.send("main", frame)
        host.tick()

    host.until(lambda: drive.confirmed_off, stop)
    assert not motor.enabled and plant.torques(world.now)[motor.index] == 0.0
    assert host.bench.observer.report() == []


@pytest.mark.parametrize("settings", [name for name in CASES if name not in ("mit", "cubemars")], indirect=True)
def test_a_drive_with_a_watchdog_stops_by_itself_in_its_time(settings: DriveSettings) -> None:
    host = Host(settings)
    assert host.drive.watchdog
    host.bring_up()
    for _ in range(5):
        host.tick(0.0)
    motor, begun = host.bench.node.motor, host.clock.now()
    host.until(lambda: not motor.enabled, lambda: host.clock.sleep_until(host.clock.now() + nanoseconds(PERIOD)))
    elapsed = (host.clock.now() - begun) * 1e-9
    assert settings.watchdog / 2 < elapsed < settings.watchdog + 1.1  # a CiA 402 drive brakes for a second at most


def working(settings: DriveSettings, seconds: float = 0.5) -> tuple[Host, list[Frame], float]:
    """A drive that works: what it sent in a time, and the share of the time for which the bus was busy."""
    host = Host(settings)
    host.bring_up()
    for _ in range(20):
        host.tick(0.0)
    wire = host.bench.emulator.wires["main"]
    since, busy = host.clock.now(), wire.busy
    host.received.clear()
    for _ in range(round(seconds / PERIOD)):
        host.tick(0.0)
    return host, host.received, (wire.busy - busy) / (host.clock.now() - since)


def fits(message: Message, frame: Frame) -> bool:
    conditions = (*message.selects, *message.expects)
    return (message.id, message.length) == (frame.id, len(frame.data)) and all(
        bits_in(frame, each.field) & each.mask == each.value for each in conditions
    )


def test_what_a_working_drive_sends_is_in_its_table_and_loads_the_bus_as_the_protocol_says(
    settings: DriveSettings,
) -> None:
    host, received, load = working(settings)
    kind, drive = node_class(settings), host.drive
    traffic = [*kind.traffic(settings, PERIOD)]
    traffic += [FrameTraffic(0, 1 / PERIOD)] if kind.feedback is Feedback.SYNC else []
    declared = worst_load(traffic, host.bench.emulator.wires["main"].rates)
    assert 0.5 * declared < load < 1.002 * declared  # a window of time may hold one frame more than its share
    assert len(received) > 100
    if isinstance(drive, TableDrive):  # a package may give no table: its ticks run in Python
        assert [str(frame) for frame in received if not any(fits(message, frame) for message in drive.messages)] == []
        kinds = {message for frame in received for message in drive.messages if fits(message, frame)}
        assert any(message.sample for message in kinds) and any(message.alive for message in kinds)


FILES = sorted(Path(hil.emulator.__file__).parent.glob("*.py"))
MAY_KNOW = ("hil.frame", "hil.bus", "hil.drives.settings", "hil.emulator", "hil.loop.clock")
TABLES = "hil.codecs"
TWINS = {"canopen", "cia402", "impedance", "mit", "moteus", "objects", "odrive", "robstride"}
"""Files that may know the tables of frames."""

JUDGES = {
    "cia402": "canopen",
    "mit": "damiao_motor",
    "moteus": "moteus",
    "odrive": "cantools",
    "robstride": "robstride",
}
"""Table -> whose implementation judges it, in the test of its name; `field` knows no protocol."""


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.stem))
def test_the_emulator_imports_no_driver_and_only_its_drives_the_tables_of_frames(file: Path) -> None:
    imported = {
        node.module
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("hil")
    }
    foreign = {name for name in imported if not name.startswith(MAY_KNOW)}
    assert {name for name in foreign if not name.startswith(TABLES)} == set()
    assert bool(foreign) == (file.stem in TWINS)


def test_every_table_is_judged_by_the_implementation_of_somebody_else() -> None:
    tables = {file.stem for file in Path(hil.codecs.__file__).parent.glob("*.py")} - {"__init__", "field"}
    assert set(JUDGES) == tables
    for name, package in JUDGES.items():
        text = Path(__file__).with_name(f"test_{name}.py").read_text()
        assert re.search(rf"(from|import) {package}\b|importorskip\(\"{package}\b", text), name


def test_the_observer_shares_no_code_with_the_drives() -> None:
    text = Path(command_observer.__file__).read_text()
    for module in ("odrive", "cia402", "canopen", "impedance", "mit", "moteus", "robstride", "objects"):
        assert f"hil.emulator.{module} " not in text
    assert "hil.codecs" not in text
    for conversion in ("motor_torque(", "joint_torque(", "motor_rate(", "joint_rate("):
        assert f"drive.{conversion}" not in text, "units are converted by its own arithmetic"
