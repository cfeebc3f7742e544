"""Inputs inside their limits, rows above the task: against proofs by multipliers and quadratic programs.

The search begins at the answer of the last tick.
"""

import dataclasses
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import casadi as ca
import numpy as np
import pytest
from scipy.linalg import null_space
from scipy.optimize import linprog

import servoctl as sc
from servoctl.engine.decomposition import decompose
from servoctl.engine.kernel import Kernel, inputs
from servoctl.laws import limits
from servoctl.laws.limits import SearchSize, Start, most_steps, search_function, step_function
from servoctl.run_folder.trajectory import Trajectory
from tests.laws.bounded_arm import CIRCLE, CLEAR, LAW, Arm, start
from tests.laws.limit_problems import (
    OF_LIMITS,
    OF_ROWS,
    Family,
    Problem,
    cascade,
    in_odd_units,
    inside,
    unproven,
    with_rows,
    within_limits,
)


@pytest.mark.parametrize("family", [*OF_LIMITS, *OF_ROWS])
def test_every_level_is_proven_optimal_inside_the_limits(family: Family) -> None:
    random = np.random.default_rng(2)
    for index in range(40):
        problem = family(random)
        found = problem.solve()
        assert found.converged, index
        assert (found.u >= problem.lower).all() and (found.u <= problem.upper).all()
        assert unproven(problem, found.u) <= 1e-9, index
        assert found.binding[found.slack > 1e-12].all(), index


def test_costs_equal_those_of_a_cascade_of_quadratic_programs() -> None:
    random = np.random.default_rng(1)
    kinds, solved = [], 0
    for index in range(250):
        problem = with_rows(random)
        found = problem.solve()
        costs = problem.costs(found.u)
        expected, known = cascade(problem)
        np.testing.assert_allclose(found.slack, np.maximum(0.0, problem.g - problem.G @ found.u), rtol=0, atol=1e-10)
        at_limit = (found.u == problem.lower) | (found.u == problem.upper)
        kinds.append([costs[0] > 1e-6, (costs[1:-1] > 1e-6).any(), at_limit.any(), found.iterations > 0])
        solved += known
        if known:
            np.testing.assert_allclose(costs, expected, rtol=0, atol=1e-5, err_msg=str(index))
            differs = np.flatnonzero(np.abs(costs - expected) > 1e-6)  # never worse in the first level that differs
            assert not len(differs) or costs[differs[0]] < expected[differs[0]], index
    assert solved >= 245  # the solver's own failures
    share = np.mean(kinds, axis=0)
    assert share[0] > 0.05 and share[1] > 0.4 and share[2] > 0.5 and share[3] > 0.7  # conflicts of every kind


def test_with_extreme_units_the_answer_stays_inside_and_reports_no_convergence() -> None:
    random = np.random.default_rng(1)
    failed = 0
    for _ in range(250):
        problem = in_odd_units(random)
        found = problem.solve(rank_tolerance=1e-14)
        assert (found.u >= problem.lower).all() and (found.u <= problem.upper).all()
        failed += not found.converged
    assert failed <= 2  # two of 2,000, where what is left free has a condition number above 1e9


def test_units_change_no_answer() -> None:
    """Inputs, rows and task each in a unit of their own, 1e-6 to 1e6."""
    random = np.random.default_rng(12)
    for _ in range(60):
        problem = with_rows(random)
        inputs, rows, task = 10.0 ** random.uniform(-6.0, 6.0, 3)
        found, scaled = problem.solve(), problem.in_units(inputs, rows, task).solve()
        assert scaled.converged
        np.testing.assert_allclose(scaled.u / inputs, found.u, rtol=0, atol=1e-9)
        np.testing.assert_allclose(scaled.slack / rows, found.slack, rtol=0, atol=1e-9)


def test_weights_are_a_change_of_units() -> None:
    random = np.random.default_rng(7)
    for _ in range(50):
        problem = with_rows(random)
        weights = random.uniform(0.1, 10.0, len(problem.s))
        root = np.sqrt(weights)
        levels = tuple((T / root, e) for T, e in problem.levels)
        changed = Problem(
            levels, problem.G / root, problem.g, problem.lower * root, problem.upper * root, problem.s * root
        )
        np.testing.assert_allclose(problem.solve(weights=weights).u, changed.solve().u / root, rtol=0, atol=1e-10)


