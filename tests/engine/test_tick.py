"""A real-time tick gives the command of the loop, in arrays that stay in place."""

from typing import Any

import numpy as np
import pytest

import servoctl
from servoctl.engine import compiler
from servoctl.engine.kernel import BufferedCall, Kernel, inputs
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.control_tick import ControlTick
from servoctl.simulation.engine_choice import take_engine_at_once
from servoctl.types import Status

ENGINES = [
    "vm",
    pytest.param("c", marks=pytest.mark.skipif(compiler.compiler() is None, reason="no C compiler on the path")),
]


def ready(engine: str, *settings: str, name: str = "coordinated_robots") -> tuple[Any, Loop, ControlTick]:
    run = servoctl.load(name, settings, engine="vm")
    assert isinstance(run.loop, Loop)
    assert not take_engine_at_once(run.loop, engine)
    return run, run.loop, run.loop.control_tick()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_tick_gives_the_command_of_the_loop(engine: str) -> None:
    run, loop, tick = ready(engine)
    u, status, on_vm = tick.u, tick.status, servoctl.load("coordinated_robots", engine="vm").loop
    for state in loop.system.model.samples(run.start, 5):
        tick.t[0], tick.q[:], tick.v[:] = state.t, state.q, state.v
        tick()
        expected = on_vm.control(state.t, np.concatenate([state.q, state.v]))
        scale = np.abs(expected).max()
        np.testing.assert_allclose(tick.command, expected, rtol=0, atol=1e-12 * scale)
        np.testing.assert_array_equal(u, expected[:6] if engine == "vm" else tick.command[:6])
        assert status[0] == Status.OK.code == tick.command[loop.layout.slices["status"]][0]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_gain_written_in_place_holds_from_the_next_tick_on(engine: str) -> None:
    other = servoctl.load("two_mass_spring_off", ["law.correction.baumgarte.alpha=7"], engine="vm")
    run, loop, tick = ready(engine, name="two_mass_spring_off")
    tick.q[:], tick.v[:] = run.start.q, run.start.v
    tick()
    before = tick.u.copy()
    tick.parameters[:] = other.loop.parameters
    tick()
    expected = other.loop.control(0.0, np.concatenate([run.start.q, run.start.v]))
    np.testing.assert_allclose(tick.u, expected[: len(tick.u)], rtol=1e-12)
    assert np.abs(tick.u - before).max() > 0.1
    assert not np.array_equal(loop.parameters, tick.parameters)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_state_that_is_not_a_number_gives_a_status_and_no_error(engine: str) -> None:
    run, _, tick = ready(engine)
    assert np.isnan(tick.u).all()
    tick.q[:], tick.v[:] = run.start.q, np.nan
    tick()
    assert tick.status[0] == Status.NON_FINITE.code and np.isnan(tick.u).all()
    tick.v[:] = 0.0
    tick()
    assert tick.status[0] == Status.OK.code and np.isfinite(tick.u).all()


@pytest.mark.parametrize("engine", ENGINES)
def test_the_memory_of_a_law_starts_where_the_law_starts(engine: str) -> None:
    _, loop, tick = ready(engine, name="flexible_joint_motor_raised")
    np.testing.assert_array_equal(tick.memory, loop.memory_start)
    assert tick.command[loop.layout.slices["memory_rate"]].shape == tick.memory.shape


def test_two_ticks_share_nothing() -> None:
    _, loop, first = ready("vm")
    second = loop.control_tick()
    for tick, g in ((first, 9.8), (second, 1.6)):
        tick.parameters[:] = loop.parameters * (g / 9.8)
        tick.q[:] = 0.3
    first()
    kept = first.u.copy()
    second()
    np.testing.assert_array_equal(first.u, kept)
    assert np.abs(second.u - kept).max() > 0.1


def test_without_a_compiler_the_tick_stays_on_the_virtual_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "/no/such/cc")
    loop = servoctl.load("two_mass_spring", engine="vm").loop
    assert "no C compiler" in take_engine_at_once(loop, "c")
    tick = loop.control_tick()
    tick()
    assert tick.status[0] == Status.OK.code and loop.engine == "vm"


def test_a_matrix_in_a_kernel_is_indexed_as_in_numpy() -> None:
    given = inputs({"A": (2, 3), "x": (3,)})
    tick = BufferedCall(Kernel.compile("product", given, {"y": given["A"] @ given["x"], "T": given["A"].T}))
    tick.inputs["A"][:] = np.arange(6.0).reshape(2, 3)
    tick.inputs["x"][:] = [1.0, 10.0, 100.0]
    tick()
    np.testing.assert_array_equal(tick.outputs["y"], [210.0, 543.0])
    np.testing.assert_array_equal(tick.outputs["T"], np.arange(6.0).reshape(2, 3).T)


@pytest.mark.parametrize(
    ("x", "s"),
    [
        (np.array([1.0, 2.0]), 3.0),
        ([1.0, 2.0], 3),
        ((1.0, 2.0), np.array([3.0])),
        (np.array([1, 2]), np.float64(3.0)),
        (np.array([1.0, 2.0], dtype=object), np.array(3.0)),
    ],
)
def test_a_kernel_takes_numbers_in_any_form(x: Any, s: Any) -> None:
    given = inputs({"x": (2,), "s": (1,)})
    kernel = Kernel.compile("scaled", given, {"y": given["x"] * given["s"][0]})
    np.testing.assert_array_equal(kernel(x, s)[0].ravel(), [3.0, 6.0])


@pytest.mark.parametrize("x", [3.0, np.ones(1), np.arange(3.0), np.zeros((2, 2))])
def test_a_value_of_the_wrong_size_is_refused_by_name(x: Any) -> None:
    given = inputs({"x": (2,)})
    kernel = Kernel.compile("doubled", given, {"y": 2.0 * given["x"]})
    with pytest.raises(ValueError, match=r"doubled: x: expected shape \(2,\), got "):
        kernel(x)
