"""Trees with many hinges, in loops along the branches, against the recursions that are written out."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from robot_trees import built, random_state, random_tree

from servoctl.engine import stored
from servoctl.engine.ccode import Program
from servoctl.engine.emit import emitted
from servoctl.engine.kernel import Kernel, inputs
from servoctl.engine.parameters import parameter_values, with_parameters
from servoctl.engine.recursions import RECURSIONS
from servoctl.mechanics.spatial import dynamics, kinematics
from servoctl.mechanics.spatial.branches import is_long
from servoctl.mechanics.spatial.build import RobotBuilder
from servoctl.mechanics.spatial.placement import Placement
from servoctl.mechanics.spatial.plant import Robot
from servoctl.simulation.compiled import CompiledLoop
from servoctl.types import Array
from tests.benchmarks.laws import chain_loop as loop_of

FRAMES = ("first_link22", "second_link7", "crate")


@cache
def two_trees() -> Robot:
    """Two trees with branches that stand side by side, links fixed to others, a payload given by its size."""
    builder = RobotBuilder()
    builder.add(random_tree(5, 23, fixed=3, hinges=True), prefix="first")
    at = Placement.at((2.0, -1.0, 0.5), (0.3, -0.4, 0.5))
    builder.add(random_tree(6, 8, hinges=True), prefix="second", at=at)
    builder.body("crate", "first_link15", Placement.at((0.1, 0.2, 0.3), (0.1, 0.0, 0.2)), 3.0, size=(0.1, 0.2, 0.3))
    return builder.plant()


@cache
def kernel() -> Kernel:
    """Everything that is computed in loops, compiled."""
    robot = two_trees()
    n = len(robot.coordinates)
    given = inputs({"q": (n,), "v": (n,), "p": (len(parameter_values(robot)),)})
    q, v = given["q"], given["v"]
    traced = with_parameters(robot, given["p"])
    outputs = {"M": traced.mass_matrix(q, 0.0), "Q": traced.force(q, v, 0.0)}
    for name, motion in traced.frame_motions(FRAMES, q, v).items():
        outputs |= {f"{name}_{key}": value for key, value in vars(motion).items()}
    return Kernel.compile("long", given, outputs)


def written_out(robot: Robot, q: Array, v: Array) -> list[Array]:
    """The same by the recursions on numbers."""
    tree, bodies = robot.tree, robot.body_moments()
    values = [dynamics.mass_matrix(tree, bodies, q), -dynamics.bias(tree, bodies, robot.gravity, q, v)]
    for motion in kinematics.frame_motions(tree, FRAMES, q, v).values():
        values += list(vars(motion).values())
    return values


@pytest.mark.parametrize("seed", [0, 1])
def test_loops_along_the_branches_equal_the_recursions_written_out(seed: int) -> None:
    robot = two_trees()
    assert is_long(robot.tree)
    q, v = random_state(robot, seed)
    for found, expected in zip(kernel()(q, v, parameter_values(robot)), written_out(robot, q, v), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-13 * max(1.0, np.abs(expected).max()))


def test_masses_and_gravity_remain_parameters_of_the_loops() -> None:
    robot = two_trees()
    q, v = random_state(robot, 2)
    p = parameter_values(robot) * np.random.default_rng(3).uniform(0.8, 1.2, len(parameter_values(robot)))
    other = with_parameters(robot, [float(x) for x in p])
    for found, expected in zip(kernel()(q, v, p), written_out(other, q, v), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-13 * max(1.0, np.abs(expected).max()))


def test_loops_along_the_branches_run_in_c() -> None:
    robot, on_vm = two_trees(), kernel()
    q, v = random_state(robot, 4)
    expected = on_vm(q, v, parameter_values(robot))
    in_c = Kernel(on_vm.function, on_vm.inputs, on_vm.outputs)
    in_c.run_on(Program([on_vm.function]).load())
    for found, value in zip(in_c(q, v, parameter_values(robot)), expected, strict=True):
        np.testing.assert_allclose(found, value, atol=1e-13 * max(1.0, np.abs(value).max()))


def test_loops_along_the_branches_are_kept_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVOCTL_CACHE", str(tmp_path))
    stored.keep_kernel("0" * 32, "long", kernel())
    names = list(RECURSIONS)
    for name in names:
        monkeypatch.delitem(RECURSIONS, name)
    again = stored.kept_kernel("0" * 32, "long", lambda: pytest.fail("it is not in the cache"))
    assert not RECURSIONS
    q, v = random_state(two_trees(), 5)
    p = parameter_values(two_trees())
    results = again(q, v, p)  # the function is read only now
    for one, other in zip(kernel()(q, v, p), results, strict=True):
        np.testing.assert_array_equal(one, other)
    assert {*emitted([kernel().function])} == {*emitted([again.function])}


def test_the_code_of_a_long_tree_has_no_statements_for_pairs_of_joints() -> None:
    def statements(joints: int) -> int:
        robot = built(random_tree(7, joints, hinges=True))
        given = inputs({"q": (joints,), "v": (joints,), "p": (len(parameter_values(robot)),)})
        bound = with_parameters(robot, given["p"])
        made = Kernel.compile("force", given, {"Q": bound.force(given["q"], given["v"], 0.0)})
        return sum(each.text.count(";") for each in emitted([made.function]).values())

    assert statements(40) < 1.8 * statements(20) < 3600


def test_the_law_of_a_chain_of_32_hinges_runs_traced_in_few_statements_and_equals_numpy() -> None:
    q, v = np.random.default_rng(0).uniform(-1.0, 1.0, (2, 32))
    traced, numeric = (loop_of(32, q, v, engine) for engine in ("auto", "numpy"))
    assert isinstance(traced, CompiledLoop)
    x = np.concatenate([q, v])
    for found, expected in zip(traced.rates(0.0, x), numeric.rates(0.0, x), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11 * np.abs(expected).max())
    statements = sum(each.text.count(";") for each in emitted([traced.control_kernel.function]).values())
    assert statements < 32 * 100  # written out, the triangle's inverse alone takes 32^3 / 6 = 5,500


def test_a_tree_with_a_slide_is_not_long() -> None:
    assert not is_long(built(random_tree(4, 29)).tree)
