"""What the process of the recorder writes, in normal runs and when something fails."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import can
import numpy as np
import pytest

from hil.frame import FD_SIZES, Frame
from hil.loop.clock import SECOND
from hil.recorder import Capacity, Recorder, as_entry, read_events, read_frames
from servoctl.errors import RunFolderError
from servoctl.run_folder import load_run

COLUMNS = {"t": "s", "q.x": "m", "lateness": "s", "rank": "", "status": ""}
PATIENCE = 120  # [s] before a test gives up; nothing here depends on how long anything takes


def wait_for(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def recorder(folder: Path, lossless: bool = True, capacity: Capacity | None = None) -> Recorder:
    return Recorder(folder, COLUMNS, {"config": "demo", "engine": "c"}, "plant: x\n", lossless, capacity)


@contextmanager
def recorded(folder: Path, lossless: bool = True, capacity: Capacity | None = None) -> Iterator[Recorder]:
    """A recorder that is closed at the end, unless it was before."""
    made = recorder(folder, lossless, capacity)
    try:
        yield made
    finally:
        if not made.closed:
            made.close()


def some_rows(count: int, seed: int = 0) -> np.ndarray:
    rows = np.random.default_rng(seed).normal(size=(count, len(COLUMNS)))
    rows[:, 0] = np.arange(count) * 1e-3
    rows[:, 3:] = np.arange(count)[:, None] % 7
    return rows


def some_frames(count: int, seed: int = 0) -> Iterator[tuple[int, bool, Frame, int]]:
    """Frames of every kind and size, about 100 us apart; a quarter are FD frames."""
    random = np.random.default_rng(seed)
    kinds, sizes = random.integers(0, 20, count), random.integers(0, 9, count)
    times = np.arange(count) * 100_000 + random.integers(0, 100_000, count)
    payload = random.bytes(8 * count + 64)
    for k, (kind, size, moment) in enumerate(zip(kinds.tolist(), sizes.tolist(), times.tolist(), strict=True)):
        extended, remote, error, fd = kind % 3 == 0, kind == 1, kind == 2, kind >= 15
        sent = kind % 2 == 1 and not error
        id = int.from_bytes(payload[8 * k : 8 * k + 4], "little") >> (3 if extended or error else 21)
        data = b"" if remote else payload[8 * k : 8 * k + (FD_SIZES[(size + k) % 16] if fd else size)]
        time = 0 if sent else moment
        frame = Frame(id, data, extended, remote, error, size * remote, time, fd, fd and kind > 16)
        yield kind % 3, sent, frame, moment


def record_all(recorder: Recorder, rows: np.ndarray, frames: list[tuple[int, bool, Frame, int]]) -> None:
    for row in rows:
        recorder.row(row)
    for frame in frames:
        recorder.frame(*frame)


@pytest.mark.slow
def test_twenty_thousand_rows_and_frames_come_back_to_the_bit(tmp_path: Path) -> None:
    rows, frames = some_rows(20_000), list(some_frames(20_000))
    rows[5, 1:3] = np.nan, -0.0
    with recorded(tmp_path / "run") as made:
        record_all(made, rows, frames)
        run = made.close({"status": "done", "duration": 19.5})
    loaded = load_run(tmp_path / "run")
    for each in (run, loaded):
        assert list(each.columns) == list(COLUMNS)
        for i, name in enumerate(COLUMNS):
            wanted = rows[:, i].astype(np.int64) if name in ("rank", "status") else rows[:, i].copy()
            assert each[name].dtype == wanted.dtype
            assert each[name].tobytes() == wanted.tobytes()
        assert each.units == COLUMNS
    assert list(read_frames(tmp_path / "run")) == frames
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert (summary["status"], summary["duration"], summary["steps"]) == ("done", 19.5, 19_999)
    lost = {"rows": 0, "frames": 0, "events": 0}
    assert summary["recorder"] == {"rows": 20_000, "frames": 20_000, "events": 0, "lost": lost, "problem": None}
    assert (tmp_path / "run/config.yaml").read_text() == "plant: x\n"


def test_in_lock_step_the_files_are_always_the_same_and_nothing_is_lost(tmp_path: Path) -> None:
    rows, frames = some_rows(1000), list(some_frames(11_000))
    assert frames[-1][3] > SECOND  # so that time divides the containers too
    for name in ("first", "second"):
        with recorded(tmp_path / name, capacity=Capacity(rows=300, frames=3000, events=1024)) as made:
            for k in range(100):
                made.event(as_entry("state", "engaged", k * SECOND, {"number": k}))
            record_all(made, rows, frames)
            run = made.close()
        assert len(run) == 1000
        assert run.metadata["recorder"]["lost"] == {"rows": 0, "frames": 0, "events": 0}
    for file in ("can.blf", "events.jsonl", "trajectory.parquet", "summary.json"):
        assert (tmp_path / "first" / file).read_bytes() == (tmp_path / "second" / file).read_bytes(), file
    assert len(read_events(tmp_path / "first")) == 100


def test_python_can_reads_buses_directions_and_times_of_the_runs_clock(tmp_path: Path) -> None:
    frames = list(some_frames(1000))
    with recorded(tmp_path / "run") as made:
        record_all(made, some_rows(1), frames)
    with can.LogReader(tmp_path / "run/can.blf") as messages:
        read = [
            (m.channel, m.arbitration_id, m.is_extended_id, m.is_error_frame, bytes(m.data), m.timestamp)
            for m in messages
        ]
    assert [each[:5] for each in read] == [(bus, f.id, f.extended, f.error, f.data) for bus, _, f, _ in frames]
    seconds = np.array([moment for *_, moment in frames]) / SECOND
    assert np.abs(np.array([each[5] for each in read]) - seconds).max() < 1e-9  # half of a nanosecond, and rounding


def test_times_are_exact_to_the_nanosecond_over_a_day(tmp_path: Path) -> None:
    moments = [*range(5), SECOND - 1, SECOND, 86_400 * SECOND - 1, 86_400 * SECOND + 7]
    with recorded(tmp_path / "run") as made:
        for moment in moments:
            made.frame(0, True, Frame(1), moment)
    assert [moment for *_, moment in read_frames(tmp_path / "run")] == moments


def test_a_can_blf_cut_off_anywhere_gives_the_frames_before_the_cut(tmp_path: Path) -> None:
    frames = [(0, True, frame.at(0), k * SECOND // 3) for k, (_, _, frame, _) in enumerate(some_frames(20))]
    with recorded(tmp_path / "run") as made:
        record_all(made, some_rows(1), frames)
    whole = (tmp_path / "run/can.blf").read_bytes()
    counts = []
    for length in (*range(0, len(whole), 3), len(whole)):
        (tmp_path / "can.blf").write_bytes(whole[:length])
        read = list(read_frames(tmp_path))
        assert read == frames[: len(read)]
        counts.append(len(read))
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (0, 20)
    assert len(set(counts)) > 6  # a container each second


def test_events_are_on_disk_during_the_run(tmp_path: Path) -> None:
    with recorded(tmp_path / "run", lossless=False) as made:
        fields = {"drive": "axle1", "code": 0x2310, "torque": np.nan}
        made.event(as_entry("fault", "axle1: über-current\nlatched", 1_500_000_001, fields))
        wait_for(lambda: len(read_events(tmp_path / "run")) == 1)
        made.event(as_entry("operator", "reset", 2 * SECOND, {}))
        run = made.close({"status": "fault"})
    first = {"t": 1.500000001, "event": "fault", "text": "axle1: über-current\nlatched"}
    expected = [
        first | {"drive": "axle1", "code": 0x2310, "torque": None},
        {"t": 2.0, "event": "operator", "text": "reset"},
    ]
    assert read_events(tmp_path / "run") == run.metadata["events"] == expected
    with open(tmp_path / "run/events.jsonl", "ab") as file:
        file.write(b'{"t": 3.0, "ev')
    assert read_events(tmp_path / "run") == expected


def test_rows_frames_and_the_status_are_on_disk_during_the_run(tmp_path: Path) -> None:
    with recorded(tmp_path / "run", lossless=False) as made:
        record_all(made, some_rows(3), list(some_frames(3)))
        wait_for(lambda: len(load_run(made.path)) == 3)
        wait_for(lambda: len(list(read_frames(made.path))) == 3)
        assert load_run(made.path).metadata["status"] == "running"


def test_a_run_without_a_row_has_its_columns(tmp_path: Path) -> None:
    with recorded(tmp_path / "run"):
        pass
    run = load_run(tmp_path / "run")
    assert (list(run.columns), len(run)) == (list(COLUMNS), 0)
    assert list(read_frames(tmp_path / "run")) == []


def test_on_the_wall_clock_what_finds_no_room_is_counted(tmp_path: Path) -> None:
    with recorded(tmp_path / "run", lossless=False, capacity=Capacity(rows=100, frames=200, events=300)) as made:
        os.kill(made._child.process.pid, signal.SIGSTOP)
        record_all(made, some_rows(150), list(some_frames(220)))
        for k in range(10):
            made.event(as_entry("state", "x" * 20, k, {}))
        lost = made._memory.lost
        assert (lost["rows"], lost["frames"]) == (50, 20)
        assert 0 < lost["events"] < 10
        os.kill(made._child.process.pid, signal.SIGCONT)
        run = made.close()
    assert run["t"].tolist() == some_rows(100)[:, 0].tolist()
    assert list(read_frames(tmp_path / "run")) == list(some_frames(220))[:200]
    assert len(read_events(tmp_path / "run")) == 10 - lost["events"]
    assert run.metadata["recorder"]["lost"] == lost


def test_an_event_larger_than_the_ring_is_lost_without_waiting(tmp_path: Path) -> None:
    with recorded(tmp_path / "run", capacity=Capacity(events=100)) as made:
        made.event(as_entry("state", "x" * 200, 0, {}))
        assert made._memory.lost["events"] == 1


def test_ranks_that_are_not_finite_are_minus_one(tmp_path: Path) -> None:
    with recorded(tmp_path / "run") as made:
        made.row(np.array([0.0, np.nan, 0.0, np.nan, np.inf]))
        run = made.close()
    assert (run["rank"].tolist(), run["status"].tolist()) == ([-1], [-1])


def test_if_the_recorder_dies_the_loop_continues_and_reports_it(tmp_path: Path) -> None:
    made = recorder(tmp_path / "run", capacity=Capacity(rows=10, frames=10, events=100))
    made.row(some_rows(1)[0])
    wait_for(lambda: len(load_run(made.path)) == 1)
    assert made.problem is None
    os.kill(made._child.process.pid, signal.SIGKILL)
    wait_for(lambda: made.problem is not None)
    assert made.problem == "the recorder died (signal 9): nothing is recorded any more"
    record_all(made, some_rows(50), list(some_frames(50)))
    made.event(as_entry("state", "x" * 200, 0, {}))
    assert min(made._memory.lost.values()) > 0
    with pytest.raises(RunFolderError, match=r"the recorder died \(signal 9\): the run folder is not finished"):
        made.close()
    run = load_run(tmp_path / "run")
    assert (len(run), run.metadata["status"]) == (1, "failed")
    assert run.metadata["error"] == "the recorder died (signal 9): the run folder is not finished"


def full_disk(made: Recorder, size: int) -> None:
    """Limits the size of each file of the recorder [byte]."""
    resource.prlimit(made._child.process.pid, resource.RLIMIT_FSIZE, (size, size))


def test_a_full_disk_is_reported_and_what_was_written_stays(tmp_path: Path) -> None:
    made = recorder(tmp_path / "run", lossless=False)
    rows = some_rows(4000)
    record_all(made, rows[:100], [])
    wait_for(lambda: len(load_run(made.path)) == 100)
    full_disk(made, 20_000)
    record_all(made, rows[100:], [])
    wait_for(lambda: made.problem is not None)
    assert made.problem.startswith("rows are no longer recorded: ")
    assert "File too large" in made.problem
    made.event(as_entry("fault", "the disk is full", 0, {}))
    made.row(rows[0])
    wait_for(lambda: made._memory.lost["rows"] > 0)
    with pytest.raises(RunFolderError, match="cannot be written: File too large"):
        made.close()
    run = load_run(tmp_path / "run")
    assert len(run) >= 100
    assert run.metadata["status"] == "failed"
    assert "cannot be written: File too large" in run.metadata["error"]
    assert run["q.x"].tobytes() == rows[: len(run), 1].tobytes()
    assert len(read_events(tmp_path / "run")) == 1


def test_if_frames_cannot_be_written_the_rows_still_are(tmp_path: Path) -> None:
    made = recorder(tmp_path / "run")
    full_disk(made, 100_000)
    frames = list(some_frames(20_000))
    record_all(made, some_rows(10), frames)
    run = made.close({"status": "done"})
    assert (len(run), run.metadata["status"]) == (10, "done")
    said = run.metadata["recorder"]
    assert said["problem"].startswith("frames are no longer recorded: ")
    assert said["frames"] + said["lost"]["frames"] == 20_000
    assert said["lost"]["frames"] > 0
    read = list(read_frames(tmp_path / "run"))
    assert read and read == frames[: len(read)]


def test_a_folder_that_cannot_be_made_is_an_error_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(RunFolderError, match="is a file"):
        recorder(tmp_path / "run")
    with pytest.raises(RunFolderError, match="needs the column t"):
        Recorder(tmp_path / "other", {"q.x": "m"}, {})


def test_a_folder_is_closed_once(tmp_path: Path) -> None:
    made = recorder(tmp_path / "run")
    record_all(made, some_rows(3), [])
    assert len(made.close({"status": "done"})) == 3
    with pytest.raises(RunFolderError, match="close: the folder is closed"):
        made.close()


def test_a_script_without_a_main_guard_records_and_runs_once(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "print('begun')\nfrom hil.recorder import Recorder\n"
        "made = Recorder('run', {'t': 's'}, {'config': 'demo'})\nmade.close({'status': 'done'})\n"
    )
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "begun\n", "")
    assert json.loads((tmp_path / "run/summary.json").read_text())["status"] == "done"


LOOP = """
import sys, itertools, numpy as np
from hil.recorder import Recorder, as_entry
from hil.frame import Frame

