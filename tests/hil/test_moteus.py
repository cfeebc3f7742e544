"""The registers, the driver and the emulated drive of a moteus against the maker's own package and its documentation.

What driver and drive say to each other is in `conversations.txt`.
"""

import asyncio
import io
import math
import random
import struct
from typing import Any

import pytest

from hil.assembly.prepare import load
from hil.codecs import moteus as codec
from hil.drives.base import Condition, DriveError
from hil.drives.moteus import MoteusDrive
from hil.drives.settings import DriveSettings
from hil.drives.table import TableDrive
from hil.frame import Frame, fd_size
from hil.protocols.registry import build
from tests.hil.drive_host import PERIOD, Host
from tests.hil.emulation import MILLISECOND, Bench, bare_drive, bench, drive_settings

pytest.importorskip("moteus", reason="the package moteus reads and writes the same frames")
import moteus
from moteus import multiplex, protocol

NAN, RADIANS = math.nan, 2 * math.pi


def driver(limit: float = 2.0, watchdog: float = 0.05) -> TableDrive:
    return bare_drive("moteus", torque_limit=limit, watchdog=watchdog)


def torque_command(torque: float, limit: float, watchdog: float) -> bytes:
    return driver(limit, watchdog).encoding.frame_of(torque).data


def registers(data: bytes) -> dict[int, float]:
    answer = codec.answered(data)
    assert answer is not None
    return answer[0]


def test_the_command_of_the_example_in_the_makers_documentation() -> None:
    command = codec.write(codec.MODE, [codec.IN_POSITION], codec.INT8)
    command += codec.write(codec.COMMAND_POSITION, [0.0096, 0.072, -1.76], codec.INT16)
    command += codec.read(codec.MODE, 4, codec.INT16) + codec.read(codec.VOLTAGE, 3, codec.INT8)
    assert command.hex() == "01000a07206000200150ff140400130d"


def test_the_answer_of_the_example_in_the_makers_documentation() -> None:
    read = registers(bytes.fromhex("2404000a005000000170ff230d181400"))
    expected = {0: 10, 1: 0.008, 2: 0.064, 3: -1.44, 13: 12.0, 14: 20.0, 15: 0}
    assert read == pytest.approx(expected)


def test_the_package_reads_a_torque_command_as_torque_without_gains() -> None:
    read = protocol.parse_registers(torque_command(-0.7, 1.234, 0.04))
    single = struct.unpack("<f", struct.pack("<f", -0.7))[0]
    R = protocol.Register
    assert math.isnan(read.command.pop(R.COMMAND_POSITION))
    assert read.command == pytest.approx({
        R.MODE: 10, R.COMMAND_FEEDFORWARD_TORQUE: single, R.COMMAND_KP_SCALE: 0, R.COMMAND_KD_SCALE: 0,
        R.COMMAND_POSITION_MAX_TORQUE: 1.24, R.COMMAND_TIMEOUT: 0.04, R.COMMAND_ILIMIT_SCALE: 0,
    })  # fmt: skip
    assert next(iter(read.command)) == R.MODE, "writing the mode resets what was written before it"


REGISTERS = [0x001, 0x002, 0x003, 0x00D, 0x00E, 0x020, 0x021, 0x022, 0x023, 0x024, 0x025, 0x027, 0x02B]


def step(register: int, resolution: int) -> float:
    """Value of one step, by the package."""
    return float(protocol.scale_register(register, resolution, 1))


def test_ten_thousand_random_commands_are_read_by_the_package_within_half_a_step() -> None:
    numbers, in_position = random.Random(1), codec.write(codec.MODE, [codec.IN_POSITION], codec.INT8)
    for _ in range(3000):
        register, resolution = numbers.choice(REGISTERS), numbers.randrange(4)
        one = step(register, resolution) if resolution < 3 else 1.0
        most = {0: 127, 1: 32767, 2: 2**31 - 1, 3: 1e6}[resolution]
        value = NAN if numbers.random() < 0.05 else numbers.uniform(-most, most) * one
        data = codec.padded(in_position + codec.write(register, [value], resolution))
        read = protocol.parse_registers(data).command
        assert read[0] == 10
        tolerance = 0.5000001 * one if resolution < 3 else abs(value) * 2.0**-24
        assert read[register] == pytest.approx(value, abs=tolerance, rel=0, nan_ok=True)


