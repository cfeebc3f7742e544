"""Registers of a moteus against the examples of its documentation and the maker's own package."""

import io
import math
import random
import struct

import pytest
from emulation import bare_drive

from hil.codecs import moteus as codec
from hil.drives.table import TableDrive

pytest.importorskip("moteus", reason="the package moteus reads and writes the same frames")
from moteus import multiplex, protocol

NAN = math.nan


def driver(limit: float = 2.0, watchdog: float = 0.05) -> TableDrive:
    return bare_drive("moteus", torque_limit=limit, watchdog=watchdog)


def torque_command(torque: float, limit: float, watchdog: float) -> bytes:
    return driver(limit, watchdog).encoding.frame_of(torque).data


def test_the_command_of_the_example_in_the_makers_documentation() -> None:
    command = codec.write(codec.MODE, [codec.IN_POSITION], codec.INT8)
    command += codec.write(codec.COMMAND_POSITION, [0.0096, 0.072, -1.76], codec.INT16)
    command += codec.read(codec.MODE, 4, codec.INT16) + codec.read(codec.VOLTAGE, 3, codec.INT8)
    assert command.hex() == "01000a07206000200150ff140400130d"


def test_golden_ids() -> None:
    assert (codec.identifier(1), codec.identifier(1, reply=False)) == (0x8001, 0x001)
    assert (codec.reply_identifier(1), codec.reply_identifier(8)) == (0x100, 0x800)
    assert codec.identifier(5, source=2) == 0x8205


def test_the_answer_of_the_example_in_the_makers_documentation() -> None:
    read = codec.answered(bytes.fromhex("2404000a005000000170ff230d181400"))
    expected = {0: 10, 1: 0.008, 2: 0.064, 3: -1.44, 13: 12.0, 14: 20.0, 15: 0}
    assert read == pytest.approx(expected)


def test_a_torque_command_has_32_bytes_and_its_answer_20() -> None:
    for torque in (-327.67, -1e-30, 0.0, 5.0, 327.67):
        assert len(torque_command(torque, 327.67, 1.27)) == 32
    asked = protocol.parse_registers(codec.query()).query
    sizes = [multiplex.resolution_size(resolution) for _, resolution in asked]
    assert 6 + sum(sizes) == 20  # three subframes of two bytes before their values


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
        read, parsed = codec.answered(data), protocol.parse_registers(data).response
        assert read is not None
        known = {number: value for number, value in parsed.items() if number in REGISTERS}
        assert {number: read[number] for number in known} == pytest.approx(known, nan_ok=True)
        assert read.keys() == parsed.keys()


def test_a_register_that_the_drive_does_not_know_is_named() -> None:
    read = codec.answered(bytes.fromhex("31ab0101" + "210c02" + "5050"))
    assert read == pytest.approx({0xAB: math.nan, 0x0C: 2}, nan_ok=True)
    assert protocol.parse_registers(bytes.fromhex("31ab0101")).errors == [(0xAB, 1)]


@pytest.mark.parametrize(("most", "watchdog"), [(400.0, 0.05), (1.0, 0.0), (1.0, 0.004), (1.0, 1.28), (math.inf, 0.05)])
def test_a_limit_or_a_watchdog_that_does_not_fit_is_refused(most: float, watchdog: float) -> None:
    with pytest.raises((ValueError, OverflowError)):
        codec.torque_command(most, watchdog)


def test_text_of_the_console_is_cut_out_of_its_frame() -> None:
    assert codec.console_text(bytes.fromhex("410103") + b"12\n" + 6 * b"\x50") == "12\n"
    assert codec.console_text(bytes.fromhex("410100")) == ""
    for wrong in ("", "41", "410104616263", "410201", "21000a"):
        assert codec.console_text(bytes.fromhex(wrong)) is None
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
