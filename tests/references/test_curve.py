"""Splines and waypoint profiles against their definitions, scipy and differences."""

import math

import casadi as ca
import numpy as np
import pytest
from scipy.interpolate import CubicSpline, make_interp_spline

from servoctl.engine.symbol import Symbol
from servoctl.errors import ConfigError
from servoctl.reference.curve import Curve, Signal, waypoint_curve
from servoctl.reference.table import spline
from servoctl.types import Array


def rows(count: int = 30, seed: int = 0, start: float = -1.3) -> tuple[Array, Array]:
    """Uneven times and smooth values of two columns."""
    random = np.random.default_rng(seed)
    times = start + np.concatenate([[0.0], np.cumsum(random.uniform(0.05, 0.4, count - 1))])
    return times, np.stack([np.sin(times), np.exp(-times) + random.normal(size=count)], axis=1)


def inside(curve: Curve) -> Array:
    """Times within the knots, the knots among them."""
    return np.concatenate([curve.knots, np.random.default_rng(2).uniform(curve.start, curve.end, 300)])


def test_a_cubic_spline_is_scipys_not_a_knot_spline() -> None:
    times, values = rows()
    curve, theirs = spline(times, values), CubicSpline(times, values, bc_type="not-a-knot")
    t = inside(curve)[:-1]
    for derivative, tolerance in ((0, 1e-12), (1, 1e-11), (2, 1e-10)):
        for column in (0, 1):
            found = curve.value(t, column, derivative)
            expected = theirs(t, derivative)[:, column]
            assert np.abs(found - expected).max() <= tolerance * max(1.0, np.abs(expected).max())


def test_a_periodic_cubic_spline_is_scipys() -> None:
    times, values = rows()
    values[-1] = values[0]
    curve, theirs = spline(times, values, extrapolate="periodic"), CubicSpline(times, values, bc_type="periodic")
    t = np.concatenate([inside(curve), inside(curve) + 3 * (times[-1] - times[0])])
    for derivative, tolerance in ((0, 1e-12), (1, 1e-11), (2, 1e-10)):
        expected = theirs(t, derivative)
        for column in (0, 1):
            found = curve.value(t, column, derivative)
            assert np.abs(found - expected[:, column]).max() <= 100 * tolerance * np.abs(expected[:, column]).max()


@pytest.mark.parametrize(("kind", "degree"), [("cubic", 3), ("quintic", 5)])
def test_a_spline_reproduces_polynomials_of_its_degree(kind: str, degree: int) -> None:
    times, _ = rows()
    polynomial = np.polynomial.Polynomial(np.random.default_rng(5).normal(size=degree + 1))
    curve = spline(times, polynomial(times)[:, None], kind)  # type: ignore[arg-type]
    t = inside(curve)
    scale = np.abs(polynomial(t)).max()
    assert np.abs(curve.value(t, 0) - polynomial(t)).max() < 1e-12 * scale
    assert np.abs(curve.value(t, 0, 1) - polynomial.deriv()(t)).max() < 1e-9 * scale


@pytest.mark.parametrize("extrapolate", ["hold", "periodic"])
@pytest.mark.parametrize(("kind", "smoothness"), [("cubic", 2), ("quintic", 4)])
def test_a_spline_goes_through_its_rows_and_is_as_smooth_as_it_says(
    kind: str, smoothness: int, extrapolate: str
) -> None:
    times, values = rows()
    values[-1] = values[0]
    curve = spline(times, values, kind, extrapolate)  # type: ignore[arg-type]
    assert curve.smoothness == smoothness
    knots = curve.knots[1:-1]
    assert np.array_equal(curve.value(times[:-1], 0), values[:-1, 0])
    assert np.allclose(curve.value(times[-1], 1), values[-1, 1], rtol=0, atol=1e-13)
    seam = [curve.start] if extrapolate == "periodic" else []
    for knot in [*knots, *seam]:
        for derivative in range(smoothness + 1):
            before, after = (curve.value(np.nextafter(knot, side), 1, derivative) for side in (-np.inf, np.inf))
            scale = np.abs(curve.value(curve.knots, 1, derivative)).max()
            assert abs(before - after) < 1e-8 * scale, (knot, derivative)


