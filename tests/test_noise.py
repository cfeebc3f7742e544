"""The random numbers of runs: the same for ever, and distributed as they should be."""

import numpy as np
from scipy import stats

from servoctl.simulation.realism import tick_noise

RAW = [16086915834549238692, 5448529601018347655, 7749434361382612120, 7478167007443709522]
"""The first words of Philox 4x64 with key 7: NumPy keeps the streams of its bit generators."""

REFERENCE = [
    [-0.1314763152899522, 1.6123793067872925, 1.010519666078222, -0.291082995635259, 0.2871048836002725],
    [0.6488903374192434, 1.028142733932515, 0.02613253823624987, -1.598223344541856, 0.4578199018013766],
]


def test_random_numbers_equal_the_reference() -> None:
    raw = np.random.Philox(key=7).random_raw(4)
    assert raw.tolist() == RAW
    np.testing.assert_allclose(tick_noise(7, 3, 2, 2), REFERENCE, rtol=1e-14)


def test_the_numbers_of_any_tick_are_made_directly() -> None:
    np.testing.assert_array_equal(tick_noise(3, 0, 50, 5)[17:29], tick_noise(3, 17, 12, 5))


def test_normals_are_normal_and_uniforms_uniform() -> None:
    numbers = tick_noise(0, 0, 40_000, 2)
    for column in range(4):
        assert stats.kstest(numbers[:, column], "norm").pvalue > 1e-3
    assert stats.kstest(numbers[:, 4], "uniform").pvalue > 1e-3
    correlation = np.corrcoef(numbers.T) - np.eye(5)
    assert np.abs(correlation).max() < 4 / np.sqrt(40_000)


def test_different_seeds_give_different_numbers() -> None:
    assert abs(np.corrcoef(tick_noise(0, 0, 10_000, 1)[:, 0], tick_noise(1, 0, 10_000, 1)[:, 0])[0, 1]) < 0.04
