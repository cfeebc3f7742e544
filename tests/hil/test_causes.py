"""Slipping couplings, loads and blocked joints are told apart in words, on the estimated law; model errors are none."""

import numpy as np
import pytest

from hil.safety.events import Event
from hil.sensing.tracking import Half, cause_of
from servoctl.types import Array
from tests.faces import on_drives

LIMITS = np.array([10.0, 10.0])
ALL = np.ones(2)


def half(d: tuple[float, float], u: tuple[float, float]) -> Half:
    return Half(np.array(d), np.array(u))


@pytest.mark.parametrize(
    ("first", "second", "still", "words", "load"),
    [
        (half((-2, 0), (4, 1)), half((-3, 0), (6, 1)), (False, False), "50 % of its torque arrives", False),
        (half((-3, 0), (6, 1)), half((-3, 0), (7, 1)), (False, False), "a load on this joint alone, or torque", True),
        (half((-3, 2), (6, 1)), half((-3, 2), (7, 0)), (False, False), "a load that the model does not have", True),
        (half((-3, 0), (4, 1)), half((-5, 0), (6, 1)), (True, False), "the joint is blocked", False),
        (half((-4, 0), (4, 1)), half((-4.1, 0), (4.1, 1)), (True, False), "the joint is blocked", False),
    ],
)
def test_a_cause_is_told_by_how_the_disturbance_follows_the_torque(
    first: Half, second: Half, still: tuple[bool, bool], words: str, load: bool
) -> None:
    cause = cause_of(second.d, first, second, ALL, LIMITS, still)
    assert (cause.drive, cause.load) == (0, load)
    assert words in cause.words


def test_one_of_two_motors_on_a_joint_is_found_by_its_share() -> None:
    """Two motors and a third on another joint: the smallest torques spread what one motor lacks over both."""
    P = np.array([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    u: list[Array] = [np.array([4.0, 4.0, 1.0]), np.array([6.0, 6.0, 1.0])]
    first, second = (Half(P @ np.array([-0.5 * x[0], 0.0, 0.0]), x) for x in u)
    cause = cause_of(second.d, first, second, np.diag(P), np.full(3, 10.0))
    assert cause.drive in (0, 1)
    assert "50 % of its torque arrives" in cause.words


def events(config: str, *overrides: str) -> list[Event]:
    found = on_drives(config, "estimation.kind=model", *overrides, duration=1.5).events
    return [
        event for event in found if event.kind.name not in ("STAGE", "POSITION", "IMPLAUSIBLE", "PROVED", "UNPROVED")
    ]


def fault(*faults: str) -> str:
    return f"hil.faults=[{', '.join(f'{{{each}, at: 1.04}}' for each in faults)}]"


@pytest.mark.parametrize(
    ("faults", "kind", "words"),
    [
        (
            ("kind: torque_constant, factor: 0.5, drive: F4",),
            "TRACKING",
            "% of its torque arrives: a coupling that slips",
        ),
        (("kind: blocked, drive: tau1",), "TRACKING", "the joint is blocked: it stands still"),
        (("kind: push, torque: 2, drive: tau1", "kind: push, torque: 1.5, drive: tau2"), "LOAD", "a load that"),
    ],
    ids=["slipping", "blocked", "load"],
)
def test_a_fault_on_emulated_drives_is_named(faults: tuple[str, ...], kind: str, words: str) -> None:
    first = events("scara_drive", fault(*faults))[0]
    assert first.kind.name == kind
    assert words in str(first)


MASS = ("hil.emulation.parameters.m=1.3", "hil.safety.engage_tolerance=0.1", "hil.safety.ramp_time=1.5")


@pytest.mark.parametrize("machine", [(), MASS], ids=["as the model", "30 % heavier"])
def test_an_error_of_the_model_that_the_law_meets_is_no_fault(machine: tuple[str, ...]) -> None:
    assert events("coordinated_robots", *machine) == []
