"""Rigs that are wrong, through the command line: field, value and remedy are named, and no drive is told anything."""

import errno
from collections.abc import Iterator
from pathlib import Path

import can
import pytest

from hil.assembly.prepare import load
from hil.bus.open import REQUEST
from servoctl.config import shipped_configs
from tests.faces import exit_code

BELT, SCARA, ROBOTS = "two_mass_spring_drive", "scara_drive", "coordinated_robots"
DRIVE = "actuator: F, bus: main, protocol: odrive, node: 1, gear: 50"
BUS = "interface: emulated, bitrate: 1000000"
NO_LAG = ("  period: 0.001\n", "  period: 0.001\n  emulation: {current_lag: 0}\n")

# config, (what it says, what it shall say)..., what must be said
WRONG: dict[str, tuple[str, list[tuple[str, str]], str]] = {
    "an unknown protocol": (
        BELT,
        [("protocol: odrive, node: 1", "protocol: odriv, node: 1")],
        "hil.drives[0].protocol: no protocol 'odriv' (did you mean 'odrive'?)",
    ),
    "two nodes of one id": (
        BELT,
        [("node: 2", "node: 1")],
        "hil.sensors[0].node: node 1 of bus 'main' is already F (give each node its own id)",
    ),
    "an actuator without a drive": (
        ROBOTS,
        [("{actuator: u6", "{actuator: u5")],
        "hil.drives: no drive for u6 (every actuator needs one)",
    ),
    "a drive without an actuator": (
        BELT,
        [("actuator: F", "actuator: G")],
        "hil.drives[0].actuator: there is no actuator 'G' (known: F)",
    ),
    "a bus that is not there": (
        BELT,
        [("actuator: F, bus: main", "actuator: F, bus: mian")],
        "hil.drives[0].bus: there is no bus 'mian' (did you mean 'main'?)",
    ),
    "more than the bus carries": (
        ROBOTS,
        [("period: 0.0025", "period: 0.001")],
        # PDOs and SYNC alone: 55 + 6 (95 + 135 + 115 / 10) bits in 1 ms are 150.4 %; heartbeats are the rest
        "hil.period: bus 'main': 153.2% of 1000000 bit/s at worst, at 1000 Hz, where max_bus_load allows 70.0%: "
        "at most 446 Hz fit (hil.period of 0.00225 s or more, or spread the drives over more buses)",
    ),
    "feedback slower than the loop": (
        BELT,
        [("period: 0.001", "period: 0.0005")],
        "hil.drives[0].feedback_period: 0.001 s is longer than the loop's period of 0.0005 s",
    ),
    "missing ranges": (
        SCARA,
        [("motor: ak80-9_v2, node: 1,", "node: 1,")],
        "hil.drives[0].motor: is missing, and so is `ranges` (give either motor, or ranges {position: ...",
    ),
    "ranges that are incomplete": (
        SCARA,
        [("motor: ak80-9_v2, node: 1,", "ranges: {position: 12.5, velocity: 45, torque: -18, kp: 500}, node: 1,")],
        "hil.drives[0].ranges: torque: expected a number above 0, got -18; kd is missing (expected ranges {position: ",
    ),
    "a fault of no kind": (
        BELT,
        [("  safety:", "  faults: [{kind: [stall], at: 1}]\n  safety:")],
        "hil.faults[0].kind: no such fault: ['stall'] (",
    ),
    "an unknown motor": (
        SCARA,
        [("motor: ak80-9_v2, node: 1,", "motor: ak80-9_v3, node: 1,")],
        "hil.drives[0].motor: expected a motor of the table, got 'ak80-9_v3' (did you mean 'ak80-9_v",
    ),
    "an unknown option of a drive": (
        BELT,
        [("encoder_bits: 14, vel_limit: 20}\n  sensors", "encoder_bit: 14, vel_limit: 20}\n  sensors")],
        "hil.drives[0].encoder_bit: no such option (did you mean 'encoder_bits'?)",
    ),
    "an unknown option of an encoder": (
        BELT,
        [("speed_limit: 0.5, encoder_bits: 14", "speed_limit: 0.5, encodr_bits: 14")],
        "hil.sensors[0].encodr_bits: no such option (did you mean 'encoder_bits'?)",
    ),
    "an unknown option of the rig": (
        BELT,
        [("drive_watchdog: 50*ms", "drive_watchdg: 50*ms")],
        "hil.safety.drive_watchdg: unknown key (did you mean 'drive_watchdog'?)",
    ),
    "an encoder node of a protocol without": (
        BELT,
        [("x2, bus: main, protocol: odrive", "x2, bus: main, protocol: mit")],
        "hil.sensors[0].protocol: mit has no encoder nodes: it measures only in reply to commands (use: cia402, ",
    ),
    "a gear of 0": (
        BELT,
        [("gear: 50, torque", "gear: 0, torque")],
        "hil.drives[0].gear: expected a number other than 0, got 0 (the sign of a joint goes under 'sign')",
    ),
    "a sign that is a flag": (
        BELT,
        [("gear: 50, torque", "gear: 50, sign: true, torque")],
        "hil.drives[0].sign: expected 1 or -1, got true",
    ),
    "a gear that nobody has": (
        BELT,
        [("gear: 50, torque", "gear: 1e-300, torque")],
        "hil.drives[0].gear: at the limits the motor turns to 3e-301 rad and makes 1e+301 N m (check gear, offset, ",
    ),
    "an offset that nobody has": (
        BELT,
        [("gear: 50, torque", "gear: 50, offset: 1e300, torque")],
        "hil.drives[0].gear: at the limits the motor turns to 5e+301 rad and makes 0.2 N m (check gear, offset, ",
    ),
    "an emulated machine with a parameter that there is not": (
        BELT,
        [("  safety:", "  emulation: {parameters: {m3: 1}}\n  safety:")],
        "hil.emulation.parameters.m3: TwoMassSpring has no such parameter (known: m1, m2, k, l)",
    ),
    "a limit that is missing": (
        BELT,
        [("torque_limit: 10, ", "")],
        "hil.drives[0].torque_limit: missing (largest |u| [actuator unit])",
    ),
    "a law that asks for more than its drive may": (
        BELT,
        [("law:\n", "law:\n  limits: {F: 30}\n")],
        "law.limits.F: 30 is above torque_limit 10 of its drive (lower it)",
    ),
    "a watchdog shorter than three periods": (
        BELT,
        [("drive_watchdog: 50*ms", "drive_watchdog: 2*ms")],
        "hil.safety.drive_watchdog: 0.002 s is less than 3 periods of 0.001 s (set at least 0.003)",
    ),
    "gains that the period does not bear": (
        BELT,
        [("alpha: 8, beta: 8", "alpha: 500, beta: 500"), NO_LAG],
        # a double pole at -a, one cycle late, decays for a h < 0.42616
        "hil.period: task.distance: unstable at a period of 0.001 s (delay 1 cycle): these gains are stable up to a "
        "period of 0.852 ms (shorten it, or lower the gains)",
    ),
    "a machine that falls": (
        SCARA,
        [(", brake: true", "")],
        "hil.drives: without torque the machine falls from its start pose (q4: 9.81 m/s^2); without a brake: "
        "tau1, tau2, tau3, F4 (set brake: true where the motor has one)",
    ),
    "a brake on another axis than the one that falls": (
        SCARA,
        [(", brake: true", ""), ("gear: 1, sign", "gear: 1, brake: true, sign")],
        "with its brakes closed q4 still falls; without a brake: tau1, tau2, F4 (set brake: true ",
    ),
    "a start pose beyond a limit": (
        BELT,
        [("position_limits: [-0.3, 0.3]", "position_limits: [0.1, 0.3]")],
        "hil.drives[0].position_limits: F is at 0 m in the start pose, outside 0.1 to 0.3 m (correct the pose or the "
        "limits; 'offset' is the motor's zero)",
    ),
    "a coordinate that nothing measures": (
        BELT,
        [("  sensors:", "  # sensors:"), ("    - {coordinate", "    # - {coordinate")],
        "hil.drives: TwoMassSpring: 1 of 2 degrees of freedom are measured; not measured: x2 (add an encoder node "
        "under hil.sensors ",
    ),
    "an unknown fault": (
        BELT,
        [("  safety:", "  faults: [{kind: drive_fualt, at: 1, drive: F}]\n  safety:")],
        "hil.faults[0].kind: no such fault: 'drive_fualt' (did you mean 'drive_fault'?)",
    ),
    "no law": (
        BELT,
        [("law:\n  correction: {baumgarte: {alpha: 8, beta: 8}}", "law: none")],
        "law: none: a run on drives needs a law (an open loop is for simulation)",
    ),
    "real drives that are not armed": (
        BELT,
        [(BUS, "interface: virtual, channel: not_armed, bitrate: 1000000")],
        "--stage full: main counts as real: drives would make torque (add --armed when nobody is in reach and the "
        "emergency stop is at hand)",
    ),
    "faults for real drives": (
        BELT,
        [
            (BUS, "interface: virtual, channel: not_armed, bitrate: 1000000"),
            ("  safety:", "  faults: [{kind: drive_fault, at: 1, drive: F}]\n  safety:"),
        ],
        "hil.faults: scripted faults are for emulated drives, and main is real (remove them)",
    ),
}


