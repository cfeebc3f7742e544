"""Inputs inside their limits, against independent oracles; the search begins at the answer of the last tick."""

import dataclasses
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import casadi as ca
import numpy as np
import pytest
from bounded_arm import CIRCLE, CLEAR, LAW, Arm, start
from hypothesis import given, settings
from hypothesis import strategies as st
from inequality_problems import DEGENERATE, Problem, any_problem
from limit_problems import (
    FAMILIES,
    Case,
    box,
    feasible,
    hierarchy,
    in_odd_units,
    inside,
    least_distance,
    least_residual,
    size_of,
    unproven,
)
from scipy.linalg import null_space
from scipy.optimize import linprog

import servoctl as sc
from servoctl.engine.decomposition import decompose
from servoctl.engine.kernel import Kernel, inputs
from servoctl.laws import limits
from servoctl.laws.limits import Limited, SearchSize, Start, most_steps, search_function, step_function, within_limits
from servoctl.run_folder.trajectory import Trajectory
from servoctl.types import Array

FEW = settings(max_examples=60, derandomize=True)
PER_FAMILY = 80


def solve(case: Case) -> Limited:
    T, e, lower, upper, preferred = case
    return within_limits([(T, e)], lower, upper, preferred)


@cache
def kernel(rows: tuple[int, ...], m: int, weighted: bool = False) -> Kernel:
    """within_limits, traced."""
    shapes: dict[str, tuple[int, ...]] = {}
    for k, r in enumerate(rows):
        shapes |= {f"T{k}": (r, m), f"e{k}": (r,)}
    values = inputs(shapes | {"lower": (m,), "upper": (m,), "s": (m,), "w": (m,)})
    result = within_limits(
        [(values[f"T{k}"], values[f"e{k}"]) for k in range(len(rows))],
        values["lower"],
        values["upper"],
        values["s"],
        weights=values["w"] if weighted else None,
    )
    counts = {"iterations": np.array([result.iterations]), "converged": np.array([result.converged])}
    return Kernel.compile("limits", values, {"u": result.u} | counts)


def traced(levels: list[tuple[Array, Array]], *rest: Array, weights: Array | None = None) -> list[Array]:
    m = levels[0][0].shape[1]
    function = kernel(tuple(len(e) for _, e in levels), m, weights is not None)
    return function(*[part for level in levels for part in level], *rest, np.ones(m) if weights is None else weights)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_answer_is_inside_the_limits_misses_least_and_is_nearest(family: str) -> None:
    random = np.random.default_rng(1)
    measured = []
    for index in range(PER_FAMILY):
        case = FAMILIES[family](random)
        T, e, lower, upper, preferred = case
        found = solve(case)
        u = found.u
        assert found.converged, index
        assert (u >= lower).all() and (u <= upper).all()
        missed, size = float(np.linalg.norm(e - T @ u)), size_of(T, e, u)
        if family in ("inside", "feasible"):
            assert missed <= 1e-12 * size, index
        least, shortest = least_residual(T, e, lower, upper), least_distance(T, u, lower, upper, preferred)
        distance = float(np.linalg.norm(u - preferred))
        measured.append([least, shortest])
        assert not missed > least * (1 + 1e-8) + 1e-12 * size, (index, missed, least)
        assert not distance > shortest * (1 + 1e-7) + 1e-12 * np.abs(u).max(), (index, distance, shortest)
    assert np.isfinite(measured).mean() > 0.95  # the oracles' own failures


def test_with_extreme_units_the_answer_stays_inside_and_reports_no_convergence() -> None:
    random = np.random.default_rng(1)
    failed = 0
    for _ in range(500):
        T, e, lower, upper, preferred = in_odd_units(random)
        found = within_limits([(T, e)], lower, upper, preferred, rank_tolerance=1e-14)
        assert (found.u >= lower).all() and (found.u <= upper).all()
        if found.converged:
            missed, least = np.linalg.norm(e - T @ found.u), least_residual(T, e, lower, upper)
            assert not missed > least * (1 + 1e-8) + 1e-7 * size_of(T, e, found.u)  # rounding, times 1e8
        failed += not found.converged
    assert failed <= 2  # two of 2,000, where what is left free has a condition number above 1e9


