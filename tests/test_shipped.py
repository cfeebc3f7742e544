"""Every shipped config is of the kind that `shipped.py` says and means one thing: on paper, in NumPy and compiled."""

import numpy as np
import pytest

import servoctl
from servoctl.assembly.start import unit_word_warnings
from servoctl.check.report import check
from servoctl.simulation.closed_loop import Loop
from servoctl.types import Array
from tests.shipped import CONSTRAINT_FOLLOWING, LOADED
from tests.textbook import Textbook


@pytest.mark.parametrize("name", ["crane_rope", "elbow_above_table", "flexible_joint_motor_raised"])
def test_check_reports_on_a_config(name: str) -> None:
    sections = dict(check(servoctl.load(name, engine="vm", strict=False)).sections)
    assert ("bounds" in sections) == (name != "flexible_joint_motor_raised")
    shown = "\n".join(sections["corrections"])
    assert "poles of the task error [1/s]: -" in shown and "e-0" not in shown, "repeated poles without their rounding"


@pytest.fixture(scope="module", params=LOADED)
def run(request: pytest.FixtureRequest) -> servoctl.Run:
    """A shipped config, loaded once for all tests of it, with its plant in NumPy."""
    return servoctl.load(request.param, engine="numpy")


def test_a_config_is_of_the_kind_that_the_lists_say(run: servoctl.Run) -> None:
    degrees = [row.degree for row in run.system.model.task_rows]
    assert (run.system.law is not None and max(degrees) <= 2) == (run.name in CONSTRAINT_FOLLOWING)
    assert run.loaded is not None and unit_word_warnings(run.loaded, run.system.model.plant) == []


RELATIVE = 1e-9
"""Rounding times the conditions of these plants, below 1e5."""

STATES = 8


def assert_alike(expected: Array, actual: Array, what: str) -> None:
    scale = max(1.0, float(np.nanmax(np.abs(expected), initial=0.0)))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=RELATIVE * scale, err_msg=what, equal_nan=True)


def assert_rows_agree(loop: Loop, expected: Array, actual: Array) -> None:
    for quantity, where in loop.layout.slices.items():
        assert_alike(expected[where], actual[where], quantity)


def test_rates_control_and_motion_are_the_same_numbers_on_paper_in_numpy_and_compiled(run: servoctl.Run) -> None:
    system, n, m = run.system, run.system.model.n, run.system.model.m
    compiled = Loop(system)
    assert system.model.opaque is None and run.loop.engine == "numpy"
    compared = 0
    for state in system.model.samples(run.start, 3 if run.name == "swarm_50" else STATES):
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
