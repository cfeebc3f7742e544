"""No torque leaves the limits, whatever is asked for."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hil.drives import DriveSettings
from hil.safety import Limits

ANY = st.floats(allow_nan=True, allow_infinity=True)


def drive(limit: float = 12.0, rate: float = 400.0) -> DriveSettings:
    return DriveSettings(
        "u1",
        "main",
        "odrive",
        1,
        torque_limit=limit,
        torque_rate_limit=rate,
        speed_limit=6.0,
        position_limits=(-2.0, 2.0),
    )


def apply(limits: Limits, wanted: Sequence[float], held: Sequence[float] | None = None) -> list[float]:
    """Torques that may be sent; `held`: the part of them that holds a machine that comes to rest."""
    struct, now = limits.struct, limits.now
    struct.arrays["wanted"][:] = wanted
    struct.functions.limits_apply(struct.c, now, struct.ffi.NULL if held is None else struct.numbers(held))
    struct.functions.limits_keep(struct.c, now)
    return limits.previous


@given(
    st.lists(st.tuples(ANY, st.none() | ANY), min_size=1, max_size=30),
    st.floats(0.1, 100),
    st.floats(1, 1e4),
    st.floats(1e-4, 1e-2),
)
def test_torque_and_its_rate_stay_within_limits(
    asked: list[tuple[float, float | None]], limit: float, rate: float, period: float
) -> None:
    limits = Limits([drive(limit, rate)], period)
    last = 0.0
    for torque, held in asked:
        (sent,) = apply(limits, [torque], None if held is None else [held])
        assert math.isfinite(sent)
        assert abs(sent) <= limit
        assert abs(sent - last) <= rate * period * (1 + 1e-12)
        assert limits.clamped == [sent != torque]
        last = sent


def test_torques_within_the_limits_pass_unchanged() -> None:
    limits = Limits([drive()], 0.0025)
    assert apply(limits, [0.9]) == [0.9]
    assert apply(limits, [1.8], [0.3]) == [1.8]
    assert limits.clamped == [False]


def test_braking_torques_are_scaled_together_and_what_holds_the_machine_comes_first() -> None:
    limits = Limits([drive(rate=1e6), drive(rate=1e6)], 0.0025)
    assert apply(limits, [20.0, -3.0], [4.0, 1.0]) == pytest.approx([12.0, 1.0 - 2.0])  # half of 16 and of -4
    assert limits.clamped == [True, True]


def test_one_drive_without_room_does_not_keep_the_others_from_braking() -> None:
    limits = Limits([drive(rate=1e6), drive(rate=1e6)], 0.0025)
    for held in (11.0, 15.0):  # of 12
        assert apply(limits, [20.0, -4.0], [held, 0.0]) == pytest.approx([12.0, -4.0])


def test_torques_of_a_stop_change_together() -> None:
    limits = Limits([drive(rate=400.0), drive(rate=40.0)], 0.0025)
    assert apply(limits, [-4.0, 0.4], [0.0, 0.0]) == pytest.approx([-1.0, 0.1])  # the first may change by 1 in a period


def test_after_the_drives_went_off_torque_grows_from_zero() -> None:
    limits = Limits([drive()], 0.0025)
    for _ in range(20):
        apply(limits, [12.0])
    limits.forget()
    assert apply(limits, [12.0]) == [1.0]


def test_a_torque_soon_after_a_late_one_has_less_room_to_change() -> None:
    """Behind a late tick two commands go out within a fraction of a period: the rate holds between them too."""
    times = iter([10_000_000, 12_500_000, 12_740_000, 20_000_000])
    limits = Limits([drive(rate=400.0)], 0.0025, lambda: next(times))
    sent = [apply(limits, [10.0])[0] for _ in range(4)]
    assert sent == pytest.approx([1.0, 2.0, 2.0 + 400.0 * 0.00024, 3.0 + 400.0 * 0.00024])
