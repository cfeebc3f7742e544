"""The task map names the rows that depend on others, whatever the start."""

import inspect
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import servoctl as sc
from servoctl.errors import TaskError
from servoctl.mechanics.model import Model
from servoctl.mechanics.task_map import sample_task_map
from servoctl.types import Array, State
from tests.small_plants import Masses


@dataclass(frozen=True)
class Slider(Masses):
    """A force along a direction that turns with `a`."""

    names: str = "x y a"
    forces: str = "F T"

    def actuation(self, q: Array, t: float) -> Array:
        return np.array([[np.cos(q[2]), 0.0], [np.sin(q[2]), 0.0], [0.0, 1.0]])


def row(text: str) -> sc.Holonomic:
    return sc.Holonomic(text)


@pytest.mark.parametrize("angle", [0.0, np.pi / 2, 0.3])
def test_as_many_rows_are_dependent_as_the_rank_lacks(angle: float) -> None:
    """At pi/2 the first row has no gain and the second has; elsewhere the first is independent, and not the second."""
    start = State(0.0, np.array([0.0, 0.0, angle]), np.zeros(3))
    model = Model(Slider(), {"x": row("x - t"), "y": row("y"), "a": row("a")}, start)
    states = [State(0.0, np.array([0.0, 0.0, a]), np.zeros(3)) for a in (angle, 0.4, 1.1)]
    found = sample_task_map(model, states, 1e-10, 1e-6)
    assert (found.generic_rank, [each.name for each in found.dependent]) == (2, ["y"])


def test_the_warning_names_the_row_even_if_only_the_start_differs(tmp_path: Path) -> None:
    (tmp_path / "slider.py").write_text(inspect.getsource(sys.modules[__name__]))
    (tmp_path / "slider.yaml").write_text(
        """
plant: {class: "slider.py:Slider"}
initial: {q: [0, 0, pi/2]}
task:
  - {name: x, holonomic: "x"}
  - {name: y, holonomic: "y"}
  - {name: a, holonomic: "a - pi/2"}
law: {correction: {baumgarte: {alpha: 4, beta: 4}}}
run: {duration: 0.1}
"""
    )
    warnings = sc.load(tmp_path / "slider.yaml").warnings
    named = [line for line in warnings if line.startswith("task: rank 2 of 3 rows")]
    assert len(named) == 1 and "y" in named[0]


def test_a_row_that_no_motion_changes_needs_no_input_as_long_as_it_asks_for_nothing() -> None:
    """As the height of a planar arm's tip: runs with and without it are equal, and a target that rises is refused."""
    correction = sc.Baumgarte(4.0, 4.0)

    def final(**more: sc.Holonomic) -> Array:
        law = sc.ConstraintFollowing(correction)
        task = {"x": row("x"), "a": row("a - 0.3"), **more}
        return sc.simulate(Slider(), task, law, q=[0.1, 0, 0.3], duration=0.2, step=0.01, engine="numpy").q[-1]

    np.testing.assert_array_equal(final(height=row("0*x")), final())
    with pytest.raises(TaskError, match="height: relative degree above 2: no actuator acts"):
        final(height=row("0*x - 0.1*t**2"))
