"""The tracking monitor: drives that make another torque than told stop the machine, and causes are named."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from hil.safety.events import Event, EventKind
from hil.sensing.channels import Channel
from hil.sensing.sensing import REMEDY
from hil.sensing.tracking import WINDOW, DisturbanceObserver, TrackingMonitor
from hil.session.run import RunResult
from servoctl.mechanics.model import Model
from servoctl.mechanics.plant import Plant
from servoctl.types import Array, State
from tests.faces import on_drives
from tests.hil.fixed_observer import judge
from tests.small_plants import Masses

T, LIMITS, SHARE = 0.0025, np.array([10.0, 2.0]), 0.1


@dataclass(frozen=True)
class Rod(Plant):
    """Two forces on a rod that slides and turns: M is not diagonal in these coordinates, B not square to them."""

    coordinates = {"x": "m", "y": "m", "phi": "rad"}  # noqa: RUF012
    actuators = {"a": "N", "b": "N"}  # noqa: RUF012

    def mass_matrix(self, q: Array, t: float) -> Array:
        return np.array([[2.0, 0.0, 0.3], [0.0, 2.0, 0.0], [0.3, 0.0, 0.5]])

    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.array([0.0, 0.0, -np.sin(q[2])])

    def actuation(self, q: Array, t: float) -> Array:
        return np.array([[1.0, 0.0], [0.0, 0.0], [0.4, 1.0]])

    def passive_constraints(self, q: Array, t: float) -> dict[str, Any]:
        return {"rail": q[1]}


def observer(engine: str = "vm") -> DisturbanceObserver:
    return DisturbanceObserver(Model(Rod(), {}, State(0.0, np.zeros(3), np.zeros(3))), engine=engine)


@pytest.mark.parametrize("engine", ["vm", "numpy"])
def test_the_observer_finds_a_torque_that_the_model_lacks(engine: str) -> None:
    missing = np.array([1.5, -0.4])
    M, B = Rod().mass_matrix(np.zeros(3), 0.0), Rod().actuation(np.zeros(3), 0.0)
    acceleration = np.linalg.solve(M, B @ missing)
    assert observer(engine)(0.0, np.zeros(3), acceleration)[0] == pytest.approx(missing, abs=1e-12)


def watch(missing: Sequence[float], u: Sequence[float], ticks: int = 130, gap: int = 0) -> list[int]:
    """Ticks with a finding, while torques of this size are missing; every `gap`-th tick comes late."""
    drives = [Channel("a", 1e-4), Channel("b", 1e-4)]
    tracking = TrackingMonitor(observer(), drives, LIMITS, SHARE, T)
    M, B = Rod().mass_matrix(np.zeros(3), 0.0), Rod().actuation(np.zeros(3), 0.0)
    innovation, said = T * np.linalg.solve(M, B @ np.array(missing)), []
    for k in range(ticks):
        late = bool(gap) and k % gap == 0
        finding = judge(tracking, 0.0, 4 * T if late else T, np.zeros(3), innovation, np.array(u))
        if finding is not None:
            assert finding.kind.motion and finding.stops and REMEDY in finding.reason
            said.append(k)
    return said


def test_two_windows_beyond_the_tolerance_are_a_finding() -> None:
    # allowed: 0.1 of the limit, and 0.1 of the largest torque in terms of its limit, which here is 0.5
    assert watch([1.49, 0.0], [5.0, 0.0]) == []
    found = watch([1.51, 0.0], [5.0, 0.0])
    assert found[0] == pytest.approx(2 * WINDOW / T, abs=2)
    assert watch([0.0, -0.31], [5.0, 0.0])[:1] == found[:1]
    assert watch([0.0, -0.29], [5.0, 0.0]) == []


@dataclass(frozen=True)
class Swing(Masses):
    """A force on a bar that turns, whose lever is shorter the further it has turned."""

    names: str = "phi"
    forces: str = "a"

    def mass_matrix(self, q: Array, t: float) -> Array:
        return np.array([[2.0 + q[0]]])

    def actuation(self, q: Array, t: float) -> Array:
        return np.array([[np.cos(q[0])]])


@pytest.mark.parametrize("phi", [0.0, 1.2])
def test_the_effect_of_sample_errors_is_computed_at_the_current_pose(phi: float) -> None:
    # an error of v at each end of the window: 2 e / WINDOW is an acceleration, M / B of it a force
    e, q = 0.02, np.array([phi])
    model = Model(Swing(), {}, State(0.0, np.zeros(1), np.zeros(1)))
    tracking = TrackingMonitor(
        DisturbanceObserver(model, engine="vm"), [Channel("a", 1e-4)], np.array([10.0]), SHARE, T
    )
    tracking.errors = lambda t, q: np.array([[e]])
    floor = (2.0 + phi) / np.cos(phi) * 2 * e / WINDOW
    assert tracking.floor(0.0, q) == pytest.approx([floor], rel=1e-12)
    for missing, found in ((1.0 + floor - 1e-6, False), (1.0 + floor + 1e-6, True)):
        innovation = np.array([T * missing * np.cos(phi) / (2.0 + phi)])
        tracking.begin()
        findings = [judge(tracking, 0.0, T, q, innovation, np.zeros(1)) for _ in range(130)]
        assert any(each is not None for each in findings) is found


def run(config: str, *overrides: str) -> RunResult:
    return on_drives(config, *overrides)


BELT = "two_mass_spring_drive", "hil.period=0.0025"
CASES = {
    "a torque constant of twice what is said": ("two_mass_spring_drive", "F", "torque_constant, factor: 2"),
    "a wrong range table": ("scara_drive", "F4", "torque_table, factor: 2"),
}


@pytest.mark.parametrize("case", CASES)
def test_wrong_torques_stop_the_shipped_configs(case: str) -> None:
    config, drive, kind = CASES[case]
    ended = run(config, f"hil.faults=[{{kind: {kind}, at: 0.3, drive: {drive}}}]", "run.duration=2")
    first = next(event for event in ended.events if event.kind.reaction >= 2)
    assert (first.kind.name, first.subject, ended.exit_code) == ("TRACKING", drive, 3)
    assert re.search(
        r"does not follow its model \(its motion needs [+-][\d.]+ N more than the torque sent, at most [\d.]+ N is",
        str(first),
    )
    assert "raise hil.safety.tracking" in str(first)


def test_half_the_torque_is_missed_where_it_is_needed() -> None:
    """An ODrive says nothing of its derating: the belt needs 1.6 N, its limit is 1.8 N, and half of that is left."""
    limit = "hil.drives=[{actuator: F, bus: main, protocol: odrive, node: 1, gear: 50, torque_limit: 1.8, "
    limit += "torque_rate_limit: 1000, speed_limit: 1, position_limits: [-0.3, 0.3], encoder_bits: 14}]"
    assert run(*BELT, limit, "run.duration=2").exit_code == 0
    ended = run(*BELT, limit, "hil.faults=[{kind: derating, at: 0, drive: F, factor: 0.5}]")
    assert next(event.kind.name for event in ended.events if event.kind.reaction >= 2) == "TRACKING"


@pytest.mark.parametrize("end", [0.42, 0.78, 1.14])
def test_a_stop_that_turns_the_torque_round_at_once_takes_no_sound_drive_for_one_without_power(end: float) -> None:
    """The torque acts 2 ms later, which is a short window: none of it had arrived, and the drive left the stop."""
    result = on_drives("two_mass_spring_drive", duration=end)
    assert (result.exit_code, [event for event in result.events if event.kind is EventKind.TRACKING]) == (0, [])


def test_friction_within_the_share_that_is_declared_stops_nothing() -> None:
    """0.9 N of friction at a force limit of 10 N are within a share of 0.1, and not within 0.02."""
    worn = "hil.emulation.coulomb_friction=0.9"
    allowed = run(*BELT, worn, "hil.safety.tracking=0.1", "run.duration=1.3")
    assert not [event for event in allowed.events if event.kind.name == "TRACKING"]
    assert [event for event in run(*BELT, worn, "run.duration=1.3").events if event.kind.name == "TRACKING"]


def test_an_odrive_in_a_wrong_mode_that_no_frame_tells_of_stops_by_how_it_moves() -> None:
    wrong = "hil.faults=[{kind: wrong_mode, drive: F, since: power_on, at: 0}]"
    ended = run(*BELT, wrong, "run.duration=2")
    assert next(event.kind.name for event in ended.events if event.kind.reaction >= 2) in ("ENCODER", "TRACKING")


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


@pytest.mark.parametrize("mass", [2.5, 2.7])
def test_a_joint_that_needs_no_torque_is_not_taken_for_a_blocked_one(mass: float) -> None:
    """The slide carries too much; the first joint turns about the vertical, and its motor makes 0.3 % of its limit."""
    heavy = f"hil.emulation.parameters.m4={mass}"
    found = on_drives("scara_drive", heavy, "hil.safety.ramp_time=0.4", duration=0.1).events
    first = next(event for event in found if event.kind.name == "TRACKING")
    assert first.subject == "F4" and "a load on this joint alone, or torque that does not arrive" in str(first)


@pytest.mark.parametrize("drive", ["tau1", "tau2"])
def test_a_joint_whose_encoder_is_stuck_takes_no_torque_from_a_sound_motor(drive: str) -> None:
    """`tau3`, which the stuck joint pushes, was said to make no torque."""
    stuck = f"hil.faults=[{{kind: encoder_stuck, drive: {drive}, at: 0.6, since: engaged}}]"
    first = next(e for e in on_drives("scara_drive", stuck, duration=1.2).events if e.kind.name == "TRACKING")
    assert first.subject == drive and "the joint is blocked: it stands still" in str(first)


def test_a_stuck_brake_of_a_closed_chain_reverses_no_sound_motor() -> None:
    """`u5`, which stage zero could not prove while another joint stood, was called reversed."""
    stuck = "hil.faults=[{kind: brake_stuck, drive: u2, since: power_on}]"
    found = on_drives("coordinated_robots_moteus", stuck, duration=2).events
    stops = [(event.kind.name, event.subject) for event in found if event.kind.reaction >= 2]
    assert stops[0] == ("ENCODER", "u2")


MASS = ("hil.emulation.parameters.m=1.3", "hil.safety.engage_tolerance=0.1", "hil.safety.ramp_time=1.5")


@pytest.mark.parametrize("machine", [(), MASS], ids=["as the model", "30 % heavier"])
def test_an_error_of_the_model_that_the_law_meets_is_no_fault(machine: tuple[str, ...]) -> None:
    assert events("coordinated_robots", *machine) == []
