"""Sweeps that do not complete keep their finished rows, and `--resume` continues them: the same table to the bit."""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import chdir, suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from servoctl.assembly.classes import files_of
from servoctl.cli import main
from servoctl.cli.console import Announcer, interruptible
from servoctl.config import load_config
from servoctl.config.document import read_value
from servoctl.errors import counted
from servoctl.study.store import RowStore
from tests.config_texts import plant_text
from tests.faces import answer, exit_code

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


FILE = RowStore.file

GRID = "plant.parameters.m=1:2:7"


def call(*words: str) -> int:
    return exit_code("sweep", "ball.yaml", "--engine", "vm", "--out", "found", *words)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "ball.py").write_text(BALL)
    (tmp_path / "ball.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def whole_sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a complete sweep over `GRID`; tests take copies."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "ball.py").write_text(BALL)
    (folder / "ball.yaml").write_text(CONFIG)
    with chdir(folder):
        assert call("--vary", GRID) == 0
    return folder


@pytest.fixture
def cut_short(here: Path, whole_sweep: Path) -> Path:
    """The folder of a test, with a sweep over `GRID` that was killed after three runs."""
    shutil.copytree(whole_sweep / "found", here / "found")
    cut(here, 3)
    return here


def columns(folder: Path) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = pq.read_table(folder / "found/sweep.parquet").to_pydict()
    return found


def cut(folder: Path, runs: int, torn: bytes = b"") -> None:
    """Leaves of a sweep what a process that was killed after so many runs leaves."""
    lines = (folder / "found" / FILE).read_bytes().splitlines(keepends=True)
    (folder / "found" / FILE).write_bytes(b"".join(lines[: 1 + runs]) + torn)
    for name in ("summary.json", "sweep.parquet", "sweep.png", "config.yaml"):
        (folder / "found" / name).unlink()


@pytest.mark.parametrize("torn", [b"", b'{"run": 3, "seconds": 0.', b"\xff\x00"])
@pytest.mark.parametrize("sample", [(), ("--sample", "lhs", "--samples", "7", "--seed", "5")])
def test_a_resumed_sweep_gives_the_table_of_an_uninterrupted_one(
    here: Path, sample: tuple[str, ...], torn: bytes
) -> None:
    assert call("--vary", GRID, *sample) == 0
    whole = columns(here)
    cut(here, 3, torn)
    kept = (here / "found" / FILE).read_bytes().removesuffix(torn)
    assert call("--vary", GRID, *sample, "--resume") == 0
    assert (here / "found" / FILE).read_bytes().startswith(kept)  # the first three were not run again
    assert repr(columns(here)) == repr(whole)  # to the bit: repr tells every float from its neighbours
    summary = json.loads((here / "found/summary.json").read_text())
    assert (summary["status"], summary["runs"], summary["planned"]) == ("done", 7, 7)


def test_resuming_a_complete_sweep_runs_nothing_again(here: Path) -> None:
    assert call("--vary", GRID) == 0
    whole, rows = columns(here), (here / "found" / FILE).read_bytes()
    assert call("--vary", GRID, "--resume") == 0
    assert repr(columns(here)) == repr(whole) and (here / "found" / FILE).read_bytes() == rows


def test_a_killed_sweep_continues_and_gives_the_same_table(tmp_path: Path) -> None:
    process = begin(tmp_path, "1:2:31")
    rows = tmp_path / "found" / FILE
    try:
        deadline = time.monotonic() + 60
        while (rows.read_bytes().count(b"\n") if rows.exists() else 0) < 6 and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
    finally:
        process.kill()
    kept = rows.read_bytes().count(b"\n") - 1
    assert 5 <= kept < 31
    process = begin(tmp_path, "1:2:31", "--resume")
    stdout, stderr = process.communicate(timeout=120)
    assert (process.returncode, stderr) == (0, "") and stdout.startswith("ball: 31 runs, 0 failed")
    resumed = columns(tmp_path)
    process = begin(tmp_path, "1:2:31")  # at its end, a sweep is in nobody's way
    assert (process.communicate(timeout=120)[1], process.returncode) == ("", 0)
    assert repr(columns(tmp_path)) == repr(resumed)