@pytest.fixture
def wire() -> Iterator[can.BusABC]:
    """What anyone says on the bus of the configs that name a virtual one."""
    with can.Bus("not_armed", interface="virtual") as bus:
        yield bus


def changed(folder: Path, config: str, changes: list[tuple[str, str]]) -> Path:
    text = shipped_configs()[config].read_text()
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    path = folder / "rig.yaml"
    path.write_text(text)
    return path


def nothing_was_told(wire: can.BusABC, folder: Path) -> bool:
    """Whether no run began, and nothing but the question for an emulator was heard."""
    heard = []
    while (frame := wire.recv(0.0)) is not None:
        heard.append(frame.arbitration_id)
    return not (folder / "run").exists() and set(heard) <= {REQUEST}


@pytest.mark.parametrize("case", WRONG)
def test_every_error_of_a_rig_comes_with_its_remedy(
    case: str, tmp_path: Path, wire: can.BusABC, capsys: pytest.CaptureFixture[str]
) -> None:
    config, changes, said = WRONG[case]
    path = changed(tmp_path, config, changes)
    assert exit_code("hil", path, "--stage", "full", "--out", tmp_path / "run") == 2
    out, err = capsys.readouterr()
    assert said in err
    assert "Traceback" not in err
    assert out == ""
    if not said.startswith(("--stage", "hil.faults: scripted")):
        assert all(line.startswith(str(path)) for line in err.splitlines())
    assert nothing_was_told(wire, tmp_path)