def test_an_answer_inside_the_limits_that_meets_the_rows_stays_the_same_to_the_bit() -> None:
    random = np.random.default_rng(3)
    for _ in range(60):
        problem = inside(random)
        ((T, e),) = problem.levels
        m = len(problem.s)
        weights = random.uniform(0.1, 10.0, m)
        root = np.sqrt(weights)
        least, weighted = decompose(T, 1e-10).solve(e), decompose(T / root, 1e-10).solve(e) / root
        other = least + null_space(T) @ random.standard_normal(m - np.linalg.matrix_rank(T))
        wide, G = np.full(m, 100.0) + np.abs(other), random.standard_normal((3, m))
        for u, lower, upper, options in (
            (least, problem.lower, problem.upper, {}),
            (weighted, -wide, wide, {"weights": weights}),
            (other, -wide, wide, {"unlimited": other}),
            (other, -np.inf * wide, np.inf * wide, {"unlimited": other, "weights": weights}),
        ):
            g = G @ u - random.choice([0.0, 1e-9, 1.0, np.inf], 3)  # at the edge of a row too
            found = within_limits(problem.levels, lower, upper, inequalities=(G, g), **options)
            np.testing.assert_array_equal(found.u, u)
            assert found.iterations == 0 and found.converged and not found.binding.any() and not found.slack.any()


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


@pytest.mark.parametrize("started", [False, True])
def test_no_limits_are_the_same_as_infinite_ones(started: bool) -> None:
    random = np.random.default_rng(11)
    active = 0
    for _ in range(60):
        problem = with_rows(random)
        infinite, weights = np.full(len(problem.s), np.inf), random.uniform(0.1, 10.0, len(problem.s))
        last = within_limits(problem.levels, None, None, problem.s, inequalities=(problem.G, problem.g))
        options = {"inequalities": (problem.G, problem.g), "weights": weights}
        options |= {"start": Start(last.u, last.active)} if started else {}
        found = within_limits(problem.levels, None, None, problem.s, **options)
        same = within_limits(problem.levels, -infinite, infinite, problem.s, **options)
        np.testing.assert_allclose(found.u, same.u, rtol=0, atol=1e-10)
        np.testing.assert_allclose(found.slack, same.slack, rtol=0, atol=1e-10)
        assert found.active.tolist() == same.active.tolist() and found.iterations == same.iterations
        assert found.converged
        active += found.active.any()
    assert active > 20


@cache
def kernel(rows: tuple[int, ...], m: int, k: int = 0, free: bool = False, weighted: bool = False) -> Kernel:
    """within_limits, traced; `free`: without limits of inputs or preferred ones."""
    shapes: dict[str, tuple[int, ...]] = {}
    for level, r in enumerate(rows):
        shapes |= {f"T{level}": (r, m), f"e{level}": (r,)}
    values = inputs(shapes | {name: (m,) for name in ("lower", "upper", "s", "w")} | {"G": (k, m), "g": (k,)})
    result = within_limits(
        [(values[f"T{level}"], values[f"e{level}"]) for level in range(len(rows))],
        np.full(m, -np.inf) if free else values["lower"],
        np.full(m, np.inf) if free else values["upper"],
        None if free else values["s"],
        inequalities=(values["G"], values["g"]) if k else None,
        weights=values["w"] if weighted else None,
    )
    outputs = {"u": result.u, "slack": result.slack, "binding": result.binding}
    counts = {"iterations": np.array([result.iterations]), "converged": np.array([result.converged])}
    return Kernel.compile("limits", values, outputs | counts)


def drawn(random: np.random.Generator, counts: tuple[int, ...], m: int, k: int, free: bool) -> Problem:
    """A problem of this size; every third has equal columns, equal rows and rows that never bind."""
    levels = tuple((random.standard_normal((r, m)), 1.5 * random.standard_normal(r)) for r in counts)
    lower, upper = -random.uniform(0.3, 1.5, m), random.uniform(0.3, 1.5, m)
    lower[random.random(m) < 0.3], upper[random.random(m) < 0.3] = -np.inf, np.inf
    G, g, s = random.standard_normal((k, m)), random.standard_normal(k) + 0.3, random.standard_normal(m)
    kind = random.integers(3)
    if kind == 0:
        levels[0][0][:, 0] = levels[0][0][:, -1]
        G[:1], g[:1] = G[1:2], g[1:2]
    elif kind == 1:
        g[:1] = -np.inf
    if free:
        lower, upper, s = np.full(m, -np.inf), np.full(m, np.inf), np.zeros(m)
    return Problem(levels, G, g, lower, upper, s)


@pytest.mark.parametrize(
    ("counts", "m", "k", "free", "weighted"),
    [
        ((4,), 6, 0, False, False),
        ((4,), 3, 0, False, False),
        ((2, 2), 5, 0, False, True),
        ((2, 2, 2), 5, 0, False, True),
        ((2,), 4, 3, False, False),
        ((1, 2), 4, 3, False, True),
        ((2,), 4, 3, True, False),
    ],
)
def test_numbers_and_symbols_agree(counts: tuple[int, ...], m: int, k: int, free: bool, weighted: bool) -> None:
    random = np.random.default_rng(10)
    for _ in range(60):
        problem, weights = drawn(random, counts, m, k, free), random.uniform(0.1, 10.0, m)
        found = problem.solve(weights=weights if weighted else None)
        rest = (problem.lower, problem.upper, problem.s, weights, problem.G, problem.g)
        function = kernel(counts, m, k, free, weighted)
        u, slack, binding, iterations, converged = function(*[part for each in problem.levels for part in each], *rest)
        np.testing.assert_allclose(u, found.u, rtol=0, atol=1e-9)
        np.testing.assert_allclose(slack, found.slack, rtol=0, atol=1e-10)
        assert converged[0] == found.converged == 1
        assert abs(iterations[0] - found.iterations) <= 2  # ties are broken by rounding
        if not free and len(np.unique(problem.g)) == k:
            assert binding.tolist() == found.binding.tolist()


