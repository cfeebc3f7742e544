"""The page of a run has its numbers, notes what it leaves out, and opens for incomplete folders."""

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from servoctl.errors import RunFolderError
from servoctl.report.page import READ, Blob, Thinner, bucket, page, thinned, write
from servoctl.report.timing import of_task
from servoctl.run_folder import RunFolder, load_run, save
from servoctl.run_folder.trajectory import Trajectory
from servoctl.types import Status
from tests.faces import on_drives
from tests.report_runs import caught, decoded, simulated


def content(path: Path) -> tuple[dict[str, Any], str]:
    """What a page carries: its JSON and the text of its numbers."""
    text = path.read_text()
    data, numbers = (
        re.search(rf'<script id="{name}"[^>]*>(.*?)</script>', text, re.S)[1]  # type: ignore[index]
        for name in ("content", "numbers")
    )
    return json.loads(data), numbers


def shown_of(folder: Path) -> dict[str, Any]:
    """What the page of one run carries about it."""
    data, _ = content(write([folder], folder / "report.html"))
    (run,) = data["runs"]
    return dict(run)


@pytest.fixture(scope="module")
def robots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated("coordinated_robots", tmp_path_factory.mktemp("runs") / "robots", "run.duration=1")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, robots: Path) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("more")
    return {
        "robots": robots,
        "parallelogram": simulated("parallelogram", home / "parallelogram", "run.duration=1"),
        "caught": caught(home / "caught"),
    }