def test_three_thousand_random_torques_are_read_by_the_package_within_a_step_towards_zero() -> None:
    numbers = random.Random(2)
    for _ in range(3000):
        limit, watchdog = numbers.uniform(0.01, 300.0), 0.01 * numbers.randint(1, 127)
        torque = numbers.uniform(-limit, limit)
        read = protocol.parse_registers(torque_command(torque, limit, watchdog)).command
        assert 0.0 <= (torque - read[0x022]) * math.copysign(1.0, torque) <= abs(torque) * 2.0**-23
        assert read[0x027] == pytest.approx(watchdog, abs=1e-9)
        assert -1e-9 <= read[0x025] - limit <= 0.01, "the drive may not cut off a torque within the limit"


def test_random_answers_of_the_package_are_read() -> None:
    numbers = random.Random(3)
    for _ in range(2000):
        first, count, resolution = numbers.randrange(0x180), numbers.randint(1, 6), numbers.randrange(4)
        buffer = io.BytesIO()
        writer = protocol.Writer(buffer)
        combiner = multiplex.WriteCombiner(writer, 0x20, first, [resolution] * count)
        for _ in range(count):
            most = {0: 127, 1: 32767, 2: 2**31 - 1}.get(resolution)
            combiner.maybe_write()
            writer.write(numbers.uniform(-9, 9) if most is None else numbers.randint(-most - 1, most), resolution)
        data = codec.padded(buffer.getvalue())
        read, parsed = registers(data), protocol.parse_registers(data).response
        known = {number: value for number, value in parsed.items() if number in REGISTERS}
        assert {number: read[number] for number in known} == pytest.approx(known, nan_ok=True)
        assert read.keys() == parsed.keys()


def test_a_register_that_the_drive_does_not_know_is_named() -> None:
    read = registers(bytes.fromhex("31ab0101" + "210c02" + "5050"))
    assert read == pytest.approx({0xAB: math.nan, 0x0C: 2}, nan_ok=True)
    assert protocol.parse_registers(bytes.fromhex("31ab0101")).errors == [(0xAB, 1)]


@pytest.mark.parametrize(("most", "watchdog"), [(400.0, 0.05), (1.0, 0.0), (1.0, 0.004), (1.0, 1.28), (math.inf, 0.05)])
def test_a_limit_or_a_watchdog_that_does_not_fit_is_refused(most: float, watchdog: float) -> None:
    with pytest.raises((ValueError, OverflowError)):
        codec.torque_command(most, watchdog)


def test_text_of_the_console_is_cut_out_of_its_frame() -> None:
    assert codec.answered(bytes.fromhex("410103") + b"12\n" + 6 * b"\x50") == ({}, "12\n")
    assert codec.answered(bytes.fromhex("410100")) == ({}, "")
    for wrong in ("", "41", "410104616263", "410201"):
        assert codec.answered(bytes.fromhex(wrong)) is None
    assert codec.answered(bytes.fromhex("21000a")) == ({codec.MODE: codec.IN_POSITION}, None)
    with pytest.raises(ValueError, match="62 bytes of text, at most 61"):
        codec.console_write(62 * "x")


def test_a_payload_is_filled_to_a_length_of_can_fd() -> None:
    assert [len(codec.padded(bytes(n))) for n in (0, 7, 8, 9, 21, 33, 49, 64)] == [0, 7, 8, 12, 24, 48, 64, 64]
    with pytest.raises(ValueError, match="at most 64 bytes, not 65"):
        codec.padded(bytes(65))


def test_the_package_has_the_same_modes_and_registers() -> None:
    for mode in protocol.Mode:
        assert codec.MODES[mode].replace(" ", "_").upper().startswith(mode.name[:7])
    R = protocol.Register
    same = {
        "POSITION": R.POSITION, "FAULT": R.FAULT, "HOME_STATE": R.HOME_STATE, "MAX_TORQUE":
        R.COMMAND_POSITION_MAX_TORQUE, "WATCHDOG": R.COMMAND_TIMEOUT, "ILIMIT_SCALE": R.COMMAND_ILIMIT_SCALE,
        "SERIAL": R.SERIAL_NUMBER, "MODEL": R.MODEL_NUMBER,
    }  # fmt: skip
    assert {name: getattr(codec, name) for name in same} == same


NODE, OTHER = 1, 0x8501
"""The id of the drive, and that of a command by another master."""


