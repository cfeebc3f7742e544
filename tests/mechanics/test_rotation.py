"""The error of a rotation and its derivatives, against SciPy's rotations, automatic differentiation and differences."""

from collections.abc import Callable
from functools import cache
from typing import Any

import casadi as ca
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from servoctl.engine.kernel import Kernel, inputs, jacobian
from servoctl.mechanics.spatial.kinematics import FrameMotion
from servoctl.mechanics.spatial.rotation import chord, half_angle_ratio, relative_motion, rotation_vector
from servoctl.types import Array

ANGLES = [0.0, 1e-6, 1.0, 5.0, 90.0, 150.0, 170.0]
KINDS: dict[str, Callable[[Rotation], Array]] = {
    "rotation vector": lambda E: E.as_rotvec(),
    "chord": lambda E: 2.0 * E.as_quat(canonical=True)[:3],
}


@cache
def compiled(kind: str) -> Kernel:
    """The error and its two derivatives, from E, w and w' in the frame's axes."""
    symbols = inputs({"E": (3, 3), "w": (3,), "w_rate": (3,)})
    E, w, w_rate = symbols.values()
    error = {"rotation vector": rotation_vector, "chord": chord}[kind](E, np.eye(3), np.eye(3), w, w_rate)
    outputs = {"value": error.position, "slope": error.linear, "rate": error.velocity, "second": error.drift}
    return Kernel.compile("error", symbols, outputs)


def turned(degrees: float, seed: int = 0) -> tuple[Rotation, Array, Array]:
    """A rotation by this angle, an angular velocity and an angular acceleration."""
    axis, w, w_rate = np.random.default_rng(seed).standard_normal((3, 3))
    return Rotation.from_rotvec(np.radians(degrees) * axis / np.linalg.norm(axis)), w, w_rate