@pytest.mark.parametrize("duration", ["nan", "inf", "0", "-1"])
def test_a_duration_is_a_positive_time(duration: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("hil", BELT, "--duration", duration, "--out", tmp_path / "run") == 2
    assert capsys.readouterr().err == f"--duration: expected a positive time [s], got {float(duration):g}\n"
    assert not (tmp_path / "run").exists()


def test_an_emulated_machine_that_cannot_be_is_told_from_the_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = "hil.emulation.parameters={m2: -1}"
    assert exit_code("hil", BELT, "--engine", "vm", "--set", wrong, "--out", tmp_path / "run") == 2
    err = capsys.readouterr().err
    assert err.startswith("hil.emulation.parameters: ") and "mass_matrix: not positive definite" in err
    assert not (tmp_path / "run").exists()


def test_gains_above_half_of_the_stable_limit_give_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = changed(tmp_path, BELT, [("alpha: 8, beta: 8", "alpha: 300, beta: 300"), NO_LAG])
    (warning,) = [note for note in load(path, engine="vm").notes if "hil.period" in note]
    assert warning.endswith(
        "task.distance: the period of 0.001 s (delay 1 cycle) is more than half of the longest stable period, 1.42 ms"
    )
    assert not [note for note in load(BELT, engine="vm").notes if "hil.period" in note]


@pytest.mark.parametrize(
    ("config", "bus", "said"),
    [
        (BELT, "interface: socketcan, channel: can0", "note: F: the control mode cannot be read back over CANSimple"),
        (
            SCARA,
            "interface: socketcan, channel: can0",
            "note: tau1, tau2, tau3, F4: the ranges of its frames cannot be read back",
        ),
        (BELT, "interface: emulated", ""),
        (BELT, "interface: virtual, channel: main", ""),
        (ROBOTS, "interface: socketcan, channel: can0", ""),
    ],
)
def test_the_values_that_real_drives_cannot_report_are_listed_once(
    config: str, bus: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code("check", changed(tmp_path, config, [("interface: emulated", bus)])) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines() if "cannot be read back" in line]
    assert [line[: len(said)] for line in lines] == ([said] if said else [])


def test_a_config_without_drives_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("hil", "two_mass_spring", "--out", tmp_path / "run") == 2
    assert "hil: missing (it names buses and drives; see configs/coordinated_robots.yaml)" in capsys.readouterr().err


def test_all_problems_of_a_rig_are_reported_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = changed(
        tmp_path,
        BELT,
        [
            (f"{DRIVE}, torque_limit: 10", f"{DRIVE.replace('odrive', 'odriv')}, torque_limit: 10"),
            ("coordinate: x2", "coordinate: x3"),
            ("drive_watchdog: 50*ms", "drive_watchdog: 2*ms"),
            ("  safety:", "  faults: [{kind: lots, at: 1}]\n  safety:"),
            ("law:\n", "law:\n  limits: {F: 30}\n"),
        ],
    )
    assert exit_code("hil", path, "--out", tmp_path / "run") == 2
    lines = capsys.readouterr().err.splitlines()
    for field in ("hil.drives[0].protocol", "hil.sensors[0].coordinate", "hil.safety.drive_watchdog"):
        assert sum(f" {field}: " in line for line in lines) == 1
    assert sum(" hil.faults[0].kind: " in line for line in lines) == 1
    assert sum(" law.limits.F: " in line for line in lines) == 1
    assert len(lines) == 5
    assert exit_code("check", path) == 2


@pytest.mark.parametrize(
    ("bus", "said"),
    [
        ("interface: socketcn, channel: can0, bitrate: 1000000", "unknown: 'socketcn' (did you mean 'socketcan'?"),
        (
            "interface: virtual, bitrate: 1000000",
            "bus main: channel: missing (expected the name of the virtual channel",
        ),
        (
            "interface: udp_multicast, channel: 10.0.0.1, bitrate: 1000000",
            "bus main: channel: '10.0.0.1' is not a multicast address (such as 239.74.163.2)",
        ),
        ("interface: socketcan, channel: can77, bitrate: 1000000", "bus main: "),
    ],
)
def test_a_bus_that_cannot_be_opened(bus: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = changed(tmp_path, BELT, [(BUS, bus)])
    assert exit_code("hil", path, "--out", tmp_path / "run") == 3
    err = capsys.readouterr().err
    assert said in err
    assert "Traceback" not in err
    if "socketcan," in bus:
        assert "sudo " in err  # what to type
    assert not (tmp_path / "run").exists()


def test_a_bus_without_permission_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(can, "Bus", refused)
    path = changed(tmp_path, BELT, [(BUS, "interface: slcan, channel: /dev/ttyACM0, bitrate: 1000000")])
    assert exit_code("hil", path, "--out", tmp_path / "run") == 3
    said = "bus main: no permission to open slcan '/dev/ttyACM0' (a serial adapter: join the group dialout)"
    assert said in capsys.readouterr().err


def test_encoders_that_contradict_the_start_pose_stop_the_run_before_any_torque(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fault = "  faults: [{kind: encoder_jump, at: 0, since: power_on, drive: x2, delta: 0.1}]\n  safety:"
    path = changed(tmp_path, BELT, [("  safety:", fault)])
    assert exit_code("hil", path, "--duration", 0.1, "--out", tmp_path / "run") == 3
    err = capsys.readouterr().err
    assert "sensor x2: expected 0.5 m at the start pose, measured 0.6" in err
    assert "start_tolerance 0.005 m" in err
    assert "enabling" not in err
    assert "DID NOT CONFIRM" not in err
