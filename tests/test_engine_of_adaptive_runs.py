"""The engine of adaptive runs: chosen by counted operations, equal on every machine, and named in the summary."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import casadi as ca
import numpy as np
import pytest

import servoctl
from servoctl.assembly import simulate
from servoctl.cli import main
from servoctl.engine import compiler
from servoctl.engine.cost import operations
from servoctl.run_folder.trajectory import Trajectory
from servoctl.simulation.compiled import CompiledLoop
from servoctl.simulation.foresight import Foresight, foresee
from servoctl.simulation.rows import Integrator
from servoctl.simulation.settings import Settings
from servoctl.types import Array

COMPILED = pytest.mark.skipif(compiler.compiler() is None, reason="no C compiler on the path")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of compiled libraries that is empty."""
    monkeypatch.setenv("SERVOCTL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@dataclass(frozen=True)
class Pendulum(servoctl.Plant):
    """A pendulum without friction."""

    g: float = 9.81
    coordinates: ClassVar = {"th": "rad"}
    actuators: ClassVar = {}

    def mass_matrix(self, q: Array, t: float) -> Array:
        return np.eye(1)

    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.array([-self.g * np.sin(q[0])])


def swing(**how: Any) -> Trajectory:
    return simulate(Pendulum(), {}, None, q=1.0, duration=how.pop("duration"), method="dop853", **how)


@COMPILED
def test_auto_compiles_a_long_run_of_adaptive_steps_and_gives_the_reason() -> None:
    run = swing(duration=2000.0, output_step=0.001, rtol=1e-9, atol=1e-11)
    assert (run.metadata["engine"], run.metadata["status"]) == ("c", "done")
    choice = run.summary()["engine_choice"]
    assert choice.endswith(" s on the virtual machine: compiled")
    evaluations = float(choice.split(" predict ")[1].split(",")[0])
    assert evaluations == pytest.approx(
        run.metadata["evaluations"], rel=0.3
    )  # of a pendulum each second is like the first


def test_auto_leaves_a_short_run_of_adaptive_steps_on_the_virtual_machine_and_gives_the_reason() -> None:
    run = swing(duration=20.0, output_step=0.01)
    assert run.metadata["engine"] == "vm"
    assert run.summary()["engine_choice"].endswith(" s on the virtual machine: not compiled")


def test_the_estimate_is_counted_and_so_the_same_every_time() -> None:
    how = [Integrator("dop853"), Integrator("radau", rtol=1e-6, atol=1e-8)]
    for integrator in how:
        run = servoctl.load("coordinated_robots", engine="vm")
        assert isinstance(run.loop, CompiledLoop)
        settings = Settings(3000.0, integrator, output_step=0.01)
        found = [foresee(run.loop, run.start, settings) for _ in range(2)]
        assert isinstance(found[0], Foresight) and found[0] == found[1]
        assert run.loop.evaluations == 0  # the beginning does not count for the run
        assert found[0].saved <= found[0].total
    held = Settings(3000.0, Integrator("dop853"), period=0.01)
    ahead = foresee(run.loop, run.start, held)
    assert ahead is not None and ahead.span == pytest.approx(1.0) and ahead.evaluations > 3000 / 0.01 * 14


def test_the_beginning_of_a_short_run_is_a_tenth_of_it() -> None:
    run = servoctl.load("coordinated_robots", engine="vm")
    assert isinstance(run.loop, CompiledLoop)
    ahead = foresee(run.loop, run.start, Settings(0.5, Integrator("dop853"), output_step=0.01))
    assert ahead is not None and ahead.span == pytest.approx(0.05)


def test_operations_count_a_called_function_once_per_call() -> None:
    x = ca.SX.sym("x")
    inner = ca.Function("inner", [x], [ca.sin(x) + 1], {"never_inline": True})
    alone = ca.Function("alone", [x], [ca.sin(x) + 1])
    twice = ca.Function("twice", [x], [inner(x) * inner(2 * x)])
    assert operations(twice) == twice.n_instructions() + 2 * operations(alone)


@COMPILED
def test_the_command_reports_that_it_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("servoctl.simulation.engine_choice.LONG", 1e-3)
    monkeypatch.setattr("servoctl.simulation.engine_choice.WORTH", 0.0)
    with pytest.raises(SystemExit, match=r"^0$"):
        main(["run", "projectile", "--out", str(tmp_path / "run")])
    assert " s on the virtual machine: compiled" in capsys.readouterr().err
