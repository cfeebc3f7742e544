"""`servoctl replay`: a run's law once more on the states that were logged; the torque that was sent, and the frames."""

import dataclasses
import math
import re
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import hil.session.replay
import servoctl
from hil.assembly.prepare import load
from hil.frame import SENT, Frame
from hil.recorder import Recorder, read_frames
from hil.recorder.files import FrameLog
from hil.rig.logbook import STAGES
from hil.session.replay import OTHER_ENGINE, decoded, replay
from servoctl.config import dump
from servoctl.errors import ColumnError, ConfigError, RunFolderError
from servoctl.run_folder import load_run, save
from servoctl.run_folder.trajectory import Trajectory
from tests.config_texts import plant_text
from tests.faces import exit_code, on_rig
from tests.hil.emulation import bare_drive
from tests.hil.faults.carts.scenario import CONFIG as CARTS
from tests.hil.faults.carts.scenario import machine
from tests.hil.rigs import renewed

SAMPLED = ["run.duration=0.1", "run.period=0.005", "run.integrator.step=0.001", "run.output_step=0.005"]


def simulated(
    folder: Path, config: str = "two_mass_spring", engine: str = "vm", settings: Sequence[str] = SAMPLED
) -> Path:
    servoctl.load(config, settings, engine=engine).simulate(out=folder)
    return folder


def changed(folder: Path, columns: dict[str, np.ndarray] | None = None, **metadata) -> Path:
    """The run once more, with other columns or other metadata."""
    run = load_run(folder)
    config = (folder / "config.yaml").read_text()
    return save(Trajectory(run.columns | (columns or {}), run.units, run.metadata | metadata), folder, config)


@pytest.mark.parametrize("engine", ["vm", "c", "numpy"])
@pytest.mark.parametrize("settings", [SAMPLED, ["run.duration=0.1"]], ids=["sampled", "continuous"])
def test_a_simulated_run_comes_out_the_same_to_the_bit(tmp_path: Path, engine: str, settings: list[str]) -> None:
    folder = simulated(tmp_path / "run", engine=engine, settings=settings)
    found = replay(folder)
    assert found.engine == found.logged_engine == load_run(folder).metadata["engine"]
    assert (found.differing, found.first, found.tolerance) == (0, None, 0.0)
    assert (found.rows, found.skipped) == (len(load_run(folder)), 0)
    assert (found.largest, found.units) == ({"F": 0.0}, {"F": "N"})


def test_one_unit_in_the_last_place_is_found(tmp_path: Path) -> None:
    folder = simulated(tmp_path / "run")
    u = load_run(folder)["u.F"].copy()
    true, u[7] = u[7], np.nextafter(u[7], np.inf)
    u[9] = np.nan
    found = replay(changed(folder, {"u.F": u}))
    assert found.differing == 2
    assert found.first == hil.session.replay.Difference(7, 0.035, "F", u[7], true)
    assert np.isnan(found.largest["F"])
    u[9] = 0.0
    found = replay(changed(folder, {"u.F": u}))
    assert found.largest["F"] == abs(load_run(simulated(tmp_path / "other"))["u.F"][9])
    assert replay(folder, tolerance=2.0).differing == 0


def test_on_another_engine_a_tolerance_applies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = changed(simulated(tmp_path / "run"), engine="c")
    monkeypatch.setattr(hil.session.replay, "take_engine", lambda *_: None)  # as where no compiler is found
    u = load_run(folder)["u.F"]
    almost = u + 0.5 * OTHER_ENGINE * np.abs(u).max()
    found = replay(changed(folder, {"u.F": almost}))
    assert (found.engine, found.logged_engine) == ("vm", "c")
    assert (found.differing, found.tolerance) == (0, OTHER_ENGINE)
    assert 0.0 < found.largest["F"] < OTHER_ENGINE * np.abs(u).max()
    assert replay(changed(folder, {"u.F": u + 2 * OTHER_ENGINE * np.abs(u).max()})).differing == len(u)


