"""Priorities against nested least squares; rows of priority 2 and below never stop a run.

Named secondary aims are met as well as the task allows, without an effect on the task.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import servoctl as sc
from servoctl.assembly.make import make_system
from servoctl.engine.decomposition import frobenius
from servoctl.engine.kernel import Kernel, inputs
from servoctl.engine.linalg import product
from servoctl.laws.configured import ConstraintFollowing
from servoctl.laws.corrections import Baumgarte
from servoctl.laws.priorities import Levels
from servoctl.mechanics.constraint import Holonomic
from servoctl.simulation.closed_loop import Loop
from servoctl.types import Array, State, Status
from tests.laws.test_outcomes import Masses

Problem = list[tuple[Array, Array]]

TOLERANCE = 1e-10
ROUNDING = 1e-11
"""Conditions of the random levels and of what is left of them lie below 1e3."""

SHAPES: list[tuple[tuple[int, int], ...]] = [
    ((2, 2), (2, 2), (2, 2)),
    ((2, 2), (3, 1), (2, 2)),
    ((3, 2), (3, 3), (4, 1)),
    ((4, 4), (4, 4), (2, 2)),
    ((6, 6), (3, 3)),
    ((2, 0), (3, 2)),
    ((5, 3),),
    ((0, 0), (2, 2), (1, 1)),
]
"""Levels on six inputs: (rows, rank of the level by itself)."""


def problem(shapes: tuple[tuple[int, int], ...], seed: int, m: int = 6) -> Problem:
    """Random levels with targets that their own rows may contradict."""
    random = np.random.default_rng(seed)
    return [
        (random.standard_normal((rows, rank)) @ random.standard_normal((rank, m)), random.standard_normal(rows))
        for rows, rank in shapes
    ]


PROBLEMS = pytest.mark.parametrize("levels", [problem(shapes, seed) for shapes in SHAPES for seed in range(3)])


def nested(levels: Problem, measure: Array) -> Array:
    """Least squares level by level over a basis of what is left, then the least |measure u|; by singular values."""
    m = levels[0][0].shape[1]
    u, basis = np.zeros(m), np.eye(m)
    for T, e in [*levels, (measure, np.zeros(len(measure)))]:
        U, sizes, V = np.linalg.svd(T @ basis)
        rank = int(np.sum(sizes > 1e-9 * max(np.linalg.norm(T), 1e-30)))
        part = V[:rank].T @ ((U[:, :rank].T @ (e - T @ u)) / sizes[:rank])
        u, basis = u + basis @ part, basis @ V[rank:].T
    return u


class Prioritised(NamedTuple):
    """What the levels give for one right-hand side."""

    u: Array
    free: Array  # projector onto the null space of all levels
    ranks: tuple[Any, ...]
    residuals: tuple[Array, ...]
    pivots: tuple[Any, ...]
    pivot_min: Any

    @property
    def rank(self) -> Any:
        return sum(self.ranks)


def prioritised(levels: Problem, tolerance: Any, scale: Any = None, measure: Array | None = None) -> Prioritised:
    maps, targets = zip(*levels, strict=True)
    found = Levels.of(maps, tolerance, [frobenius(T) for T in maps] if scale is None else scale)
    m = maps[0].shape[1]
    u = found.solve(targets, np.zeros(m))[0]
    u = u if measure is None else found.least(measure, u, tolerance)
    free = np.stack([found.free(unit) for unit in np.eye(m)], axis=1)
    left = tuple(e - product(T, u) for T, e in levels)
    pivots = tuple(split.pivot_min for split in found.splits)
    return Prioritised(u, free, found.ranks, left, pivots, found.pivot_min)


@PROBLEMS
def test_the_inputs_are_those_of_nested_least_squares(levels: Problem) -> None:
    found = prioritised(levels, TOLERANCE)
    np.testing.assert_allclose(found.u, nested(levels, np.eye(6)), rtol=0, atol=ROUNDING)
    for (T, e), left in zip(levels, found.residuals, strict=True):
        np.testing.assert_array_equal(left, e - T @ found.u)


@PROBLEMS
def test_the_free_space_is_a_projector_without_effect_on_any_level(levels: Problem) -> None:
    found = prioritised(levels, TOLERANCE)
    every = np.concatenate([T for T, _ in levels])
    np.testing.assert_allclose(every @ found.free, 0.0, atol=ROUNDING)
    np.testing.assert_allclose(found.free @ found.free, found.free, atol=ROUNDING)
    np.testing.assert_allclose(found.free, found.free.T, atol=ROUNDING)
    assert found.rank == np.linalg.matrix_rank(every, tol=1e-9)
    assert np.trace(found.free) == pytest.approx(6 - found.rank, abs=ROUNDING)


@PROBLEMS
def test_a_measure_selects_among_inputs_of_the_same_effect(levels: Problem) -> None:
    random = np.random.default_rng(7)
    weights = np.diag(np.sqrt([1.0, 4.0, 0.1, 2.0, 9.0, 0.5]))
    for measure in (weights, random.standard_normal((8, 6)), random.standard_normal((2, 6))):
        found, shortest = prioritised(levels, TOLERANCE, measure=measure), prioritised(levels, TOLERANCE)
        for left, same in zip(found.residuals, shortest.residuals, strict=True):
            np.testing.assert_allclose(left, same, rtol=0, atol=ROUNDING)
        np.testing.assert_allclose((measure @ found.free).T @ (measure @ found.u), 0.0, atol=ROUNDING)
        if len(measure) >= 6:
            np.testing.assert_allclose(found.u, nested(levels, measure), rtol=0, atol=ROUNDING)


def test_a_level_without_room_changes_nothing_and_has_rank_0() -> None:
    (T, e), (other, f) = problem(((3, 3), (2, 2)), 6)
    levels = [(T, e), (np.array([[1.0, 2.0, -1.0], [0.0, 1.0, 1.0]]) @ T, np.array([5.0, 5.0])), (other, f)]
    found, without = prioritised(levels, TOLERANCE), prioritised([levels[0], levels[2]], TOLERANCE)
    np.testing.assert_allclose(found.u, without.u, rtol=0, atol=1e-14)
    assert found.ranks == (3, 0, 2)
    assert found.pivots[1] == 0.0
    assert found.pivot_min == min(found.pivots[0], found.pivots[2]) > 0.0
    assert np.abs(found.residuals[1]).min() > 0.1
    assert max(np.abs(found.residuals[0]).max(), np.abs(found.residuals[2]).max()) < ROUNDING


def test_nearly_dependent_levels_do_not_disturb_the_higher_one() -> None:
    random = np.random.default_rng(2)
    T = random.standard_normal((3, 6))
    near = T + 1e-7 * random.standard_normal((3, 6))
    found = prioritised([(T, np.ones(3)), (near, np.zeros(3))], TOLERANCE)
    assert np.abs(found.u).max() > 1e5
    assert np.abs(found.residuals[0]).max() < 1e-14 * np.abs(found.u).max() * 10
    assert found.ranks == (3, 3)


@pytest.mark.parametrize(("size", "rank"), [(0.9e-6, 0), (1.1e-6, 1)])
def test_rank_is_counted_against_the_matrix_before_any_projection(size: float, rank: int) -> None:
    """What is left of the second row has the length `size`; the row itself has the length 1."""
    levels = [(np.array([[3.0, 0.0]]), np.ones(1)), (np.array([[np.sqrt(1 - size**2), size]]), np.ones(1))]
    assert prioritised(levels, 1e-6).ranks == (1, rank)
    assert prioritised(levels, 1e-6, scale=[3.0, 0.5]).ranks == (1, 1)
    assert prioritised(levels, 1e-6, scale=[2.0, 2.0]).ranks == (1, 0)


def test_derivatives_stay_finite_if_a_level_loses_rank() -> None:
    import casadi as ca

    given = inputs({"T": (2, 3), "e": (2,)})
    found = prioritised([(given["T"][:1], given["e"][:1]), (given["T"][1:], given["e"][1:])], TOLERANCE)
    kernel = Kernel.compile("two", given, {"u": found.u})
    slope = kernel.function.jacobian()
    for T in ([[1.0, 0.0, 0.0], [2.0, 0.0, 0.0]], [[0.0, 0.0, 0.0], [1.0, 1.0, 0.0]]):
        for part in slope(ca.DM(T), ca.DM([1.0, 2.0]), ca.DM.zeros(3)):
            assert np.isfinite(np.array(part)).all()


CONFIG = """\
plant: {class: "tests.laws.test_outcomes:Masses", parameters: {inputs: "%s"}}
initial: {q: {x1: 0.5, x2: -0.2}}
task:
  - {name: first, holonomic: "x1 - 0.5 - 0.1*sin(t)"%s}
  - {name: posture, holonomic: "x1 + 7"%s}