@pytest.mark.parametrize("degrees", ANGLES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_error_is_that_of_an_independent_program(kind: str, degrees: float) -> None:
    E, w, w_rate = turned(degrees)
    np.testing.assert_allclose(compiled(kind)(E.as_matrix(), w, w_rate)[0], KINDS[kind](E), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("degrees", ANGLES)
@pytest.mark.parametrize("kind", KINDS)
def test_rates_equal_central_differences_along_a_motion(kind: str, degrees: float) -> None:
    theirs, h = KINDS[kind], 1e-3
    E, w, w_rate = turned(degrees)
    _, slope, found_rate, found_bend = compiled(kind)(E.as_matrix(), w, w_rate)

    def along(t: float) -> Array:
        # body rates w + w' t to second order: exp(w t + w' t^2/2)
        return theirs(E * Rotation.from_rotvec(w * t + w_rate * t * t / 2))

    # extrapolated once: errors of h^4 in derivatives that grow as 1/cos(angle/2)^n near half a turn
    def first(step: float) -> Array:
        return (along(step) - along(-step)) / (2 * step)

    def second(step: float) -> Array:
        return (along(step) - 2 * along(0.0) + along(-step)) / step**2

    rate = (4 * first(h / 2) - first(h)) / 3
    bend = (4 * second(h / 2) - second(h)) / 3
    np.testing.assert_allclose(found_rate, rate, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(slope @ w, found_rate, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(found_bend, bend, rtol=1e-7, atol=1e-6)


def logarithm(p: Array) -> Array:
    """The rotation vector of a unit quaternion (x, y, z, w): another formula than ours, singular at 0."""
    sine = np.sqrt(p[0] ** 2 + p[1] ** 2 + p[2] ** 2)
    return 2.0 * np.arctan2(sine, p[3]) / sine * p[:3]


@pytest.mark.parametrize("degrees", [1.0, 5.0, 90.0, 150.0])
def test_derivatives_equal_automatic_differentiation_of_a_quaternion(degrees: float) -> None:
    symbols = inputs({"p": (4,), "w": (3,), "w_rate": (3,)})
    p, w, w_rate = symbols.values()

    def p_rate(p: Array) -> Array:
        return 0.5 * np.concatenate([p[3] * w + np.cross(p[:3], w), [-(p[:3] @ w)]])

    for kind, value in (("rotation vector", logarithm(p)), ("chord", 2.0 * p[:3])):
        rate = jacobian(value, p) @ p_rate(p)
        second = jacobian(rate, p) @ p_rate(p) + jacobian(rate, w) @ w_rate
        derived = Kernel.compile("derived", symbols, {"value": value, "rate": rate, "second": second})
        E, speed, acceleration = turned(degrees)
        value, _, rate, bend = compiled(kind)(E.as_matrix(), speed, acceleration)
        expected = derived(E.as_quat(canonical=True), speed, acceleration)
        np.testing.assert_allclose(value, expected[0], rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(rate, expected[1], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(bend, expected[2], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_derivatives_are_finite_at_every_angle(kind: str) -> None:
    function = compiled(kind).function
    values = function.sx_in()
    derivatives = ca.Function("d", values, [ca.jacobian(function(*values)[0], values[0])])
    for degrees in ANGLES:
        E, w, w_rate = turned(degrees)
        assert np.isfinite(np.array(derivatives(E.as_matrix(), w, w_rate))).all()


@pytest.mark.parametrize("kind", KINDS)
def test_close_to_half_a_turn_every_number_is_nan(kind: str) -> None:
    for degrees, known in ((174.0, True), (174.5, False), (179.9, False), (180.0, False)):
        E, w, w_rate = turned(degrees)
        for part in compiled(kind)(E.as_matrix(), w, w_rate):
            assert np.isfinite(part).all() if known else np.isnan(part).any()


@pytest.mark.parametrize("s", [0.0, 1e-9, 0.5e-3, 0.999e-3, 1.001e-3, 2e-3, 0.5, 0.99])
def test_the_series_and_the_closed_form_are_one_function(s: float) -> None:
    # by the hypergeometric series of asin(sqrt s)/sqrt s, to 60 terms and in exact order of size
    terms, c = [], 1.0
    for n in range(4000):
        terms.append(c / (2 * n + 1))
        c *= (2 * n + 1) / (2 * n + 2)
    powers = np.arange(len(terms))
    value = float(np.sum(np.array(terms) * s**powers))
    first = float(np.sum(np.array(terms[1:]) * powers[1:] * s ** powers[:-1]))
    second = float(np.sum(np.array(terms[2:]) * powers[2:] * powers[1:-1] * s ** powers[:-2]))
    symbols = inputs({"s": (1,)})
    r_of = np.atleast_1d(half_angle_ratio(symbols["s"][0]))
    slope = jacobian(r_of, symbols["s"])[0]
    outputs = {"r": r_of, "r1": slope, "r2": jacobian(slope, symbols["s"])[0]}
    r, r1, r2 = (float(value[0]) for value in Kernel.compile("ratio", symbols, outputs)(s))
    assert (r, r1) == (pytest.approx(value, rel=1e-14), pytest.approx(first, rel=1e-12))
    assert r2 == pytest.approx(second, rel=1e-9)


def moving(seed: int) -> Callable[[float], tuple[Array, Array]]:
    """Rotation and position of a frame as functions of time."""
    random = np.random.default_rng(seed)
    start, turn, a, b = Rotation.from_rotvec(random.standard_normal(3)), *random.standard_normal((3, 3))
    return lambda t: ((start * Rotation.from_rotvec(np.sin(t) * turn)).as_matrix(), a * np.cos(t) + b * t * t)


def motion(frame: Callable[[float], tuple[Array, Array]], t: float) -> FrameMotion:
    """By central differences; q is time itself, so that drifts are all accelerations."""
    h = 1e-3

    def derivatives(part: Callable[[float], Array]) -> tuple[Array, Array]:
        first = [(part(t + k) - part(t - k)) / (2 * k) for k in (h, h / 2)]
        second = [(part(t + k) - 2 * part(t) + part(t - k)) / k**2 for k in (h, h / 2)]
        return (4 * first[1] - first[0]) / 3, (4 * second[1] - second[0]) / 3

    (R, p), (R1, R2), (p1, p2) = frame(t), derivatives(lambda s: frame(s)[0]), derivatives(lambda s: frame(s)[1])
    w = vee(R1 @ R.T)
    return FrameMotion(p, p1.reshape(3, 1), p1, p2, R, w.reshape(3, 1), w, vee(R2 @ R.T))


def vee(A: Array) -> Array:
    return np.array([A[2, 1] - A[1, 2], A[0, 2] - A[2, 0], A[1, 0] - A[0, 1]]) / 2


def test_the_motion_relative_to_a_moving_frame_equals_differences_of_the_relative_pose() -> None:
    one, two, t = moving(1), moving(2), 0.4

    def relative(s: float) -> tuple[Array, Array]:
        (R, p), (Rb, pb) = one(s), two(s)
        return Rb.T @ R, Rb.T @ (p - pb)

    found: Any = relative_motion(motion(one, t), motion(two, t))
    expected: Any = motion(relative, t)
    for field in ("rotation", "position", "linear", "angular", "velocity", "angular_velocity"):
        np.testing.assert_allclose(getattr(found, field), getattr(expected, field), atol=1e-10)
    np.testing.assert_allclose(found.drift, expected.drift, atol=1e-7)
    np.testing.assert_allclose(found.angular_drift, expected.angular_drift, atol=1e-7)
