"""One verdict for the same values by `run`, `sweep`, `tune` and `sc.batch`; runs that diverge name their cause."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import servoctl as sc
from servoctl.assembly.diagnosis import fast_motion
from servoctl.errors import ConfigError
from servoctl.linear.reserve import reserve
from servoctl.study.batch import batch
from servoctl.study.problem import Evaluator, read_problem
from servoctl.study.sweep import within
from tests.config_texts import plant_text
from tests.faces import answer

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


@pytest.mark.parametrize("engine", ["vm", "c"])
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


FINGER = plant_text(  # a hand of m [kg]; a finger of I [kg m^2], geared to it and damped by d [N m s]
    "Finger", "m: float = 1.0; I: float = 6e-5; d: float = 0.9", {"x": "m", "finger": "rad"}, {"F": "N"},
    "np.diag([self.m, self.I])", "np.array([0.0, -self.d * v[1]])", "np.array([[1.0], [0.0]])",
)  # fmt: skip
GEARED = "\n    def passive_constraints(self, q, t):\n        return {'gear': q[0] - 1e-3 * q[1]}\n"
CONFIG = """
plant: {class: 'finger.py:Finger'}
initial: {q: {x: 0, finger: 0}, v: {x: 0.1, finger: RATE}}
task: [{name: path, holonomic: "x - 0.1*sin(t)"}]
law: {correction: {baumgarte: {alpha: 4, beta: 4}}}
run: {duration: 0.1, period: 0.001}
"""


def written(folder: Path, plant: str = FINGER, rate: float = 1e-3) -> str:
    (folder / "finger.py").write_text(plant)
    (folder / "finger.yaml").write_text(CONFIG.replace("RATE", f"{rate:g}"))
    return str(folder / "finger.yaml")


def test_a_pole_that_the_step_does_not_follow_is_named_before_and_after_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """0.9 / 6e-5 = 15,000 1/s: at 1 ms rk4 multiplies it by R(-15) = 1,648, and is stable up to 2.785/15,000 s."""
    config = written(tmp_path)
    code, out, _ = answer(capsys, "check", config, "--json")
    assert code == 0
    report = json.loads(out)
    found = report["fast_motion"]
    assert (found["coordinate"], found["loops"]) == ("finger", [])
    assert found["pole"][0] == pytest.approx(-15000.0, rel=1e-6)
    assert found["longest"] == pytest.approx(2.785 / 15000.0, rel=1e-3)
    assert any("motion of finger has a pole at -1.5e+04 1/s" in warning for warning in report["warnings"])
    code, _, err = answer(capsys, "run", config, "--out", str(tmp_path / "out"))
    assert code == 4
    assert "motion of finger has a pole at -1.5e+04 1/s, too fast for steps of 0.001 s" in err
    for remedy in ("run.integrator.step=0.0001", "run.integrator.method=radau"):
        assert answer(capsys, "run", config, "--set", remedy, "--out", str(tmp_path / "again"))[0] == 0


@pytest.mark.parametrize(("step", "said"), [(0.001, True), (0.0004, False)])
def test_a_swing_that_the_steps_damp_is_named(tmp_path: Path, step: float, said: bool) -> None:
    """1000 rad/s: R(i) of rk4 is 0.9939, so a swing of 1 mm was 4 um after a second, and nobody said so."""
    force = "np.array([0.0, 1e6 * (q[0] - q[1])])"
    (tmp_path / "bell.py").write_text(plant_text("Bell", "m: float = 1.0", "x y", "F", "np.eye(2)", force,
                                                 "np.array([[1.0], [0.0]])"))  # fmt: skip
    (tmp_path / "bell.yaml").write_text(
        "plant: {class: 'bell.py:Bell'}\ninitial: {q: {x: 0, y: 0.001}, v: 0}\ntask: [{name: a, holonomic: x}]\n"
        "law: {correction: {baumgarte: {alpha: 6, beta: 6}}}\n"
        f"run: {{duration: 1, integrator: {{step: {step}}}}}\n"
    )
    run = sc.load(tmp_path / "bell.yaml", engine="vm")
    found = fast_motion(run.loop, run.start, run.settings)
    assert (found is not None) is said
    if found is not None:
        rows = run.simulate()
        left = np.hypot(rows["q.y"][-1], rows["v.y"][-1] / 1000.0)
        assert left == pytest.approx(0.001 * np.exp(-found.damped), rel=1e-3)
        assert "of y has a pole at 0+1000j 1/s, which steps of 0.001 s of rk4 damp by 6.1 1/s" in str(found.finding)


def test_a_fast_pole_in_a_loop_names_the_loop(tmp_path: Path) -> None:
    """The gear is 1e-3 m per rad: the hand adds 1e-6 kg m^2 to the finger."""
    run = sc.load(written(tmp_path, FINGER + GEARED, rate=100.0))
    found = fast_motion(run.loop, run.start, run.settings)
    assert found is not None and found.loops == ("gear",)
    assert found.pole.real == pytest.approx(-0.9 / 6.1e-5, rel=1e-3)
    assert "motion of finger (held by gear)" in str(found.finding)


def test_dry_friction_is_no_fast_pole(tmp_path: Path) -> None:
    """Smooth over 1e-3 rad/s, 0.01 N m of it have a slope of 1.7e5 1/s at rest, but end with the motion."""
    dry = FINGER.replace("-self.d * v[1]", "-0.01 * np.tanh(v[1] / 1e-3)")
    run = sc.load(written(tmp_path, dry))
    assert fast_motion(run.loop, run.start, run.settings) is None


@pytest.mark.parametrize(
    ("config", "old", "new", "loops"),
    [
        ("four_bar", "0.14 + 0.15*cos(pi*t)", "0.29 + 0.3*t", "axle, pin1, pin2, foot and task pen_x lose rank"),
        (
            "three_rrr",
            "platform_x - 0.1*cos(pi*t)",
            "platform_x - 0.1 + 0.8*t",
            "elbow_c, wrist_c and task x, y lose rank",
        ),
    ],
)
def test_a_mechanism_led_beyond_its_reach_names_the_loops_and_the_rank(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], config: str, old: str, new: str, loops: str
) -> None:
    text = (Path(__file__).parents[1] / "configs" / f"{config}.yaml").read_text()
    assert old in text
    (tmp_path / "led.yaml").write_text(text.replace(old, new))
    code, _, err = answer(capsys, "run", str(tmp_path / "led.yaml"), "--out", str(tmp_path / "out"))
    assert code == 4
    assert "the mechanism came to the edge of its reach at t = " in err
    assert f"loops {loops}" in err
