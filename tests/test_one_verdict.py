"""One verdict for the same values: `run`, `sweep`, `tune` and `sc.batch`, on every engine."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import servoctl as sc
from servoctl.errors import ConfigError
from servoctl.linear.reserve import reserve
from servoctl.study.batch import batch
from servoctl.study.evaluator import Evaluator
from servoctl.study.problem import read_problem
from servoctl.study.sweep import within
from tests.config_texts import plant_text

SPRUNG = plant_text(
    "Sprung", "m: float = 1.0; k: float = 0.0; damping: float = 0.0", "x z", "F", "np.diag([self.m, 1.0])",
    "self.k * (q[1] - q[0]) * np.array([1.0, -1.0]) - self.damping * v[1] * np.array([0.0, 1.0])",
    "np.array([[1.0], [0.0]])",
    """
    def energy(self, q, v, t):
        return 0.5 * (self.m * v[0] ** 2 + v[1] ** 2 + self.k * (q[1] - q[0]) ** 2)
""",
)  # fmt: skip
LAW = """
plant: {class: "sprung.py:Sprung", parameters: {k: 1, damping: 1}}
initial: {q: {x: 0.1, z: 0}}
task: [{name: rest, holonomic: x}]
law: {correction: {baumgarte: {alpha: 40, beta: 40}}}
run: {duration: 2, period: 0.02}
"""
ERROR = "realism.parameter_error.m"


def config(folder: Path, text: str) -> Path:
    (folder / "sprung.py").write_text(SPRUNG)
    path = folder / "sprung.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("engine", ["vm", "c", "numpy"])
def test_a_run_whose_violation_grows_without_bound_has_run_away_in_run_and_sweep(tmp_path: Path, engine: str) -> None:
    """The real mass is a fifth of the law's, so the gains are five times what the period allows."""
    path = config(tmp_path, LAW + "realism: {parameter_error: {m: 0}}\n")
    wild = sc.load(path, [f"{ERROR}=-0.8"], engine=engine).simulate()
    assert wild.q[-1, 0] > 1e60
    assert wild.metadata["status"] == "ran_away"
    assert "the run diverged: the error of rest grew from 0.1 to" in wild.metadata["error"]
    table = batch(sc.load(path, engine=engine), {ERROR: [0.0, -0.8]})
    assert table["status"] == ["done", "ran_away"]
    assert table["error"][1] == wild.metadata["error"]


def test_a_long_fall_has_not_run_away(tmp_path: Path) -> None:
    """Ten million metres are far for a start at 1 m, but nothing is wrong."""
    text = LAW.partition("task:")[0] + "law: none\ninputs: {F: 10}\nrun: {duration: 2000, integrator: {step: 10}}\n"
    fall = sc.load(config(tmp_path, text), ["plant.parameters={m: 1, k: 0}"], engine="vm").simulate()
    assert fall.q[-1, 0] == pytest.approx(0.1 + 5.0 * 2000**2, rel=1e-12)  # rk4 is exact for a parabola
    assert fall.metadata["status"] == "done"


def test_an_unstable_loop_has_a_gain_margin_of_one_and_neither_tune_nor_sweep_takes_it(tmp_path: Path) -> None:
    tune = (
        "tune: {trials: 2, search: {law.correction.baumgarte.alpha: {low: 10, high: 40}}, uncertainty: {%s: [0, -0.8]}}"
    )
    text = LAW + "realism: {parameter_error: {m: 0}}\n" + tune % ERROR
    short = ["run.duration=0.04", "tune.share=none", "tune.overshoot=none"]
    run = sc.load(config(tmp_path, text), short, engine="vm")
    assert reserve(sc.load(tmp_path / "sprung.yaml", [*short, f"{ERROR}=-0.8"], engine="vm")).gain_margin == 1.0
    wild, tame = Evaluator(read_problem(run)).evaluate(
        [{f"law.correction.baumgarte.{gain}": rate for gain in ("alpha", "beta")} for rate in (40.0, 4.0)]
    )
    assert wild.status == "infeasible" and wild.reason is not None
    assert wild.reason.startswith("gain_margin 1 is below 2: the loop is unstable at the start")
    assert tame.status == "done"
    best, figures = within(run, [0, 1], [{ERROR: -0.8}, {"law.correction.baumgarte.alpha": 10.0}], 2)
    assert best == [1] and figures[0]["gain_margin"] == 1.0


def test_sweep_refuses_what_run_refuses_when_only_the_law_changes(tmp_path: Path) -> None:
    """With this box of masses the observer is too fast above some rate; the plant, task and start stay the same."""
    text = LAW.replace("alpha: 40, beta: 40}}", "alpha: 4, beta: 4}}, observer: {rate: 5}, uncertainty: {m: 0.5}")
    path, rates = config(tmp_path, text), [5.0, 150.0]
    table = batch(sc.load(path, engine="vm"), {"law.observer.rate": rates})
    assert table["status"] == ["done", "refused"]
    with pytest.raises(ConfigError, match="unstable at 150 1/s for the worst machine"):
        sc.load(path, [f"law.observer.rate={rates[1]}"], engine="vm")


def verdicts(path: Path, engine: str, values: dict[str, list[float]]) -> list[tuple[Any, Any]]:
    table = batch(sc.load(path, engine=engine), values)
    return list(zip(table["status"], table["error"], strict=True))


def test_a_batch_in_c_asks_the_same_judges_as_a_single_run(tmp_path: Path) -> None:
    """Slow unstable internal dynamics: z'' = 1.5 z' - z; and a step too long for the energy."""
    text = LAW.replace("damping: 1}", "damping: -1.5}").replace("duration: 2,", "duration: 30,")
    path = config(tmp_path, text)
    alone = sc.load(path, engine="vm").simulate()
    assert alone.metadata["status"] == "ran_away" and np.abs(alone.q[-1]).max() < 1e12
    found = verdicts(path, "c", {"law.correction.baumgarte.alpha": [40.0, 39.0]})
    assert found[0] == ("ran_away", alone.metadata["error"]) and found[1][0] == "ran_away"
    free = "law: none\nrun: {duration: 3, integrator: {step: 0.5}}\n"
    path.write_text(LAW.partition("task:")[0].replace("damping: 1", "damping: 0") + free)
    still = sc.load(path, engine="vm").simulate()
    assert still.metadata["status"] == "stopped" and "the energy, which nothing changes" in still.metadata["error"]
    assert verdicts(path, "c", {"plant.parameters.k": [1.0, 1.1]})[0] == ("stopped", still.metadata["error"])
