"""Generated C gives the results of the virtual machine, is compiled once, and is optional."""

import gc
import os
import stat
import subprocess
import sys
import time
import weakref
from pathlib import Path

import numpy as np
import pytest

import servoctl
from plants.two_mass_spring import TwoMassSpring
from servoctl.engine import cache, compiler
from servoctl.engine.ccode import Program
from servoctl.engine.kernel import Kernel, inputs
from servoctl.errors import CompileError, ConfigError
from servoctl.laws.constraint_following import AttachedConstraintFollowing
from servoctl.simulation.closed_loop import Loop
from servoctl.types import Array
from tests.shipped import RAISED

pytestmark = [
    pytest.mark.skipif(compiler.compiler() is None or compiler.is_tcc(), reason="no C compiler on the path"),
    pytest.mark.usefixtures("own_cache"),
]

COMMON_CACHE = os.environ["SERVOCTL_CACHE"]
"""The cache of all tests: other tests run the large machines in C too."""

ROUNDING = 1e-12
"""Relative; C has its own sine and inverts a denominator that serves more than once: both round in the last place."""

LAST_PLACE = 1e-7
"""Residual of a row whose 4th derivative is up to 1e8, as a stiff spring makes it."""

OPTIMISED = (
    "arm_obstacle",
    "chain",
    "coordinated_robots_limited",
    "elbow_above_table",
    "flexible_joint_drive",
    "four_bar",
    "scara_path",
    "swarm",
)
"""Shipped configs with every kind of law and plant; whole runs of others are compared below."""

FROM_FILES = ("arm_path", "quadruped_stand", "two_arms_box")
"""Robots from files, whose C is compiled without optimisation: it takes less time."""

NAMES = [*(pytest.param(name, marks=pytest.mark.optimised) for name in OPTIMISED), *FROM_FILES]


def assert_close(actual: Array, wanted: Array) -> None:
    scale = max(1.0, float(np.nanmax(np.abs(wanted), initial=0.0)))
    np.testing.assert_allclose(actual, wanted, rtol=0, atol=ROUNDING * scale, equal_nan=True)


def near_a_tolerance(loop: Loop, row: Array) -> bool:
    """Whether the smallest pivot counted is so small that rounding decides the rank."""
    pivot = row[loop.layout.slices["pivot_min"]][0]
    law = loop.system.law
    return isinstance(law, AttachedConstraintFollowing) and bool(pivot < 10 * law.allocation.rank_tolerance)


@pytest.mark.parametrize("name", NAMES)
def test_c_gives_the_numbers_of_the_virtual_machine(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVOCTL_CACHE", COMMON_CACHE)
    run, reference = servoctl.load(name, engine="c"), servoctl.load(name, engine="vm")
    loop, expected = run.loop, reference.loop
    assert isinstance(loop, Loop) and isinstance(expected, Loop)
    assert (loop.engine, expected.engine, loop.note) == ("c", "vm", None)
    for state in loop.system.model.samples(run.start, 10):
        x = np.concatenate([state.q, state.v, loop.memory_start])
        rates, row = expected.rates(state.t, x)
        if near_a_tolerance(expected, row):
            continue
        if run.settings.period is None:
            actual_rates, actual_row = loop.rates(state.t, x)
            assert_close(actual_rates, rates)
            if name in RAISED:
                where = loop.layout.slices["residual"]
                assert np.abs(actual_row[where] - row[where]).max() < LAST_PLACE
                actual_row[where] = row[where]
            assert_close(actual_row, row)
        else:
            command = expected.control(state.t, x)
            assert_close(loop.control(state.t, x), command)
            for actual, wanted in zip(
                loop.motion(state.t, x, command), expected.motion(state.t, x, command), strict=True
            ):
                assert_close(actual, wanted)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("two_mass_spring", []),
        ("two_mass_spring", ["run.output_step=0.0137"]),  # rows between the steps
        ("two_mass_spring", ["run.integrator={method: dop853}"]),
        ("two_mass_spring", ["run.period=0.02"]),
        ("coordinated_robots", ["run.duration=0.5"]),
        ("crane", ["run.duration=0.5"]),
    ],
)
def test_a_whole_run_in_c_equals_the_virtual_machine(name: str, changes: list[str]) -> None:
    runs = [servoctl.load(name, changes, engine=engine).simulate() for engine in ("c", "vm")]
    actual, wanted = runs
    # Rounding moves adaptive steps within their error of rtol |q| = 1e-10 * 8 m, which the law multiplies by its gains:
    # 1e-7 of the largest value, measured.
    tolerance = 3e-7 if "dop853" in str(changes) else 1e-10
    assert [run.metadata["engine"] for run in runs] == ["c", "vm"]
    assert list(actual.columns) == list(wanted.columns)
    for column, values in wanted.columns.items():
        scale = max(1.0, float(np.nanmax(np.abs(values), initial=0.0)))
        np.testing.assert_allclose(
            actual.columns[column], values, rtol=0, atol=tolerance * scale, err_msg=column, equal_nan=True
        )
    assert {run.metadata["status"] for run in runs} == {"done"}
    if "dop853" not in str(changes):
        assert actual.metadata["evaluations"] == wanted.metadata["evaluations"]


