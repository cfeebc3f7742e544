"""Runs of many steps: memory that follows the rows, and a refusal of what would never end."""

import tracemalloc
from contextlib import closing
from itertools import islice
from typing import Any

import numpy as np
import pytest

import servoctl
from servoctl.assembly import simulate
from servoctl.cli import main
from servoctl.errors import ConfigError, TaskError
from servoctl.simulation.integrate import integrate
from servoctl.simulation.rows import Grid
from servoctl.simulation.settings import Integrator, Settings
from servoctl.simulation.side_by_side import plan_of

STEP = 2e-4
DURATION = 2000.0  # ten million steps


@pytest.mark.parametrize(
    "how",
    [
        {"integrator": Integrator(step=STEP), "output_step": 1.0},
        {"integrator": Integrator(step=STEP), "output_step": 0.777777},
        {"integrator": Integrator(step=STEP), "period": STEP},
    ],
    ids=["rows at steps", "rows between steps", "sampled"],
)
def test_a_run_of_ten_million_steps_stores_none_of_their_times(how: dict[str, Any]) -> None:
    run = servoctl.load("two_mass_spring", engine="vm")
    x = run.loop.vector(run.start)
    next(integrate(run.loop, x, 0.0, Settings(0.01, integrator=Integrator(step=0.001))))  # compiles what a step needs
    tracemalloc.start()
    with closing(integrate(run.loop, x, 0.0, Settings(DURATION, **how))) as chunks:
        assert sum(len(chunk.t) for chunk in islice(chunks, 2)) > 0 or "output_step" in how
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8e6  # the times alone would be 80 MB


def test_a_grid_computes_the_times_of_an_array_without_storing_it() -> None:
    grid = Grid(0.5, 0.5 + 1.0, 0.03)
    expected = 0.5 + 0.03 * np.arange(35)
    expected[-1] = 1.5
    assert grid[:].tolist() == expected.tolist() == [grid[k] for k in range(len(grid))]
    assert grid[30:40].tolist() == expected[30:40].tolist() and grid[1:].tolist() == expected[1:].tolist()
    assert grid[3:5].tolist() == expected[3:5].tolist() and grid[-1] == 1.5
    assert len(Grid(0.0, 2000.0, 1e-9)) == 2_000_000_000_001


def test_runs_of_very_many_steps_run_one_by_one() -> None:
    loop = servoctl.load("two_mass_spring", engine="vm").loop
    assert plan_of(loop, 0.0, Settings(1.0, integrator=Integrator(step=1e-3), output_step=0.1)) is not None
    assert plan_of(loop, 0.0, Settings(1e4, integrator=Integrator(step=1e-3), output_step=0.1)) is None


STEPS = r"(\S+: |--set )?run\.duration.*: {} steps of {} s in {} s would take about {} at a million steps a second \("

ROWS = r"run\.duration.*: {} rows in {} s, \d\S* GB \(at most 1e\+08 rows; give a longer run\.output_step\)"


@pytest.mark.parametrize(("overrides", "sentence"), [
    (["run.duration=1e20"], STEPS.format(r"1e\+23", "0.001", r"1e\+20", r"3.2e\+09 years")),
    (["run.duration=2", "run.integrator.step=1e-12"], STEPS.format(r"2e\+12", "1e-12", "2", "23 days")),
    (["run.duration=9", "run.period=1e-12", "run.integrator.step=1e-12"], STEPS.format("9e.*", "1e-12", "9", "1e.*")),
    (["run.duration=2e6", "run.integrator.step=0.001", "run.output_step=0.001"], ROWS.format(r"2e\+09", r"2e\+06")),
    (["run.duration=2", "run.integrator={method: dop853}", "run.output_step=1e-12"], ROWS.format(r"2e\+12", "2")),
])  # fmt: skip
def test_a_run_that_would_never_end_is_refused_with_its_steps_and_their_time(
    overrides: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        servoctl.load("two_mass_spring", overrides)
    settings = [word for override in overrides for word in ("--set", override)]
    assert main(["run", "two_mass_spring", *settings]) == 2
    err = capsys.readouterr().err
    assert "bug" not in err and "(at most 1e+" in err


def test_the_python_call_refuses_it_too() -> None:
    plant = servoctl.load("two_mass_spring").system.model.plant
    with pytest.raises(
        TaskError, match=r"^simulate: duration: 1e\+13 steps of 0\.001 s in 1e\+10 s would take about 1\.2e\+02"
    ):
        simulate(plant, {}, None, q=0.0, duration=1e10)
