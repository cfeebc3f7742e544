"""One meaning: on every shipped config a row is the same on paper, with the plant in NumPy, and compiled."""

from functools import cache

import numpy as np
import pytest

import servoctl
from servoctl.simulation.closed_loop import Loop
from servoctl.types import Array
from tests.shipped import LOADED
from tests.textbook import Textbook

RELATIVE = 1e-9
"""Rounding times the conditions of these plants, below 1e5."""

STATES = 8


@cache
def loaded(name: str) -> servoctl.Run:
    return servoctl.load(name, engine="numpy")


def assert_alike(expected: Array, actual: Array, what: str) -> None:
    scale = max(1.0, float(np.nanmax(np.abs(expected), initial=0.0)))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=RELATIVE * scale, err_msg=what, equal_nan=True)


def assert_rows_agree(loop: Loop, expected: Array, actual: Array) -> None:
    for quantity, where in loop.layout.slices.items():
        assert_alike(expected[where], actual[where], quantity)


@pytest.mark.parametrize("name", LOADED)
def test_rates_control_and_motion_are_the_same_numbers_on_paper_in_numpy_and_compiled(name: str) -> None:
    run = loaded(name)
    system, n, m = run.system, run.system.model.n, run.system.model.m
    compiled = Loop(system)
    assert system.model.opaque is None and run.loop.engine == "numpy"
    compared = 0
    for state in system.model.samples(run.start, 3 if name == "swarm_50" else STATES):
        x = np.concatenate([state.q, state.v, compiled.memory_start])
        rates, row = run.loop.rates(state.t, x)
        other_rates, other_row = compiled.rates(state.t, x)
        assert np.isfinite(rates).all()
        assert_alike(rates, other_rates, "rates")
        assert_rows_agree(compiled, row, other_row)
        command = run.loop.control(state.t, x)
        assert_alike(command, row[: len(command)], "control")
        held = command.copy()
        held[:m] += 1.0  # a command that is not the law's own
        for one, other in zip(run.loop.motion(state.t, x, held), compiled.motion(state.t, x, held), strict=True):
            assert_alike(one, other, "motion")

        book = Textbook(system, state)
        slices = compiled.layout.slices
        assert_alike(book.acceleration(row[slices["u"]]), rates[n : 2 * n], "acceleration on paper")
        assert_alike(book.acceleration(held[:m]), run.loop.motion(state.t, x, held)[0][n : 2 * n], "held")
        if not book.covers():
            continue
        u, missed, rank = book.command()
        law, of = system.law, system.law.allocation  # type: ignore[union-attr]
        within = not of.limited or ((np.array(of.lower) <= u) & (u <= np.array(of.upper))).all()
        if within and not row[slices["bound_active"]].any():
            compared += 1
            required = law.required  # type: ignore[union-attr]
            assert_alike(u, row[slices["u"]], "u on paper")
            assert row[slices["rank"]][0] == rank
            size = max(1.0, np.abs(rates).max())
            residual = np.abs(missed[required]).max(initial=0.0)
            assert abs(residual - row[slices["residual"]][0]) <= RELATIVE * size, "residual on paper"
    assert compared or system.law is None or not book.covers() or law.allocation.limited  # type: ignore[union-attr]
