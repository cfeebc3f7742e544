"""Sweeps that do not complete: interrupted, with a dead worker, or on a full disk; finished rows are kept."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from servoctl.cli.console import Announcer, interruptible
from servoctl.config.document import read_value
from servoctl.errors import counted
from servoctl.study.store import RowStore
from tests.config_texts import plant_text
from tests.faces import answer

BALL = "import os\nfrom contextlib import suppress\nfrom pathlib import Path\n" + plant_text(
    "Ball", "m: float = 1.0", "z", "F", "np.array([[self.m]])", "np.array([-9.8 * self.m])", more="""
    def __post_init__(self):
        with suppress(OSError), open(Path(__file__).parent / "made", "a") as file:
            file.write(f"{self.m}\\n")
        if self.m == 13.0:
            os._exit(1)
""",
)  # fmt: skip
CONFIG = """
plant: {class: "ball.py:Ball"}
initial: {q: 1}
law: none
inputs: {F: "sin(t)"}
run: {duration: 0.1}
"""


def begin(folder: Path, grid: str, *more: str, limit: int | None = None) -> "subprocess.Popen[str]":
    """`servoctl sweep` over the ball's mass, in a process that may write files of so many bytes."""
    (folder / "ball.py").write_text(BALL)
    (folder / "ball.yaml").write_text(CONFIG)

    def prepare() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs ignore it, and so would their children
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    line = [sys.executable, "-m", "servoctl", "sweep", "ball.yaml", "--vary", f"plant.parameters.m={grid}", *more]
    return subprocess.Popen(
        [*line, "--out", "found", "--engine", "vm"],
        cwd=folder,
        # Python would keep bytecode that was cut off at the limit
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=prepare,
    )


def table_of(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(folder / "found" / "sweep.parquet").to_pylist()
    return rows


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_sweep_keeps_its_rows_and_reports_the_interruption(tmp_path: Path, number: int) -> None:
    process = begin(tmp_path, "1:2:20001")
    try:
        made, deadline = tmp_path / "made", time.monotonic() + 60
        while len(set(made.read_text().split() if made.exists() else ())) < 40 and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, stderr) == (130, "")
    rows = table_of(tmp_path)
    assert stdout.startswith(f"ball: {len(rows)} runs of 20001, interrupted, 0 failed")
    assert 0 < len(rows) < 20001
    assert [row["plant.parameters.m"] for row in rows] == pytest.approx([1 + i / 20000 for i in range(len(rows))])
    assert {row["status"] for row in rows} == {"done"}
    summary = json.loads((tmp_path / "found/summary.json").read_text())
    assert (summary["status"], summary["runs"], summary["planned"]) == ("interrupted", len(rows), 20001)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_that_other_code_swallows_takes_effect_at_the_next_row(number: int) -> None:
    """CasADi swallows it, where it arrives while a model is traced."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with interruptible(), Announcer("sweep") as announcer:
            announcer.progress(0.1)
            with suppress(KeyboardInterrupt):
                os.kill(os.getpid(), number)
                time.sleep(60)
            with pytest.raises(KeyboardInterrupt):
                announcer.progress(0.2)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        with interruptible(), Announcer("the next") as announcer:
            announcer.progress(0.1)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_process_that_dies_ends_the_sweep_and_its_rows_are_kept(tmp_path: Path) -> None:
    process = begin(tmp_path, "0.5:13:26", "--jobs", "2")
    stdout, stderr = process.communicate(timeout=120)
    said = "a worker process of the sweep was killed, or ran out of memory (use fewer --jobs)"
    assert (process.returncode, stderr) == (4, f"warning: {said}\n")
    rows = table_of(tmp_path)
    assert stdout.startswith(f"ball: {counted(len(rows), 'run')} of 26, failed, 0 failed")
    assert [row["plant.parameters.m"] for row in rows] == [0.5 + 0.5 * i for i in range(len(rows))]
    assert len(rows) < 26
    summary = json.loads((tmp_path / "found/summary.json").read_text())
    assert (summary["status"], summary["error"]) == ("failed", said)


@pytest.mark.parametrize(
    ("limit", "named", "there"),
    [
        (150, "found", set()),
        (1800, "found/sweep.parquet", {"config.yaml"}),
        (8000, "found/sweep.png", {"config.yaml", "sweep.parquet"}),
    ],
)
def test_a_full_disk_leaves_no_partial_file_and_no_summary(
    tmp_path: Path, limit: int, named: str, there: set[str]
) -> None:
    (tmp_path / "found").mkdir()
    (tmp_path / "found/summary.json").write_text("of an earlier sweep")
    process = begin(tmp_path, "1:2:3", limit=limit)
    stdout, stderr = process.communicate(timeout=120)
    assert (process.returncode, stdout) == (3, "")
    assert stderr == f"{named}: cannot be written: File too large (free disk space, or choose another folder)\n"
    assert {path.name for path in (tmp_path / "found").iterdir()} == there | {"sweep.jsonl"}
    if "config.yaml" in there:
        assert not read_value((tmp_path / "found/config.yaml").read_text()).problems
    if "sweep.parquet" in there:
        assert len(table_of(tmp_path)) == 3


def test_a_folder_that_cannot_be_created_is_an_error_before_any_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "found").write_text("a file")
    (tmp_path / "ball.py").write_text(BALL)
    (tmp_path / "ball.yaml").write_text(CONFIG)
    code, out, err = answer(capsys, "sweep", "ball.yaml", "--vary", "plant.parameters.m=1:2:20001", "--out", "found")
    assert (code, out) == (2, "")
    assert "Invalid value for '--out': dir 'found' is a file" in err


def test_a_new_sweep_removes_the_summary_of_an_earlier_one(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text("{}")
    with RowStore(tmp_path, {}, 1, resume=False):
        assert [path.name for path in tmp_path.iterdir()] == ["sweep.jsonl"]