@pytest.mark.parametrize("family", FAMILIES)
def test_numbers_and_symbols_agree(family: str) -> None:
    random = np.random.default_rng(2)
    for _ in range(25):
        T, e, lower, upper, preferred = FAMILIES[family](random)
        T, e = T[:4, :6], e[:4]  # a few sizes only: each is compiled
        found = solve((T, e, *(part[:6] for part in (lower, upper, preferred))))
        u, iterations, converged = traced([(T, e)], lower[:6], upper[:6], preferred[:6])
        np.testing.assert_allclose(u, found.u, rtol=0, atol=1e-10 * np.abs(found.u).max())
        np.testing.assert_allclose(T @ u, T @ found.u, rtol=0, atol=1e-10 * size_of(T, e, u))
        assert converged == found.converged == 1
        assert abs(iterations[0] - found.iterations) <= 2  # ties are broken by rounding


def test_an_unlimited_answer_inside_the_limits_stays_the_same_to_the_bit() -> None:
    random = np.random.default_rng(3)
    for _ in range(200):
        T, e, lower, upper, _ = inside(random)
        weights = random.uniform(0.1, 10.0, len(lower))
        root = np.sqrt(weights)
        wide = (np.minimum(lower, -100.0), np.maximum(upper, 100.0))
        least = decompose(T, 1e-10).solve(e)
        found = within_limits([(T, e)], lower, upper)
        assert found.iterations == 0 and found.converged
        np.testing.assert_array_equal(found.u, least)
        weighted = decompose(T / root, 1e-10).solve(e) / root
        np.testing.assert_array_equal(within_limits([(T, e)], *wide, weights=weights).u, weighted)
        other = least + null_space(T) @ random.standard_normal(T.shape[1] - np.linalg.matrix_rank(T))
        np.testing.assert_array_equal(within_limits([(T, e)], *wide, unlimited=other).u, other)


def test_a_null_space_shift_meets_the_task_where_clipping_would_miss_it() -> None:
    """Seven actuators, three rows of rank two: the least inputs need more of one actuator than is needed at all."""
    rows = np.array([[0.2, -0.1, -0.7, 0.6, 0.7, -0.4, 0.0], [-0.9, -0.3, 0.7, -0.7, -0.3, 0.5, -0.4]])
    T = np.vstack([rows, -0.4 * rows[0] - 0.8 * rows[1]])
    e = np.array([-0.8, 2.4, -1.6])
    assert np.linalg.matrix_rank(T) == 2
    least = np.linalg.pinv(T) @ e
    peak = np.abs(least).max()
    ones = np.ones((7, 1))
    program = linprog(
        np.append(np.zeros(7), 1.0),
        A_ub=np.block([[np.eye(7), -ones], [-np.eye(7), -ones]]),
        b_ub=np.zeros(14),
        A_eq=np.hstack([T[:2], np.zeros((2, 1))]),
        b_eq=e[:2],
        bounds=(None, None),
    )
    assert peak == pytest.approx(1.286, abs=5e-4) and program.fun == pytest.approx(0.762, abs=5e-4)
    limit = (peak + program.fun) / 2 * np.ones(7)
    clipped = np.clip(least, -limit, limit)
    assert np.abs(e - T @ clipped).max() > 0.1
    for levels in ([(T, e)], [(T[:1], e[:1]), (T[1:], e[1:])]):
        found = within_limits(levels, -limit, limit)
        assert found.converged and np.abs(found.u).max() == limit[0]
        assert np.abs(e - T @ found.u).max() <= 1e-14
        assert found.u[0] == -limit[0] and (np.abs(found.u[1:]) < limit[1:]).all()
    tight = 0.95 * program.fun * np.ones(7)
    assert np.abs(e - T @ within_limits([(T, e)], -tight, tight).u).max() > 0.01


@pytest.mark.parametrize("count", [2, 3])
def test_each_level_in_order_is_proven_optimal(count: int) -> None:
    random = np.random.default_rng(count)
    for index in range(100):
        levels, lower, upper, preferred = hierarchy(random, count)
        found = within_limits(levels, lower, upper, preferred)
        assert found.converged, index
        assert (found.u >= lower).all() and (found.u <= upper).all()
        assert unproven(levels, found.u, lower, upper, preferred) <= 1e-9, index
        T, e = levels[0]
        alone = e - T @ within_limits(levels[:1], lower, upper).u
        np.testing.assert_allclose(e - T @ found.u, alone, rtol=0, atol=1e-11 * size_of(T, e, found.u))
        assert not np.linalg.norm(alone) > least_residual(T, e, lower, upper) * (1 + 1e-8) + 1e-11 * size_of(
            T, e, found.u
        )


