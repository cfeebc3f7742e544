import contextlib
import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import servoctl
from servoctl.errors import RunFolderError
from servoctl.run_folder import RunFolder, load_run, save
from servoctl.run_folder.trajectory import Trajectory
from servoctl.types import Status

METADATA = {"config": "demo", "engine": "c", "tasks": {"x": ["x"]}}
UNITS = {"t": "s", "q.x": "m"}


def rows(start, stop):
    t = np.arange(start, stop) * 0.1
    return {"t": t, "q.x": np.sin(t), "rank": np.ones(len(t), int), "status": np.zeros(len(t), np.int64)}


def bits(x):
    return x.dtype, x.tobytes()


def write(path, *batches, **end):
    with RunFolder(path, "plant: x\n", METADATA, UNITS) as folder:
        for table in batches:
            folder.append(table)
        return folder.close(end)


def stream_of(path, *batches):
    """A folder as a killed process leaves it."""
    folder = RunFolder(path, "", METADATA, UNITS)
    for table in batches:
        folder.append(table)
    folder._stream.close()
    return path / "trajectory.arrows"


def test_the_summary_of_a_new_folder_has_the_status_running(tmp_path):
    folder = RunFolder(tmp_path / "a" / "b", "plant: x\n", METADATA, UNITS)
    summary = json.loads((folder.path / "summary.json").read_text())
    assert summary["status"] == "running"
    assert summary["config"] == "demo"
    assert (folder.path / "config.yaml").read_text() == "plant: x\n"
    run = load_run(folder.path)
    assert len(run) == 0
    assert run.metadata["status"] == "running"


def test_a_closed_run_is_read_back_to_the_bit(tmp_path):
    odd = np.array([0.0, -0.0, 5e-324, np.nan, np.inf, 0.1])
    table = {"t": np.arange(6.0), "q.x": odd, "age.d1": odd.astype(np.float32), "rank": np.arange(6, dtype=np.int32)}
    drawing = {"arm": np.random.default_rng(0).normal(size=(6, 3, 2)), "t": np.arange(6.0), "file": np.zeros((6, 1, 3))}
    with RunFolder(tmp_path / "run", "", METADATA, UNITS) as folder:
        folder.append(table)
        closed = folder.close({"steps": 5, "events": [{"t": 1.0}]}, drawing)
    loaded = load_run(tmp_path / "run")
    for run in (closed, loaded):
        assert list(run.columns) == list(table)
        assert all(bits(run[name]) == bits(table[name]) for name in table)
        assert run.units == UNITS
        assert run.metadata == METADATA | {"status": "completed", "steps": 5, "events": [{"t": 1.0}]}
        assert {name: bits(x) for name, x in run.drawing.items()} == {name: bits(x) for name, x in drawing.items()}
    assert sorted(os.listdir(folder.path)) == ["config.yaml", "drawing.npz", "summary.json", "trajectory.parquet"]
    assert json.loads((folder.path / "summary.json").read_text()) == loaded.summary()


def test_batches_are_joined_in_the_order_of_writing(tmp_path):
    run = write(tmp_path / "run", rows(0, 3), rows(3, 3), rows(3, 10))
    assert bits(run["q.x"]) == bits(rows(0, 10)["q.x"])


def test_a_run_of_no_rows_keeps_its_columns(tmp_path):
    write(tmp_path / "run", rows(0, 0))
    run = load_run(tmp_path / "run")
    assert len(run) == 0
    assert run["rank"].dtype == np.int64


def test_a_run_that_never_wrote_a_row_loads(tmp_path):
    write(tmp_path / "run", status="failed")
    assert load_run(tmp_path / "run").metadata["status"] == "failed"


def test_a_trajectory_of_no_columns_saves_and_loads(tmp_path):
    save(Trajectory({}, metadata={"config": "empty"}), tmp_path / "run")
    run = load_run(tmp_path / "run")
    assert run.columns == {}
    assert run.metadata["config"] == "empty"


def test_scalars_are_rows_and_the_caller_may_reuse_its_arrays(tmp_path):
    q = np.zeros(1)
    with RunFolder(tmp_path / "run", "", {}, {}) as folder:
        for k in range(3):
            q[0] = k
            folder.append({"t": 0.1 * k, "q.x": q})
        run = folder.close()
    assert run["q.x"].tolist() == [0.0, 1.0, 2.0]


def test_rows_are_on_disk_when_append_returns(tmp_path):
    folder = RunFolder(tmp_path / "run", "", METADATA, UNITS)
    folder.append(rows(0, 2))
    assert bits(load_run(folder.path)["q.x"]) == bits(rows(0, 2)["q.x"])
    folder.append(rows(2, 5))
    run = load_run(folder.path)
    assert bits(run["q.x"]) == bits(rows(0, 5)["q.x"])
    assert run.units == UNITS
    assert run.metadata == METADATA | {"status": "running", "events": []}
    folder.close()


