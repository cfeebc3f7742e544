"""Tasks of an open loop (`law: none`) are only observed: whatever they say, the run goes on, on every engine."""

from pathlib import Path

import numpy as np
import pytest
from small_robot import small_urdf

import servoctl as sc

RUN = """
plant: {robot: {urdf: small.urdf}}
initial: {q: {shoulder: -0.4, elbow: 1.2}}
task:
  - {name: here, holonomic: "shoulder - 9"}
  - {name: there, holonomic: "shoulder + 9"}
  - {name: turned, pose: tool, xyz: [0.1, 0, 0.2], rpy: [pi, 0, 0]}
law: none
run: {duration: 0.1, integrator: {method: rk4, step: 0.01}}
"""


@pytest.mark.parametrize("engine", ["vm", "numpy"])
def test_tasks_that_contradict_each_other_are_far_off_or_half_a_turn_away_are_only_written(
    tmp_path: Path, engine: str
) -> None:
    (tmp_path / "small.urdf").write_text(small_urdf())
    (tmp_path / "c.yaml").write_text(RUN)
    run = sc.load(tmp_path / "c.yaml", engine=engine).simulate()
    assert run.metadata["status"] == "done"
    (tmp_path / "c.yaml").write_text(
        RUN.replace("task:", "tasks:").split("tasks:")[0] + "law: none\nrun:" + RUN.split("run:")[1]
    )
    free = sc.load(tmp_path / "c.yaml", engine=engine).simulate()
    np.testing.assert_allclose(run.q, free.q, rtol=0, atol=1e-13)  # the task takes no part in the motion
    np.testing.assert_allclose(run["violation.here"], run["q.shoulder"] - 9.0, atol=1e-13)
    np.testing.assert_allclose(run["violation.there"], run["q.shoulder"] + 9.0, atol=1e-13)
