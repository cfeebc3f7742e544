"""Rows `G u >= g` above the task: against quadratic programs, closed forms and proofs by multipliers."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from inequality_problems import DEGENERATE, Problem, any_problem, cascade, unproven_rows

from servoctl.engine.decomposition import decompose
from servoctl.engine.kernel import Kernel, inputs
from servoctl.laws import limits
from servoctl.laws.limits import Start, within_limits
from servoctl.types import Array

WIDE = np.full(4, 1e3)


def test_costs_equal_those_of_a_cascade_of_quadratic_programs() -> None:
    random = np.random.default_rng(1)
    kinds, solved = [], 0
    for index in range(300):
        problem = any_problem(random)
        found = problem.solve()
        costs = problem.costs(found.u)
        expected, known = cascade(problem)
        assert found.converged, index
        assert (found.u >= problem.lower).all() and (found.u <= problem.upper).all()
        np.testing.assert_allclose(found.slack, np.maximum(0.0, problem.g - problem.G @ found.u), rtol=0, atol=1e-10)
        at_limit = (found.u == problem.lower) | (found.u == problem.upper)
        kinds.append([costs[0] > 1e-6, (costs[1:-1] > 1e-6).any(), at_limit.any(), found.iterations > 0])
        solved += known
        if known:
            np.testing.assert_allclose(costs, expected, rtol=0, atol=1e-5, err_msg=str(index))
            differs = np.flatnonzero(np.abs(costs - expected) > 1e-6)  # never worse in the first level that differs
            assert not len(differs) or costs[differs[0]] < expected[differs[0]], index
    assert solved >= 295  # the solver's own failures
    share = np.mean(kinds, axis=0)
    assert share[0] > 0.05 and share[1] > 0.4 and share[2] > 0.5 and share[3] > 0.7  # conflicts of every kind


@pytest.mark.parametrize("family", [any_problem, *DEGENERATE])
def test_every_level_is_proven_optimal(family: Callable[[np.random.Generator], Problem]) -> None:
    random = np.random.default_rng(2)
    for index in range(60):
        problem = family(random)
        found = problem.solve()
        assert found.converged, index
        assert (found.u >= problem.lower).all() and (found.u <= problem.upper).all()
        assert unproven_rows(problem, found.u) <= 1e-9, index
        assert found.binding[found.slack > 1e-12].all(), index


def test_units_change_no_answer() -> None:
    """Inputs, rows and task each in a unit of their own, 1e-6 to 1e6."""
    random = np.random.default_rng(12)
    for _ in range(200):
        problem = any_problem(random)
        inputs, rows, task = 10.0 ** random.uniform(-6.0, 6.0, 3)
        found, scaled = problem.solve(), problem.in_units(inputs, rows, task).solve()
        assert scaled.converged
        np.testing.assert_allclose(scaled.u / inputs, found.u, rtol=0, atol=1e-9)
        np.testing.assert_allclose(scaled.slack / rows, found.slack, rtol=0, atol=1e-9)


def test_one_binding_row_shifts_the_inputs_in_the_null_space_as_in_closed_form() -> None:
    """u = u* + N G^T lack / (G N G^T), N = I - T^+ T: the task stays met."""
    random = np.random.default_rng(3)
    for _ in range(100):
        T, e, G = random.standard_normal((2, 4)), random.standard_normal(2), random.standard_normal((1, 4))
        N = np.eye(4) - np.linalg.pinv(T) @ T
        least = np.linalg.pinv(T) @ e
        g = G @ least + random.uniform(0.1, 2.0, 1)
        found = within_limits([(T, e)], -WIDE, WIDE, inequalities=(G, g))
        expected = least + N @ G[0] * (g - G @ least) / (G @ N @ G.T).item()
        np.testing.assert_allclose(found.u, expected, rtol=0, atol=1e-10 * np.abs(expected).max())
        assert found.binding.tolist() == [1.0] and found.slack.tolist() == [0.0]
        assert np.abs(e - T @ found.u).max() <= 1e-11 * np.abs(expected).max()


def test_without_freedom_the_least_of_the_task_is_given_up_as_in_closed_form() -> None:
    """u = u* + (T^T T)^-1 G^T lack / (G (T^T T)^-1 G^T)."""
    random = np.random.default_rng(4)
    for _ in range(100):
        T, e, G = random.standard_normal((5, 4)), random.standard_normal(5), random.standard_normal((1, 4))
        least = np.linalg.lstsq(T, e, rcond=None)[0]
        g = G @ least + random.uniform(0.1, 2.0, 1)
        along = np.linalg.solve(T.T @ T, G[0])
        expected = least + along * (g - G @ least) / (G @ along)
        found = within_limits([(T, e)], -WIDE, WIDE, inequalities=(G, g))
        np.testing.assert_allclose(found.u, expected, rtol=0, atol=1e-10 * np.abs(expected).max())


def test_rows_that_are_met_leave_the_answer_the_same_to_the_bit() -> None:
    random = np.random.default_rng(5)
    for _ in range(200):
        T, e, G = random.standard_normal((2, 4)), random.standard_normal(2), random.standard_normal((3, 4))
        weights = random.uniform(0.1, 10.0, 4)
        infinite = np.full(4, np.inf)
        least = decompose(T, 1e-10).solve(e)
        other = least + random.standard_normal(4)
        for u, options in (
            (least, {}),
            (other, {"unlimited": other}),
            (other, {"unlimited": other, "weights": weights}),
        ):
            g = G @ u - random.choice([0.0, 1e-9, 1.0, np.inf], 3)  # at the edge of a row too
            found = within_limits([(T, e)], -infinite, infinite, inequalities=(G, g), **options)
            np.testing.assert_array_equal(found.u, u)
            assert found.iterations == 0 and not found.binding.any() and not found.slack.any()


@pytest.mark.parametrize("started", [False, True])
def test_no_limits_are_the_same_as_infinite_ones(started: bool) -> None:
    random = np.random.default_rng(11)
    active = 0
    for _ in range(60):
        problem = any_problem(random)
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


def test_weights_are_a_change_of_units() -> None:
    random = np.random.default_rng(7)
    for _ in range(50):
        problem = any_problem(random)
        weights = random.uniform(0.1, 10.0, len(problem.s))
        root = np.sqrt(weights)
        levels = tuple((T / root, e) for T, e in problem.levels)
        changed = Problem(
            levels, problem.G / root, problem.g, problem.lower * root, problem.upper * root, problem.s * root
        )
        np.testing.assert_allclose(problem.solve(weights=weights).u, changed.solve().u / root, rtol=0, atol=1e-10)


def test_the_last_answer_is_a_good_start() -> None:
    """After data moved by up to 1 %, one step proves the answer as a rule."""
    random = np.random.default_rng(8)
    steps = []
    for _ in range(300):
        problem = any_problem(random)
        last, after = problem.solve(), problem.moved(random, 0.01)
        cold, warm = after.solve(), after.solve(start=Start(last.u, last.active))
        np.testing.assert_allclose(warm.u, cold.u, rtol=0, atol=1e-9)
        if warm.iterations:
            steps.append(warm.iterations)
    assert len(steps) > 200 and np.median(steps) == 1 and np.percentile(steps, 99) <= 2


def test_a_search_cut_short_stays_inside_the_limits_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each further step leaves the rows no worse, once none is held that could be free."""
    monkeypatch.setattr(limits, "search_function", limits.search_function.__wrapped__)
    random = np.random.default_rng(9)
    unfinished = 0
    for _ in range(100):
        problem = any_problem(random)
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


