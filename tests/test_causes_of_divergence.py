"""Runs that diverge name their cause: a pole that the step does not follow, or a dead point of a mechanism."""

import json
from pathlib import Path

import pytest

import servoctl as sc
from servoctl.assembly.diagnosis import fast_motion
from tests.config_texts import plant_text
from tests.faces import answer

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


@pytest.mark.parametrize("engine", ["vm", "numpy"])
def test_a_pole_that_the_step_does_not_follow_is_named_before_and_after_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], engine: str
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
    code, _, err = answer(capsys, "run", config, "--engine", engine, "--out", str(tmp_path / "out"))
    assert code == 4
    assert "motion of finger has a pole at -1.5e+04 1/s, too fast for steps of 0.001 s" in err
    for remedy in ("run.integrator.step=0.0001", "run.integrator.method=radau"):
        assert answer(capsys, "run", config, "--set", remedy, "--out", str(tmp_path / "again"))[0] == 0


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