def settings(node: int = NODE) -> DriveSettings:
    return drive_settings("moteus", node=node)


def state(mode: int, node: int = NODE, **kind: bool) -> Frame:
    data = bytes.fromhex(f"2100{mode:02X}2F010000803E000000C00000A03F210F00")
    return Frame(node << 8, codec.padded(data), fd=True, brs=True, **kind)


def test_bounds_of_the_drive_inside_those_of_the_config_are_refused() -> None:
    # 10 rad at the joint, offset 0.25, sign -1, gear 2: -3.104 rev at the shaft; -10 rad: 3.263 rev
    host = Host(settings())
    host.node._configured |= {"servopos.position_min": -3.2, "servopos.position_max": 3.3}
    host.order("identify, configure")
    host.node._configured["servopos.position_max"] = 3.2
    said = r"position_min and position_max are -3\.2 and 3\.2 rev, .* -3\.104 and 3\.263 rev"
    with pytest.raises(DriveError, match=said):
        host.order("configure")


def test_every_fault_of_the_documentation_has_a_name() -> None:
    for code in range(32, 51):
        assert codec.fault_text(code).endswith(f"(fault {code})") and "unknown" not in codec.fault_text(code)


def test_a_drive_that_goes_off_while_others_are_still_being_enabled_is_not_enabled_again() -> None:
    drive = Host(settings()).drive
    handshake = drive.enable(1.0)  # not continued: a stop has begun
    next(handshake)
    assert codec.commanded_mode(drive.alive_frames()[0].data) == codec.IN_POSITION
    drive.accept(state(10))
    assert drive.alive_frames() == ()
    drive.accept(state(0))
    assert codec.commanded_mode(drive.alive_frames()[0].data) is None
    handshake.close()


def test_quick_stop_shorts_the_phases() -> None:
    drive = Host(settings()).drive
    (brake,), (stop,) = drive.quick_stop_frames(0.0), drive.disable_frames()
    assert [codec.commanded_mode(frame.data) for frame in (brake, stop)] == [codec.BRAKE, codec.STOPPED]
    assert drive.torque_bytes(brake) is None and drive.torque_bytes(drive.command(2.0)) == bytes.fromhex("000080bf")


@pytest.mark.parametrize(("node", "extended"), [(7, False), (8, True), (126, True)])
def test_replies_of_ids_above_7_have_29_bits(node: int, extended: bool) -> None:
    drive = build(settings(node), PERIOD)
    drive.accept(state(10, node, extended=extended))
    assert drive.sample is not None and drive.rejected == 0
    down, up = MoteusDrive.traffic(settings(node), PERIOD)
    assert (up.size, up.extended, down.size, down.extended) == (32, True, 20, extended)
    assert up.fd and up.brs and down.fd and down.brs


def test_six_drives_fit_on_one_bus_up_to_554_hz() -> None:
    (of_main,) = load("coordinated_robots_moteus", (), "vm").settings.loads.values()
    assert of_main.highest_rate == pytest.approx(554.0, abs=1.0)


@pytest.mark.parametrize("mode", [codec.STOPPED, codec.BRAKE])
@pytest.mark.parametrize("heard", [None, codec.INT8, codec.FLOAT])
def test_after_a_stop_of_another_master_no_torque_leaves(mode: int, heard: int | None) -> None:
    """A reply shows the stop one command late, and that command enables the drive again: our stop takes it back."""
    host = Host(settings())
    host.order("identify, configure, enable 0")
    drive = host.drive

    def torques(ticks: int) -> int:
        before = len(host.sent)
        for _ in range(ticks):
            host.tick(1.0 if drive.condition is Condition.ENABLED else None)
        return sum(drive.torque_bytes(frame) is not None for frame in host.sent[before:])

    def commanded(data: bytes) -> None:
        host.node.receive(Frame(OTHER, data, True, fd=True, brs=True))

    assert torques(3) == 3
    commanded(codec.mode_command(mode))
    if heard is not None:
        drive.accept(Frame(OTHER, codec.padded(codec.write(codec.MODE, [mode], heard)), True, fd=True))
    assert torques(5) == (1 if heard is None else 0)
    assert host.node.mode == mode and drive.condition is (Condition.DISABLED if mode == 0 else Condition.STOPPING)
    commanded(codec.torque_command(1.0, 0.05))
    assert torques(3) == 0 and drive.condition is Condition.STOPPING  # not ours
    host.order("reset, enable 0")
    assert drive.condition is Condition.ENABLED


