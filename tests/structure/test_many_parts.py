"""Many like parts beside unlike ones: loops over the parts give what the undivided law gives."""

from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import casadi as ca
import numpy as np
import pytest

import servoctl as sc
from servoctl.assembly.system import make_system
from servoctl.engine import stored
from servoctl.engine.mapped import FEW, MAPPED, fold, for_many
from servoctl.engine.symbol import symbols, to_sx
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.compiled import CompiledLoop
from servoctl.simulation.implicit import differences
from servoctl.simulation.numpy_loop import NumpyLoop
from servoctl.types import Array, Status

ARMS = 20
HELD = 18
"""Arms with a passive row."""


def _coordinates() -> dict[str, str]:
    outer = {f"b{i}": "rad" for i in reversed(range(ARMS))}
    return {**outer, "x": "m", **{f"a{i}": "rad" for i in range(ARMS)}}


@dataclass(frozen=True)
class Arms(sc.Plant):
    """Twenty arms of two links with masses of their own, in an odd order, and a cart; some arms have a passive row."""

    m: tuple[float, ...] = field(default=tuple(1.0 + 0.1 * i for i in range(ARMS)))
    coordinates: ClassVar = _coordinates()
    actuators: ClassVar = {"fx": "N", **{f"t{k}{i}": "N m" for k in "ba" for i in range(ARMS)}}

    def mass_matrix(self, q: Array, t: float) -> Array:
        M = np.zeros((2 * ARMS + 1, 2 * ARMS + 1))
        M[ARMS, ARMS] = 4.0
        for i in range(ARMS):
            a, b, c = ARMS + 1 + i, ARMS - 1 - i, np.cos(q[ARMS - 1 - i])
            M[a, a], M[a, b] = self.m[i] * (3.0 + 2.0 * c), self.m[i] * (1.0 + c)
            # negative beyond 3 rad, so that a test can take an arm out of what is possible
            M[b, a], M[b, b] = self.m[i] * (1.0 + c), self.m[i] * sc.where(q[b] > 3.0, -1.0, 1.0)
        return M

    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.sin(q) + 0.1 * v * v

    def actuation(self, q: Array, t: float) -> Array:
        B = np.zeros((2 * ARMS + 1, 2 * ARMS + 1))
        B[ARMS, 0] = 2.0
        for i in range(ARMS):
            B[ARMS - 1 - i, 1 + i] = B[ARMS + 1 + i, 1 + ARMS + i] = 1.0
        return B

    def passive_constraints(self, q: Array, t: float) -> dict[str, Any]:
        return {"guides": np.array([q[ARMS + 1 + i] - 2.0 * q[ARMS - 1 - i] for i in range(HELD)])}


TASK = {f"arm{i}": sc.Holonomic(f"a{i} + 0.2*b{i} - 0.1*t") for i in range(ARMS)} | {"x": sc.Holonomic("x - sin(t)")}
BASE = sc.ConstraintFollowing(correction=sc.Baumgarte(5.0, 3.0))
LAWS = {
    "least inputs": BASE,
    "least acceleration": replace(BASE, allocation="least_acceleration"),
    "an aim and damping": replace(BASE, secondary=sc.Secondary(damping=0.4)),
}
START = sc.State(0.0, np.linspace(-0.5, 0.7, 2 * ARMS + 1), np.linspace(0.3, -0.4, 2 * ARMS + 1))
X = np.concatenate([START.q, START.v])


@cache
def loops(law: str = "least inputs", **more: Any) -> tuple[CompiledLoop, Loop]:
    system = make_system(Arms(), {**TASK, **more}, LAWS[law], {}, START, None, 1e-6)
    return CompiledLoop(system), NumpyLoop(system)


def part(loop: Loop, row: Array, name: str) -> Array:
    return row[loop.layout.slices[name]]