def test_a_quintic_spline_is_not_a_knot_at_two_knots_from_each_end() -> None:
    times, values = rows()
    curve = spline(times, values, "quintic")
    fifth = 120 * curve.coefficients[:, 1, 5]
    for knot in (1, 2, len(fifth) - 2, len(fifth) - 1):
        assert fifth[knot] == pytest.approx(fifth[knot - 1], rel=1e-6)
    theirs = make_interp_spline(times, values, k=5)
    t = inside(curve)[:-1]
    assert np.abs(curve.value(t, 1) - theirs(t)[:, 1]).max() < 1e-12 * np.abs(theirs(t)).max()


def test_times_since_1970_lose_no_accuracy() -> None:
    times, values = rows(start=0.0)
    far = spline(times * 0 + 1.75e9 + np.arange(30) * 0.25, values)
    near = spline(np.arange(30) * 0.25, values)
    t = np.linspace(0, 7.25, 59)  # exact in both
    assert np.abs(far.value(1.75e9 + t, 1) - near.value(t, 1)).max() < 1e-12


@pytest.mark.parametrize(("kind", "least"), [("cubic", 4), ("quintic", 6)])
def test_too_few_rows_are_refused_with_the_number_needed(kind: str, least: int) -> None:
    times, values = rows(least)
    spline(times, values, kind)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=rf"^1 row \(a {kind} spline needs at least {least}\)$"):
        spline(times[:1], values[:1], kind)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=rf"^{least - 1} rows \(a {kind} spline needs at least {least}\)$"):
        spline(times[:-1], values[:-1], kind)  # type: ignore[arg-type]


def test_hold_keeps_the_end_values_with_rate_zero_and_uses_the_spline_at_the_ends() -> None:
    times, values = rows()
    curve = spline(times, values)
    for t, value in ((times[0] - 1e-9, values[0]), (times[0] - 50, values[0]), (times[-1] + 1e-9, values[-1])):
        for column in (0, 1):
            assert curve.value(t, column) == pytest.approx(value[column], abs=1e-13)
            assert [curve.value(t, column, k) for k in (1, 2, 3, 4)] == [0, 0, 0, 0]
    assert curve.value(times[0], 1, 1) != 0 and curve.value(times[-1], 1, 1) != 0


def test_error_has_no_value_beyond_the_knots_except_for_rounded_times() -> None:
    times, values = rows()
    curve = spline(times, values, extrapolate="error")
    length = times[-1] - times[0]
    assert np.isfinite(curve.value(times[-1] + 1e-12 * length, 0)) and curve.covers(times[-1] + 1e-12 * length)
    for t in (times[0] - 1e-6 * length, times[-1] + 1e-6 * length):
        assert not curve.covers(t)
        assert all(math.isnan(curve.value(t, 0, k)) for k in (0, 1, 2))


PROFILES = [("quintic", 2), ("septic", 3), ("trapezoidal", 1)]


@pytest.mark.parametrize(("profile", "smoothness"), PROFILES)
def test_waypoint_profiles_are_at_rest_at_each_waypoint_and_smooth_between(profile: str, smoothness: int) -> None:
    times, values = rows(5)
    curve = waypoint_curve(times, values, profile, 0.3)  # type: ignore[arg-type]
    assert curve.smoothness == smoothness
    assert np.allclose(curve.value(times, 0), values[:, 0], rtol=0, atol=1e-14)
    for t in times:
        for derivative in range(1, smoothness + 1):
            beside = [curve.value(np.nextafter(t, side), 1, derivative) for side in (-np.inf, np.inf)]
            assert np.abs(beside).max() < 1e-7
    for knot in curve.knots[1:-1]:
        for derivative in range(smoothness + 1):
            before, after = (curve.value(np.nextafter(knot, side), 1, derivative) for side in (-np.inf, np.inf))
            assert before == pytest.approx(after, abs=1e-7)


