"""Rigs that are wrong, through the command line: field, value and remedy are named, and no drive is told anything."""

import errno
from collections.abc import Iterator
from pathlib import Path

import can
import pytest

from hil.assembly.prepare import load
from hil.bus.open import EmulatorMessage, emulator_frame
from servoctl.config import shipped_configs
from servoctl.errors import ConfigError
from tests.faces import exit_code

BELT, SCARA, ROBOTS = "two_mass_spring_drive", "scara_drive", "coordinated_robots"
BUS = "interface: emulated, bitrate: 1000000"

CASES = dict(
    line.replace("\\n", "\n").split("  :  ", 1)
    for line in (Path(__file__).parents[1] / "refusals" / "rigs.txt").read_text(encoding="utf-8").splitlines()
)
"""Case -> `config  :  old text  ->  new text  =>  what must be said`; several changes follow each other."""


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
    question = emulator_frame(EmulatorMessage.ARE_YOU_FREE)
    heard = set()
    while (frame := wire.recv(0.0)) is not None:
        heard.add((frame.arbitration_id, bytes(frame.data)))
    return not (folder / "run").exists() and heard <= {(question.id, question.data)}


@pytest.mark.parametrize("case", CASES)
def test_every_error_of_a_rig_comes_with_its_remedy(
    case: str, tmp_path: Path, wire: can.BusABC, capsys: pytest.CaptureFixture[str]
) -> None:
    config, _, rest = CASES[case].partition("  :  ")
    words, _, said = rest.partition("  =>  ")
    texts = words.split("  ->  ")
    path = changed(tmp_path, config, list(zip(texts[::2], texts[1::2], strict=True)))
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
    assert "x2: the encoders contradict the start pose (expected 0.5 m at the start pose, measured 0.6" in err
    assert "start_tolerance 0.005 m" in err
    assert "enabling" not in err
    assert "DID NOT CONFIRM" not in err


@pytest.mark.parametrize(
    ("config", "change", "path"),
    [
        (BELT, "hil.drives.F.position_limits=[1, 2]", "hil.drives[0].position_limits"),
        (BELT, "law.correction.baumgarte={alpha: 900, beta: 900}", "hil.period"),
        (SCARA, "hil.drives.F4.brake=false", "hil.drives"),
    ],
)
def test_what_a_rig_is_refused_for_at_its_start_has_its_path_and_place(config: str, change: str, path: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(config, [change], "vm")
    for finding in refused.value.findings:
        assert (finding.path, finding.severity) == (path, "error") and finding.place
        assert str(finding).startswith(f"{finding.place}: {path}: ")