def assert_equal(one: Loop, other: Loop, x: Array) -> None:
    for got, expected in zip(one.rates(0.3, x), other.rates(0.3, x), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("law", LAWS)
def test_many_like_parts_have_the_law_of_the_whole(law: str) -> None:
    divided, whole = loops(law)
    assert len(divided.parts) == ARMS + 1 and min(HELD, ARMS) > FEW
    random = np.random.default_rng(1)
    for _ in range(3):
        x = X + 0.3 * random.standard_normal(len(X))
        assert_equal(divided, whole, x)
        rates, row = divided.rates(0.3, x)
        command = divided.control(0.3, x)
        np.testing.assert_array_equal(command, row[: len(command)])
        np.testing.assert_allclose(divided.motion(0.3, x, command)[0], rates, rtol=1e-12, atol=1e-12)


def test_one_part_decides_the_status_of_all() -> None:
    contradiction = sc.Holonomic("a3 + 0.2*b3 + 3*t*t")
    divided, whole = loops(again=contradiction)
    assert_equal(divided, whole, X)
    row = divided.rates(0.3, X)[1]
    assert part(divided, row, "status") == Status.INFEASIBLE.code and part(divided, row, "rank") == ARMS + 1

    divided, whole = loops()
    impossible, infinite = X.copy(), X.copy()
    impossible[list(Arms.coordinates).index("b5")] = 3.1
    infinite[0] = np.inf
    for x, status in ((impossible, Status.NOT_POSITIVE), (infinite, Status.NON_FINITE)):
        for loop in (divided, whole):
            row = loop.rates(0.3, x)[1]
            assert part(loop, row, "status") == status.code
            assert np.isnan(part(loop, row, "u")).all() and np.isnan(part(loop, row, "residual")).all()


def test_c_gives_what_the_virtual_machine_gives() -> None:
    divided = CompiledLoop(loops()[0].system)
    states = X + 0.3 * np.random.default_rng(2).standard_normal((3, len(X)))
    expected = [divided.rates(0.3, x) for x in states]
    program = divided.program(0)
    assert "f_fold_" in program.source and "f_map_" in program.source
    divided.run_on(program.load(), 0)
    for x, values in zip(states, expected, strict=True):
        for got, value in zip(divided.rates(0.3, x), values, strict=True):
            np.testing.assert_allclose(got, value, rtol=1e-12, atol=1e-12)


def test_the_jacobian_is_exact() -> None:
    divided, _ = loops()
    exact = divided.jacobian(0.3, X)
    assert exact is not None
    np.testing.assert_allclose(exact, differences(lambda y: divided.rates(0.3, y)[0], X, 1e-3), rtol=1e-6, atol=1e-6)


def test_a_second_command_takes_the_loops_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored.write_waiting()
    monkeypatch.setenv("SERVOCTL_CACHE", str(tmp_path))
    monkeypatch.setattr(stored, "WORTH", 0)
    first = CompiledLoop(loops()[0].system)
    expected, source = first.rates(0.3, X)[1], first.program(None).source
    stored.write_waiting()
    before = dict(MAPPED)

    def refuse(*values: Any) -> None:
        raise AssertionError("traced again")

    monkeypatch.setattr(CompiledLoop, "_control", refuse)
    MAPPED.clear()
    second = CompiledLoop(first.system)
    np.testing.assert_array_equal(second.rates(0.3, X)[1], expected)
    assert second.program(None).source == source
    MAPPED.update(before)


@pytest.mark.parametrize("count", [FEW, FEW + 1])
def test_a_fold_and_a_loop_give_what_the_things_one_by_one_give(count: int) -> None:
    x = symbols("x", 2 * count + 1)
    table = [np.array([x[2 * k], 3.0, x[2 * k + 1], float(k), x[-1]], dtype=object) for k in range(count)]

    def after(values: Array, row: Array) -> Array:
        return np.array([values[0] * row[4] + row[0] * row[1], values[1] - row[2] * row[3]], dtype=object)

    def one(row: Array) -> Array:
        return np.array([row[0] * row[3], row[2] + row[4]], dtype=object)

    folded, looped = fold(after, np.array([x[0], 0.5], dtype=object), table), for_many(one, table)
    function = ca.Function("both", [to_sx(x)], [to_sx(folded), to_sx(looped.ravel())])
    numbers = np.linspace(-1.0, 0.9, len(x))
    values, rows = np.array([numbers[0], 0.5]), []
    for k in range(count):
        row = np.array([numbers[2 * k], 3.0, numbers[2 * k + 1], k, numbers[-1]])
        values, rows = after(values, row).astype(float), [*rows, one(row).astype(float)]
    got = [np.array(each).ravel() for each in function.call([numbers])]
    np.testing.assert_array_equal(got[0], values)
    np.testing.assert_array_equal(got[1], np.ravel(rows))