def test_a_run_that_stops_ends_with_the_same_sentence_and_rows() -> None:
    changes = ["law.correction.baumgarte.alpha=3000"]  # far beyond what the step bears
    runs = [servoctl.load("two_mass_spring", changes, engine, strict=False).simulate() for engine in ("c", "vm")]
    assert [run.metadata["engine"] for run in runs] == ["c", "vm"]
    assert runs[0].metadata["status"] == runs[1].metadata["status"] == "stopped"
    assert runs[0].metadata["error"].split(":")[0] == runs[1].metadata["error"].split(":")[0]
    assert len(runs[0]) == len(runs[1]) < 400


# The cache ------------------------------------------------------------------------------------------------------------


def square(factor: float = 1.0) -> tuple[Program, Kernel]:
    given = inputs({"x": (2,)})
    kernel = Kernel.compile("square", given, {"y": factor * given["x"] ** 2 + np.sin(given["x"])})
    return Program([kernel]), kernel


def value(factor: float = 1.0) -> Array:
    program, kernel = square(factor)
    kernel.run_on(program.load())
    result: Array = kernel([1.0, -2.0])[0]
    return result


def test_a_kernel_keeps_the_library_that_it_runs_on() -> None:
    program, kernel = square()
    library = program.load()
    alive = weakref.ref(library)
    kernel.run_on(library)
    del library
    gc.collect()
    assert alive() is not None


def wanted(factor: float = 1.0) -> Array:
    return factor * np.array([1.0, 4.0]) + np.sin([1.0, -2.0])