@cache
def kernel(rows: tuple[int, ...], m: int, k: int, free: bool) -> Kernel:
    """within_limits, traced; `free`: without limits of inputs or preferred ones."""
    shapes: dict[str, tuple[int, ...]] = {}
    for level, r in enumerate(rows):
        shapes |= {f"T{level}": (r, m), f"e{level}": (r,)}
    values = inputs(shapes | {name: (m,) for name in ("lower", "upper", "s")} | {"G": (k, m), "g": (k,)})
    result = within_limits(
        [(values[f"T{level}"], values[f"e{level}"]) for level in range(len(rows))],
        np.full(m, -np.inf) if free else values["lower"],
        np.full(m, np.inf) if free else values["upper"],
        None if free else values["s"],
        inequalities=(values["G"], values["g"]),
    )
    outputs = {"u": result.u, "slack": result.slack, "binding": result.binding}
    counts = {"iterations": np.array([result.iterations]), "converged": np.array([result.converged])}
    return Kernel.compile("bounds", values, outputs | counts)


def traced(problem: Problem, free: bool) -> list[Array]:
    function = kernel(tuple(len(e) for _, e in problem.levels), len(problem.s), len(problem.g), free)
    levels = [part for level in problem.levels for part in level]
    return function(*levels, problem.lower, problem.upper, problem.s, problem.G, problem.g)


@pytest.mark.parametrize(("counts", "free"), [((2,), False), ((1, 2), False), ((2,), True)])
def test_numbers_and_symbols_agree(counts: tuple[int, ...], free: bool) -> None:
    random = np.random.default_rng(10)
    for index in range(60):
        levels = tuple((random.standard_normal((r, 4)), random.standard_normal(r)) for r in counts)
        lower, upper = -random.uniform(0.3, 1.5, 4), random.uniform(0.3, 1.5, 4)
        lower[random.random(4) < 0.3], upper[random.random(4) < 0.3] = -np.inf, np.inf
        G, g = random.standard_normal((3, 4)), random.standard_normal(3) + 0.3
        G[0], g[0] = (G[1], g[1]) if index % 3 == 0 else (G[0], -np.inf if index % 3 == 1 else g[0])
        s = random.standard_normal(4)
        if free:
            lower, upper, s = np.full(4, -np.inf), np.full(4, np.inf), np.zeros(4)
        problem = Problem(levels, G, g, lower, upper, s)
        found = problem.solve()
        u, slack, binding, iterations, converged = traced(problem, free)
        np.testing.assert_allclose(u, found.u, rtol=0, atol=1e-10)
        np.testing.assert_allclose(slack, found.slack, rtol=0, atol=1e-10)
        assert converged[0] == found.converged == 1
        if index % 3:  # equal rows are a tie, broken by rounding
            assert binding.tolist() == found.binding.tolist() and iterations[0] == found.iterations


def test_a_row_without_effect_on_the_inputs_is_told_by_its_slack() -> None:
    """A row below the rank tolerance of the others has no pivot; its lack stays visible."""
    G, g = np.array([[1.0, 0.0], [0.0, 1e-12]]), np.array([0.5, 1e-3])
    found = within_limits([(np.zeros((0, 2)), np.zeros(0))], -np.ones(2), np.ones(2), inequalities=(G, g))
    np.testing.assert_allclose(found.u, [0.5, 0.0], atol=1e-15)
    np.testing.assert_allclose(found.slack, [0.0, 1e-3]) and found.binding.tolist() == [1.0, 1.0]


def test_rows_of_nan_do_not_pass_for_met() -> None:
    T, e = np.eye(2), np.ones(2)
    found = within_limits([(T, e)], -WIDE[:2], WIDE[:2], inequalities=(np.array([[1.0, 0.0]]), np.array([np.nan])))
    assert np.isnan(found.u).all() and np.isnan(found.slack).all()
