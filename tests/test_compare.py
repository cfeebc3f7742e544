"""Comparison of runs: metrics of artificial runs with values known by hand, and the pictures."""

import json
from pathlib import Path

import numpy as np
import pytest

from servoctl.errors import RunFolderError
from servoctl.report.compare import load_all, metrics, overlay, units
from servoctl.run_folder import save
from servoctl.run_folder.trajectory import Trajectory
from tests import comparison
from tests.faces import exit_code

T = np.linspace(0.0, 2.0, 201)


def decaying(rate: float, **more: np.ndarray) -> Trajectory:
    """phi = e^(-rate t), u = 3 sin(pi t) over one period."""
    columns = {"t": T, "q.x": np.exp(-rate * T), "v.x": -rate * np.exp(-rate * T), "u.F": 3.0 * np.sin(np.pi * T)}
    columns |= {"violation.place": np.exp(-rate * T), "violation_rate.place": -rate * np.exp(-rate * T), **more}
    units = {"t": "s", "q.x": "m", "u.F": "N", "violation.place": "m"}
    return Trajectory(columns, units, {"config": "made_up", "status": "done", "tasks": {"place": ["place"]}})


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    return [save(decaying(rate), tmp_path / name) for name, rate in (("slow", 1.0), ("fast", 4.0))]


def test_metrics_are_listed_side_by_side(folders: list[Path]) -> None:
    found = metrics(load_all(folders))
    assert found["tasks.place.max_violation"] == [1.0, 1.0]
    assert found["tasks.place.final_violation"] == pytest.approx([np.exp(-2.0), np.exp(-8.0)], rel=1e-12)
    rms = [np.sqrt((1.0 - np.exp(-4.0 * rate)) / (4.0 * rate)) for rate in (1.0, 4.0)]
    assert found["tasks.place.rms_violation"] == pytest.approx(rms, rel=1e-3)
    assert found["tasks.place.drift"] == pytest.approx([np.exp(-2.0) - 1.0, np.exp(-8.0) - 1.0], rel=1e-12)
    # e^(-4 t) is below settling_band = 1e-3 from t = ln(1000) / 4 on, in rows of 10 ms; e^(-t) never
    assert found["tasks.place.settling_time"] == [None, pytest.approx(np.ceil(100 * np.log(1e3) / 4) / 100)]
    assert found["inputs.F.peak"] == pytest.approx([3.0, 3.0], rel=1e-12)
    assert found["inputs.F.rms"] == pytest.approx([3.0 / np.sqrt(2.0)] * 2, rel=1e-3)
    assert found["status"] == ["done", "done"]


def test_a_metric_that_a_run_does_not_have_is_none(folders: list[Path], tmp_path: Path) -> None:
    more = save(decaying(2.0, **{"u.G": np.ones(201)}), tmp_path / "pushed")
    found = metrics(load_all([*folders, more]))
    assert found["inputs.G.peak"] == [None, None, 1.0]


def test_units_that_differ_are_both_shown(folders: list[Path], tmp_path: Path) -> None:
    other = decaying(2.0)
    other.units["violation.place"], other.units["residual"] = "mm", "m/s^4"
    runs = load_all([folders[0], save(other, tmp_path / "other")])
    assert units(runs, ["tasks.place.max_violation", "inputs.F.rms", "residual_max"]) == ["m, mm", "N", "m/s^4"]
    assert overlay(runs, "violation").axes[0].get_ylabel() == "|error| [m, mm]"


def test_the_lines_of_all_runs_are_in_one_panel(folders: list[Path]) -> None:
    (axes,) = overlay(load_all(folders), "violation").axes
    lines = {line.get_gid(): line.get_xydata() for line in axes.get_lines() if line.get_gid()}
    assert list(lines) == ["slow", "fast"]
    assert lines["fast"][:, 1] == pytest.approx(np.exp(-4.0 * T))
    assert axes.get_ylabel() == "|error| [m]"
    assert {"slow", "fast"} <= {text.get_text() for text in axes.texts}


def test_runs_on_drives_are_drawn_since_their_tasks_began(tmp_path: Path) -> None:
    """Bring-up and stages before the task take another time on each rig, and no time in a simulated run."""
    runs = {"simulated": decaying(1.0)}
    for name, waits in (("quick", 0.5), ("slow", 1.0)):
        t = T + 0.1
        task_time = np.maximum(0.0, t - waits)
        columns = {"t": t, "task_time": task_time, "violation.place": np.exp(-task_time), "q.x": np.exp(-task_time)}
        runs[name] = Trajectory(columns, {"violation.place": "m"}, {"status": "done", "tasks": {"place": ["place"]}})
    (axes,) = overlay(runs, "violation").axes
    assert axes.get_xlabel() == "t since the task began [s]"
    for line in axes.get_lines():
        if line.get_gid() in runs:
            t, x = np.asarray(line.get_xydata()).T
            np.testing.assert_allclose(x[t > 0.0], np.exp(-t[t > 0.0]), rtol=1e-9)
    (alone,) = overlay({"simulated": runs["simulated"]}, "violation").axes
    assert alone.get_xlabel() == "t [s]"