def script(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that notes each compilation in this file."""
    real, notes = compiler.compiler(), tmp_path / "calls"
    assert real is not None
    notes.write_text("")
    body = f'case "$1" in --version) ;; *) echo call >> {notes};; esac\nexec {" ".join(real)} "$@"'
    monkeypatch.setenv("CC", str(script(tmp_path / "counting_cc", body)))
    return notes


def count(calls: Path) -> int:
    return len(calls.read_text().splitlines())


def test_a_cached_library_is_not_compiled_again(calls: Path, own_cache: Path) -> None:
    for _ in range(3):
        np.testing.assert_allclose(value(), wanted(), rtol=1e-15)
    assert count(calls) == 1
    np.testing.assert_allclose(value(2.0), wanted(2.0), rtol=1e-15)
    assert count(calls) == 2
    assert cache.size()[0] == 2 == len(list(own_cache.iterdir()))
    assert cache.clear()[0] == 2 and cache.size() == (0, 0)


def test_a_cache_that_cannot_be_written_to_costs_a_compilation(
    calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SERVOCTL_CACHE", str(tmp_path / "file" / "below"))  # holds for root too
    for _ in range(2):
        np.testing.assert_allclose(value(), wanted(), rtol=1e-15)
    assert count(calls) == 2


def test_the_cache_has_a_size_limit_and_removes_the_least_recently_used(
    monkeypatch: pytest.MonkeyPatch, own_cache: Path, tmp_path: Path
) -> None:
    monkeypatch.setattr(cache, "LIMIT", 2500)
    for i in range(4):
        (tmp_path / "library").write_bytes(bytes([i]) * 1000)
        kept = cache.put(f"key{i}", tmp_path / "library")
        os.utime(kept, (i, i))
    assert sorted(path.name[:4] for path in own_cache.iterdir()) == ["key2", "key3"]


def test_concurrent_processes_share_a_cache(own_cache: Path) -> None:
    code = (
        "import servoctl; run = servoctl.load('two_mass_spring', ['run.duration=0.1'], engine='c');"
        "print(run.simulate().metadata['engine'])"
    )
    processes = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate(timeout=100)[0].strip() for process in processes] == ["c"] * 2
    assert not list(own_cache.glob("*.tmp"))


# No compiler ----------------------------------------------------------------------------------------------------------


INSTEAD = "--engine c: the run takes engine vm instead: "
FAILS = 'case "$1" in --version) echo cc 1;; *) echo "code.c:1: error: out of luck" >&2; exit 3;; esac'


@pytest.mark.parametrize(
    ("name", "body", "said"),
    [
        ("/no/such/cc", "", "no C compiler: CC=/no/such/cc is not found"),
        ('"cc', "", 'no C compiler: CC="cc is not found'),
        ("idle_cc", "echo cc 4", "the compiled library cannot be loaded: "),
        ("bad_cc", FAILS, "the C compiler bad_cc fails with exit code 3: code.c:1: error: out of luck"),
    ],
)
def test_without_a_compiler_that_works_the_run_takes_the_virtual_machine_and_says_why(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, body: str, said: str
) -> None:
    monkeypatch.setenv("CC", str(script(tmp_path / name, body)) if body else name)
    run = servoctl.load("two_mass_spring", ["run.duration=0.1"], engine="c")
    trajectory = run.simulate()
    assert (trajectory.metadata["engine"], trajectory.metadata["status"]) == ("vm", "done")
    (line,) = (line for line in run.warnings if "engine" in line)
    assert line == INSTEAD + said or (name == "idle_cc" and line.startswith(INSTEAD + said))
    assert "Additionally" not in line and not list(own_cache.glob("*"))


def test_a_compiler_that_prints_no_version_is_asked_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    notes = tmp_path / "asked"
    monkeypatch.setenv("CC", str(script(tmp_path / "mute_cc", f"echo asked >> {notes}\nsleep 60")))
    monkeypatch.setattr(compiler, "QUESTION_LIMIT", 0.3)
    run = servoctl.load("two_mass_spring", ["run.duration=1000"])
    run.prepare()
    assert (run.loop.engine, count(notes)) == ("vm", 1)
    said = "--engine auto: the run takes engine vm instead: the C compiler mute_cc takes longer than 0.3 s"
    assert run.loop.note == said


@pytest.mark.parametrize("limit", ["soon", "nan", "inf", "0", "-1", ""])
def test_a_time_limit_that_is_not_a_positive_number_is_ignored(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setenv("SERVOCTL_COMPILE_LIMIT", limit)
    assert compiler.time_limit() == compiler.TIME_LIMIT


def test_a_full_disk_under_the_cache_costs_a_compilation(
    calls: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(source: Path, target: Path) -> None:
        source.write_bytes(source.read_bytes()[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", half)
    for _ in range(2):
        np.testing.assert_allclose(value(), wanted(), rtol=1e-15)
    assert (count(calls), list(own_cache.iterdir())) == (2, [])


def test_a_compiler_that_hangs_is_killed_with_its_child_processes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    child = tmp_path / "child"
    body = f'case "$1" in --version) echo cc 2;; *) sleep 300 & echo $! > {child}; sleep 300;; esac'
    monkeypatch.setenv("CC", str(script(tmp_path / "slow_cc", body)))
    monkeypatch.setenv("SERVOCTL_COMPILE_LIMIT", "0.5")
    with pytest.raises(CompileError, match=r"the C compiler slow_cc takes longer than 0\.5 s"):
        square()[0].load()
    # on a machine that stalls, the compiler may be killed before it has a child
    children = child.read_text().split() if child.exists() else []
    until = time.monotonic() + 60.0
    while any(is_running(process) for process in children):
        assert time.monotonic() < until
        time.sleep(0.01)


def is_running(process: str) -> bool:
    """Whether a process is there and has not ended; one that nobody has waited for has."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# Which engine ---------------------------------------------------------------------------------------------------------


def test_auto_leaves_a_short_run_on_the_virtual_machine(calls: Path) -> None:
    assert servoctl.load("two_mass_spring").simulate().metadata["engine"] == "vm"
    assert count(calls) == 0


def test_auto_compiles_for_a_long_run_and_uses_a_cached_library(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = servoctl.load("two_mass_spring", ["run.duration=1000"])  # 100000 steps of 20 us and more
    run.prepare()
    assert (run.loop.engine, count(calls)) == ("c", 1)
    monkeypatch.setattr("servoctl.simulation.engine_choice.LONG", np.inf)
    again = servoctl.load("two_mass_spring", ["run.duration=1000"])
    again.prepare()
    assert (again.loop.engine, count(calls)) == ("c", 1)


def test_a_loop_with_code_in_numpy_says_why_it_is_not_in_c() -> None:
    law = servoctl.law(lambda t, q, v: [-1.0 if q[0] > 0.0 else 1.0])
    run = servoctl.simulate(TwoMassSpring(), {}, law, q=[0.1, 0.6], duration=0.02, step=0.01, engine="c")
    assert run.metadata["engine"] == "vm"
    said = "--engine c: the run takes engine vm instead: a function of the law runs in NumPy: "
    assert [line.startswith(said) for line in run.metadata["warnings"]].count(True) == 1


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(ConfigError, match="--engine fortran: no such engine"):
        servoctl.load("two_mass_spring", engine="fortran")
