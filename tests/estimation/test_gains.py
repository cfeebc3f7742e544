"""Gains of the estimators against the discrete Riccati equation."""

import numpy as np
import pytest
from scipy.linalg import solve_discrete_are

from servoctl.errors import TaskError
from servoctl.estimation.estimator import Gains, alpha_beta_gains, low_pass_gains, model_gains
from servoctl.types import Array


def poles(gains: Gains, h: float) -> Array:
    """Eigenvalues of the estimate's error from tick to tick, shape (2,) or (3,)."""
    size = 3 if gains.d else 2
    A = np.array([[1.0, h, h * h / 2.0], [0.0, 1.0, h], [0.0, 0.0, 1.0]])[:size, :size]
    return np.linalg.eigvals(A - np.outer([gains.q, gains.v, gains.d][:size], A[0]))


@pytest.mark.parametrize("h", [1e-3, 2.5e-3])
@pytest.mark.parametrize("noise", [1e-4, 1e-6])
def test_alpha_and_beta_solve_the_riccati_equation(h: float, noise: float) -> None:
    acceleration = 30.0
    A, g = np.array([[1.0, h], [0.0, 1.0]]), np.array([h * h / 2.0, h])
    scale = np.diag([1.0 / noise, h / noise])  # numbers near 1, for the solver's sake
    back = np.linalg.inv(scale)
    P = solve_discrete_are(
        (scale @ A @ back).T, (np.array([[1.0, 0.0]]) @ back / noise).T,
        np.outer(scale @ g, scale @ g) * acceleration**2, np.eye(1),
    )  # fmt: skip
    P = back @ P @ back
    S = P[0, 0] + noise**2
    found = alpha_beta_gains(h, acceleration, noise)
    np.testing.assert_allclose([found.q, found.v], P[:, 0] / S, rtol=1e-9)
    after = P - np.outer(P[:, 0], P[0]) / S
    np.testing.assert_allclose(found.sigma[:2], np.sqrt(np.diag(after)), rtol=1e-7)
    assert found.innovation == pytest.approx(np.sqrt(S), rel=1e-9)


@pytest.mark.parametrize(("h", "noise"), [(1e-3, 2.8e-5), (1e-3, 1e-7), (2.5e-3, 1e-5), (0.02, 1e-4)])
def test_the_gains_of_the_model_are_a_fixed_point_of_the_filter(h: float, noise: float) -> None:
    found = model_gains(h, 60.0, noise)
    A = np.array([[1.0, h, h * h / 2.0], [0.0, 1.0, h], [0.0, 0.0, 1.0]])
    K = np.array([found.q, found.v, found.d])
    # P of this gain is a Lyapunov sum; the best gain for that P must be the gain itself
    closed = A @ (np.eye(3) - np.outer(K, [1.0, 0.0, 0.0]))
    Q = np.diag([0.0, 0.0, (60.0 * h) ** 2]) + noise**2 * A @ np.outer(K, K) @ A.T
    scale = np.diag([1.0, h, h * h]) / noise
    F, W = scale @ closed @ np.linalg.inv(scale), scale @ Q @ scale
    P = np.linalg.solve(np.eye(9) - np.kron(F, F), W.ravel()).reshape(3, 3)
    best = P[:, 0] / (P[0, 0] + 1.0)
    np.testing.assert_allclose(K * np.array([1.0, h, h * h]), best, rtol=1e-7)
    np.testing.assert_allclose(found.innovation, noise * np.sqrt(P[0, 0] + 1.0), rtol=1e-9)
    assert np.abs(np.linalg.eigvals(closed)).max() < 1.0


def test_the_low_pass_has_a_double_pole() -> None:
    np.testing.assert_allclose(poles(low_pass_gains(0.001, 0.004, 1e-5), 0.001), np.exp(-0.5), atol=1e-7)


def test_numbers_that_are_too_far_apart_are_refused() -> None:
    with pytest.raises(TaskError, match=r"disturbance 1e-15 and noise 1 at a period of 0.001 s.*expected 1e-12 to"):
        model_gains(0.001, 1e-15, 1.0)
    with pytest.raises(TaskError, match=r"filter_time 1e-05 s: expected 0\.2 to 1e\+06 periods of 0\.001 s"):
        low_pass_gains(0.001, 1e-5, 1e-5)


@pytest.mark.parametrize(("acceleration", "noise"), [(1e300, 1e-5), (1e-300, 1e-5), (50.0, 1e-300), (50.0, 1e200)])
def test_numbers_that_are_too_far_apart_for_an_alpha_beta_filter_are_refused(acceleration: float, noise: float) -> None:
    with pytest.raises(TaskError, match=r"acceleration period\^2 / noise is .* \(expected 1e-12 to 1e\+06\)"):
        alpha_beta_gains(1e-3, acceleration, noise)


def test_the_filters_at_the_ends_of_their_range_are_finite() -> None:
    for gains in (alpha_beta_gains(1.0, 1e6, 1.0), alpha_beta_gains(1.0, 1e-12, 1.0), low_pass_gains(1.0, 1e6, 1.0)):
        assert np.isfinite([gains.q, gains.v, gains.innovation, *gains.sigma]).all() and gains.v > 0.0