def test_a_run_that_changed_its_engine_differs_by_rounding_and_agrees(tmp_path: Path) -> None:
    """Its rows before the compiler was done are those of the virtual machine."""
    folder = simulated(tmp_path / "run")
    u = load_run(folder)["u.F"]
    folder = changed(folder, {"u.F": np.nextafter(u, np.inf)}, engine_switch={"t": 0.05, "to": "vm", "note": ""})
    found = replay(folder)
    assert (found.agrees, found.tolerance, found.logged_engine) == (True, OTHER_ENGINE, "vm, then vm")


@pytest.mark.parametrize("engine", ["vm", "c"])
def test_a_run_on_drives_is_replayed_at_its_task_time_with_the_output_of_the_law(tmp_path: Path, engine: str) -> None:
    run = servoctl.load("two_mass_spring", SAMPLED, engine=engine)
    simulation = run.simulate()
    names = ["t", "task_time", *(f"{kind}.{c}" for kind in "qv" for c in simulation.coordinates), "u.F", "law.F"]
    made = Recorder(tmp_path / "run", dict.fromkeys(names, ""), {"engine": engine}, dump(run.loaded.config), True)
    for k in range(5):  # bring-up: task time stands still, the law is not asked
        made.row(np.array([k * 0.005, 0.0, *np.ones(4), 3.0, np.nan]))
    for k in range(len(simulation) - 1):
        law = simulation.u[k, 0]
        clamped = np.clip(law, -0.1, 0.1)
        made.row(np.array([1.0 + k, simulation.t[k], *simulation.q[k], *simulation.v[k], clamped, law]))
    made.close({"status": "done"})
    found = replay(tmp_path / "run")
    assert (found.rows, found.skipped, found.differing) == (20, 5, 0)
    assert found.engine == found.logged_engine == engine


CART = plant_text("Cart", "m: float = 2.0", {"x": "m"}, {"F": "N"}, "np.array([[self.m]])")

CONFIG = """
plant: {class: "cart.py:Cart"}
initial: {q: 0, v: 0}
task: [{name: follow, holonomic: "x - t**3"}]
law: {kind: constraint_following, correction: {baumgarte: {alpha: 10, beta: 10}}}
run: {duration: 0.1, period: 0.01, integrator: {method: rk4, step: 0.01}}
"""


@pytest.fixture
def cart(tmp_path: Path) -> Path:
    """A run folder whose config names a class in a file, in `tmp_path`."""
    (tmp_path / "cart.py").write_text(CART)
    (tmp_path / "cart.yaml").write_text(CONFIG)
    return simulated(tmp_path / "run", str(tmp_path / "cart.yaml"), settings=())


