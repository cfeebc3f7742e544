"""Runs that start on the virtual machine and go over to C: same results, a note, and no compiler left behind."""

import os
import stat
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import servoctl
from servoctl.assembly.run import Run
from servoctl.engine import background
from servoctl.engine.background import Compilation
from servoctl.engine.ccode import Library
from servoctl.engine.compiler import compiler
from servoctl.run_folder.trajectory import Trajectory
from servoctl.simulation.closed_loop import Loop

COMPILED = pytest.mark.skipif(compiler() is None, reason="no C compiler")

SAMPLED = ("run.period=0.01", "run.integrator.step=0.005")
REALISTIC = (*SAMPLED, "realism={noise: {q: 1e-6}, delay: 4*ms}")
ADAPTIVE = ("run.integrator={method: dop853, rtol: 1e-9, atol: 1e-11}", "run.output_step=0.01")
RADAU = ("run.integrator={method: radau, rtol: 1e-7, atol: 1e-9}", "run.output_step=0.01")


class AtOnce:
    """A library that is ready when a run has asked so often."""

    def __init__(self, library: Library, asked: int) -> None:
        self.problem, self._library, self._left = "", library, asked

    @property
    def library(self) -> Library | None:
        self._left -= 1
        return self._library if self._left < 0 else None

    def leave(self) -> bool:
        return False

    def end(self) -> None: ...


def made(changes: tuple[str, ...], engine: str) -> tuple[Run, Loop]:
    run = servoctl.load("coordinated_robots", ["run.duration=0.4", *changes], engine=engine)
    assert isinstance(run.loop, Loop)
    return run, run.loop


def switched(changes: tuple[str, ...], asked: int) -> Trajectory:
    run, loop = made(changes, "vm")
    library = loop.program(run.settings.substeps).load()
    loop.compilation = AtOnce(library, asked)  # type: ignore[assignment]
    return run.simulate()


@COMPILED
@pytest.mark.parametrize("changes", [(), SAMPLED, REALISTIC, ADAPTIVE, RADAU])
def test_a_run_that_goes_over_to_c_differs_by_rounding_alone(changes: tuple[str, ...]) -> None:
    whole, both = made(changes, "vm")[0].simulate(), switched(changes, 25 if changes == () else 7)
    facts = both.summary()["engine_switch"]
    assert both.metadata["engine"] == "c" and 0.0 < facts["t"] < 0.4 and "may differ by rounding" in facts["note"]
    before = both.t <= facts["t"]
    assert 1 < before.sum() < len(both.t)
    np.testing.assert_array_equal(both.t, whole.t)
    np.testing.assert_array_equal(both.q[before], whole.q[before])
    np.testing.assert_allclose(both.q, whole.q, rtol=0, atol=1e-9)
    np.testing.assert_allclose(both.u, whole.u, rtol=0, atol=1e-5)


@COMPILED
def test_engine_c_and_engine_vm_repeat_to_the_bit_and_never_change() -> None:
    for engine in ("c", "vm"):
        first, again = (made((), engine)[0].simulate() for _ in range(2))
        assert first.metadata["engine"] == engine and "engine_switch" not in first.summary()
        for name, values in first.columns.items():
            np.testing.assert_array_equal(values, again.columns[name])


def slow_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that writes its process id and then works for a minute; the cache is empty."""
    script, noted = tmp_path / "cc", tmp_path / "pid"
    script.write_text(f'#!/bin/sh\ncase "$1" in --version) echo slow;; *) echo $$ > {noted}; exec sleep 60;; esac\n')
    script.chmod(script.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("CC", str(script))
    monkeypatch.setenv("SERVOCTL_CACHE", str(tmp_path / "cache"))
    return noted


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc")
@pytest.mark.parametrize(("interrupted", "finish"), [(False, "0"), (True, "0"), (True, "1")])
def test_a_run_that_is_interrupted_or_may_not_finish_compiling_leaves_no_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupted: bool, finish: str
) -> None:
    noted = slow_compiler(tmp_path, monkeypatch)
    monkeypatch.setenv(background.SWITCH, finish)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    run, loop = made((), "auto")
    loop.chosen, loop.compilation = True, Compilation(loop.program(run.settings.substeps), after=0.0)

    def progress(share: float) -> None:
        while not noted.exists() or not noted.read_text().strip():
            time.sleep(0.01)
        if interrupted:
            raise KeyboardInterrupt

    if interrupted:
        with pytest.raises(KeyboardInterrupt):
            run.simulate(progress=progress)
    else:
        assert run.simulate(progress=progress).metadata["engine"] == "vm"
    pid = int(noted.read_text())
    assert is_gone(pid) and loop.compilation is None
    assert not list(tmp_path.glob("tmp/*")) and not list(tmp_path.glob("cache/*lock*"))
    with pytest.raises(ProcessLookupError):
        os.killpg(pid, 0)


def test_a_compiler_that_fails_leaves_the_run_on_the_virtual_machine_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "cc"
    script.write_text('#!/bin/sh\ncase "$1" in --version) echo bad;; *) echo "error: out of luck" >&2; exit 1;; esac\n')
    script.chmod(script.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("CC", str(script))
    monkeypatch.setenv("SERVOCTL_CACHE", str(tmp_path / "cache"))
    run, loop = made((), "auto")
    loop.chosen, loop.compilation = True, Compilation(loop.program(run.settings.substeps), after=0.0)
    compilation: Any = loop.compilation
    compilation._thread.join(60.0)
    result = run.simulate()
    assert result.metadata["engine"] == "vm" and result.metadata["status"] == "done"
    assert "out of luck" in result.summary()["engine_switch"]["note"]


@COMPILED
@pytest.mark.parametrize("changes", [(), SAMPLED, ADAPTIVE])
def test_a_short_run_starts_no_compiler_and_a_long_one_does(
    changes: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = slow_compiler(tmp_path, monkeypatch)
    run, loop = made(changes, "auto")
    run.prepare(wait=False)
    assert run.simulate().metadata["engine"] == "vm" and loop.compilation is None
    time.sleep(0.1)
    assert not noted.exists()

    monkeypatch.setattr(background.Compilation.__init__, "__defaults__", (0.05,))
    run, loop = made(changes, "auto")
    run.prepare(wait=False)

    def progress(share: float) -> None:
        until = time.monotonic() + 20.0
        while not noted.exists() and time.monotonic() < until:
            time.sleep(0.01)

    result = run.simulate(progress=progress)
    assert noted.exists() and result.metadata["engine"] == "vm" and loop.compilation is None


@COMPILED
def test_a_caller_who_waits_gets_the_engine_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("servoctl.simulation.engine_choice.LONG", 0.0)
    for changes, engine in (((), "c"), (ADAPTIVE, "vm")):
        run, loop = made(changes, "auto")
        monkeypatch.setattr(type(loop), "is_stored", property(lambda self: False))  # as if the cache were empty
        run.prepare()
        assert loop.engine == engine and loop.compilation is None