def test_a_drive_that_is_out_of_touch_gets_a_stop_and_no_torque_until_it_is_enabled_again() -> None:
    host = Host(settings())
    host.order("identify, configure, enable 0")
    drive = host.drive
    drive.out_of_touch()
    assert drive.condition is Condition.UNKNOWN
    (stop,) = drive.alive_frames()
    assert codec.commanded_mode(stop.data) == codec.STOPPED
    host.order("reset")
    assert drive.condition is Condition.DISABLED
    drive.out_of_touch()
    assert drive.condition is Condition.DISABLED
    assert all(codec.commanded_mode(frame.data) is None for frame in drive.alive_frames())


def test_a_written_mode_is_read_in_every_resolution_and_wherever_it_stands() -> None:
    for data in (
        "01000f",
        "05000f00",
        "09000f000000",
        "0d0000007041",
        "02000f05",
        "01000f1100",
        "5001000f",
        "110001000f",
    ):
        assert codec.commanded_mode(bytes.fromhex(data + "0d00")) == 15  # the last subframe is cut short
    for data in ("", "0100", "11000f", "0d000000c07f", "012000", "05000f", "000000"):
        assert codec.commanded_mode(bytes.fromhex(data)) is None


def host_of(**changes: Any) -> Bench:
    return bench(drive_settings("moteus", node=NODE, **changes))


class Line:
    """What the package takes for a bus: sends to the bench and gives the answers back."""

    def __init__(self, host: Bench) -> None:
        self.host = host
        self.sizes: list[tuple[int, int]] = []

    async def cycle(self, commands: list[Any]) -> list[Any]:
        results = []
        for command in commands:
            node = getattr(command.destination, "can_id", command.destination)
            identity = (0x8000 if command.reply_required else 0) | command.source << 8 | node
            data = command.data.ljust(fd_size(len(command.data)), b"\x50")
            answers = self.host.ask(Frame(identity, data, identity > 0x7FF, fd=True, brs=True), 1.0)
            for answer in answers:
                self.sizes.append((len(data), len(answer.data)))
                message = type("Message", (), {"arbitration_id": answer.id, "data": answer.data, "bus": 1})
                results.append(command.parse(message))
        return results


def client(host: Bench, **options: Any) -> Any:
    return moteus.Controller(NODE, transport=Line(host), **options)


def ask(awaitable: Any) -> Any:
    return asyncio.run(awaitable)


TORQUE = {"position": math.nan, "kp_scale": 0.0, "kd_scale": 0.0, "ilimit_scale": 0.0}


def push(host: Bench, torque: float, watchdog: float = math.nan) -> Any:
    return ask(client(host).set_position(**TORQUE, feedforward_torque=torque, watchdog_timeout=watchdog, query=True))


def moving(mode: int, torque: float = 4.0, watchdog: float = 0.05, **changes: Any) -> Bench:
    """A drive that was pushed to speed by the package, 0.3 s, then left alone, with this `servo.timeout_mode`."""
    host = host_of(options={"timeout_mode": mode}, brake=mode in (0, 12), **changes)
    for _ in range(15):
        push(host, torque, watchdog)
        host.collect(19.0)
    return host


def speed(host: Bench) -> float:
    return abs(float(host.emulator.state[1][0]))


def test_the_package_pushes_by_torque_and_reads_the_motion() -> None:
    host = host_of()
    R = moteus.Register
    before = ask(client(host).query()).values
    assert before[R.MODE] == 0 and before[R.POSITION] == pytest.approx(-0.5 / RADIANS, abs=1e-4)
    push(host, 1.25)
    began = host.now
    host.collect(200.0)
    # gear 2, sign -1, 2 kg: -1.25 m/s^2
    assert float(host.emulator.state[1][0]) == pytest.approx(-1.25 * (host.now - began) / 1e9, rel=0.01)
    values = ask(client(host).query()).values
    assert values[R.MODE] == moteus.Mode.POSITION and values[R.FAULT] == 0
    assert values[R.VELOCITY] == pytest.approx(1.25 * 2 * (host.now - began) / 1e9 / RADIANS, rel=0.01)
    assert values[R.TORQUE] == pytest.approx(1.25, abs=0.01)
    assert values[R.VOLTAGE] == 24.0 and values[R.TEMPERATURE] == 25.0


