"""Two executors, one meaning: on every shipped config, every number of a row is the same in NumPy and compiled."""

from functools import cache

import numpy as np
import pytest
from shipped import LOADED

import servoctl
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.compiled import CompiledLoop
from servoctl.simulation.numpy_loop import NumpyLoop
from servoctl.types import Array

RELATIVE = 1e-10
"""Rounding times the conditions of these plants, below 1e5."""

STATES = 20


@cache
def loaded(name: str) -> servoctl.Run:
    return servoctl.load(name, engine="numpy")


@cache
def loops(name: str) -> tuple[Loop, Loop]:
    system = loaded(name).system
    # Rows that are not unrolled: the compiled plant under LAPACK is held against the plain one.
    return NumpyLoop(system), CompiledLoop(system)


def assert_rows_agree(loop: Loop, expected: Array, actual: Array) -> None:
    for quantity, where in loop.layout.slices.items():
        wanted, got = expected[where], actual[where]
        scale = max(1.0, float(np.nanmax(np.abs(wanted), initial=0.0)))
        np.testing.assert_allclose(got, wanted, rtol=0, atol=RELATIVE * scale, err_msg=quantity, equal_nan=True)


@pytest.mark.parametrize("name", LOADED)
def test_rates_control_and_motion_are_the_same_numbers_on_both_engines(name: str) -> None:
    numpy_loop, compiled = loops(name)
    model, start = numpy_loop.system.model, loaded(name).start
    assert model.opaque is None
    for state in model.samples(start, 3 if name == "swarm_50" else STATES):
        x = np.concatenate([state.q, state.v, numpy_loop.memory_start])
        rates, row = numpy_loop.rates(state.t, x)
        other_rates, other_row = compiled.rates(state.t, x)
        assert np.isfinite(rates).all()
        np.testing.assert_allclose(other_rates, rates, rtol=0, atol=RELATIVE * max(1.0, np.abs(rates).max()))
        assert_rows_agree(numpy_loop, row, other_row)
        command = numpy_loop.control(state.t, x)
        np.testing.assert_allclose(
            command, row[: len(command)], rtol=0, atol=RELATIVE * max(1.0, np.abs(command).max())
        )
        held = command.copy()
        held[: model.m] += 1.0  # a command that is not the law's own
        for mine, others in zip(numpy_loop.motion(state.t, x, held), compiled.motion(state.t, x, held), strict=True):
            scale = max(1.0, float(np.nanmax(np.abs(mine), initial=0.0)))
            np.testing.assert_allclose(others, mine, rtol=0, atol=RELATIVE * scale, equal_nan=True)


@pytest.mark.parametrize("name", LOADED)
def test_a_step_of_runge_kutta_is_the_same_compiled_continuous_and_held(name: str) -> None:
    from servoctl.simulation.runge_kutta import rk4

    numpy_loop, compiled = loops(name)
    assert isinstance(compiled, CompiledLoop)
    start, h = loaded(name).start, 0.004
    x = np.concatenate([start.q, start.v, numpy_loop.memory_start])
    continuous, row = compiled.stepper(None)(x, start.t, h, compiled.parameters)
    expected = rk4(lambda t, y: numpy_loop.rates(t, y)[0], start.t, x, h)
    np.testing.assert_allclose(continuous, expected, rtol=0, atol=RELATIVE * max(1.0, np.abs(expected).max()))
    assert_rows_agree(numpy_loop, numpy_loop.rates(start.t, x)[1], row)
    command, expected = numpy_loop.control(start.t, x), x
    for i in range(2):
        expected = rk4(lambda t, y: numpy_loop.motion(t, y, command)[0], start.t + i * h / 2, expected, h / 2)
    held, _ = compiled.stepper(2)(x, start.t, h, compiled.parameters)
    np.testing.assert_allclose(held, expected, rtol=0, atol=RELATIVE * max(1.0, np.abs(expected).max()))


def test_gains_and_parameters_are_inputs_of_the_compiled_loop() -> None:
    """Another gain and another mass, without compiling again, are what a loop built with them says."""
    from dataclasses import replace

    run = servoctl.load("two_mass_spring_off", engine="vm")
    other = servoctl.load(
        "two_mass_spring_off", ["plant.parameters.m2=3", "law.correction.baumgarte.alpha=7"], engine="vm"
    )
    loop, second = run.loop, other.loop
    assert isinstance(loop, CompiledLoop) and isinstance(second, CompiledLoop)
    x = np.concatenate([run.start.q, run.start.v])
    before = loop.control(0.0, x)
    found = loop.control_kernel(0.0, x, second.parameters)[0]
    assert abs(found[0] - before[0]) > 0.1
    np.testing.assert_allclose(found, second.control(0.0, x), rtol=1e-14)
    assert replace(run.system.model.plant, m2=3.0) == other.system.model.plant  # type: ignore[type-var]
