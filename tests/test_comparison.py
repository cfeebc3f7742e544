"""The joint path of the idea page, whose own figures are compared where the page is run."""

import pytest

from tests import comparison


def test_the_joint_path_puts_the_tip_on_the_circle_and_its_rates_are_derivatives() -> None:
    for t in (0.0, 0.7, 2.9):
        q, v, a = comparison.joints(t)
        assert comparison.tip(q) == pytest.approx(comparison.circle(t)[0], abs=1e-12)
        ahead, behind = comparison.joints(t + 1e-5), comparison.joints(t - 1e-5)
        assert v == pytest.approx((ahead[0] - behind[0]) / 2e-5, abs=1e-8)
        assert a == pytest.approx((ahead[1] - behind[1]) / 2e-5, abs=1e-8)
