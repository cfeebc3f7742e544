"""Compilations that outlive their run: found by the next one, one at a time, bounded, and nothing is left behind."""

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from servoctl.engine import background, cache, compiler
from servoctl.engine.background import Compilation
from servoctl.engine.ccode import Program
from servoctl.engine.kernel import Kernel, inputs

pytestmark = [
    pytest.mark.skipif(compiler.compiler() is None or compiler.is_tcc(), reason="no C compiler"),
    pytest.mark.skipif(os.name != "posix", reason="compilations end with their runs"),
]

GATE = """#!/bin/sh
case "$1" in --version) echo gated; exit;; esac
echo "$$ $(ulimit -t) $(nice)" >> {folder}/began
while [ ! -e {folder}/go ]; do sleep 0.02; done
{after}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that notes what it may use and waits for a file `go`; cache and temporary files are here."""
    gated(tmp_path, f'exec {compiler.compiler()[0]} "$@"')  # type: ignore[index]
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("CC", str(tmp_path / "cc"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setenv("SERVOCTL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(background.SWITCH, "1")
    return tmp_path


def gated(folder: Path, after: str) -> None:
    script = folder / "cc"
    script.write_text(GATE.format(folder=folder, after=after))
    script.chmod(script.stat().st_mode | stat.S_IEXEC)


def program() -> Program:
    x = inputs({"x": (2,)})
    return Program([Kernel.compile("twice", x, {"y": 2.0 * x["x"]})])


def wait(happened: Callable[[], object]) -> None:
    for _ in range(2000):
        if happened():
            return
        time.sleep(0.005)
    raise AssertionError("nothing happened in 10 s")


def began(folder: Path) -> list[list[str]]:
    noted = folder / "began"
    return [line.split() for line in noted.read_text().splitlines()] if noted.exists() else []


def left(folder: Path) -> list[str]:
    """Temporary files and locks."""
    return [path.name for path in (*folder.glob("tmp/*"), *folder.glob("cache/*.tmp"))]


def test_a_compilation_that_is_left_finishes_alone_and_the_next_run_finds_its_library(folder: Path) -> None:
    compilation = Compilation(program(), after=0.0)
    wait(compilation.leave)
    compilation.end()
    wait(lambda: began(folder))
    assert not program().cached and left(folder)
    (folder / "go").touch()
    wait(lambda: program().cached and not left(folder))
    y = np.zeros(2)
    program().load().caller("twice", [np.array([1.0, 3.0])], [y]).evaluate()
    assert y.tolist() == [2.0, 6.0] and len(began(folder)) == 1


def test_it_may_take_a_minute_of_processor_time_and_lets_others_go_first(folder: Path) -> None:
    compilation = Compilation(program(), after=0.0)
    wait(lambda: began(folder))
    limit, nice = began(folder)[0][1:]
    compilation.end()
    assert float(limit) <= 60.0 and int(nice) == min(19, os.nice(0) + 5)


def test_two_runs_of_the_same_law_compile_it_once(folder: Path) -> None:
    both = [Compilation(program(), after=0.0) for _ in range(2)]
    wait(lambda: began(folder))
    (folder / "go").touch()
    wait(lambda: all(each.library for each in both))
    assert len(began(folder)) == 1 and not left(folder) and not any(each.problem for each in both)


@pytest.mark.parametrize("number", ["TERM", "KILL"])
def test_a_compiler_that_is_killed_leaves_no_files(folder: Path, number: str) -> None:
    compilation = Compilation(program(), after=0.0)
    wait(compilation.leave)
    wait(lambda: began(folder))
    os.kill(int(began(folder)[0][0]), {"TERM": 15, "KILL": 9}[number])
    wait(lambda: compilation.problem)
    assert "fails with exit code" in compilation.problem and not left(folder) and not program().cached


def test_what_the_compiler_says_of_an_error_reaches_the_run(folder: Path) -> None:
    gated(folder, 'echo "error: out of luck" >&2; exit 1')
    (folder / "go").touch()
    compilation = Compilation(program(), after=0.0)
    wait(lambda: compilation.problem)
    assert "out of luck" in compilation.problem and not compilation.leave() and not left(folder)


def test_without_a_cache_nothing_is_compiled_beside_a_run_and_that_is_said(folder: Path) -> None:
    assert background.refusal() is None
    cache.lock_file("x").parent.chmod(0o777)
    compilation = Compilation(program(), after=0.0)
    wait(lambda: compilation.problem)
    assert "other users may write to it" in compilation.problem and "--engine c" in compilation.problem
    assert not began(folder)


def test_a_compilation_that_takes_too_long_ends(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVOCTL_COMPILE_LIMIT", "0.3")
    compilation = Compilation(program(), after=0.0)
    wait(lambda: compilation.problem)
    assert "takes longer than 0.3 s" in compilation.problem and not left(folder) and not compilation.leave()


def test_a_run_may_forbid_that_its_compiler_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(background.SWITCH, "0")
    compilation = Compilation(program(), after=0.0)
    wait(lambda: began(folder))
    assert not background.may_outlive() and not compilation.leave()
    compilation.end()
    wait(lambda: not left(folder))