@FEW
@given(st.integers(0, 10_000), st.integers(1, 3))
def test_symbols_solve_a_hierarchy_like_numbers(seed: int, count: int) -> None:
    random = np.random.default_rng(seed)
    lower, upper = box(random, 5)
    levels = [(T, T @ random.uniform(lower, upper) * 2.0) for T in random.standard_normal((count, 2, 5))]
    weights = random.uniform(0.1, 10.0, 5)
    found = within_limits(levels, lower, upper, weights=weights)
    u, _, converged = traced(levels, lower, upper, np.zeros(5), weights=weights)
    np.testing.assert_allclose(u, found.u, rtol=0, atol=1e-10)
    assert converged[0] == 1 and found.converged


@FEW
@given(st.integers(0, 10_000))
def test_weights_are_a_change_of_units(seed: int) -> None:
    random = np.random.default_rng(seed)
    T, e, lower, upper, preferred = feasible(random)
    weights = random.uniform(0.1, 10.0, len(lower))
    root = np.sqrt(weights)
    found = within_limits([(T, e)], lower, upper, preferred, weights=weights).u
    expected = within_limits([(T / root, e)], lower * root, upper * root, preferred * root).u / root
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_the_inputs_of_the_previous_tick_are_a_good_start() -> None:
    random = np.random.default_rng(6)
    T, change = random.standard_normal((2, 3, 6))
    before, after = 4.0 * random.standard_normal((2, 3))
    ones, last, cold, warm = np.ones(6), Start(np.zeros(6), np.zeros(6)), 0, 0
    for tick in range(200):
        t = 0.01 * tick
        level = (T + 0.3 * np.sin(t) * change, np.cos(2 * t) * before + np.sin(3 * t) * after)
        found = within_limits([level], -ones, ones)
        again = within_limits([level], -ones, ones, start=last)
        np.testing.assert_allclose(again.u, found.u, rtol=0, atol=1e-12)
        assert again.converged and (again.iterations == 0) == (found.iterations == 0)
        cold, warm = cold + found.iterations, warm + again.iterations
        last = Start(again.u, again.active)
    assert warm < 0.6 * cold


def test_equal_limits_hold_an_input_and_nan_does_not_raise() -> None:
    T, e = np.array([[1.0, 2.0, 0.5]]), np.array([1.0])
    found = within_limits([(T, e)], np.array([-1.0, 0.1, -1.0]), np.array([1.0, 0.1, 1.0]))
    assert found.converged and found.u[1] == 0.1
    np.testing.assert_allclose(found.u[[0, 2]], 0.8 * np.array([1.0, 0.5]) / 1.25, rtol=1e-14)
    assert np.isnan(within_limits([(T, e * np.nan)], -np.ones(3), np.ones(3)).u).all()


def test_the_compiled_answer_has_the_derivative_of_its_active_set() -> None:
    random = np.random.default_rng(4)
    T = random.standard_normal((3, 6))
    function, ones = kernel((3,), 6).function, np.ones(6)
    e = 5.0 * random.standard_normal(3)
    given = [ca.SX.sym(function.name_in(i), *function.size_in(i)) for i in range(function.n_in())]
    slope = ca.Function("slope", given, [ca.jacobian(function(*given)[0], given[1])])
    arguments = (-ones, ones, 0.0 * ones, ones)
    found = within_limits([(T, e)], -ones, ones)
    assert found.iterations > 1 and 0 < (np.abs(found.u) == 1.0).sum() < 6
    columns = [
        (within_limits([(T, e + d)], -ones, ones).u - within_limits([(T, e - d)], -ones, ones).u) / 2e-6
        for d in 1e-6 * np.eye(3)
    ]
    np.testing.assert_allclose(np.array(slope(T, e, *arguments)), np.transpose(columns), atol=1e-8)


def test_a_compiled_step_stays_small() -> None:
    """Counted in CasADi instructions, the decomposition's own 1,023 apart."""
    assert step_function(SearchSize((3,), 6)).n_instructions() < 1300
    assert search_function(SearchSize((3,), 6)).n_instructions() < 50  # steps are called, not copied
    assert most_steps(6) == 32 and most_steps(12) == 64


