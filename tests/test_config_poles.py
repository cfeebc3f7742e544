"""Gains of several rows in a config: which lists and mappings fit, and that an error counts the right rows."""

from pathlib import Path

import numpy as np
import pytest

import servoctl as sc
from tests.config_texts import plant_text
from tests.refused import Base, Case, assert_refused, cases

PLANT = plant_text(
    "Free", "m: float = 1.0", {"x": "m", "y": "m", "yaw": "rad"}, {"X": "N", "Y": "N", "T": "N m"},
    "self.m * np.eye(3)", "-0.1 * v",
)  # fmt: skip
CONFIG = """
plant: {class: "free.py:Free"}
initial: {q: 0}
task:
  - {name: x, holonomic: "x - 1"}
  - {name: y, holonomic: "y - 1"}
  - {name: yaw, holonomic: "yaw - 1"}
law: {kind: input_output, correction: {poles: -4}}
run: {duration: 0.01}
"""


def start_of(folder: Path, *overrides: str) -> list[float]:
    """The first command: -(violation) times the product of a row's poles, from rest."""
    (folder / "free.py").write_text(PLANT)
    (folder / "free.yaml").write_text(CONFIG)
    run = sc.load(folder / "free.yaml", list(overrides)).simulate()
    return [float(np.round(run[f"u.{name}"][0], 9)) for name in ("X", "Y", "T")]


def test_a_mapping_of_poles_gives_each_task_one_number_or_a_list(tmp_path: Path) -> None:
    assert start_of(tmp_path, "law.correction.poles={x: -4, y: [-2, -3], yaw: [-5, -6]}") == [16.0, 6.0, 30.0]


def test_a_task_has_a_list_of_poles_of_its_own(tmp_path: Path) -> None:
    assert start_of(tmp_path, "task.yaw.correction={poles: [-5, -6]}") == [16.0, 16.0, 30.0]


def test_a_list_of_gains_is_for_the_tasks_without_a_correction_of_their_own(tmp_path: Path) -> None:
    law = "law={kind: constraint_following, correction: {baumgarte: {alpha: [1, 1], beta: [2, 3]}}}"
    own = "task.y.correction={baumgarte: {alpha: 1, beta: 7}}"
    assert start_of(tmp_path, law, own) == [4.0, 49.0, 9.0]


@pytest.mark.parametrize("case", cases("poles"))
def test_gains_that_do_not_fit_are_refused_with_the_right_row(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert_refused(case, Base(CONFIG, "free.yaml", {"free.py": PLANT}), tmp_path, capsys)
