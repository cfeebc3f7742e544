"""Whatever a plant's methods do, a command ends in one sentence and its exit code; never "this is a bug", never 0."""

import json
from pathlib import Path

import pytest

import servoctl as sc
from tests.faces import exit_code
from tests.refused import Base, Case, assert_refused, cases

PLANT = """
import sys
from dataclasses import dataclass
from decimal import Decimal
import numpy as np
import servoctl as sc


def late(t):
    try:
        return float(t) > 0.02
    except Exception:  # a symbol
        return False


@dataclass(frozen=True)
class Bead(sc.Plant):
    m: float = 1.0
    l: float = 1.0
    coordinates = {"x": "m", "y": "m"}
    actuators = {"fx": "N", "fy": "N"}

    def mass_matrix(self, q, t):
        #mass_matrix
        return np.diag([self.m, self.m])

    def force(self, q, v, t):
        #force
        return np.array([0.0 * q[0], -9.8 * self.m])

    def actuation(self, q, t):
        #actuation
        return np.eye(2)

    def passive_constraints(self, q, t):
        #passive_constraints
        return {"rod": q[0] ** 2 + q[1] ** 2 - self.l**2}

    def energy(self, q, v, t):
        #energy
        return 0.5 * self.m * (v[0] ** 2 + v[1] ** 2) + 9.8 * self.m * q[1]

    def links(self, q):
        #links
        return {"rod": np.array([[0.0, 0.0], [q[0], q[1]]])}
"""
CONFIG = """
plant: {class: "bead.py:Bead"}
initial: {q: {x: 0.6, y: -0.8}, v: 0}
task:
  - {name: follow, holonomic: "x - 0.6 - 0.01*sin(t)"}
law: {correction: {baumgarte: {alpha: 5, beta: 5}}}
run: {duration: 0.05, integrator: {method: rk4, step: 0.005}}
"""
COPY = "(a plant may not change q or v: work on a copy, as in q = q.copy())"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(folder: Path, method: str, line: str, *words: str, config: str = CONFIG) -> int:
    assert f"#{method}" in PLANT
    (folder / "bead.py").write_text(PLANT.replace(f"#{method}", line))
    (folder / "bead.yaml").write_text(config)
    return exit_code(words[0], "bead.yaml", *words[1:])


@pytest.mark.parametrize("case", cases("bead"))
@pytest.mark.parametrize("words", [("run", "--engine", "numpy"), ("check",)])
def test_an_error_of_a_plant_at_the_start_is_reported_before_the_run(
    case: Case, words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert_refused(case, Base(CONFIG, "bead.yaml", {"bead.py": PLANT}, words), tmp_path, capsys)


@pytest.mark.parametrize("engine", ["numpy", "vm"])
@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("sys.exit(0)", "SystemExit: 0 (line"),
        ("return ['1.0', '2.0']", "TypeError: expected real numbers, got ['1.0', '2.0']"),
        ("return [1j, 2.0]", "TypeError: expected real numbers, got [1j, (2+0j)]"),
        ("q[0] = 0.5", COPY),
    ],
)
def test_an_error_of_a_plant_during_the_run_stops_it_and_keeps_its_rows(
    folder: Path, engine: str, line: str, sentence: str
) -> None:
    free = CONFIG[: CONFIG.index("task:")] + "law: none\n" + CONFIG[CONFIG.index("run:") :]
    assert call(folder, "force", f"if late(t): {line}", "run", "--engine", engine, "--out", "out", config=free) == 4
    summary = json.loads((folder / "out/summary.json").read_text())
    assert summary["status"] == "stopped"
    assert summary["error"].startswith("Bead.force: failed at t = 0.02") and sentence in summary["error"]
    assert summary["final"]["t"] == pytest.approx(0.015)  # the last whole step


@pytest.mark.parametrize("method", ["energy", "links"])
def test_a_picture_that_fails_later_is_left_out_and_reported(
    folder: Path, capsys: pytest.CaptureFixture[str], method: str
) -> None:
    line = "if abs(float(q[0]) - 0.6) > 1e-5: sys.exit(0)"
    assert call(folder, method, line, "run", "--engine", "numpy", "--out", "out") == 0
    assert f"warning: left out: drawing: Bead.{method}: failed at t = 0.0" in capsys.readouterr().err
    summary = json.loads((folder / "out/summary.json").read_text())
    assert (summary["status"], len(summary["left_out"])) == ("done", 1) and not (folder / "out/drawing.npz").exists()


@pytest.mark.parametrize("engine", ["numpy", "vm", "c"])
def test_a_nan_behind_maximum_or_clip_stops_the_run_on_every_engine(engine: str, tmp_path: Path) -> None:
    """From t = 2 s on the root is NaN, which a limit must not hide; the plant is tried at earlier states."""
    force = "return np.array([-np.maximum(np.clip(np.sqrt(2.0 - t), 0.0, 9.0), 0.1), -9.8 * self.m])"
    (tmp_path / "bead.py").write_text(PLANT.replace("return np.array([0.0 * q[0], -9.8 * self.m])", force))
    (tmp_path / "bead.yaml").write_text(CONFIG)
    run = sc.load(tmp_path / "bead.yaml", ["run.duration=2.1"], engine=engine)
    found = run.simulate()
    assert run.loop.engine == engine and found.metadata["status"] == "stopped"
    assert "force not finite at t = 2" in found.metadata["error"]
