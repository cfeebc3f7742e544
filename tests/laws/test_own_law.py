"""A law of one's own, by its class in a config: wherever the law of constraint following runs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_export import built, passes

import servoctl as sc
from servoctl.engine import compiler
from servoctl.errors import ServoctlError
from servoctl.export import export
from servoctl.linear.modes import modes
from tests.faces import exit_code

CONFIGS = Path(__file__).parents[2] / "configs"

LAW = """
from dataclasses import dataclass
import numpy as np
import servoctl as sc


@dataclass(frozen=True)
class ComputedTorque(sc.Feedback):
    kp: float = 100.0
    kd: float = 20.0

    def inputs(self, at):
        e, de = at.task.violation, at.task.violation_rate
        qdd = np.linalg.solve(at.task.A, at.task.b - self.kd * de - self.kp * e)
        return np.linalg.inv(at.B) @ (at.M @ qdd - at.Q)


@dataclass(frozen=True)
class Spring(sc.Feedback):
    k: float = 3.0

    def inputs(self, at):
        return [-self.k * at.q[0]]
"""


OWN = 'law={class: "laws.py:ComputedTorque", parameters: {kp: 400, kd: 40}}'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("own")
    (made / "laws.py").write_text(LAW)
    (made / "scara.yaml").write_text((CONFIGS / "scara_drive.yaml").read_text())
    (made / "spring.yaml").write_text((CONFIGS / "two_mass_spring.yaml").read_text())
    return made


def own(folder: Path, *sets: str, **more: Any) -> sc.Run:
    return sc.load(folder / "scara.yaml", [OWN, "run.duration=1", *sets], **more)


def spring(folder: Path, *sets: str) -> sc.Run:
    return sc.load(folder / "spring.yaml", ['law={class: "laws.py:Spring"}', *sets], engine="vm")


@pytest.mark.parametrize("engine", ["vm", "c", "numpy"])
def test_computed_torque_is_constraint_following_where_rows_motors_and_coordinates_are_as_many(
    folder: Path, engine: str
) -> None:
    mine = own(folder, engine=engine).simulate()
    ours = sc.load(folder / "scara.yaml", ["run.duration=1"], engine="vm").simulate()
    np.testing.assert_allclose(mine.u, ours.u, rtol=0, atol=1e-9)
    np.testing.assert_allclose(mine.q, ours.q, rtol=0, atol=1e-11)


def test_on_emulated_drives_too(folder: Path, tmp_path: Path) -> None:
    for name, sets in (("own", ["--set", OWN]), ("ours", [])):
        words = ["hil", str(folder / "scara.yaml"), "--duration", "0.5", "--out", str(tmp_path / name), *sets]
        assert exit_code(*words) == 0
    mine, ours = (sc.load_run(tmp_path / name) for name in ("own", "ours"))
    np.testing.assert_allclose(mine.q, ours.q, rtol=0, atol=1e-9)
    np.testing.assert_allclose(mine.u, ours.u, rtol=0, atol=1e-6)


def test_gains_that_the_drives_are_too_slow_for_are_named_by_check_and_refused_on_drives(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """e'' = -kd e' - kp e decays; held for 2 ms, a cycle late, it does not: kd of 1500 1/s is beyond 1 / 2 ms."""
    config, gains = str(folder / "scara.yaml"), ["--set", "law.parameters={kp: 500000, kd: 1500}"]
    assert exit_code("check", config, "--set", OWN) == 0
    assert "gains of your own\n  stable at the start (on drives: period 0.002 s" in capsys.readouterr().out
    assert exit_code("check", config, "--set", OWN, *gains) == 2
    said = "hil.period: law: unstable at the start (on drives: period 0.002 s, delay 1 cycle"
    assert said in capsys.readouterr().err
    assert exit_code("hil", config, "--set", OWN, *gains) == 2
    assert said in capsys.readouterr().err


