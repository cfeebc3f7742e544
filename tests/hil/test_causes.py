"""Slipping couplings, loads and blocked joints are told apart in words, on the estimated law; model errors are none."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from hil.core.constants import Cause
from hil.safety.events import Event
from hil.sensing.channels import Channel
from hil.sensing.findings import CAUSES
from hil.sensing.tracking import TrackingMonitor
from tests.faces import on_drives
from tests.hil.fixed_observer import Fixed

Half = tuple[Sequence[float], Sequence[float]]  # means of d and u over half a window


def cause_of(first: Half, second: Half, still: Sequence[bool], shares: Sequence[float] = (1.0, 1.0)) -> Any:
    """The verdict on a disturbance that came with the second half."""
    m = len(shares)
    drives = [Channel(f"d{i}", 1e-4) for i in range(m)]
    struct = TrackingMonitor(Fixed(shares), drives, np.full(m, 10.0), 0.1, 0.0025).struct
    halves = [struct.numbers([*d, *u]) for d, u in (first, second)]
    struct.functions.track_cause(
        struct.c, struct.numbers(second[0]), *halves, list(still), struct.ffi.addressof(struct.c.verdict)
    )
    return struct.c.verdict


def words_of(verdict: Any) -> str:
    return CAUSES[Cause(verdict.cause)].format(*verdict.numbers)


@pytest.mark.parametrize(
    ("first", "second", "still", "words", "load"),
    [
        (((-2, 0), (4, 1)), ((-3, 0), (6, 1)), (False, False), "50 % of its torque arrives", False),
        (((-3, 0), (6, 1)), ((-3, 0), (7, 1)), (False, False), "a load on this joint alone, or torque", True),
        (((-3, 2), (6, 1)), ((-3, 2), (7, 0)), (False, False), "a load that the model does not have", True),
        (((-3, 0), (4, 1)), ((-5, 0), (6, 1)), (True, False), "the joint is blocked", False),
        (((-4, 0), (4, 1)), ((-4.1, 0), (4.1, 1)), (True, False), "the joint is blocked", False),
    ],
)
def test_a_cause_is_told_by_how_the_disturbance_follows_the_torque(
    first: Half, second: Half, still: tuple[bool, bool], words: str, load: bool
) -> None:
    cause = cause_of(first, second, still)
    assert (cause.channel, cause.cause in (Cause.ALONE, Cause.LOAD)) == (0, load)
    assert words in words_of(cause)


def test_one_of_two_motors_on_a_joint_is_found_by_its_share() -> None:
    """Two motors and a third on another joint: the smallest torques spread what one motor lacks over both."""
    P = np.array([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    u = np.array([4.0, 4.0, 1.0]), np.array([6.0, 6.0, 1.0])
    first, second = ((P @ np.array([-0.5 * x[0], 0.0, 0.0]), x) for x in u)
    cause = cause_of(first, second, [False] * 3, np.diag(P))
    assert cause.channel in (0, 1)
    assert "50 % of its torque arrives" in words_of(cause)


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
