"""The law on every shipped plant: the task is met by the inputs of the least norm of the allocation.

Accelerations are found by multipliers here, never by the projections that the law itself uses.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.linalg import null_space

import servoctl
from servoctl.errors import TaskError
from servoctl.laws.configured import ConstraintFollowing
from servoctl.laws.constraint_following import AttachedConstraintFollowing
from servoctl.laws.corrections import Baumgarte
from servoctl.laws.secondary import SecondaryTerm
from servoctl.laws.user_code import UserFunction
from servoctl.mechanics.model import Model
from servoctl.mechanics.terms import Matrices
from servoctl.types import Array, Command, State, Status
from tests.faces import command_at
from tests.multipliers import multiplier_equation
from tests.shipped import CONSTRAINT_FOLLOWING, LOWER_PRIORITY

STATES = 5
MET = [name for name in CONSTRAINT_FOLLOWING if name not in LOWER_PRIORITY]
NO_MEMORY = np.zeros(0)


@cache
def run(name: str) -> servoctl.Run:
    return servoctl.load(name, engine="numpy")


SEVERAL_ANSWERS = ["coordinated_robots"]
"""Shipped plants with more actuators than the task has rows."""
KINDS = ["minimum_norm", "weighted", "unprojected", "constraint_force", "least_acceleration"]


def law_of(name: str) -> AttachedConstraintFollowing:
    """The config's law by itself: no wishes in the null space, no limits, no bounds."""
    law = run(name).system.law
    assert isinstance(law, AttachedConstraintFollowing)
    return replace(law, terms=(law.correction,), allocation=replace(law.allocation, limited=False))


def allocating(
    law: AttachedConstraintFollowing, kind: str, weights: tuple[float, ...] = ()
) -> AttachedConstraintFollowing:
    """The law with another allocation."""
    of = replace(law.allocation, kind=kind, feedback_kind=kind, weights=weights or law.allocation.weights)
    return replace(law, allocation=of)


def states(name: str) -> Iterator[tuple[State, Matrices]]:
    """Random states near the start; they need not satisfy any constraint."""
    model = run(name).system.model
    for state in model.samples(run(name).start, STATES):
        yield state, model.matrices(state)


def accelerated(m: Matrices, u: Array) -> Array:
    return multiplier_equation(m.M, m.Q + m.c + m.B @ u, m.passive.A, m.passive.b)


def correction(law: AttachedConstraintFollowing, m: Matrices) -> Array:
    """-damping phi' - stiffness phi, where a row has them."""
    rate, violation = np.nan_to_num(m.task.violation_rate), np.nan_to_num(m.task.violation)
    return -np.array(law.correction.damping) * rate - np.array(law.correction.stiffness) * violation


def task_map(m: Matrices) -> tuple[Array, Array]:
    """T and the acceleration at u = 0, column by column from multipliers."""
    zero = accelerated(m, np.zeros(m.B.shape[1]))
    columns = [m.task.A @ (accelerated(m, unit) - zero) for unit in np.eye(m.B.shape[1])]
    return np.stack(columns, axis=1), zero


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MET)
def test_every_allocation_meets_the_task(name: str, kind: str) -> None:
    law = allocating(law_of(name), kind)
    model = run(name).system.model
    for state, m in states(name):
        command = command_at(law, model, state)
        wanted = m.task.b + correction(law, m)
        if kind == "unprojected" and not (m.task.A @ np.linalg.solve(m.M, m.B)).any():
            # motors on one body, the task on another: A M^-1 B is zero, and the implicit solution asks for nothing
            assert int(command.status) == Status.INFEASIBLE.code and not command.u.any()
            continue
        assert int(command.status) == Status.OK.code
        assert command.rank == len(wanted)
        missed = m.task.A @ accelerated(m, command.u) - wanted
        # 1e-9 relative: two solutions of systems whose condition is below 1e5
        assert np.abs(missed).max() <= 1e-9 * (
            1.0 + np.abs(wanted).max() + np.abs(m.task.A @ accelerated(m, 0 * command.u)).max()
        )
        assert np.abs(command.residual).max() <= 1e-9 * (1.0 + np.abs(wanted).max())


def measures(kind: str, m: Matrices, weights: Array) -> Array:
    """The matrix H of u^T H u, which the allocation makes least."""
    inverse = np.linalg.inv(m.M)
    return {
        "minimum_norm": np.eye(len(weights)),
        "weighted": np.diag(weights),
        "constraint_force": m.B.T @ inverse @ m.B,
        "least_acceleration": m.B.T @ inverse @ inverse @ m.B,
    }[kind]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "unprojected"])
