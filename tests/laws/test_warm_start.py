"""The search for limits and bounds begins at the answer of the last tick: fewer steps, the same answer."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from bounded_arm import CIRCLE, CLEAR, LAW, Arm, start
from inequality_problems import DEGENERATE, Problem, any_problem

import servoctl as sc
from servoctl.laws import limits
from servoctl.laws.limits import Start
from servoctl.run_folder.trajectory import Trajectory

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
