"""Poles where the plant is not what the law takes it for, against the error's equation written down by hand."""

import json

import numpy as np
import pytest

import servoctl as sc
from servoctl.cli import main
from servoctl.errors import ConfigError
from servoctl.linear import analyse
from tests.faces import exit_code

ALPHA, K, M2 = 4.0, 10.0, 2.0  # of configs/two_mass_spring.yaml, where m1 is 1


def polynomial(parameter: str, factor: float, alpha: float) -> list[float]:
    """phi'' + r (2 alpha phi' + alpha^2 phi) + s phi = 0: r = m1 / m1', s the spring that the law does not cancel.

    The spring's share of phi'' is -k (1/m1 + 1/m2); the force is m1 times what the law wants, which the mass divides.
    """
    m1, m2, k = (value * (factor if name == parameter else 1.0) for name, value in (("m1", 1.0), ("m2", M2), ("k", K)))
    r = 1.0 / m1
    s = k * (1.0 / m1 + 1.0 / m2) - r * K * (1.0 + 1.0 / M2)
    return [1.0, 2.0 * alpha * r, r * alpha**2 + s]


@pytest.mark.parametrize("change", [0.1, 0.3])
def test_poles_of_a_wrong_mass_or_spring_are_those_of_the_error_equation(change: float) -> None:
    shifted = analyse(sc.load("two_mass_spring", engine="vm"), change=change).robustness
    named = [(one.parameter, one.change) for one in shifted]
    assert named == [(None, 0.0), *((name, sign * change) for name in ("m1", "m2", "k", "l") for sign in (-1.0, 1.0))]
    for one in shifted:
        expected = np.roots(polynomial(one.parameter or "", 1.0 + one.change, ALPHA))
        error = sorted((pole for pole in one.poles if abs(pole) > 1e-3), key=lambda pole: pole.imag)
        assert len(one.poles) == 4 and len(error) == 2  # the rest: both masses drift together
        by_parts = sorted(expected, key=lambda pole: (pole.imag, -pole.real))
        np.testing.assert_allclose(error, by_parts, rtol=1e-7, atol=1e-7)
        assert one.slowest is not None and one.least_damped is not None
        assert one.slowest.decay == pytest.approx(-1.0 / max(expected.real), rel=1e-7)
        assert one.least_damped.damping == pytest.approx(min(-expected.real / abs(expected)), rel=1e-7)


def test_a_parameter_that_makes_it_unstable_is_named() -> None:
    """alpha^2 r + (k / m2) (1 - r) < 0: with alpha = 1 from r = 1.25 on, a mass 20 % smaller."""
    gains = ["law.correction.baumgarte.alpha=1", "law.correction.baumgarte.beta=1"]
    run = sc.load("two_mass_spring", gains, engine="vm")
    growth = max(np.roots(polynomial("m1", 0.75, 1.0)).real)
    said = f"m1: unstable if it is 25 % smaller than in the law's model: grows by e every {1 / growth:.3g} s"
    assert said in analyse(run, change=0.25).warnings
    assert not [line for line in analyse(run, change=0.19).warnings if line.startswith("m1")]


@pytest.mark.parametrize("at", [None, 0.7])
def test_in_motion_and_on_passive_constraints_the_known_poles_come_out(at: float | None) -> None:
    known, *shifted = analyse(sc.load("coordinated_robots", engine="vm"), at).robustness
    np.testing.assert_allclose(known.poles, np.full(6, -10.0), rtol=1e-6)
    assert {one.parameter for one in shifted} == {"m", "I", "l", "g", "L"}
    for one in shifted:  # as many poles, all of them near
        assert len(one.poles) == 6 and one.stable
        assert 1e-4 < np.abs(np.array(one.poles) + 10.0).max() < 7.0


def test_a_change_out_of_range_is_named_and_none_leaves_the_table_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyse", "two_mass_spring", "--change", "120"]) == 2
    assert capsys.readouterr().err == "--change 120: expected at least 0 and less than 100 percent\n"
    with pytest.raises(ConfigError, match="--change -5: expected at least 0"):
        analyse(sc.load("two_mass_spring", engine="vm"), change=-0.05)
    assert exit_code("analyse", "two_mass_spring", "--change", "0", "--json") == 0
    assert json.loads(capsys.readouterr().out)["robustness"] == []


def test_the_table_has_two_lines_for_each_parameter(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("analyse", "two_mass_spring") == 0
    title = "robustness: one parameter of the plant differs from the law's model\n"
    table = capsys.readouterr().out.partition(title)[2]
    said, *rows = table.splitlines()
    assert said == "gain, phase, delay: the smallest margins of all inputs, continuous law"
    lines = [line.split() for line in rows]
    assert lines[1][:5] == ["(none)", "-4", "0.25", "1", "inf"]
    assert lines[3][:6] == ["m1", "+10", "%", "-3.63636-1.33299j", "0.275", "0.9389"]
    assert [line[0] for line in lines[2:]] == ["m1", "m1", "m2", "m2", "k", "k", "l", "l"]


def test_margins_of_a_wrong_mass_are_those_of_its_open_loop() -> None:
    """L = r (2 alpha s + stiffness) / (s^2 + spring), r = m1 / m1': of the law's model, and of the springs that are."""
    run = sc.load("two_mass_spring", engine="vm")
    stiffness = ALPHA**2 - K * (1.0 + 1.0 / M2)
    for one in analyse(run, change=0.2).robustness[1:3]:
        assert one.parameter == "m1"
        r = 1.0 / (1.0 + one.change)
        spring = K * (r + 1.0 / M2)
        # |L| = 1: (spring - w^2)^2 = r^2 ((2 alpha w)^2 + stiffness^2)
        squares = np.roots([1.0, -2 * spring - (2 * ALPHA * r) ** 2, spring**2 - (r * stiffness) ** 2])
        crossings = [float(np.sqrt(w)) for w in squares.real if w > 0.0]
        turned = [float(np.angle(-r * (2j * ALPHA * w + stiffness) / (spring - w * w))) for w in crossings]
        (margin,) = one.margins[0].actuators
        assert margin.phase == pytest.approx(min(abs(np.degrees(x)) for x in turned), rel=1e-4)
        delays = [x % (2 * np.pi) / w for x, w in zip(turned, crossings, strict=True)]
        assert margin.delay == pytest.approx(min(delays), rel=1e-4)


def test_a_parameter_that_makes_it_unstable_leaves_no_margins() -> None:
    gains = ["law.correction.baumgarte.alpha=1", "law.correction.baumgarte.beta=1"]
    shifted = analyse(sc.load("two_mass_spring", gains, engine="vm"), change=0.25).robustness
    for one in shifted:
        assert bool(one.margins[0].actuators) == one.stable
        assert str(one.margins[0].timing) == "continuous law"
    assert not all(one.stable for one in shifted)
