"""What `auto` does where the compiler would take too long: C without optimisation, or the virtual machine."""

from pathlib import Path

import numpy as np
import pytest

import servoctl
from servoctl.check.report import check
from servoctl.cli import main
from servoctl.engine import compiler
from servoctl.engine.select_engine import MOST, affordable, compiling_time, load_at_once
from servoctl.errors import CompileError
from servoctl.simulation.compiled import CompiledLoop

pytestmark = [
    pytest.mark.optimised,
    pytest.mark.skipif(compiler.compiler() is None, reason="no C compiler on the path"),
]

CONFIG = "two_mass_spring"
LIMIT = "servoctl.engine.select_engine.MOST"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of compiled libraries that is empty; every run is worth a compilation."""
    monkeypatch.setenv("SERVOCTL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("servoctl.simulation.engine_choice.LOOK_UP", 0.0)
    monkeypatch.setattr("servoctl.simulation.engine_choice.WORTH", 0.0)


def compiling(config: str) -> float:
    """How long the compiler is expected to take for a config [s]."""
    run = servoctl.load(config, engine="vm")
    assert isinstance(run.loop, CompiledLoop)
    program = run.loop.program(run.settings.substeps)
    return compiling_time(program)


def test_a_long_compilation_is_left_without_optimisation_and_gives_the_same_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    optimised = servoctl.load(CONFIG, ["run.duration=0.05"], engine="c").simulate()
    monkeypatch.setattr(LIMIT, 0.95 * compiling(CONFIG))
    monkeypatch.setattr("servoctl.engine.ccode.CSource.cached", False)
    run = servoctl.load(CONFIG, ["run.duration=0.05"])
    plain = run.simulate()
    assert plain.metadata["engine"] == "c"
    assert "C without optimisation (optimised, it takes the compiler about " in plain.summary()["engine_choice"]
    np.testing.assert_array_equal(plain.q, optimised.q)
    engine = next(lines for name, lines in check(run).sections if name == "engine")
    assert "--engine c waits for it" in engine[-1]


def test_what_takes_long_even_without_optimisation_stays_on_the_virtual_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(LIMIT, 0.01)
    with pytest.raises(SystemExit, match=r"^0$"):
        main(["run", CONFIG, "--set", "run.duration=0.05", "--out", str(tmp_path / "run")])
    told = capsys.readouterr()
    assert "--engine auto: the run takes engine vm instead: C takes the compiler about " in told.err
    assert "by engine vm" in told.out


def test_a_start_that_waits_takes_the_virtual_machine_where_c_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = servoctl.load(CONFIG, engine="vm").loop
    assert isinstance(loop, CompiledLoop)
    monkeypatch.setattr(LIMIT, 0.01)
    with pytest.raises(CompileError, match=r"C takes the compiler about .* s \(--engine c waits for it\)"):
        load_at_once(loop.program(0), "auto")


def test_two_planar_robots_compile_with_optimisation_and_ten_seconds_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    run = servoctl.load("coordinated_robots", engine="vm")
    assert isinstance(run.loop, CompiledLoop)
    program = run.loop.program(0)
    chosen, remark = affordable(program)
    assert chosen is program
    assert remark == ""
    monkeypatch.setattr(type(program), "expected", 10.0)
    chosen, remark = affordable(program)
    assert chosen is not None
    assert not chosen.optimised
    assert compiling_time(chosen) < MOST < compiling_time(program)
    assert chosen.key != program.key
    monkeypatch.setattr(type(program), "expected", 1000.0)
    assert affordable(program)[0] is None