def test_equal_limits_hold_an_input_and_nan_does_not_raise() -> None:
    T, e = np.array([[1.0, 2.0, 0.5]]), np.array([1.0])
    found = within_limits([(T, e)], np.array([-1.0, 0.1, -1.0]), np.array([1.0, 0.1, 1.0]))
    assert found.converged and found.u[1] == 0.1
    np.testing.assert_allclose(found.u[[0, 2]], 0.8 * np.array([1.0, 0.5]) / 1.25, rtol=1e-14)
    assert np.isnan(within_limits([(T, e * np.nan)], -np.ones(3), np.ones(3)).u).all()


def test_a_row_without_effect_on_the_inputs_is_told_by_its_slack() -> None:
    """A row below the rank tolerance of the others has no pivot; its lack stays visible."""
    G, g = np.array([[1.0, 0.0], [0.0, 1e-12]]), np.array([0.5, 1e-3])
    found = within_limits([(np.zeros((0, 2)), np.zeros(0))], -np.ones(2), np.ones(2), inequalities=(G, g))
    np.testing.assert_allclose(found.u, [0.5, 0.0], atol=1e-15)
    np.testing.assert_allclose(found.slack, [0.0, 1e-3])
    assert found.binding.tolist() == [1.0, 1.0]


def test_rows_of_nan_do_not_pass_for_met() -> None:
    T, e = np.eye(2), np.ones(2)
    found = within_limits(
        [(T, e)], -10.0 * np.ones(2), 10.0 * np.ones(2), inequalities=(np.array([[1.0, 0.0]]), np.array([np.nan]))
    )
    assert np.isnan(found.u).all() and np.isnan(found.slack).all()


def test_the_compiled_answer_has_the_derivative_of_its_active_set() -> None:
    random = np.random.default_rng(4)
    T = random.standard_normal((3, 6))
    function, ones = kernel((3,), 6).function, np.ones(6)
    e = 5.0 * random.standard_normal(3)
    given = [ca.SX.sym(function.name_in(i), *function.size_in(i)) for i in range(function.n_in())]
    slope = ca.Function("slope", given, [ca.jacobian(function(*given)[0], given[1])])
    arguments = (-ones, ones, 0.0 * ones, ones, np.zeros((0, 6)), np.zeros(0))
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


def test_the_last_answer_is_a_good_start() -> None:
    """After data moved by up to 1 %, one step proves the answer as a rule."""
    random = np.random.default_rng(8)
    steps = []
    for _ in range(200):
        problem = with_rows(random)
        last, after = problem.solve(), problem.moved(random, 0.01)
        cold, warm = after.solve(), after.solve(start=Start(last.u, last.active))
        np.testing.assert_allclose(warm.u, cold.u, rtol=0, atol=1e-9)
        if warm.iterations:
            steps.append(warm.iterations)
    assert len(steps) > 130 and np.median(steps) == 1 and np.percentile(steps, 99) <= 2


@pytest.mark.parametrize("family", OF_ROWS)
def test_a_start_at_any_other_answer_leads_to_the_same_one(family: Family) -> None:
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
        problem = with_rows(random)
        cold, nothing = problem.solve(), np.full(len(problem.s), np.nan)
        found = problem.solve(start=Start(nothing, np.ones(len(problem.s) + len(problem.g)), 0.0))
        assert np.array_equal(found.u, cold.u) and found.iterations == cold.iterations


def test_a_search_cut_short_stays_inside_the_limits_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each further step leaves the rows no worse, once none is held that could be free."""
    monkeypatch.setattr(limits, "search_function", limits.search_function.__wrapped__)
    random = np.random.default_rng(9)
    unfinished = 0
    for _ in range(100):
        problem = with_rows(random)
        last, nothing = np.inf, np.zeros(len(problem.s) + len(problem.g))
        for most in (1, 2, 4, 8, 16, 32):
            monkeypatch.setattr(limits, "most_steps", lambda _, most=most: most)
            monkeypatch.setattr("servoctl.engine.ops.OPS", {})
            found = problem.solve(start=Start(np.clip(problem.s, problem.lower, problem.upper), nothing))
            assert (found.u >= problem.lower).all() and (found.u <= problem.upper).all()
            lack = problem.costs(found.u)[0]
            assert lack <= last * (1 + 1e-9) + 1e-12
            last = lack
            if found.converged:
                break
            unfinished += 1
        assert found.converged
    assert unfinished > 100


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
