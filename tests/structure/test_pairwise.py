"""Sums over all pairs of bodies: equal to a double loop in Python, on every engine, derivatives included."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import servoctl as sc
from plants.swarm import Aggregation, Swarm
from servoctl.assembly.system import make_system
from servoctl.engine.ccode import Program
from servoctl.engine.kernel import Kernel, directional, inputs, jacobian
from servoctl.engine.trace import trace
from servoctl.errors import TaskError
from servoctl.simulation.compiled import CompiledLoop
from servoctl.simulation.numpy_loop import NumpyLoop
from servoctl.types import Array

Q = np.array([[0.3, 1.0], [-0.8, 0.4], [1.7, -0.6], [0.2, -1.1]])
V = np.array([[0.1, -0.3], [0.5, 0.2], [-0.4, 0.6], [0.3, 0.1]])


def follow(q: Array, other: Array, v: Array, w: Array) -> Array:
    """Not symmetric, and it takes velocities."""
    d = q - other
    return (w - v) / (1.0 + np.sum(d * d, axis=0)) + np.array([q[0] * other[1], np.sin(other[0])])


def loop(f: Any, *parts: Array) -> Array:
    """The double loop."""
    N = len(parts[0])
    sums = [sum(f(*(p[k] for p in parts for k in (i, j))) for j in range(N) if j != i) for i in range(N)]
    return np.array(sums)


def test_numbers_are_those_of_a_double_loop() -> None:
    np.testing.assert_allclose(sc.pairwise(follow, Q, V), loop(follow, Q, V), rtol=1e-13)


def test_an_antisymmetric_function_is_evaluated_once_per_pair() -> None:
    calls = []

    def spring(p: Array, other: Array) -> Array:
        calls.append(p.shape[1])
        return (p - other) * np.sum((p - other) ** 2, axis=0)

    found = sc.pairwise(spring, Q, antisymmetric=True)
    assert calls == [6, 1]  # six pairs, and the first one turned round
    np.testing.assert_allclose(found, loop(lambda p, o: (p - o) * np.sum((p - o) ** 2), Q), rtol=1e-13)


def test_one_body_has_no_others() -> None:
    np.testing.assert_array_equal(sc.pairwise(follow, Q[:1], V[:1]), np.zeros((1, 2)))


def test_symbols_and_c_give_the_sum_and_its_derivative_along_a_direction() -> None:
    given = inputs({"q": (8,), "v": (8,)})
    psi = trace(lambda q, v: sc.pairwise(follow, q.reshape(-1, 2), v.reshape(-1, 2)), given["q"], given["v"]).ravel()
    rate = directional(psi, given["q"], given["v"])
    slopes = jacobian(psi, given["v"])
    kernel = Kernel.compile("sums", given, {"psi": psi, "rate": rate})
    exact_slopes = Kernel.compile("slopes", given, {"slopes": slopes})(Q.ravel(), V.ravel())[0]
    h = 1e-6
    ahead, behind = (loop(follow, Q + s * h * V, V).ravel() for s in (1, -1))
    along = [(loop(follow, Q, V + h * e) - loop(follow, Q, V - h * e)).ravel() / (2 * h)
             for e in np.eye(8).reshape(8, 4, 2)]  # fmt: skip
    np.testing.assert_allclose(exact_slopes, np.array(along).T, atol=1e-8)
    for engine in ("vm", "c"):
        if engine == "c":
            kernel.run_on(Program([kernel.function]).load())
        found, found_rate = kernel(Q.ravel(), V.ravel())
        np.testing.assert_allclose(found, loop(follow, Q, V).ravel(), rtol=1e-12)
        np.testing.assert_allclose(found_rate, (ahead - behind) / (2 * h), rtol=1e-7, atol=1e-8)


@dataclass(frozen=True)
class Pairs(sc.Nonholonomic):
    """The swarm's rule, written with `pairwise`; `wrong` claims a symmetry that is not there."""

    a: float = 1.0
    b: float = 0.5
    wrong: bool = False

    def psi(self, q: Array, v: Array, t: float) -> Array:
        def pull(p: Array, other: Array) -> Array:
            d = p - other
            force = d * (self.a - self.b / np.sqrt(np.sum(d * d, axis=0)))
            return force + 1e-3 * p if self.wrong else force

        return v + sc.pairwise(pull, q.reshape(-1, 2), antisymmetric=True).reshape(-1)


@pytest.mark.parametrize("N", [4, 35], ids=["small", "large"])
def test_a_task_of_pairs_is_the_swarm_of_the_plants(N: int) -> None:
    start = sc.State(0.0, 4.0 * np.random.default_rng(2).standard_normal(2 * N), np.zeros(2 * N))
    law = sc.ConstraintFollowing(correction=sc.PFeedback(0.2))
    system = make_system(Swarm(N=N), {"gather": Pairs(a=0.8)}, law, {}, start, None, 1e-6)
    assert not system.model.stepped and len(system.model.parts) == 2 * N
    divided = CompiledLoop(system)
    whole = NumpyLoop(make_system(Swarm(N=N), {"gather": Aggregation(a=0.8)}, law, {}, start, None, 1e-6))
    x = np.concatenate([start.q, 0.3 * np.arange(2.0 * N) / N])
    expected = whole.rates(0.0, x)[0]
    np.testing.assert_allclose(divided.rates(0.0, x)[0], expected, rtol=1e-11, atol=1e-11 * np.abs(expected).max())
    if N == 4:
        divided.rates_kernel.run_on(Program([divided.rates_kernel.function]).load())
        np.testing.assert_allclose(divided.rates(0.0, x)[0], expected, rtol=1e-11, atol=1e-11)


def test_a_symmetry_that_is_not_there_is_an_error() -> None:
    with pytest.raises(TaskError, match=r"f\(q_i, q_j\) is not -f\(q_j, q_i\) \(leave antisymmetric out\)"):
        Pairs(wrong=True).psi(Q.ravel(), V.ravel(), 0.0)
    with pytest.raises(TaskError, match="leave antisymmetric out"):
        sc.Model(Swarm(N=4), {"gather": Pairs(wrong=True)}, sc.State(0.0, Q.ravel(), V.ravel()))


def test_wrong_shapes_are_named() -> None:
    with pytest.raises(TaskError, match=r"expected one row per body, as in q.reshape\(-1, 2\), got \(8,\)"):
        sc.pairwise(follow, Q.ravel())
    with pytest.raises(TaskError, match=r"f returned shape \(12,\) for 12 pairs, expected \(k, pairs\)"):
        sc.pairwise(lambda p, o: np.sum((p - o) ** 2, axis=0), Q)
