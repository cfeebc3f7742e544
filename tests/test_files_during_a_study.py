"""Files that are edited during a study count from the next run on, as in `servoctl run`."""

import os
from pathlib import Path

import pytest

import servoctl as sc
from servoctl.study.batch import run_at
from tests.config_texts import plant_text

CART = plant_text("Cart", "", "x", "F", "np.array([[2.0]])")

LINK = """<robot name="arm">
  <link name="base"/>
  <link name="arm"><inertial><mass value="2.0"/><inertia ixx="1" iyy="1" izz="2.0" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="x" type="continuous"><parent link="base"/><child link="arm"/><axis xyz="0 0 1"/></joint>
</robot>"""  # noqa: E501

CONFIG = """
plant: {PLANT}
initial: {q: [0.0]}
task: [{name: place, holonomic: x}]
law: {correction: {baumgarte: {alpha: 5, beta: 5}}}
run: {duration: 0.01}
"""


@pytest.mark.parametrize(
    ("plant", "name", "text"),
    [("{class: 'cart.py:Cart'}", "cart.py", CART), ("{robot: {urdf: arm.urdf}}", "arm.urdf", LINK)],
)
def test_a_file_of_the_plant_that_changes_during_a_study_counts_from_the_next_run_on(
    plant: str, name: str, text: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / "c.yaml").write_text(CONFIG.replace("{PLANT}", plant))
    run = sc.load(tmp_path / "c.yaml", engine="vm")

    def inertia() -> float:
        other = run_at(run, {"law.correction.baumgarte.alpha": 6.0})
        return float(other.system.model.matrices(other.start).M[0, 0])

    assert inertia() == 2.0
    (tmp_path / name).write_text(text.replace("2.0", "3.0"))
    os.utime(tmp_path / name, ns=(1, 1))  # the clock of a file system may stand still between two writes
    assert inertia() == 3.0