BOUNDS = {
    "disc": sc.Holonomic(CLEAR),
    "speed": sc.CoordinateSpeed.of({"a": (-0.9, 0.9), "b": (-1.0, 1.0)}),
    "joints": sc.Bound(sc.CoordinateRange.of({"a": (-0.4, 0.9), "b": (0.5, 2.0)}), acceleration=20.0),
}


def run() -> Trajectory:
    """An arm between a disc and limits of joints, speeds and torques."""
    law = dataclasses.replace(LAW, limits={"u1": 14.0, "u2": 9.0})
    how = {"duration": 1.8, "period": 0.01, "engine": "vm"}
    return sc.simulate(Arm(), CIRCLE, law, **start(), bounds=BOUNDS, **how)


@pytest.mark.parametrize("family", [any_problem, *DEGENERATE])
def test_a_start_at_any_other_answer_leads_to_the_same_one(family: Callable[[np.random.Generator], Problem]) -> None:
    """Also at inputs where nothing that is held fits."""
    random = np.random.default_rng(20)
    for index in range(15):
        problem = family(random)
        cold, m, k = problem.solve(), len(problem.s), len(problem.g)
        sides = np.concatenate([random.integers(-1, 2, m) * np.isfinite(problem.lower), random.integers(0, 2, k)])
        again, wrong = (
            problem.solve(start=begun)
            for begun in (Start(cold.u, cold.active), Start(random.uniform(-3.0, 3.0, m), sides * 1.0))
        )
        assert again.converged and wrong.converged and again.iterations <= 1, index
        for warm in (again, wrong):
            np.testing.assert_allclose(warm.u, cold.u, rtol=0, atol=1e-10 * (1.0 + np.abs(cold.u).max()))
            np.testing.assert_allclose(warm.slack, cold.slack, rtol=0, atol=1e-10)


def test_a_start_that_is_not_known_changes_nothing() -> None:
    random = np.random.default_rng(21)
    for _ in range(20):
        problem = any_problem(random)
        cold, nothing = problem.solve(), np.full(len(problem.s), np.nan)
        found = problem.solve(start=Start(nothing, np.ones(len(problem.s) + len(problem.g)), 0.0))
        assert np.array_equal(found.u, cold.u) and found.iterations == cold.iterations


def test_a_law_needs_one_step_as_a_rule_because_it_remembers_what_held() -> None:
    warm = run()
    steps = warm["search.steps"][warm["search.steps"] > 0]
    assert len(steps) > 60
    assert np.median(steps) == 1 and np.percentile(steps, 99) <= 2
    assert not warm["search.unfinished"].any()
    # what held at the last tick is in the memory, by input and by row
    rows = [f"memory.bounds.held.row{i + 1}" for i in range(9)]
    assert {*rows, "memory.bounds.held.u1"} <= set(warm.columns)
    held = np.array([np.round(warm[name]) for name in rows])
    assert held.max() == 1.0 and held.min() == 0.0
    assert np.array_equal(held[0][1:] > 0.5, warm["bound_active.disc"][:-1] > 0.5)


@pytest.fixture
def cut_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Searches may take one step; their functions are kept apart from all others."""
    monkeypatch.setenv("SERVOCTL_CACHE", str(tmp_path))
    monkeypatch.setattr(limits, "most_steps", lambda _: 1)
    monkeypatch.setattr("servoctl.engine.ops.OPS", {})
    limits.search_function.cache_clear()
    yield
    limits.search_function.cache_clear()


@pytest.mark.usefixtures("cut_short")
def test_a_run_tells_when_the_search_was_cut_short_and_its_torques_stay_within_their_limits() -> None:
    kept = run()
    unfinished = kept["search.unfinished"] > 0.5
    assert unfinished.any() and not unfinished.all()
    assert (np.abs(kept["u.u1"]) <= 14.0).all() and (np.abs(kept["u.u2"]) <= 9.0).all()
    event = next(event for event in kept.metadata["events"] if event["event"] == "search")
    first = int(np.flatnonzero(unfinished)[0])
    assert event["row"] == first and event["t"] == kept.t[first] and event["steps"] == 1
    assert "stops after 1 steps" in event["text"] and "within the limits" in event["text"]