law: {correction: {baumgarte: {alpha: 4, beta: 4}}, on_infeasible: %s%s}
run: {duration: 0.5, integrator: {step: 0.005}}
"""


def run(folder: Path, mode: str = "fault", inputs: str = "1", first: str = "", more: str = "") -> Any:
    """The summary of a run whose posture asks x1 to be where the first task does not want it."""
    path = folder / "wish.yaml"
    path.write_text(CONFIG % (inputs, first, ", priority: 2", mode, more))
    return sc.load(path, engine="vm").simulate()


@pytest.mark.parametrize("mode", ["warn", "damp", "fault"])
def test_a_conflicting_row_of_lower_priority_is_reported_and_does_not_change_the_status(
    tmp_path: Path, mode: str
) -> None:
    found = run(tmp_path, mode)
    summary = found.summary()
    assert (summary["status"], summary["status_counts"]) == ("done", {"OK": 101})
    assert summary["residual_max"] < 1e-12
    assert summary["tasks"]["first"]["max_violation"] < 0.05  # it starts with the wrong rate, 0.1 m/s
    at_start = -16.0 * 7.5 - 8.0 * 0.0  # what the posture wants of x1'': -beta^2 times 7.5 m
    first = 8.0 * 0.1  # what the first task makes it: damping times the rate that is missing
    assert found["given_up.posture"][0] == pytest.approx(abs(at_start - first), rel=1e-12)
    assert summary["given_up"] == {"posture": pytest.approx(np.max(found["given_up.posture"]))}


def test_a_feasible_row_of_lower_priority_is_met_in_full(tmp_path: Path) -> None:
    path = tmp_path / "wish.yaml"
    text = (CONFIG % ("1 2", "", ", priority: 2", "fault", "")).replace("x1 + 7", "x2 + 0.3")
    path.write_text(text)
    summary = sc.load(path, engine="vm").simulate().summary()
    assert summary["status_counts"] == {"OK": 101}
    assert summary["given_up"]["posture"] < 1e-12


def test_rows_of_priority_1_that_conflict_still_stop_the_run(tmp_path: Path) -> None:
    path = tmp_path / "both.yaml"
    path.write_text((CONFIG % ("1 2", "", "", "fault", "")).replace("x1 + 7", "x2 + 0.2 - 0.3*t").replace("1 2", "+"))
    found = sc.load(path, engine="vm").simulate()
    assert found.metadata["status"] == "stopped"
    assert Status.INFEASIBLE.value in found.metadata["error"]
    assert "given_up" not in found.summary()


def test_a_limit_that_affects_only_a_row_of_lower_priority_is_not_a_saturation(tmp_path: Path) -> None:
    """The second mass would take 120 N to its wish; the first needs none of it."""
    path = tmp_path / "wish.yaml"
    path.write_text((CONFIG % ("1 2", "", ", priority: 2", "fault", ", limits: {F2: 5}")).replace("x1 + 7", "x2 + 7"))
    summary = sc.load(path, engine="vm").simulate().summary()
    assert (summary["status"], summary["status_counts"]) == ("done", {"OK": 101})
    assert abs(summary["inputs"]["F2"]["min"]) == pytest.approx(5.0)
    assert summary["given_up"]["posture"] > 50.0


def test_a_task_of_lower_priorities_only_always_has_the_status_ok(tmp_path: Path) -> None:
    summary = run(tmp_path, first=", priority: 3").summary()
    assert (summary["status"], summary["status_counts"]) == ("done", {"OK": 101})
    assert summary["given_up"]["posture"] < 1e-12 < 1.0 < summary["given_up"]["first"]


def test_a_row_of_lower_priority_that_the_start_violates_or_no_input_reaches_does_not_refuse_the_run(
    tmp_path: Path,
) -> None:
    path = tmp_path / "wish.yaml"
    path.write_text((CONFIG % ("1", "", ", priority: 2", "fault", "")).replace("x1 + 7", "x2 + 7"))
    loaded = sc.load(path)
    assert any("task.posture: no input acts on it: given_up.posture" in warning for warning in loaded.warnings)
    summary = loaded.simulate().summary()
    assert (summary["status"], summary["status_counts"]) == ("done", {"OK": 101})


def test_a_projected_start_satisfies_a_row_of_lower_priority_only_if_the_others_allow_it(tmp_path: Path) -> None:
    path = tmp_path / "wish.yaml"
    path.write_text(
        (CONFIG % ("1", "", ", priority: 2", "fault", "")).replace("x2: -0.2}}", "x2: -0.2}, v: 0, project: true}")
    )
    assert sc.load(path).start.q[0] == pytest.approx(0.5, abs=1e-9)
    path.write_text(path.read_text().replace("x1 + 7", "x2 + 7"))
    assert sc.load(path).start.q == pytest.approx([0.5, -7.0], abs=1e-9)


@pytest.mark.parametrize("wanted", [1e-9, 1e-7])
def test_the_tolerance_is_that_of_the_rows_of_priority_1(wanted: float) -> None:
    """A demand of 1000 on the wish must not widen what the rows of priority 1 may miss: 1e-8 (1 + |bbar|)."""
    task = {
        "a": Holonomic("x1"), "b": Holonomic(f"x1 - {wanted:g}"), "c": Holonomic("x2 - 1000"),
    }  # fmt: skip
    law = ConstraintFollowing(Baumgarte(1.0, 1.0), priorities={"c": 2})
    start = State(0.0, np.array([0.0, 0.0]), np.zeros(2))
    found = make_system(Masses(weight=0.0), task, law, {}, start, None, 1e-6)
    for loop in (Loop(found, in_numpy=True), Loop(found)):
        row, slices = loop.control(0.0, np.zeros(4)), loop.layout.slices
        expected = Status.INFEASIBLE if wanted / 2 > 1e-8 else Status.RANK_DEFICIENT
        assert Status.from_code(row[slices["status"]][0]) is expected
        assert row[slices["residual"]][0] == pytest.approx(wanted / 2)


TASK = ("object_x", "object_y", "level")


def aimed(*overrides: str) -> sc.Trajectory:
    return sc.load("coordinated_robots", ["run.duration=0.5", *overrides]).simulate()


def test_a_preload_shifts_the_inputs_in_the_null_space_alone() -> None:
    plain, loaded = aimed(), aimed("law.secondary={preload: {u1: 2}}")
    assert max(loaded.violation(name).max() for name in TASK) < 1e-9
    assert np.abs(loaded.q - plain.q).max() < 1e-9
    shift = loaded.u - plain.u
    assert np.abs(shift[:, 0]).min() > 0.1
    # the shift is the projection of the preload: shorter than it, and at right angles to what is left of it
    preload = np.array([2.0, 0, 0, 0, 0, 0])
    assert np.abs(np.sum(shift * (preload - shift), axis=1)).max() < 1e-9


def test_centring_seeks_the_middle_of_the_limits() -> None:
    limits = "law.limits={u1: [0, 40], u2: [-20, 20], u3: [-20, 20], u4: [-20, 20], u5: [-20, 20], u6: [-20, 20]}"
    plain, centred = aimed(limits), aimed(limits, "law.secondary={centre: true}")
    middle = np.array([20.0, 0, 0, 0, 0, 0])
    assert np.linalg.norm(centred.u - middle, axis=1).max() < np.linalg.norm(plain.u - middle, axis=1).min() - 1
    assert max(centred.violation(name).max() for name in TASK) < 1e-9


def test_damping_takes_energy_out_of_the_free_motion() -> None:
    start = [
        "initial.v=0.5",
        "initial.project={fix: [theta1]}",
        "task=[{name: tip, holonomic: theta1 - 1.0471975512 - 0.5*t}]",
    ]
    trajectories = []
    for damping in (0, 20):
        overrides = ["plant.parameters.g=0", *start, f"law.secondary={{damping: {damping}}}", "run.duration=1"]
        trajectories.append(sc.load("coordinated_robots", overrides).simulate())
    speeds = [np.linalg.norm(t.v[-1]) for t in trajectories]
    assert speeds[1] < 0.9 * speeds[0]
    assert max(t.violation("tip").max() for t in trajectories) < 1e-9