def test_the_file_stores_each_status_with_its_sentence(tmp_path):
    import pyarrow.parquet as pq

    write(tmp_path / "run", rows(0, 1))
    metadata = pq.read_schema(tmp_path / "run" / "trajectory.parquet").metadata
    statuses = json.loads(metadata[b"servoctl.status"])
    assert statuses[str(Status.INFEASIBLE.code)] == ["INFEASIBLE", Status.INFEASIBLE.value]
    assert json.loads(metadata[b"servoctl.units"]) == UNITS


def _with_statuses(path, statuses):
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    metadata = table.schema.metadata | {b"servoctl.status": json.dumps(statuses).encode()}
    pq.write_table(table.replace_schema_metadata(metadata), path)


def test_status_codes_of_another_version_are_translated_by_name(tmp_path):
    write(tmp_path / "run", rows(0, 3) | {"status": np.array([0, 1, 0])})
    _with_statuses(tmp_path / "run" / "trajectory.parquet", {"0": ["DAMPED", ""], "1": ["OK", ""]})
    damped = Status.DAMPED.code
    assert load_run(tmp_path / "run")["status"].tolist() == [damped, 0, damped]


def test_an_unknown_status_asks_for_an_update(tmp_path):
    write(tmp_path / "run", rows(0, 3))
    _with_statuses(tmp_path / "run" / "trajectory.parquet", {"0": ["MELTED", ""]})
    with pytest.raises(RunFolderError, match="MELTED is unknown to this version \\(update servoctl\\)"):
        load_run(tmp_path / "run")


def test_earlier_runs_are_moved_aside(tmp_path):
    for k in range(3):
        write(tmp_path / "run", rows(k, k + 1))
    assert [load_run(tmp_path / name)["t"][0] for name in ("run.1", "run.2", "run")] == [0.0, 0.1, 0.2]
    RunFolder(tmp_path / "run", "", {}, {})
    assert load_run(tmp_path / "run.3")["t"][0] == 0.2


