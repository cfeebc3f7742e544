"""The comparison of the idea page: three controllers on one arm, and what its text says of them."""

import numpy as np
import pytest

from tests import comparison


def test_the_joint_path_puts_the_tip_on_the_circle_and_its_rates_are_derivatives() -> None:
    for t in (0.0, 0.7, 2.9):
        q, v, a = comparison.joints(t)
        assert comparison.tip(q) == pytest.approx(comparison.circle(t)[0], abs=1e-12)
        ahead, behind = comparison.joints(t + 1e-5), comparison.joints(t - 1e-5)
        assert v == pytest.approx((ahead[0] - behind[0]) / 2e-5, abs=1e-8)
        assert a == pytest.approx((ahead[1] - behind[1]) / 2e-5, abs=1e-8)


@pytest.mark.slow
def test_all_three_keep_the_tip_alike_and_only_a_bound_keeps_the_elbow_above_the_table() -> None:
    results = comparison.compared()
    errors = {name: result.figures[0] for name, result in results.items()}
    assert max(errors.values()) < 1.15 * min(errors.values())
    heights = {name: result.figures[2] for name, result in results.items()}
    assert heights["constraint following"] == pytest.approx(-0.005, abs=0.001)
    assert heights["computed torque"] == pytest.approx(-0.099, abs=0.002)
    assert heights["LQR"] == pytest.approx(-0.099, abs=0.002)
    assert all(np.isfinite(result.u).all() for result in results.values())
