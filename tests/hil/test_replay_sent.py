"""`servoctl replay` compares the law's torque, the torque that was sent, and the frames."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from hil.assembly.prepare import load
from hil.frame import SENT
from hil.recorder import read_frames
from hil.recorder.files import FrameLog
from hil.rig.logbook import STAGES
from hil.session.replay import replay
from servoctl.run_folder import load_run, save
from servoctl.run_folder.trajectory import Trajectory
from tests.faces import exit_code, on_rig
from tests.hil.faults.carts.scenario import CONFIG, machine
from tests.hil.rigs import renewed


def driven(folder: Path, protocol: str, *faults: dict[str, object]) -> Path:
    prepared = renewed(machine(protocol, "at speed"), faults)
    on_rig(prepared, duration=0.5, out=folder)
    return folder


def changed(folder: Path, **columns: np.ndarray) -> Path:
    """The run once more, with other columns."""
    run, other = load_run(folder), folder.with_name("changed")
    text = (folder / "config.yaml").read_text()
    save(Trajectory(run.columns | columns, run.units, run.metadata), other, text)
    shutil.copy(folder / "can.blf", other)
    return other


@pytest.mark.parametrize("protocol", ["odrive", "cia402", "mit"])
def test_law_torque_and_frames_agree_and_a_changed_value_is_found(tmp_path: Path, protocol: str) -> None:
    folder = driven(tmp_path / "run", protocol)
    found = replay(folder, CONFIG.parent)
    assert found.sent is not None and found.agrees
    assert found.sent.torques > 300 and found.sent.frames > 600
    run = load_run(folder)
    row = int(np.flatnonzero(run["stage"] == STAGES.index("full"))[100])
    u = run["u.a"].copy()
    u[row] += 0.5
    other = replay(changed(folder, **{"u.a": u}), CONFIG.parent)
    assert other.sent is not None and other.differing == 0 and not other.agrees
    assert (other.sent.other_torques, other.sent.other_frames) == (1, 1)
    assert re.match(rf"row {row}, t = [\d.]+ s: a was sent {u[row]:.9g}, ", other.sent.first)


@pytest.mark.parametrize("protocol", ["odrive", "cia402", "mit", "moteus", "robstride"])
def test_a_drive_that_has_left_the_loop_gets_no_torque_by_log_and_frames(tmp_path: Path, protocol: str) -> None:
    folder = driven(tmp_path / "run", protocol, {"kind": "drive_fault", "drive": "a", "at": 0.2, "since": "engaged"})
    found, run = replay(folder, CONFIG.parent), load_run(folder)
    assert found.sent is not None and found.agrees
    late = np.flatnonzero(run["stage"] == STAGES.index("stopping"))[10:]  # an ODrive says late that it is off
    assert len(late) > 5 and np.abs(run["u.b"][late]).max() > 0.0
    assert (run["u.a"][late] == 0.0).all() and (run["sent.a"][late] == 0.0).all()


def test_a_drive_that_reboots_gets_no_torque_by_the_log_while_no_frame_has_one(tmp_path: Path) -> None:
    reboot = {"kind": "reboot", "drive": "a", "at": 0.2, "for": 0.05, "since": "engaged"}
    found = replay(driven(tmp_path / "run", "odrive", reboot), CONFIG.parent)
    assert found.sent is not None and found.agrees


def test_a_frame_with_another_torque_than_the_log_is_found(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder = driven(tmp_path / "run", "odrive")
    frames = list(read_frames(folder))
    run = load_run(folder)
    full = run.t[run["stage"] == STAGES.index("full")]
    place = next(i for i, (_, sent, f, time) in enumerate(frames) if sent and f.id == 0x2E and time > 1e9 * full[50])
    log = FrameLog(folder / "can.blf")
    for i, (bus, sent, frame, time) in enumerate(frames):
        data = bytes(8) if i == place else frame.data
        flags = (SENT if sent else 0) | frame.extended << 1 | frame.remote << 2 | frame.error << 3
        log.add([(time, frame.id, bus, flags, len(data), data.ljust(8, b"\0"))])
    log.stop()
    assert exit_code("replay", folder, "--classes", CONFIG.parent) == 4
    said = capsys.readouterr().out
    assert said.startswith("imports "), "it is said before anything is imported"
    assert "torque frames in can.blf, compared with the torques sent: 1 differ" in said
    assert "first difference: row " in said and "holds another torque" in said


def test_a_torque_that_a_limit_changed_is_explained_by_it(tmp_path: Path) -> None:
    """A rate limit that the law's torque breaks all the time, and a torque limit below what it asks for."""
    slow = load("two_mass_spring_drive", ["hil.drives.0.torque_rate_limit=4", "hil.safety.tracking=1000"], "vm")
    on_rig(slow, duration=0.5, out=tmp_path / "run")
    run = load_run(tmp_path / "run")
    assert np.sum(run["u.F"] != run["law.F"]) > 50
    found = replay(tmp_path / "run")
    assert found.sent is not None and found.sent.torques > 100
    assert found.agrees, found.sent.first


def test_the_first_torque_of_the_task_follows_one_in_steps_of_the_wire(tmp_path: Path) -> None:
    """The limit of its rate counts from the torque before that was rounded."""
    folder = driven(tmp_path / "run", "mit")
    run, drive = load_run(folder), machine("mit", "at speed").drives[0]
    first = int(np.flatnonzero(run["stage"] == STAGES.index("full"))[0])
    u, law, most = run["u.a"].copy(), run["law.a"].copy(), drive.settings.torque_rate_limit * run["elapsed"][first]
    law[first], step = u[first - 1] + 10 * most, drive.quantum()[2]
    for steps, wrong in ((1.5, False), (3.0, True)):
        u[first] = u[first - 1] + most + steps * step
        found = replay(changed(folder, **{"u.a": u, "law.a": law}), CONFIG.parent)
        assert found.sent is not None and (found.sent.other_torques > 0) == wrong


def test_frames_that_the_log_lost_are_counted_and_said(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder = driven(tmp_path / "run", "odrive")
    file, recorded = folder / "can.blf", load_run(folder).metadata["recorder"]["frames"]
    whole = replay(folder, CONFIG.parent)
    assert whole.missing == 0
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    left = sum(1 for _ in read_frames(folder))
    assert 0 < left < recorded
    assert exit_code("replay", folder, "--classes", CONFIG.parent) == 0
    cut = replay(folder, CONFIG.parent)
    assert cut.agrees and 0 < cut.samples < whole.samples
    assert f"can.blf lacks {recorded - left} of the run's frames: it was cut or deleted" in capsys.readouterr().out
    file.unlink()
    assert replay(folder, CONFIG.parent).missing == recorded