def test_the_answer_shows_the_state_before_the_command_of_the_same_frame() -> None:
    host = host_of()
    R = moteus.Register
    assert push(host, 0.0).values[R.MODE] == 0
    assert push(host, 0.0).values[R.MODE] == 10
    assert ask(client(host).set_stop(query=True)).values[R.MODE] == 10
    assert ask(client(host).query()).values[R.MODE] == 0


def test_the_package_holds_a_position() -> None:
    host = host_of()
    for _ in range(100):
        ask(client(host).set_position(position=0.2, kp_scale=100.0, kd_scale=600.0, query=True))
        host.collect(9.0)
    values = ask(client(host).query()).values
    assert values[moteus.Register.POSITION] == pytest.approx(0.2, abs=0.005)


@pytest.mark.parametrize("resolution", ["INT8", "INT16", "INT32", "F32"])
def test_any_register_is_answered_in_the_resolution_asked_for(resolution: str) -> None:
    host = host_of()
    push(host, 0.0)
    R, kind = moteus.Register, getattr(moteus, resolution)
    step = {"INT8": 0.01, "INT16": 1e-4, "INT32": 1e-5, "F32": 1e-7}[resolution]
    registers = [r for r in R if isinstance(r.value, int) and r.value < 0x80]
    for register in registers:
        result = ask(client(host).custom_query({register: kind}))
        assert register in result.values, register.name
    result = ask(client(host).custom_query({R.POSITION: kind, R.MODE: kind}))
    assert result.values[R.MODE] == 10
    position = float(host.emulator.state[0][0])
    assert result.values[R.POSITION] == pytest.approx(-2 * (position - 0.25) / RADIANS, abs=1.01 * step)


def test_identity_is_answered_with_32_bits_only_and_unknown_registers_with_an_error() -> None:
    host = host_of()
    R = moteus.Register
    result = ask(client(host).custom_query({R.MODEL_NUMBER: moteus.INT32, R.REGISTER_MAP_VERSION: moteus.INT32}))
    assert result.values[R.REGISTER_MAP_VERSION] == 5 and result.values[R.MODEL_NUMBER] > 0
    for data, error in ((b"\x11\x80\x02", (0x100, 1)), (b"\x11\xab\x01", (0xAB, 1))):
        (answer,) = host.ask(Frame(0x8001, data, True, fd=True, brs=True))
        assert moteus.protocol.parse_registers(answer.data).errors == [error]
        assert len(answer.data) == fd_size(len(answer.data)), "filled to a length that CAN FD has"


def test_the_watchdog_latches_at_exactly_the_time_in_the_command() -> None:
    host = host_of()
    sent = []
    host.emulator.wires["main"].taps.append(lambda frame, sender: sent.append(frame.time) if sender.host else None)
    push(host, 0.0, 0.05)
    drive, fed = host.node, sent[-1]
    host.collect((fed + 50 * MILLISECOND - 1 - host.now) / MILLISECOND)
    assert drive.mode == 10
    host.collect(2e-6)
    assert drive.mode == 11 and host.now - fed <= 50 * MILLISECOND + 2
    push(host, 1.0, 0.05)
    assert drive.mode == 11 and not drive.motor.enabled, "only a stop leaves it"
    ask(client(host).set_stop())
    push(host, 1.0, 0.05)
    assert drive.mode == 10


def test_queries_do_not_feed_the_watchdog() -> None:
    host = host_of()
    push(host, 0.0, 0.05)
    for _ in range(6):
        host.collect(10.0)
        ask(client(host).query())
    assert host.node.mode == 11


@pytest.mark.parametrize(("watchdog", "expires"), [(math.nan, False), (0.0, True)])
def test_a_watchdog_of_nan_never_expires_and_one_of_0_is_the_default(watchdog: float, expires: bool) -> None:
    host = host_of()
    ask(client(host).set_position(**TORQUE, watchdog_timeout=watchdog))
    host.collect(99.0)
    assert host.node.mode == 10
    host.collect(2.0)  # servo.default_timeout_s is 0.1 s
    assert host.node.mode == (11 if expires else 10)


