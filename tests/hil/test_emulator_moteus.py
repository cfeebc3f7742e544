"""The emulated moteus, driven by the maker's own package, and its behaviour against the maker's documentation."""

import asyncio
import math
from typing import Any

import pytest
from emulation import MILLISECOND, Bench, bench, drive_settings

from hil.emulator.moteus import Moteus
from hil.frame import Frame, fd_size

pytest.importorskip("moteus", reason="the package moteus drives the emulated one")
import moteus

NODE = 1
RADIANS = 2 * math.pi


def host_of(**changes: Any) -> Bench:
    return bench(drive_settings("moteus", node=NODE, **changes))


def drive_of(host: Bench) -> Moteus:
    node = host.emulator.nodes["a"]
    assert isinstance(node, Moteus)
    return node


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
    drive, fed = drive_of(host), sent[-1]
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
    assert drive_of(host).mode == 11


@pytest.mark.parametrize(("watchdog", "expires"), [(math.nan, False), (0.0, True)])
def test_a_watchdog_of_nan_never_expires_and_one_of_0_is_the_default(watchdog: float, expires: bool) -> None:
    host = host_of()
    ask(client(host).set_position(**TORQUE, watchdog_timeout=watchdog))
    host.collect(99.0)
    assert drive_of(host).mode == 10
    host.collect(2.0)  # servo.default_timeout_s is 0.1 s
    assert drive_of(host).mode == (11 if expires else 10)


def test_without_commands_the_shaft_coasts_in_mode_12_and_stands_in_mode_15() -> None:
    coasts, brakes = moving(12), moving(15)
    for host in (coasts, brakes):
        host.collect(32.0)
        assert drive_of(host).mode == 11
    before = speed(coasts)
    assert before > 1.0 and speed(brakes) == pytest.approx(before, rel=0.02)
    for host in (coasts, brakes):
        host.collect(1000.0)  # five times the time constant of the shorted phases here
        assert drive_of(host).mode == 11
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
    drive, R = drive_of(host), moteus.Register
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
    assert drive_of(host).motor.torque() == pytest.approx(2.0, abs=0.01)


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
    drive = drive_of(host)
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