def test_classes_in_files_are_found_in_the_given_folder(
    cart: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert replay(cart, tmp_path).differing == 0
    monkeypatch.chdir(tmp_path)
    assert replay(cart).differing == 0
    with pytest.raises(ConfigError, match=r"cart\.py"):
        replay(cart, cart)


def test_the_input_at_another_state_differs_as_the_law_predicts(cart: Path, tmp_path: Path) -> None:
    v = load_run(cart)["v.x"] + 1.0
    found = replay(changed(cart, {"v.x": v}), tmp_path)
    assert found.differing == found.rows == 11
    assert found.largest["F"] == pytest.approx(2.0 * 2 * 10.0 * 1.0, rel=1e-12)  # m 2 alpha dphi


def test_the_config_of_a_run_folder_runs_from_anywhere(
    cart: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    again = servoctl.load(cart / "config.yaml", engine="vm").simulate()
    assert np.array_equal(again["u.F"], load_run(cart)["u.F"])
    assert replay(cart).differing == 0


def test_the_command_ends_with_0_if_equal_and_4_if_different(
    cart: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["replay", str(cart), "--classes", str(tmp_path)]
    assert exit_code(*words) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"imports {tmp_path / 'cart.py'}:Cart",
        "11 rows compared; engine vm; all rows are equal, to the bit",
        "",
        "input  unit  largest difference",
        "F      N                      0",
    ]
    changed(cart, {"u.F": load_run(cart)["u.F"] + np.eye(11)[3]})
    assert exit_code(*words) == 4
    said = capsys.readouterr().out.splitlines()
    assert said[1] == "11 rows compared; engine vm; 1 row differs, to the bit"
    assert said[4] == "F      N                      1"
    assert said[-1].startswith("first difference in row 3, t = 0.03 s: F was ")
    assert exit_code(*words, "--json") == 4
    assert '"differing": 1' in capsys.readouterr().out


def test_a_run_that_cannot_be_replayed_gives_the_reason(tmp_path: Path, cart: Path) -> None:
    save(Trajectory({"t": np.zeros(1)}), tmp_path / "bare")
    with pytest.raises(RunFolderError, match=r"bare/config.yaml: is missing or empty"):
        replay(tmp_path / "bare")
    save(Trajectory({"t": np.zeros(0)}), tmp_path / "none")
    with pytest.raises(RunFolderError, match="contains no rows"):
        replay(tmp_path / "none")
    with pytest.raises(ConfigError, match="law: the run has no law"):
        replay(simulated(tmp_path / "open", "projectile", settings=["run.duration=0.01"]))
    run = load_run(cart)
    law = {"law.F": np.full(11, np.nan)}
    with pytest.raises(RunFolderError, match="no row has a u of the law"):
        replay(changed(cart, law), tmp_path)
    less = {name: x for name, x in run.columns.items() if name != "v.x"}
    save(dataclasses.replace(run, columns=less), cart, CONFIG)
    with pytest.raises(ColumnError, match=r"v\.x: no such name"):
        replay(cart, tmp_path)


def test_can_blf_decodes_to_the_samples_of_the_run(tmp_path: Path) -> None:
    first, second = (bare_drive("odrive", bus=bus) for bus in ("main", "other"))
    made = Recorder(tmp_path / "run", {"t": "s"}, {}, lossless=True)
    for bus, sent, node, turns, time in (
        (0, False, 1, 5.0, 10), (1, False, 1, 6.0, 20), (0, True, 1, 7.0, 30), (0, False, 2, 8.0, 40),
        (0, False, 1, math.nan, 50), (0, False, 1, 9.0, 60),
    ):  # fmt: skip
        made.frame(bus, sent, Frame(node << 5 | 9, struct.pack("<ff", turns, 0.0), time=0 if sent else time), time)
    made.close()
    samples = [(node, sample.position, sample.time) for node, sample in decoded(tmp_path / "run", [[first], [second]])]
    assert samples == [(first, 5.0 * math.tau, 10), (second, 6.0 * math.tau, 20), (first, 9.0 * math.tau, 60)]
    assert (first.rejected, second.rejected) == (1, 0)


def test_frames_that_end_before_the_rows_do_are_no_difference_where_the_run_was_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("hil", "two_mass_spring_drive", "--duration", "0.1", "--engine", "vm")
    assert exit_code(*words, "--out", tmp_path / "run") == 0
    whole = replay(tmp_path / "run")
    frames = list(read_frames(tmp_path / "run"))
    monkeypatch.setattr("hil.session.replay.read_frames", lambda folder: frames[: len(frames) // 2])
    cut = replay(tmp_path / "run")
    assert cut.missing > 100 and cut.other_samples == 0, "a run that says it is whole must have them all: that is said"
    run = load_run(tmp_path / "run")
    cut_off = dataclasses.replace(run, metadata=run.metadata | {"status": "running"})
    monkeypatch.setattr("hil.session.replay.load_run", lambda folder: cut_off)
    cut = replay(tmp_path / "run")
    assert cut.other_samples == 0
    assert 0 < cut.samples < whole.samples
    monkeypatch.undo()
    columns = run.columns | {"read": run["read"] + 0.01}  # as if the loop had been interrupted for ten periods
    interrupted = dataclasses.replace(run, columns=columns, metadata=run.metadata | {"lockstep": False})
    monkeypatch.setattr("hil.session.replay.load_run", lambda folder: interrupted)
    late = replay(tmp_path / "run")
    assert (late.samples, late.other_samples) == (whole.samples, 0)


def driven(folder: Path, protocol: str, *faults: dict[str, object]) -> Path:
    prepared = renewed(machine(protocol, "at speed"), faults)
    on_rig(prepared, duration=0.5, out=folder)
    return folder


def altered(folder: Path, **columns: np.ndarray) -> Path:
    """The run once more, with other columns."""
    run, other = load_run(folder), folder.with_name("changed")
    text = (folder / "config.yaml").read_text()
    save(Trajectory(run.columns | columns, run.units, run.metadata), other, text)
    shutil.copy(folder / "can.blf", other)
    return other


@pytest.mark.parametrize("protocol", ["odrive", "cia402", "mit"])
def test_law_torque_and_frames_agree_and_a_changed_value_is_found(tmp_path: Path, protocol: str) -> None:
    folder = driven(tmp_path / "run", protocol)
    found = replay(folder, CARTS.parent)
    assert found.sent is not None and found.agrees
    assert found.sent.torques > 300 and found.sent.frames > 600
    run = load_run(folder)
    row = int(np.flatnonzero(run["stage"] == STAGES.index("full"))[100])
    u = run["u.a"].copy()
    u[row] += 0.5
    other = replay(altered(folder, **{"u.a": u}), CARTS.parent)
    assert other.sent is not None and other.differing == 0 and not other.agrees
    assert (other.sent.other_torques, other.sent.other_frames) == (1, 1)
    assert re.match(rf"row {row}, t = [\d.]+ s: a was sent {u[row]:.9g}, ", other.sent.first)


@pytest.mark.parametrize("protocol", ["odrive", "cia402", "mit", "moteus", "robstride"])
def test_a_drive_that_has_left_the_loop_gets_no_torque_by_log_and_frames(tmp_path: Path, protocol: str) -> None:
    folder = driven(tmp_path / "run", protocol, {"kind": "drive_fault", "drive": "a", "at": 0.2, "since": "engaged"})
    found, run = replay(folder, CARTS.parent), load_run(folder)
    assert found.sent is not None and found.agrees
    late = np.flatnonzero(run["stage"] == STAGES.index("stopping"))[10:]  # an ODrive says late that it is off
    assert len(late) > 5 and np.abs(run["u.b"][late]).max() > 0.0
    assert (run["u.a"][late] == 0.0).all() and (run["sent.a"][late] == 0.0).all()


def test_a_drive_that_reboots_gets_no_torque_by_the_log_while_no_frame_has_one(tmp_path: Path) -> None:
    reboot = {"kind": "reboot", "drive": "a", "at": 0.2, "for": 0.05, "since": "engaged"}
    found = replay(driven(tmp_path / "run", "odrive", reboot), CARTS.parent)
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
    assert exit_code("replay", folder, "--classes", CARTS.parent) == 4
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
        found = replay(altered(folder, **{"u.a": u, "law.a": law}), CARTS.parent)
        assert found.sent is not None and (found.sent.other_torques > 0) == wrong


def test_frames_that_the_log_lost_are_counted_and_said(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder = driven(tmp_path / "run", "odrive")
    file, recorded = folder / "can.blf", load_run(folder).metadata["recorder"]["frames"]
    whole = replay(folder, CARTS.parent)
    assert whole.missing == 0
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    left = sum(1 for _ in read_frames(folder))
    assert 0 < left < recorded
    assert exit_code("replay", folder, "--classes", CARTS.parent) == 0
    cut = replay(folder, CARTS.parent)
    assert cut.agrees and 0 < cut.samples < whole.samples
    assert f"can.blf lacks {recorded - left} of the run's frames: it was cut or deleted" in capsys.readouterr().out
    file.unlink()
    assert replay(folder, CARTS.parent).missing == recorded