def test_errors_of_runs_on_drives_are_drawn_while_their_tasks_run() -> None:
    """After the stop nobody follows the task: its error would hide that of the task."""
    run = decaying(1.0)
    run.columns["stage"] = np.where(T < 1.0, 1, 2)
    run.columns["violation.place"] = np.where(T < 1.0, run["violation.place"], 50.0)
    run.metadata["stages"] = ["ramp", "full", "stopping"]
    (axes,) = overlay({"stopped": run, "simulated": decaying(1.0)}, "violation").axes
    (stopped,) = (line for line in axes.get_lines() if line.get_gid() == "stopped")
    assert np.isfinite(stopped.get_ydata()).any() and np.nanmax(stopped.get_ydata()) <= 1.0
    run.metadata["stages"] = ["zero", "ramp", "stopping"]  # no stage with the task: all of its errors
    (axes,) = overlay({"stopped": run, "simulated": decaying(1.0)}, "violation").axes
    assert max(np.nanmax(line.get_ydata()) for line in axes.get_lines() if line.get_gid()) == 50.0


def test_runs_of_the_same_name_are_distinguished_by_their_folders(tmp_path: Path) -> None:
    folders = [save(decaying(1.0), tmp_path / place / "run") for place in ("monday", "friday")]
    assert list(load_all(folders)) == ["monday/run", "friday/run"]


def test_runs_that_cannot_be_compared_are_refused(folders: list[Path], tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="expected at least two runs"):
        load_all(folders[:1])
    with pytest.raises(RunFolderError, match=r"slow: given twice \(give each run once\)"):
        load_all([*folders, folders[0]])
    other = save(Trajectory({"t": T, "q.angle": T, "v.angle": T}, {"t": "s"}, {"status": "done"}), tmp_path / "other")
    with pytest.raises(RunFolderError, match="no task, input or coordinate occurs in two of them"):
        load_all([folders[0], other])


def test_a_run_without_rows_is_named(folders: list[Path], tmp_path: Path) -> None:
    empty = save(Trajectory({name: x[:0] for name, x in decaying(1.0).columns.items()}, {}, {}), tmp_path / "empty")
    with pytest.raises(RunFolderError, match=r"^empty: contains no rows \(nothing can be compared\)"):
        load_all([folders[0], empty])


def test_runs_with_long_names_are_compared_in_a_folder_that_a_file_system_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["å" * 120, "b" * 200]
    assert exit_code("compare", *(save(decaying(1.0 + i), tmp_path / name) for i, name in enumerate(names))) == 0
    captured = capsys.readouterr()
    assert f"{50 * 'å'}_and_{100 * 'b'}/compare_u.png" in captured.out and not captured.err
    (axes,) = overlay(load_all([tmp_path / name for name in names]), "violation").axes
    assert f"{20 * 'b'}...{17 * 'b'}" in {text.get_text() for text in axes.texts}
    assert axes.get_position().width > 0.3


def test_the_command_prints_a_table_and_draws_into_a_folder_of_its_own(
    folders: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code("compare", *folders) == 0
    lines = capsys.readouterr().out.splitlines()
    words = [line.split() for line in lines]
    assert words[0] == ["unit", "slow", "fast"]
    assert ["place:", "task", "error,", "final", "m", "0.1353", "0.0003355"] in words
    assert ["F:", "input,", "peak", "N", "3", "3"] in words
    assert (tmp_path / "slow_and_fast" / "compare_violation.png").exists()
    assert not list(folders[0].glob("compare*"))


def test_the_command_prints_one_json_document(folders: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("compare", *folders, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["runs"] == ["slow", "fast"]
    assert said["metrics"]["inputs.F.peak"] == pytest.approx([3.0, 3.0])


def test_the_joint_path_puts_the_tip_on_the_circle_and_its_rates_are_derivatives() -> None:
    for t in (0.0, 0.7, 2.9):
        q, v, a = comparison.joints(t)
        assert comparison.tip(q) == pytest.approx(comparison.circle(t)[0], abs=1e-12)
        ahead, behind = comparison.joints(t + 1e-5), comparison.joints(t - 1e-5)
        assert v == pytest.approx((ahead[0] - behind[0]) / 2e-5, abs=1e-8)
        assert a == pytest.approx((ahead[1] - behind[1]) / 2e-5, abs=1e-8)