def test_its_gains_are_parameters_of_the_compiled_law(folder: Path) -> None:
    run = own(folder, "run.period=0.002", "initial.project=false", "initial.q.q4=-0.11")
    kp = [100.0, 400.0]
    table = sc.batch(run, {"law.parameters.kp": kp})
    singles = [own(folder, "run.period=0.002", "initial.project=false", "initial.q.q4=-0.11",
                   f"law.parameters.kp={k}").simulate().summary()["tasks"]["z"] for k in kp]  # fmt: skip
    assert table["max_violation.z"] == pytest.approx([single["max_violation"] for single in singles], rel=1e-9)
    assert table["final_violation.z"] == pytest.approx([single["final_violation"] for single in singles], abs=1e-12)
    assert table["rms_violation"][0] > 1.05 * table["rms_violation"][1]


@pytest.mark.skipif(compiler.compiler() is None or compiler.is_tcc(), reason="no C compiler on the path")
def test_it_is_exported(folder: Path, tmp_path: Path) -> None:
    made = export(own(folder, engine="vm"))
    assert passes(built(made, tmp_path)) > made.vectors


def test_its_modes_are_those_of_the_whole_loop(folder: Path) -> None:
    run = spring(folder)
    wanted = np.linalg.eigvals(np.asarray(sc.linearize(run).A))
    found = [mode.pole for mode in modes(run, run.start, np.zeros(0))]
    assert np.sort_complex(np.round(found, 9)) == pytest.approx(np.sort_complex(np.round(wanted, 9)), abs=1e-6)


def test_an_open_loop_with_tasks_has_the_modes_of_the_plant() -> None:
    run = sc.load("two_mass_spring", ["law=none"], engine="vm")
    k, m1, m2 = (getattr(run.system.model.plant, name) for name in ("k", "m1", "m2"))
    w = np.sqrt(k * (m1 + m2) / (m1 * m2))
    found = sorted(abs(mode.pole) for mode in modes(run, run.start, np.zeros(0)))
    assert found == pytest.approx([0.0, 0.0, w, w], abs=1e-6)


def test_a_task_that_it_misses_is_no_failure(folder: Path) -> None:
    run = spring(folder, "initial.q={x1: 0.1, x2: 5}", "initial.project=false", "run.duration=0.5").simulate()
    assert run.metadata["status"] == "done" and run.summary()["tasks"]["distance"]["max_violation"] > 3.0


def test_a_run_folder_has_its_file(folder: Path, tmp_path: Path) -> None:
    assert exit_code("run", str(folder / "spring.yaml"), "--set", 'law={class: "laws.py:Spring"}',
                 "--set", "run.duration=0.1", "--out", str(tmp_path / "run")) == 0  # fmt: skip
    again = tmp_path / "again"
    assert exit_code("run", str(tmp_path / "run" / "config.yaml"), "--out", str(again)) == 0
    assert json.loads((again / "summary.json").read_text())["status"] == "done"


@pytest.mark.parametrize(
    ("sets", "sentence"),
    [
        ([OWN, "law.limits.F4=30"], r"law.limits: does not go with law.class \(the class makes the inputs alone"),
        ([OWN, "task.z.priority=2"], "task.z.priority: does not go with law.class"),
        ([OWN, "law.parameters.q=3"], r"law.parameters.q: ComputedTorque has no such parameter \(known: kp, kd\)"),
        ([OWN, "law.parameters.kp=x"], "law.parameters.kp"),
        (["law={class: 'laws.py:Foo'}"], "there is no class 'Foo' in laws.py .known: ComputedTorque, Spring"),
        (["law={class: 'laws.py:np'}"], "np is not a Feedback"),
        (["law.parameters={kp: 3}"], r"law.parameters: needs law.class"),
        (["law={class: 'laws.py:Spring'}"], r"Spring returns shape \(1,\), the plant has 4 inputs"),
    ],
)
def test_what_does_not_fit_is_refused(folder: Path, sets: list[str], sentence: str) -> None:
    with pytest.raises(ServoctlError, match=sentence):
        sc.load(folder / "scara.yaml", sets, engine="vm").simulate()


def test_live_gains_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    live = "hil.live={law.parameters.kp: [100, 500]}"
    assert exit_code("hil", str(folder / "scara.yaml"), "--set", OWN, "--set", live) == 2
    assert "hil.live: needs constraint following" in capsys.readouterr().err