made = Recorder(sys.argv[1], {"t": "s", "q.x": "m"}, {"config": "demo"}, lossless=True)
try:
    for k in itertools.count():
        made.row(np.array([k * 1e-3, float(k)]))
        made.frame(0, True, Frame(1, k.to_bytes(8, "little")), k * 1_000_000)
        if k % 1000 == 999:
            made.event(as_entry("state", "a thousand more", k * 1_000_000, {}))
            print(k + 1, flush=True)
        ENDING
except KeyboardInterrupt:
    made.event(as_entry("operator", "Ctrl-C", k, {}))
    made.row(np.array([1e6, -1.0]))
    made.close({"status": "interrupted"})
"""


def start_loop(folder: Path, ending: str = "") -> subprocess.Popen[str]:
    """A loop in its own process and process group."""
    return subprocess.Popen(
        [sys.executable, "-c", LOOP.replace("ENDING", ending), str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # a shell's background jobs ignore Ctrl-C, and their children inherit that
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def rows_told(loop: subprocess.Popen[str], at_least: int) -> int:
    """Number of rows that the loop reports as recorded."""
    assert loop.stdout is not None
    for line in loop.stdout:
        if int(line) >= at_least:
            return int(line)
    raise AssertionError(loop.communicate()[1])


def status_of(folder: Path) -> str:
    return str(json.loads((folder / "summary.json").read_text())["status"])


def test_a_killed_loop_leaves_a_closed_folder(tmp_path: Path) -> None:
    loop = start_loop(tmp_path / "run")
    told = rows_told(loop, 10_000)
    loop.kill()
    _, errors = loop.communicate(timeout=PATIENCE)
    assert errors == ""  # nothing leaked; the pipe ends with the last process, the recorder's
    assert status_of(tmp_path / "run") == "killed"
    run = load_run(tmp_path / "run")
    assert len(run) >= told  # the recorder drained what the loop had left: not even the last second is missing
    assert run["q.x"].tolist() == list(range(len(run)))
    assert run.metadata["error"] == "the loop's process ended without closing the run"
    assert run.metadata["steps"] == len(run) - 1
    frames = list(read_frames(tmp_path / "run"))
    assert len(frames) >= told
    assert [int.from_bytes(frame.data, "little") for _, _, frame, _ in frames] == list(range(len(frames)))
    assert len(read_events(tmp_path / "run")) >= told // 1000
    assert (tmp_path / "run/trajectory.parquet").exists()


def test_a_loop_that_ends_without_closing_loses_nothing_and_does_not_hang(tmp_path: Path) -> None:
    loop = start_loop(tmp_path / "run", "if k == 4999: sys.exit()")
    _, errors = loop.communicate(timeout=PATIENCE)
    assert errors == ""
    assert status_of(tmp_path / "run") == "killed"
    assert len(load_run(tmp_path / "run")) == 5000


def test_ctrl_c_reaches_the_loop_but_not_the_recorder(tmp_path: Path) -> None:
    loop = start_loop(tmp_path / "run")
    told = rows_told(loop, 2000)
    os.killpg(loop.pid, signal.SIGINT)
    _, errors = loop.communicate(timeout=PATIENCE)
    assert (loop.returncode, errors) == (0, "")
    run = load_run(tmp_path / "run")
    assert run.metadata["status"] == "interrupted"
    assert len(run) > told
    assert run["q.x"][-1] == -1.0  # what came after Ctrl-C
    assert run.metadata["events"][-1]["text"] == "Ctrl-C"