@pytest.mark.parametrize("name", ["robots", "parallelogram", "caught"])
def test_the_page_holds_the_numbers_of_the_run_at_three_instants(
    name: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    run = load_run(folders[name])
    data, numbers = content(write([folders[name]], tmp_path / "report.html"))
    columns = data["runs"][0]["columns"]
    groups = ("q", "v", "u", "violation", "passive", "servo_force", "passive_force", "age")
    wanted = [column for column in run.columns if column.split(".")[0] in groups]
    assert set(wanted) <= set(columns)
    for i in (0, len(run) // 2, len(run) - 1):
        assert decoded(columns["t"], numbers)[i] == run.t[i]
        for column in wanted:  # single precision; without ages of drives that are off, and errors outside of the task
            x = of_task(run, run[column]) if column.startswith("violation.") else run[column]
            value = x[i] if run.in_loop[i] or not column.startswith("age.") else np.nan
            np.testing.assert_equal(decoded(columns[column], numbers)[i], np.float32(value))


@pytest.mark.parametrize("name", ["robots", "parallelogram", "caught"])
def test_frames_of_the_animation_are_what_the_plant_draws_at_three_instants(
    name: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    import servoctl as sc

    plant = sc.load(folders[name] / "config.yaml").loop.system.model.plant
    run = load_run(folders[name])
    data, numbers = content(write([folders[name]], tmp_path / "report.html"))
    drawing = data["runs"][0]["drawing"]
    times = decoded(drawing["t"], numbers)
    for i in (0, len(times) // 3, len(times) - 1):
        at = plant.links(run.q[np.flatnonzero(run.t == times[i])[0]])
        assert list(at) == list(drawing["lines"])
        for line, points in at.items():
            np.testing.assert_array_equal(decoded(drawing["lines"][line], numbers)[i], np.float32(points))


def test_a_machine_at_rest_stands_on_no_supports(folders: dict[str, Path], tmp_path: Path) -> None:
    run = load_run(folders["robots"])
    still = {name: x if name == "t" or x.ndim < 3 else x[:1].repeat(len(x), axis=0) for name, x in run.drawing.items()}
    save(Trajectory(run.columns, run.units, run.metadata, still), tmp_path / "still")
    data, _ = content(write([folders["robots"], tmp_path / "still"], tmp_path / "report.html"))
    assert [len(each["drawing"]["ground"]) for each in data["runs"]] == [2, 0]


def test_the_path_of_the_task_comes_from_its_equations(tmp_path: Path) -> None:
    """The run starts off its task: where the object is, is not where it should be, at (1.5, (1 - cos t)/2)."""
    steep, flat = math.radians(70), math.acos(1 - math.cos(math.radians(70)))
    pose = [steep, -flat, 0.0, flat, -steep]
    uncorrected = "law.correction={baumgarte: {alpha: 0, beta: 0}}"
    folder = simulated("coordinated_robots", tmp_path / "off", "run.duration=2", uncorrected, f"initial.q={pose}")
    assert abs(load_run(folder)["violation.object_y"][-1]) > 0.1
    drawing = load_run(folder).drawing
    left, right = drawing["task.robot1"], drawing["task.object"]
    middle, height = (left + right) / 2, (1 - np.cos(np.linspace(0, 2, len(left)))) / 2
    np.testing.assert_allclose(middle[:, 0], 1.5, atol=1e-5)
    np.testing.assert_allclose(middle[:, 1], height, atol=1e-2)  # times are rows nearest to equal spacing
    np.testing.assert_allclose(left[:, 1], right[:, 1], atol=1e-5)


def test_a_long_run_keeps_every_peak_and_the_page_notes_the_thinning(tmp_path: Path) -> None:
    rows = 100_000
    t = np.linspace(0, 100, rows)
    x = np.sin(t)
    x[54_321], x[700] = 40.0, -30.0
    save(Trajectory({"t": t, "q.x": x, "v.x": np.cos(t)}, {"q.x": "m"}, {"status": "done"}), tmp_path / "long")
    data, numbers = content(write([tmp_path / "long"], tmp_path / "report.html"))
    run = data["runs"][0]
    kept = decoded(run["columns"]["q.x"], numbers)
    assert len(kept) <= 4000 and run["rows"] == rows and run["bucket"] == bucket(rows, 4000)
    assert kept.max() == 40.0 and kept.min() == -30.0
    times = decoded(run["columns"]["t"], numbers)
    assert abs(times[kept.argmax()] - t[54_321]) <= run["bucket"] * 1e-3
    assert np.all(np.diff(times) >= 0) and (times[0], times[-1]) == (t[0], t[-1])


def test_thinning_keeps_the_least_and_the_greatest_in_their_order() -> None:
    x = np.array([0.0, 5.0, -1.0, 2.0, np.nan, 7.0, 8.0, 3.0, 9.0])
    np.testing.assert_array_equal(thinned(x, 4), [5.0, -1.0, 3.0, 9.0])
    np.testing.assert_array_equal(thinned(np.full(9, np.nan), 4), np.full(4, np.nan))
    np.testing.assert_array_equal(thinned(x, 9), x)


def test_histograms_count_every_row() -> None:
    thinner = Thinner(100, counted=("lateness",))
    thinner("lateness", np.r_[np.zeros(999), 5.0])
    edges, counts = thinner.counts["lateness"]
    assert counts.sum() == 1000 and counts[0] == 999 and counts[-1] == 1 and edges[-1] == 5.0


def test_a_blob_returns_the_arrays_that_were_added() -> None:
    blob = Blob()
    arrays = [np.arange(3.0), np.ones((2, 3, 2)) / 3, np.array([1e300, np.nan]), np.empty(0)]
    places = [blob.add(x, double=True) for x in arrays] + [blob.add(np.array([1, 2, 3]))]
    assert all(place["at"] % 8 == 0 for place in places)
    for place, x in zip(places, [*arrays, np.array([1, 2, 3])], strict=True):
        np.testing.assert_array_equal(decoded(place, blob.text()), x)


@pytest.mark.parametrize("calibrated", [False, True])
def test_rows_without_a_command_say_nothing_about_the_law(calibrated: bool, tmp_path: Path) -> None:
    """In a calibration, and when the drives are off at the end, their status is NON_FINITE and their rank is 0."""
    t = np.arange(10) * 0.1
    lawless = np.full(10, True) if calibrated else t > 0.65
    law = {"rank": np.where(lawless, 0, 2), "status": np.where(lawless, Status.NON_FINITE.code, Status.OK.code)}
    law |= {"residual": np.where(lawless, np.nan, 1e-15), "age.F": np.full(10, 1e-3)}
    run = Trajectory(
        {"t": t, "q.x": t, "v.x": t} | law, {}, {"stage": "calibrate"} if calibrated else {"loop_end": 0.7}
    )
    summary = run.summary()
    assert summary["status_counts"] == ({} if calibrated else {"OK": 7})
    assert summary["rank_min"] == (None if calibrated else 2)
    save(run, tmp_path / "run")
    data, numbers = content(write([tmp_path / "run"], tmp_path / "report.html"))
    columns = data["runs"][0]["columns"]
    assert ({"rank", "status", "residual"} & set(columns)) == (set() if calibrated else {"rank", "status", "residual"})
    assert np.isfinite(decoded(columns["age.F"], numbers)).sum() == (10 if calibrated else 7)
    if not calibrated:
        np.testing.assert_array_equal(decoded(columns["status"], numbers), np.where(lawless, np.nan, Status.OK.code))


def test_a_minute_on_drives_stays_below_5_megabytes(tmp_path: Path) -> None:
    rows, rng = 24_000, np.random.default_rng(0)
    names = [f"{group}.{name}" for group in ("q", "v", "u", "age", "servo_force", "passive_force") for name in "abcdef"]
    columns = {"t": np.arange(rows) * 0.0025} | {name: rng.normal(size=rows) for name in names}
    drawing = {f"link{k}": rng.normal(size=(1000, 5, 3)) for k in range(20)} | {"t": np.linspace(0, 60, 1000)}
    save(Trajectory(columns, drawing=drawing), tmp_path / "run")
    assert write([tmp_path / "run"], tmp_path / "report.html").stat().st_size < 5e6


def test_limits_come_from_the_law_and_from_the_drives(folders: dict[str, Path], tmp_path: Path) -> None:
    assert shown_of(folders["caught"])["limits"]["u3"] == [-12.0, 12.0]
    run = simulated("coordinated_robots_limited", tmp_path / "limited", "run.duration=0.1")
    assert shown_of(run)["limits"]["u3"] == [-8.1, 8.1]
    both = tmp_path / "both"
    on_drives("coordinated_robots", "law.limits={u3: [-7, 9]}", out=both, duration=0.05)
    shown = shown_of(both)
    assert shown["limits"]["u3"] == [-7.0, 9.0] and shown["limits"]["u4"] == [-12.0, 12.0]
    load = [line for line in shown["lacks"] if "bus " in line and "load of the loop" in line]
    assert load and all(line.startswith("note: ") for line in load)  # a fact is no warning


def test_an_incomplete_folder_opens_and_the_page_lists_the_missing_parts(robots: Path, tmp_path: Path) -> None:
    for name, said in {
        "summary.json": "summary.json is missing",
        "config.yaml": "config.yaml is missing",
        "trajectory.parquet": "there are no rows to draw",
        "drawing.npz": "no drawing of the mechanism",
    }.items():
        folder = tmp_path / name
        folder.mkdir()
        for file in robots.iterdir():
            if file.name != name and file.is_file():
                (folder / file.name).write_bytes(file.read_bytes())
        assert said in "; ".join(shown_of(folder)["lacks"])


def test_the_page_of_a_run_that_goes_on_says_what_a_bound_cost(tmp_path: Path) -> None:
    t, held = np.arange(8) * 0.1, np.array([0, 0, 1, 1, 1, 0, 0, 0])
    columns = {"t": t, "violation.x": held * 0.1, "given_up.x": held * 2.5, "u.F": np.ones(8)}
    columns |= {"bound.wall": 1.0 - held, "bound_active.wall": held, "bound_lack.wall": held * 0.0}
    with RunFolder(tmp_path / "run", "", {"config": "cart"}, {"given_up.x": "m/s^2"}) as folder:
        folder.append(columns)
        (event,) = shown_of(tmp_path / "run")["events"]
    assert event["text"] == "bound wall holds the inputs until 0.5 s: gives up x by up to 2.5 m/s^2"


def test_a_summary_of_another_schema_opens_with_a_note(robots: Path, tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text('{"schema": 99, "status": "done", "tasks": {}}')
    assert "summary.json has schema 99" in shown_of(tmp_path)["lacks"][0]


def test_a_run_without_rows_opens(tmp_path: Path) -> None:
    save(Trajectory({"t": np.empty(0), "q.x": np.empty(0)}), tmp_path / "run")
    assert "the run has no rows" in shown_of(tmp_path / "run")["lacks"]


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="not a run folder"):
        write([tmp_path], tmp_path / "report.html")


def test_no_text_of_a_run_becomes_part_of_the_page(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script>{{numbers}}"
    save(Trajectory({"t": np.arange(2.0)}, {}, {"config": evil, "error": evil}), tmp_path / "run", evil)
    text = page({evil: tmp_path / "run"})
    assert "<script>alert" not in text
    assert text.count("</script>") == 3


HUGE = """
import pyarrow as pa, pyarrow.parquet as pq, numpy as np, sys
rows, batch = 4_000_000, 1_000_000
names = ["t", "q.a", "v.a", "u.a", "violation.a", "status"]
with pq.ParquetWriter(sys.argv[1], pa.schema([(n, pa.float64()) for n in names]), compression="zstd") as out:
    for start in range(0, rows, batch):
        t = np.arange(start, start + batch) * 1e-3
        out.write_table(pa.table({n: t if n == "t" else np.round(np.sin(t + i), 3) for i, n in enumerate(names)}))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="who tells how much memory a process took is Linux")
def test_four_million_rows_stay_below_half_a_gigabyte(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    subprocess.run([sys.executable, "-c", HUGE, str(tmp_path / "run" / "trajectory.parquet")], check=True)
    # not ru_maxrss: a process that was forked has that of the one that forked it
    measured = f"""
from servoctl.report.page import write
write([{str(tmp_path / "run")!r}], {str(tmp_path / "report.html")!r})
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
    done = subprocess.run([sys.executable, "-c", measured], check=True, capture_output=True, text=True)
    assert int(done.stdout) < 5e5  # [kB]; the rows alone have 192 MB
    run = content(tmp_path / "report.html")[0]["runs"][0]
    assert run["rows"] == 4_000_000 and run["bucket"] >= 4_000_000 // READ