def test_a_folder_without_a_run_is_not_moved(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    folder = RunFolder(tmp_path, "", {}, {})
    assert (folder.path / "notes.txt").read_text() == "mine"


def test_the_folder_of_a_users_own_config_is_neither_moved_nor_written(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/config.yaml").write_text("plant: x\n")
    with pytest.raises(RunFolderError, match="mine: holds no run, but a config\\.yaml, which a run would replace"):
        RunFolder(tmp_path / "mine", "", {}, {})
    assert [path.name for path in tmp_path.rglob("*")] == ["mine", "config.yaml"]


def test_the_working_folder_is_never_moved(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("summary.json").write_text("{}")
    with pytest.raises(RunFolderError, match="holds a run, and is or contains the working folder"):
        RunFolder(".", "", {}, {})


@pytest.mark.parametrize("end", ["closed", "given up", "forgotten"])
def test_the_folder_of_a_run_that_goes_on_is_not_free(tmp_path, end):
    first = RunFolder(tmp_path / "run", "", METADATA, UNITS)
    first.append(rows(0, 2))
    with pytest.raises(RunFolderError, match="run: another run is being written there \\(choose another folder"):
        write(tmp_path / "run", rows(5, 6))
    first.append(rows(2, 4))
    if end == "closed":
        first.close()
    elif end == "given up":
        first.give_up({"status": "failed"})
    else:
        first._stream.close()
    del first
    write(tmp_path / "run", rows(5, 6))
    assert (len(load_run(tmp_path / "run.1")), len(load_run(tmp_path / "run"))) == (4, 1)


def test_a_file_system_without_locks_takes_runs_too(tmp_path, monkeypatch):
    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    write(tmp_path / "run", rows(0, 2))
    assert len(load_run(tmp_path / "run")) == 2


def test_a_file_instead_of_a_folder_is_an_error(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(RunFolderError, match="run: is a file \\(give the name of a folder\\)"):
        RunFolder(tmp_path / "run", "", {}, {})
    with pytest.raises(RunFolderError, match="cannot be written: Not a directory"):
        RunFolder(tmp_path / "run" / "deeper", "", {}, {})


def test_a_run_whose_folder_is_deleted_ends_at_the_next_rows(tmp_path):
    folder = RunFolder(tmp_path / "run", "", {}, {})
    folder.append(rows(0, 1))
    shutil.rmtree(folder.path)
    for write_more in (lambda: folder.append(rows(1, 2)), folder.close):
        with pytest.raises(RunFolderError, match="was moved or deleted during the run"):
            write_more()
    folder._stream.close()


@pytest.mark.parametrize("step", ["mkdir", "stat", "rename"])
def test_of_runs_that_begin_at_once_in_one_folder_each_has_one_of_its_own_or_is_refused(tmp_path, monkeypatch, step):
    """A second run begins between two steps of the first one."""
    write(tmp_path / "run", rows(0, 3))
    real, begun = getattr(os if step == "stat" else Path, step), []

    def begin_another(*arguments, **options):
        monkeypatch.undo()
        if step == "rename":
            with pytest.raises(RunFolderError, match="another run is being written there"):
                RunFolder(tmp_path / "run", "", METADATA, UNITS)
        result = real(*arguments, **options)
        if step != "rename":
            with contextlib.suppress(RunFolderError):
                begun.append(RunFolder(tmp_path / "run", "plant: second\n", METADATA, UNITS))
        return result

    monkeypatch.setattr(os if step == "stat" else Path, step, begin_another)
    with contextlib.suppress(RunFolderError):
        begun.append(RunFolder(tmp_path / "run", "plant: first\n", METADATA, UNITS))
    assert len(begun) == 1
    begun[0].append(rows(0, 2))
    assert len(begun[0].close()) == 2
    assert (len(load_run(tmp_path / "run.1")), len(load_run(tmp_path / "run"))) == (3, 2)


def test_a_closed_folder_takes_no_rows(tmp_path):
    with RunFolder(tmp_path / "run", "", {}, {}) as folder:
        folder.append(rows(0, 2))
    with pytest.raises(RunFolderError, match="the folder is closed"):
        folder.append(rows(0, 2))


@pytest.mark.parametrize(
    ("error", "status"), [(KeyboardInterrupt(), "interrupted"), (ZeroDivisionError("by hand"), "failed")]
)
def test_an_exception_leaves_a_readable_folder(tmp_path, error, status):
    with pytest.raises(type(error)), RunFolder(tmp_path / "run", "", METADATA, UNITS) as folder:
        folder.append(rows(0, 3))
        raise error
    run = load_run(tmp_path / "run")
    assert len(run) == 3
    assert run.metadata["status"] == status
    assert run.summary().get("error") == (None if status == "interrupted" else "ZeroDivisionError: by hand")


class TornFile:
    """A file whose next write breaks off in the middle, as on Ctrl-C or a full disk."""

    def __init__(self, file, error):
        self.file, self.error = file, error

    def write(self, data):
        if self.error is None:
            return self.file.write(data)
        self.file.write(data[: len(data) // 2])
        error, self.error = self.error, None
        raise error

    def __getattr__(self, name):
        return getattr(self.file, name)


@pytest.mark.parametrize(
    ("error", "raised"), [(KeyboardInterrupt(), KeyboardInterrupt), (OSError(28, "No space left"), RunFolderError)]
)
def test_an_incomplete_batch_is_removed_and_written_again(tmp_path, error, raised):
    folder = RunFolder(tmp_path / "run", "", METADATA, UNITS)
    folder.append(rows(0, 2))
    folder._stream = TornFile(folder._stream, error)
    with pytest.raises(raised):
        folder.append(rows(2, 4))
    assert len(load_run(folder.path)) == 2
    assert bits(folder.close()["t"]) == bits(rows(0, 4)["t"])


KILLED = """
import itertools, sys, time
import numpy as np
from servoctl.run_folder import RunFolder
folder = RunFolder(sys.argv[1], "plant: x", {"config": "killed"}, {"t": "s"})
for k in itertools.count():
    folder.append({"t": np.array([time.monotonic()]), "q.k": np.array([float(k)])})
    time.sleep(0.001)
"""


@pytest.mark.flaky(reruns=1)  # on the wall clock: other work may hold the process up for half a second
def test_a_killed_process_leaves_a_folder_short_of_at_most_the_last_second(tmp_path):
    path = tmp_path / "run"
    environment = os.environ | {"PYTHONPATH": str(Path(servoctl.__file__).parents[1])}
    child = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], env=environment)
    try:
        deadline = time.monotonic() + 60
        while not (path / "trajectory.arrows").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(0.5)
    finally:
        killed = time.monotonic()  # the same clock in both processes
        child.send_signal(signal.SIGKILL)
        child.wait()
    run = load_run(path)
    assert run["q.k"].tolist() == list(range(len(run)))
    assert killed - run.t[-1] < 1.0
    assert run.metadata == {"config": "killed", "status": "running", "events": []}
    assert (path / "config.yaml").read_text() == "plant: x"


def test_a_stream_cut_off_at_any_byte_gives_its_complete_batches(tmp_path):
    stream = stream_of(tmp_path / "run", rows(0, 2), rows(2, 3), rows(3, 7))
    content, t, counts = stream.read_bytes(), rows(0, 7)["t"], []
    for size in range(len(content) + 1):
        stream.write_bytes(content[:size])
        run = load_run(stream.parent)
        counts.append(len(run))
        assert bits(run.t) == bits(t[: len(run)])
    assert sorted(set(counts)) == [0, 2, 3, 7]
    assert counts == sorted(counts)


def test_a_stream_of_noise_is_damaged(tmp_path):
    stream = stream_of(tmp_path / "run", rows(0, 2))
    noise = np.random.default_rng(0)
    for size in (1, 8, 100, 10_000):
        stream.write_bytes(noise.bytes(size))
        with pytest.raises(RunFolderError, match=r"trajectory\.arrows: is damaged"):
            load_run(stream.parent)


def test_a_parquet_file_cut_off_anywhere_is_an_error_with_a_remedy(tmp_path):
    write(tmp_path / "run", rows(0, 2))
    table = tmp_path / "run" / "trajectory.parquet"
    content = table.read_bytes()
    for size in range(0, len(content), 7):
        table.write_bytes(content[:size])
        with pytest.raises(RunFolderError, match=r"parquet: is damaged: .*\(restore it from a copy, or run again\)"):
            load_run(tmp_path / "run")


def test_a_damaged_parquet_file_next_to_a_stream_names_the_stream_as_the_remedy(tmp_path):
    stream = stream_of(tmp_path / "run", rows(0, 2))
    (stream.parent / "trajectory.parquet").write_bytes(b"PAR1")
    with pytest.raises(RunFolderError, match=r"delete it to load trajectory\.arrows instead"):
        load_run(stream.parent)


@pytest.mark.parametrize("summary", [b"", b"{", b"\xff\xfe", b"[]", None])
def test_a_run_loads_without_its_summary(tmp_path, summary):
    write(tmp_path / "run", rows(0, 2))
    file = tmp_path / "run" / "summary.json"
    file.unlink() if summary is None else file.write_bytes(summary)
    run = load_run(tmp_path / "run")
    assert len(run) == 2
    assert run.metadata == METADATA | {"status": "completed"}


def test_the_error_for_another_folder_lists_the_files_of_a_run_folder(tmp_path):
    (tmp_path / "config.yaml").write_text("")
    with pytest.raises(RunFolderError, match=r"not a run folder \(which has summary\.json and trajectory\.parquet"):
        load_run(tmp_path)
    with pytest.raises(RunFolderError, match="is a file \\(give the run folder\\)"):
        load_run(tmp_path / "config.yaml")
    for key, kind in (("vary", "sweep"), ("trials", "search")):  # `report` made an empty page of it
        (tmp_path / "summary.json").write_text(json.dumps({"config": "cart", "status": "done", key: {}}))
        with pytest.raises(RunFolderError, match=rf"the folder of a {kind}, .* \(give a run folder\)"):
            load_run(tmp_path)


def full(*arguments, **options):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("place", ["write_table", "schema_metadata"])
def test_a_full_disk_leaves_a_failed_run_and_no_partial_file(tmp_path, monkeypatch, place):
    with pytest.raises(RunFolderError) as said, RunFolder(tmp_path / "run", "", METADATA, UNITS) as folder:
        if place == "write_table":
            folder.append(rows(0, 3))
        monkeypatch.setattr(f"servoctl.run_folder.writer.{place}", full)
        folder.append(rows(3, 5))
        folder.close({"status": "done"})
    assert (
        str(said.value)
        == f"{tmp_path / 'run'}: cannot be written: No space left on device (free disk space, or choose another folder)"
    )
    run = load_run(tmp_path / "run")
    assert (run.metadata["status"], run.metadata["error"]) == ("failed", str(said.value))
    assert not [path.name for path in (tmp_path / "run").iterdir() if path.suffix in (".part", ".parquet")]
    assert len(run) == (5 if place == "write_table" else 0)


def test_a_disk_without_room_for_another_summary_still_says_that_the_run_failed(tmp_path, monkeypatch):
    with pytest.raises(RunFolderError), RunFolder(tmp_path / "run", "", METADATA, UNITS) as folder:
        size = (tmp_path / "run" / "summary.json").stat().st_size
        folder.append(rows(0, 3))
        for place in ("writer.write_table", "writer.replace"):
            monkeypatch.setattr(f"servoctl.run_folder.{place}", full)
        folder.close({"status": "done"})
    run = load_run(tmp_path / "run")
    assert (run.metadata["status"], run.metadata["config"], len(run)) == ("failed", METADATA["config"], 3)
    assert (tmp_path / "run" / "summary.json").stat().st_size == size, "nothing is asked of the disk"