@pytest.mark.parametrize("name", SEVERAL_ANSWERS)
def test_the_allocation_minimises_its_norm(name: str, kind: str) -> None:
    random = np.random.default_rng(3)
    weights = tuple(random.uniform(0.2, 5.0, 6))
    law = allocating(law_of(name), kind, weights)
    for state, m in states(name):
        u = command_at(law, run(name).system.model, state).u
        H, free = measures(kind, m, np.array(weights)), null_space(task_map(m)[0], rcond=1e-9)
        assert free.shape[1] == 3
        slope = free.T @ H @ u
        assert np.abs(slope).max() <= 1e-8 * np.abs(H).max() * np.abs(u).max()  # the first-order condition
        for z in random.standard_normal((10, 3)):
            other = u + free @ z
            assert other @ H @ other >= u @ H @ u - 1e-8 * (u @ H @ u)


@pytest.mark.parametrize("name", MET)
def test_the_unprojected_allocation_is_the_published_implicit_solution(name: str) -> None:
    """u = (A M^-1 B)^+ (b - A M^-1 (Q + Qc(u))): the reaction in it is the one to this very u."""
    law = allocating(law_of(name), "unprojected")
    for state, m in states(name):
        u = command_at(law, run(name).system.model, state).u
        Qc = m.M @ accelerated(m, u) - m.Q - m.B @ u
        W = m.task.A @ np.linalg.solve(m.M, m.B)
        expected = np.linalg.pinv(W) @ (m.task.b + correction(law, m) - m.task.A @ np.linalg.solve(m.M, m.Q + Qc))
        np.testing.assert_allclose(u, expected, rtol=0, atol=1e-8 * (1.0 + np.abs(expected).max()))


def test_a_null_space_term_moves_the_inputs_and_not_the_task() -> None:
    model, law = run("coordinated_robots").system.model, law_of("coordinated_robots")

    def wish(state: State) -> Array:
        return np.array([3.0, -1.0, state.t, 2.0, state.q[0], state.v[1]])

    for state, m in states("coordinated_robots"):
        wishes = UserFunction(lambda t, q, v: wish(State(t[0], q, v)), None)
        wishing = replace(law, terms=(*law.terms, SecondaryTerm(wishes, (0.0,) * 6, 0.0)))
        plain, wished = command_at(law, model, state).u, command_at(wishing, model, state).u
        T, _ = task_map(m)
        np.testing.assert_allclose(T @ wished, T @ plain, rtol=0, atol=1e-9 * (1.0 + np.abs(plain).max()))
        part = (np.eye(6) - np.linalg.pinv(T) @ T) @ wish(state)
        np.testing.assert_allclose(wished - plain, part, rtol=0, atol=1e-10 * (1.0 + np.abs(wish(state)).max()))
        assert np.abs(part).max() > 0.1


def test_a_null_space_term_may_be_equations_of_some_actuators() -> None:
    model, start = run("coordinated_robots").system.model, run("coordinated_robots").start
    task = {"correction": Baumgarte(10, 10)}
    by_text = ConstraintFollowing(**task, null_space={"u2": "-l*der(theta1) + t"}).attach(model)
    by_function = ConstraintFollowing(**task, null_space=lambda s: np.array([0.0, s.t - s.v[0], 0, 0, 0, 0])).attach(
        model
    )
    for state in model.samples(start, 3):
        np.testing.assert_allclose(
            command_at(by_text, model, state).u, command_at(by_function, model, state).u, rtol=1e-13
        )


@pytest.mark.parametrize("name", ["coordinated_robots", "quadruped_stand", "two_mass_spring"])
def test_control_is_a_pure_function(name: str) -> None:
    model, law = run(name).system.model, law_of(name)

    def bits(command: Command) -> bytes:
        parts = [command.u, command.residual, command.rank, command.pivot_min, command.status]
        return b"".join(np.asarray(part, dtype=float).tobytes() for part in parts)

    for state in model.samples(run(name).start, 2):
        kept = State(state.t, state.q.copy(), state.v.copy())
        first = bits(command_at(law, model, state, NO_MEMORY))
        command_at(law, model, State(9.0, state.q + 1.0, state.v - 1.0))
        assert bits(command_at(law, model, state)) == first
        assert (kept.q.tobytes(), kept.v.tobytes()) == (state.q.tobytes(), state.v.tobytes())


def test_a_law_without_a_task_or_without_actuators_is_refused() -> None:
    model = run("coordinated_robots").system.model
    with pytest.raises(TaskError, match="law: there is no task to follow"):
        ConstraintFollowing().attach(Model(model.plant, {}, run("coordinated_robots").start))
    with pytest.raises(TaskError, match=r"law\.limits\.u9: there is no actuator 'u9' \(known: u1"):
        ConstraintFollowing(limits={"u9": (-1.0, 1.0)}).attach(model)
