"""The margin of a bound against the errors of an estimator: held by simulated rows, and not much too large."""

import numpy as np
import pytest

from servoctl.estimation.estimator import model_gains
from servoctl.laws import barrier
from servoctl.laws.barrier import EstimateErrors
from servoctl.types import Array

PERIOD, CHANGE, NOISE = 2e-3, 60.0, 1e-5


def errors(late: int, noise: float = NOISE) -> tuple[EstimateErrors, Array]:
    gains = model_gains(PERIOD, CHANGE, NOISE)
    K = gains.q, gains.v, gains.d
    return EstimateErrors(PERIOD, late, (K,), (CHANGE,), (noise,)), np.array(K)


def least_h(late: int, changes: Array, readings: Array, kind: str = "barrier", p: float = 15.0) -> float:
    """The least h of a coordinate that a row presses onto its bound at 0, by an estimate that is `late` periods old."""
    A = np.array([[1.0, PERIOD, PERIOD**2 / 2.0], [0.0, 1.0, PERIOD], [0.0, 0.0, 1.0]])
    B, K = np.array([PERIOD**3 / 6.0, PERIOD**2 / 2.0, PERIOD]), errors(0)[1]
    true, estimate, sent = np.zeros(3), np.zeros(3), [0.0] * late
    into, lowest = np.array([PERIOD**2 / 2.0, PERIOD, 0.0]), 0.0
    for change, reading in zip(changes, readings, strict=True):
        estimate = estimate + K * (true[0] + reading - estimate[0])
        seen = estimate
        for u in sent:
            seen = A @ seen + into * u
        if kind == "barrier":
            u = barrier.barrier(seen[0], seen[1], p, PERIOD) - seen[2]
        else:
            u = barrier.decay(seen[1], p, PERIOD) - seen[2]
        sent.append(u)
        u = sent.pop(0)
        true, estimate = A @ true + into * u + B * change, A @ estimate + into * u
        lowest = min(lowest, true[0] if kind == "barrier" else true[1])
    return float(lowest)


@pytest.mark.parametrize("late", [0, 1, 3])
@pytest.mark.parametrize("kind", ["barrier", "decay"])
def test_no_disturbance_within_its_rate_passes_the_margin(late: int, kind: str) -> None:
    margin = errors(late, 1e-12)[0].margin(kind, 15.0, np.array([1.0]))
    random = np.random.default_rng(0)
    steady = -CHANGE * np.ones(800)
    switching = CHANGE * np.where(np.cumsum(random.random(800) < 0.05) % 2, 1.0, -1.0)
    found = [-least_h(late, changes, np.zeros(800), kind) for changes in (steady, switching, -switching)]
    assert max(found) <= margin * (1.0 + 1e-9)
    assert max(found) >= 0.5 * margin  # a steady change of the disturbance comes near


def test_the_noise_of_the_readings_stays_within_three_standard_deviations() -> None:
    margin = EstimateErrors(PERIOD, 1, errors(1)[0].gains, (0.0,), (NOISE,)).margin("barrier", 15.0, np.array([1.0]))
    random = np.random.default_rng(1)
    lowest = [least_h(1, np.zeros(600), NOISE * random.standard_normal(600)) for _ in range(20)]
    assert 0.5 * margin < -min(lowest) < 1.5 * margin  # 12,000 samples that hang together reach about three


def test_the_margin_grows_with_the_gradient_and_adds_up_over_coordinates() -> None:
    one, (K,) = errors(0, 1e-12)[0], errors(0)[0].gains
    both = EstimateErrors(PERIOD, 0, (K, K), (CHANGE, CHANGE), (1e-12, 1e-12))
    single = one.margin("barrier", 15.0, np.array([1.0]))
    assert one.margin("barrier", 15.0, np.array([-3.0])) == pytest.approx(3.0 * single)
    assert both.margin("barrier", 15.0, np.array([1.0, -2.0])) == pytest.approx(3.0 * single, rel=1e-6)