def edit(folder: Path, file: str, old: str, new: str) -> None:
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("change", "words", "sentence"),
    [
        (None, ("--vary", "plant.parameters.m=1:3:7"), r"vary was \[.* 2\.0, .*\], is \[.* 3\.0, "),
        (None, ("--vary", "plant.parameters.m=1:2:7:log"), r"vary was \[.*, False\]\], is \[.*, True\]\]"),
        (None, ("--vary", "plant.parameters.m=1:2:8"), "vary was "),
        (None, ("--vary", GRID, "--sample", "lhs", "--samples", "7"), "sample was grid, is lhs"),
        (None, ("--vary", GRID, "--set", "run.duration=0.2"), "config.run.duration was 0.1, is 0.2"),
        (None, ("--vary", GRID, "--engine", "numpy"), "engine was vm, is numpy"),
        (("ball.py", "-9.8", "-9.81"), ("--vary", GRID), "files.ball.py was "),
    ],
)
def test_resume_refuses_another_sweep(
    cut_short: Path,
    capsys: pytest.CaptureFixture[str],
    change: tuple[str, str, str] | None,
    words: tuple[str, ...],
    sentence: str,
) -> None:
    before = (cut_short / "found" / FILE).read_bytes()
    if change is not None:
        edit(cut_short, *change)
    capsys.readouterr()
    assert call(*words, "--resume") == 2
    said = capsys.readouterr().err
    assert re.match(rf"--resume: found/{FILE}: is of another sweep: {sentence}", said), said
    assert (cut_short / "found" / FILE).read_bytes() == before


def test_an_unfinished_sweep_is_not_overwritten(cut_short: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (cut_short / "found" / FILE).read_bytes()
    assert call("--vary", GRID) == 2
    said = f"found/{FILE}: holds 3 of 7 runs of a sweep (continue with --resume, or choose another --out)\n"
    assert capsys.readouterr().err.endswith(said) and (cut_short / "found" / FILE).read_bytes() == before


def spoil(index: int, line: bytes) -> Callable[[Path], None]:
    def work(path: Path) -> None:
        lines = path.read_bytes().splitlines(keepends=True)
        lines[index] = line
        path.write_bytes(b"".join(lines))

    return work


@pytest.mark.parametrize(
    ("damage", "code", "sentence"),
    [
        (spoil(2, b"{}\n"), 2, f"found/{FILE}: line 3 is damaged (restore the file, or run the sweep"),
        (spoil(2, b"[1, 2]\n"), 2, f"found/{FILE}: line 3 is damaged"),
        (spoil(2, b'{"run": 7, "row": {}}\n'), 2, f"found/{FILE}: line 3 is damaged"),
        (spoil(2, b'{"run": 1, "row": 5}\n'), 2, f"found/{FILE}: line 3 is damaged"),
        (spoil(2, b'{"run": 1, "seconds": 1.0, "row": {}}\n'), 2, f"found/{FILE}: line 3 is damaged"),
        (spoil(2, b'{"run": 1, "seconds": "x", "row": {}}\n'), 2, f"found/{FILE}: line 3 is damaged"),
        (spoil(1, b"[" * 100_000 + b"\n"), 2, f"found/{FILE}: line 2 is damaged"),
        (spoil(0, b"\xff\n"), 2, f"found/{FILE}: line 1 is damaged"),
        (spoil(0, b"{}\n"), 2, f"--resume: found/{FILE}: is of another sweep: "),
        (lambda path: path.write_bytes(b""), 2, "--resume: found holds no sweep that can continue (leave"),
        (lambda path: path.unlink(), 2, "--resume: found holds no sweep that can continue (leave"),
        (lambda path: (path.unlink(), path.mkdir()), 3, "found: cannot be written: Is a directory"),
    ],
)
def test_damaged_rows_are_named(
    cut_short: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], object], code: int, sentence: str
) -> None:
    damage(cut_short / "found" / FILE)
    capsys.readouterr()
    assert call("--vary", GRID, "--resume") == code
    assert capsys.readouterr().err.startswith(sentence)