@pytest.mark.parametrize("profile", [name for name, _ in PROFILES])
def test_waypoint_profiles_go_one_way(profile: str) -> None:
    curve = waypoint_curve(np.array([0.0, 2.0]), np.array([[1.0], [4.0]]), profile)  # type: ignore[arg-type]
    value = curve.value(np.linspace(0, 2, 500), 0)
    assert (np.diff(value) >= 0).all() and curve.value(1.0, 0) == pytest.approx(2.5, abs=1e-14)


def test_a_quintic_profile_has_the_peak_velocity_of_minimum_jerk() -> None:
    curve = waypoint_curve(np.array([0.0, 2.0]), np.array([[0.0], [3.0]]))
    assert curve.value(1.0, 0, 1) == pytest.approx(15 / 8 * 3 / 2, rel=1e-14)


@pytest.mark.parametrize("blend", [0.1, 0.25, 0.5])
def test_a_trapezoidal_profile_has_constant_acceleration_in_its_blends(blend: float) -> None:
    curve = waypoint_curve(np.array([1.0, 3.0]), np.array([[0.0], [1.0]]), "trapezoidal", blend)
    speed = 1 / (1 - blend) / 2  # [1/s], of a way of 1 in 2 s
    middle, bend = np.linspace(1 + 2 * blend, 3 - 2 * blend, 7)[1:-1], speed / (2 * blend)
    assert np.allclose(curve.value(middle, 0, 1), speed) if blend < 0.5 else curve.value(2.0, 0, 1) == pytest.approx(1)
    assert np.allclose(curve.value(np.linspace(1, 1 + 2 * blend, 6)[:-1], 0, 2), bend)
    assert np.allclose(curve.value(np.linspace(3 - 2 * blend, 3, 6)[1:-1], 0, 2), -bend)


@pytest.mark.parametrize("extrapolate", ["hold", "periodic", "error"])
def test_symbols_have_the_values_and_all_derivatives_of_numbers(extrapolate: str) -> None:
    times, values = rows()
    values[-1] = values[0]
    curve = spline(times, values, "quintic", extrapolate)  # type: ignore[arg-type]
    signal, t = Signal("path", "x", curve, 1), ca.SX.sym("t")
    chain = [signal(Symbol(t)).sx]
    for _ in range(4):
        chain.append(ca.jacobian(chain[-1], t))
    both = ca.Function("f", [t], [*chain, *(signal.rate(Symbol(t), k).sx for k in (1, 2, 3, 4))])
    for at in [*inside(curve)[:60], curve.start - 0.7, curve.end + 0.7]:
        expected = [signal(at), *(signal.rate(at, k) for k in (1, 2, 3, 4))]
        found = [float(each) for each in both(at)]
        assert np.allclose(found[:5], expected, rtol=1e-12, atol=1e-12, equal_nan=True)
        assert np.allclose(found[5:], expected[1:], rtol=1e-12, atol=1e-12, equal_nan=True)


def test_rates_are_the_differences_of_values() -> None:
    times, values = rows()
    signal = Signal("path", "x", spline(times, values), 1)
    t = np.linspace(times[0] + 0.01, times[-1] - 0.01, 50)
    step = 1e-5
    for order in (1, 2):
        below = signal.rate if order > 1 else lambda at, k: signal(at)
        differences = (below(t + step, order - 1) - below(t - step, order - 1)) / (2 * step)
        assert np.abs(signal.rate(t, order) - differences).max() < 1e-3


def test_signals_are_equal_by_content() -> None:
    one, same = (Signal("path", "x", spline(*rows()), 0) for _ in range(2))
    assert one == same and hash(one) == hash(same)
    assert one != Signal("path", "x", spline(*rows(seed=1)), 0)
    assert one != Signal("path", "x", spline(*rows(), extrapolate="error"), 0)
    assert one != Signal("path", "x", spline(*rows()), 1)