def test_without_commands_the_shaft_coasts_in_mode_12_and_stands_in_mode_15() -> None:
    coasts, brakes = moving(12), moving(15)
    for host in (coasts, brakes):
        host.collect(32.0)
        assert host.node.mode == 11
    before = speed(coasts)
    assert before > 1.0 and speed(brakes) == pytest.approx(before, rel=0.02)
    for host in (coasts, brakes):
        host.collect(1000.0)  # five times the time constant of the shorted phases here
        assert host.node.mode == 11
    assert speed(coasts) == pytest.approx(before, rel=1e-6), "gains of a torque command are 0: nothing brakes it"
    assert speed(brakes) < 0.01 * before


def test_mode_12_brakes_where_the_last_command_had_a_kd_scale() -> None:
    host = host_of(options={"timeout_mode": 12}, brake=True)
    for _ in range(15):
        ask(client(host).set_position(
            **(TORQUE | {"kd_scale": 60.0}), feedforward_torque=4.0, watchdog_timeout=0.05, query=True
        ))  # fmt: skip
        host.collect(19.0)
    host.collect(31.0)
    before = speed(host)
    host.collect(350.0)
    # kd of 0.05 N m s/rev at the shaft is 0.032 N s/m at the joint of gear 2, on 2 kg
    assert speed(host) == pytest.approx(before * math.exp(-60 * 0.032 / 2 * 0.35), rel=0.02)


def test_a_fault_stays_until_a_stop() -> None:
    host = host_of()
    push(host, 1.0)
    drive, R = host.node, moteus.Register
    drive.trip(38)
    push(host, 1.0)
    values = ask(client(host).query()).values
    assert (values[R.MODE], values[R.FAULT]) == (1, 38) and not drive.motor.enabled
    ask(client(host).set_stop())
    values = ask(client(host).query()).values
    assert (values[R.MODE], values[R.FAULT]) == (0, 0)


def test_a_torque_above_that_of_the_command_is_cut_off_and_reported() -> None:
    host = host_of()
    ask(client(host).set_position(**TORQUE, feedforward_torque=3.0, maximum_torque=2.0, watchdog_timeout=math.nan))
    values = ask(client(host).query()).values
    assert (values[moteus.Register.MODE], values[moteus.Register.FAULT]) == (10, 102)
    assert host.node.motor.torque() == pytest.approx(2.0, abs=0.01)


def test_settings_are_read_through_the_tunnel() -> None:
    host = host_of(options={"timeout_mode": 12}, brake=True)
    names = b"servo.timeout_mode", b"servo.default_timeout_s", b"servopos.position_min"

    async def talk() -> list[bytes]:
        stream = moteus.Stream(client(host), use_flow_control=False)
        return [await stream.command(b"conf get " + name, allow_any_response=True) for name in names]

    assert [float(each) for each in ask(talk())] == pytest.approx([12, 0.1, math.nan], nan_ok=True)
    for line in (b"conf get servo.no_such", b"conf set servo.timeout_mode 15"):
        with pytest.raises(moteus.CommandError, match="ERR"):
            ask(moteus.Stream(client(host), use_flow_control=False).command(line))


SENSELESS = ["", "01", "0d000000c07f", "010080", "0d220000807f", "ffff", "40013f00", "10ffffffffff"]


@pytest.mark.parametrize("text", SENSELESS)
def test_a_frame_that_makes_no_sense_changes_nothing(text: str) -> None:
    data, host = bytes.fromhex(text), host_of()
    push(host, 0.5)
    host.ask(Frame(0x8001, data.ljust(fd_size(len(data)), b"\x50"), True, fd=True, brs=True))
    drive = host.node
    assert drive.mode == 10 and drive.motor.torque() == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("asked", ["140001" + "50" * 5, "1480807c00", "1c2001", "42010a42017f", "1480ffffff7f00"])
def test_a_read_of_more_than_a_frame_holds_is_left_out_of_the_answer(asked: str) -> None:
    """32 registers of 16 bits, 128 bytes, or as many as a number can say: no such frame may end the host's loop."""
    host = host_of()
    data = bytes.fromhex("140020" + "00" + asked)
    answers = host.ask(Frame(0x8001, data.ljust(fd_size(len(data)), b"\x50"), True, fd=True, brs=True))
    assert len(answers) <= 1 and all(len(answer.data) <= 64 for answer in answers)
    known = host.ask(Frame(0x8001, bytes.fromhex("1100"), True, fd=True, brs=True))
    assert len(known) == 1