def test_two_programs_cannot_write_the_same_sweep(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fcntl = pytest.importorskip("fcntl")
    assert call("--vary", GRID) == 0
    with open(here / "found" / FILE, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert call("--vary", GRID) == 3
    assert f"found/{FILE}: another program works on this sweep" in capsys.readouterr().err


def test_resume_without_a_folder_names_the_newest(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.makedirs("runs/ball-sweep-1")
    Path(f"runs/ball-sweep-1/{FILE}").write_text("")
    assert main(["sweep", "ball.yaml", "--vary", GRID, "--resume"]) == 2
    assert "--resume: needs --out (the newest: --out runs/ball-sweep-1)" in capsys.readouterr().err


def test_log_spacing_gives_equal_ratios_and_both_ends(here: Path) -> None:
    assert call("--vary", "plant.parameters.m=0.1:100:4:log") == 0
    assert columns(here)["plant.parameters.m"] == pytest.approx([0.1, 1.0, 10.0, 100.0], rel=1e-14)
    assert json.loads((here / "found/summary.json").read_text())["vary"]["plant.parameters.m"]["spacing"] == "log"


def test_random_values_of_a_log_range_are_uniform_in_the_logarithm(here: Path) -> None:
    words = ("--vary", "plant.parameters.m=0.1:100:log", "--sample", "lhs", "--samples", "6")
    assert call(*words) == 0
    found = sorted(columns(here)["plant.parameters.m"])
    assert [sum(low <= m < 10 * low for m in found) for low in (0.1, 1.0, 10.0)] == [2, 2, 2]


@pytest.mark.parametrize("low", ["0", "-1"])
def test_log_spacing_needs_a_start_above_zero(here: Path, capsys: pytest.CaptureFixture[str], low: str) -> None:
    assert call("--vary", f"plant.parameters.m={low}:2:3:log") == 2
    assert f"LO: expected a number above 0, since the spacing is log, got {low}" in capsys.readouterr().err


def test_resume_notices_an_edited_file_that_the_class_imports(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "pull.py").write_text("PULL = -9.8\n")
    edit(here, "ball.py", "import servoctl as sc\n", "import servoctl as sc\nfrom pull import PULL\n")
    assert call("--vary", GRID) == 0
    cut(here, 3)
    edit(here, "pull.py", "-9.8", "-9.81")
    assert call("--vary", GRID, "--resume") == 2
    assert "is of another sweep: files.pull.py was " in capsys.readouterr().err


def test_the_files_of_a_run_are_also_those_that_a_robot_file_names(tmp_path: Path) -> None:
    robots = tmp_path / "robots"
    (robots / "assets").mkdir(parents=True)
    head = '<mujoco><compiler meshdir="assets"/>'
    (robots / "arm.xml").write_text(f'{head}<include file="parts.xml"/><include file="parts.xml"/></mujoco>')
    (robots / "parts.xml").write_text(f'{head}<asset><mesh file="hand.stl"/><mesh file="lost.stl"/></asset></mujoco>')
    (robots / "assets/hand.stl").write_bytes(b"solid")
    (tmp_path / "arm.yaml").write_text(
        "plant: {robot: {mjcf: robots/arm.xml}}\ninitial: {q: {}}\nlaw: none\nrun: {duration: 1}\n"
    )
    found = files_of(load_config(tmp_path / "arm.yaml"))
    assert list(found) == ["robots/arm.xml", "robots/parts.xml", "robots/assets/hand.stl"]
