"""Torques that hold a pose, stop a machine and let a hand guide it: against equations, and on emulated drives."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hil.assembly.prepare import load
from hil.assembly.setup import RigSetup
from hil.core.constants import Torques
from hil.loop import Reading, nanoseconds
from hil.rig.logbook import STAGES
from hil.safety.plan import Phase
from hil.safety.torques import (
    ANCHOR,
    FASTEST_POLE,
    LARGEST_BIAS,
    POLE_SHARE,
    WALL,
    Guiding,
    PoseHold,
    Source,
    TorqueSource,
)
from hil.sensing.motion import Hold
from hil.session.by_hand import guided_motion, write_guided_motion
from hil.session.start import Request, start
from servoctl.errors import ConfigError
from servoctl.reference.table import file_curve
from servoctl.run_folder.trajectory import Trajectory
from servoctl.types import Array
from tests.faces import on_rig
from tests.hil.rigs import renewed

STOP_RATE = 12.0
STOP = Source(Torques.STOP)


class Arm:
    """The arm of a shipped config at random states near its start, and the torques of its model there."""

    def __init__(self) -> None:
        self.setup: RigSetup = load("arm_on_drives", engine="vm")
        self.drives, self.period = self.setup.settings.drives, self.setup.settings.values.period
        self.m, self.random = len(self.drives), np.random.default_rng(4)
        self.pole = min(FASTEST_POLE, POLE_SHARE / self.period)
        grip = [0.05 * drive.torque_limit for drive in self.drives]
        self.guiding = Guiding(4.0, [0.8 * drive.torque_limit for drive in self.drives], grip)
        self.begin()

    def begin(self) -> None:
        """Holds no pose any more, and has sent nothing yet."""
        self.pose = PoseHold(self.setup.gravity_compensation, self.drives, self.period, STOP_RATE, self.guiding)
        wide = [replace(drive, torque_limit=1e9, torque_rate_limit=1e15) for drive in self.drives]
        self.source = TorqueSource(self.pose, wide, self.period)  # its limits bind only where a test confines them
        self.now = 0

    def torques(
        self,
        source: Source,
        reading: Reading,
        sound: Sequence[bool] = (),
        driven: Sequence[bool] = (),
        elapsed: float | None = None,
    ) -> Array:
        """Torques of a source before they are limited, shape (m,), after which they are sent."""
        every = [True] * self.m
        self.pose.take(reading, sound or every, driven or every)
        wanted = self.source.find(source, np.zeros(self.m), elapsed or self.period).copy()
        self.now += nanoseconds(self.period)
        self.source.limit(self.now)
        return wanted

    def readings(self, count: int, size: float = 0.01) -> Iterator[Reading]:
        start, n = self.setup.start, len(self.setup.start.q)
        for _ in range(count):
            q, v = start.q + size * self.random.standard_normal(n), self.random.standard_normal(n)
            y = self.setup.sensing.displacements(self.setup.loop.system.model.plant, q)[: self.m]
            rates = self.setup.sensing.displacements.rates(self.setup.loop.system.model.plant, q, v, 0.0)[: self.m]
            yield Reading(q, v, np.zeros(self.m), True, 0.0, y.tolist(), rates.tolist())

    def hold(self, reading: Reading, v: Array | None = None) -> Hold:
        return self.setup.gravity_compensation(0.0, reading.q, v)


@pytest.fixture(scope="module")
def arm() -> Arm:
    return Arm()


def test_a_pose_is_held_with_three_poles_and_a_bounded_integral(arm: Arm) -> None:
    """u = u_g + W (3 w^2 e - 3 w y' + w^3 int e dt); the integral waits while its torque would leave its bounds."""
    w, integral, largest = arm.pole, np.zeros(arm.m), LARGEST_BIAS * np.array([d.torque_limit for d in arm.drives])
    (first,) = arm.readings(1)
    arm.pose.begin(first.positions)
    waited = 0
    for i, reading in enumerate(arm.readings(300, 0.3)):
        hold, learns = arm.hold(reading), i % 3 > 0
        error = np.array(first.positions) - reading.positions
        if learns:
            more = integral + arm.period * error
            bounded = bool((np.abs(hold.inertia @ (w**3 * more)) <= largest).all())
            integral, waited = (more, waited) if bounded else (integral, waited + 1)
        source, damping = Source(Torques.HOLD, learns=learns), 3 * w
        if i % 3 == 0:  # an axis that its own motor has driven is stopped with more damping
            source, damping = Source(Torques.CATCH, firmer=1.5), 2.5 * 3 * w
        wanted = 3 * w**2 * error - damping * np.array(reading.speeds) + w**3 * integral
        torques = arm.torques(source, reading)
        np.testing.assert_allclose(torques, hold.u + hold.inertia @ wanted, rtol=1e-11, atol=1e-9)
    assert 0 < waited < 200


def test_a_stop_follows_a_path_that_decays_and_begins_again_where_a_limit_binds(arm: Arm) -> None:
    """u = u_e + W (3 w^2 (y_r - y) + 3 w (y_r' - y') - s y_r'), y_r'' = -s y_r'; u_e is even in the velocity."""
    arm.begin()
    w, s, narrow = arm.pole, STOP_RATE, [0.01] * arm.m
    path = speed = np.zeros(0)
    for i, reading in enumerate(arm.readings(60)):
        limited, elapsed = any(arm.source.clamped), arm.period * (1 + i % 2)
        assert limited is (i % 7 == 3)
        arm.source.confine(narrow if i % 7 == 2 else [1e9] * arm.m)
        y, rates = np.array(reading.positions), np.array(reading.speeds)
        left = np.exp(-s * elapsed)
        path, speed = (y, rates) if limited or not i else (path + speed * (1 - left) / s, left * speed)
        ahead, back = arm.hold(reading, reading.v), arm.hold(reading, -reading.v)
        held = (ahead.u + back.u) / 2
        wanted = 3 * w**2 * (path - y) + 3 * w * (speed - rates) - s * speed
        torques = arm.torques(STOP, reading, elapsed=elapsed)
        np.testing.assert_allclose(arm.pose.held, held, rtol=1e-11, atol=1e-9)
        np.testing.assert_allclose(torques, held + ahead.inertia @ wanted, rtol=1e-11, atol=1e-9)


def test_an_axis_that_is_not_driven_gets_what_holds_it_and_the_others_brake_with_what_they_see(arm: Arm) -> None:
    """With torque only on some axes their accelerations are W^-1 u there, so `u = ((W^-1)_ii)^-1 a`."""
    arm.begin()
    (reading,) = arm.readings(1)
    driven = [number != 1 for number in range(arm.m)]
    torques, held = arm.torques(STOP, reading, driven=driven), arm.pose.held
    inverse, free = np.linalg.pinv(arm.hold(reading, reading.v).inertia), np.array(driven)
    wanted = -STOP_RATE * np.array(reading.speeds)[free]
    expected = np.array(held)
    expected[free] += np.linalg.pinv(inverse[np.ix_(free, free)]) @ wanted
    np.testing.assert_allclose(torques, expected, rtol=1e-9, atol=1e-9)


def test_a_motor_without_a_trusted_measurement_is_stopped_by_the_model_alone(arm: Arm) -> None:
    """Its rate follows from the torque that it was sent beyond what holds it, and is braked within 10 ms."""
    arm.begin()
    pose, (reading,) = arm.pose, arm.readings(1)
    pose.see(reading, [True] * arm.m, [True] * arm.m)
    pose.distrust(0)
    torques, held = arm.torques(STOP, reading, [number > 0 for number in range(arm.m)]), pose.held
    at_rest = arm.hold(reading)  # the last sound pose; nothing was sent before
    rate = reading.speeds[0] + arm.period * (0.0 - at_rest.u[0]) / at_rest.inertia[0, 0]
    most = 0.9 * arm.drives[0].torque_limit
    np.testing.assert_allclose(held, at_rest.u, rtol=1e-11, atol=1e-9)
    assert pose.blind_rates == {0: pytest.approx(rate)}
    assert torques[0] == pytest.approx(np.clip(held[0] - at_rest.inertia[0, 0] * rate / 0.01, -most, most))


def test_a_guided_machine_hangs_on_a_spring_that_slips_between_walls(arm: Arm) -> None:
    """u = u_g + u_b + W (w_a^2 (y_a - y) + walls - s y'), and no drive feels more than its grip of the spring."""
    arm.begin()
    pose, s, w = arm.pose, arm.guiding.damping, arm.pole
    lower, upper = np.array([drive.position_limits for drive in arm.drives]).T
    lower, upper = lower + WALL * (upper - lower), upper - WALL * (upper - lower)
    first, last = arm.readings(2)
    pose.begin(first.positions)
    arm.torques(Source(Torques.HOLD, learns=True), last)
    anchor, before, slipped = np.array(first.positions), arm.hold(last).u, 0
    bias = arm.hold(last).inertia @ (w**3 * arm.period * (anchor - last.positions))
    assert (bias != 0.0).any()
    for reading in arm.readings(100, 0.1):
        hold, y = arm.hold(reading), np.array(reading.positions)
        stretch, stiffness = anchor - y, (ANCHOR * s) ** 2
        most = float(np.max(np.abs(stiffness * hold.inertia @ stretch) / arm.guiding.grip))
        stretch, slipped = stretch / max(1.0, most), slipped + (most > 1.0)
        anchor = y + stretch
        inside = np.clip(y, lower, upper) - y
        walls = (2 * w) ** 2 * inside - 4 * w * np.array(reading.speeds) * (inside != 0.0)
        carries = np.abs(before) > 0.04 * LARGEST_BIAS * np.array([drive.torque_limit for drive in arm.drives])
        alike = np.clip(np.where(carries, hold.u / np.where(carries, before, 1.0), 0.0), -1.0, 1.0)
        wanted = hold.u + bias * alike + hold.inertia @ (stiffness * stretch + walls - s * np.array(reading.speeds))
        limits = np.array(arm.guiding.limits)
        torques = arm.torques(Source(Torques.GUIDE), reading)
        np.testing.assert_allclose(torques, np.clip(wanted, -limits, limits), rtol=1e-10, atol=1e-9)
        np.testing.assert_allclose(pose.anchor, anchor, rtol=1e-12)
    assert slipped > 5


@cache
def robots() -> RigSetup:
    """Two robots with an object: they fall without torque, and six drives act on three degrees of freedom."""
    return load("coordinated_robots", engine="vm")


def run(
    stage: Phase, duration: float, faults: Sequence[dict[str, Any]] = (), **emulation: Any
) -> tuple[Trajectory, int]:
    setup = renewed(robots(), faults)
    values = setup.settings.values
    values = values.model_copy(update={"emulation": values.emulation.model_copy(update=emulation)})
    setup = replace(setup, settings=replace(setup.settings, values=values))
    result = on_rig(setup, None, stage, duration)
    assert result.unconfirmed == ()
    return result.trajectory, result.exit_code


def true_motion(done: Trajectory, phase: Phase) -> tuple[Array, Array, Array]:
    """Times from 0, coordinates and velocities of the simulated machine in a stage."""
    rows = done.columns["stage"] == STAGES.index(phase.value)
    q, v = ([done.columns[f"{kind}.theta{i}"][rows] for i in range(1, 6)] for kind in ("true_q", "true_v"))
    t = done.t[rows]
    return t - t[0], np.array(q).T, np.array(v).T


def test_a_pose_that_is_held_stays_within_a_third_of_a_milliradian_while_brakes_open_and_after_the_test() -> None:
    done, code = run(Phase.ZERO, 1.5)
    q0 = np.array(robots().start.q)
    t, q, _ = true_motion(done, Phase.ZERO)
    for held in (true_motion(done, Phase.ENABLING)[1], q[t < 0.1], q[t > 1.0]):
        assert np.abs(held - q0).max() < 3e-4  # by the model alone: 1e-2 by then
    assert np.abs(q - q0).max() < 2e-3, "the test of the drives moves the joints on purpose"
    assert code == 0


def test_a_pose_is_held_by_a_machine_a_tenth_heavier_than_its_model() -> None:
    done, _ = run(Phase.ZERO, 1.0, parameters={"m": 1.1})
    _, q, v = true_motion(done, Phase.ZERO)
    assert np.abs(q - robots().start.q).max() < 3e-3
    assert np.abs(q[-1] - robots().start.q).max() < 1e-4  # the integral has found the missing torque
    assert np.abs(v[-1]).max() < 1e-3


def test_a_floating_machine_drifts_by_less_than_a_milliradian_in_five_seconds() -> None:
    done, code = run(Phase.FLOAT, 5.0)
    t, q, _ = true_motion(done, Phase.FLOAT)
    assert t[-1] > 4.99 and code == 0
    assert np.ptp(q, axis=0).max() < 1e-3


def test_a_floating_machine_with_friction_stands_still_although_its_links_are_a_tenth_heavier() -> None:
    done, _ = run(Phase.FLOAT, 1.5, parameters={"m": 1.1}, coulomb_friction=1.0)
    assert np.ptp(true_motion(done, Phase.FLOAT)[1], axis=0).max() < 1e-3


def test_a_push_moves_a_floating_machine_and_it_stops_within_half_a_second_when_let_go() -> None:
    push = {"kind": "push", "drive": "u1", "torque": 1.0, "at": 0.1, "for": 1.0}
    done, code = run(Phase.FLOAT, 1.7, [push])
    t, q, v = true_motion(done, Phase.FLOAT)
    pushed = q[np.searchsorted(t, 1.1)] - q[0]
    assert np.abs(pushed).max() > 0.02
    assert np.abs(v[(t > 0.9) & (t < 1.1)]).max() > 0.02
    assert np.abs(v[t > 1.6]).max() < 1e-3  # the steps of the torque on the wire keep it trembling by half of this
    assert np.abs(q[-1] - q[np.searchsorted(t, 1.6)]).max() < 3e-4
    assert code == 0, "a hand is no fault: the run goes on to its end"


def test_a_floating_machine_never_gets_more_than_its_lowered_torque() -> None:
    push = {"kind": "push", "drive": "u1", "torque": 60.0, "at": 0.2, "for": 0.4}
    done, _ = run(Phase.FLOAT, 1.0, [push])
    guiding = robots().plan(Phase.FLOAT, 1.0).guiding
    assert guiding is not None
    rows = done.columns["stage"] == STAGES.index(Phase.FLOAT.value)
    for name, limit in zip(robots().loop.system.model.plant.actuators, guiding.limits, strict=True):
        assert limit <= 12.0
        assert np.abs(done.columns[f"u.{name}"][rows]).max() <= limit + 1e-12


def test_walls_turn_a_guided_joint_before_its_position_limit() -> None:
    setup = robots()
    q0 = setup.sensing.displacements(setup.loop.system.model.plant, setup.start.q)[0]
    near = [replace(drive, position_limits=(-3.0, float(q0) + 0.1)) for drive in setup.settings.drives[:1]]
    narrow = replace(setup, settings=replace(setup.settings, drives=(*near, *setup.settings.drives[1:])))
    setup = renewed(narrow, [{"kind": "push", "drive": "u1", "torque": 8.0, "at": 0.1, "for": 1.0}])
    done = on_rig(setup, None, Phase.FLOAT, 1.2)
    _, q, _ = true_motion(done.trajectory, Phase.FLOAT)
    assert 0.01 < (q[:, 0] - q[0, 0]).max() < 0.05  # without a wall 0.2, and the limit ends the run
    assert done.exit_code == 0


def test_the_guided_motion_is_a_reference_file_with_the_names_of_the_coordinates(tmp_path: Path) -> None:
    push = {"kind": "push", "drive": "u1", "torque": 2.0, "at": 0.1, "for": 0.4}
    done, _ = run(Phase.FLOAT, 1.0, [push])
    file, names = tmp_path / "guided.csv", list(robots().loop.system.model.plant.coordinates)
    said = write_guided_motion(file, done, names)
    assert "guided motion of 1.00 s" in said and re.search(rf"moved: {names[0]} [\d.e-]+ (rad|m), ", said)
    columns, curve, faults = file_curve(file, "t", None, "cubic", "hold")
    assert (list(columns), faults) == (names, ())
    assert curve is not None
    t, q, _ = true_motion(done, Phase.FLOAT)
    times, smoothed = guided_motion(done)
    assert times[0] == 0.0 and times[-1] == t[-1]
    at = np.array([np.interp(times, t, column) for column in q.T]).T
    assert np.abs(smoothed - at).max() < 2e-4


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"record": Path("a.csv")}, "--record: only stage float is guided by hand"),
        ({"record": Path("a.txt"), "stage": "float"}, "--record: expected a name that ends in .csv, got a.txt"),
        ({"record": Path("nowhere/a.csv"), "stage": "float"}, "nowhere: no such folder"),
    ],
)
def test_a_record_that_cannot_be_written_is_refused_before_anything_moves(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        start(Request("coordinated_robots", engine="vm", **options))


def test_a_damping_that_would_shake_the_machine_in_the_hand_is_refused() -> None:
    """Beyond the limit of a speed that a held torque slows a cycle late, and not before it."""

    def moving(damping: float) -> float:
        setup = load("coordinated_robots", (f"hil.safety.float_damping={damping}",), "vm")
        t, _, v = true_motion(on_rig(setup, None, Phase.FLOAT, 0.8).trajectory, Phase.FLOAT)
        return float(np.abs(v[t > 0.4]).max())

    with pytest.raises(ConfigError, match="400 1/s would shake the machine in the hand at a period of") as found:
        start(Request("coordinated_robots", ("hil.safety.float_damping=400",), stage="float", engine="vm"))
    most = float(re.search(r"at most (.*?) 1/s", str(found.value))[1])  # type: ignore[index]
    start(Request("coordinated_robots", (f"hil.safety.float_damping={most}",), stage="float", engine="vm"))
    assert moving(2.0 * most) > 20.0 * moving(0.9 * most)


def test_the_number_of_a_stage_in_a_log_never_changes() -> None:
    assert STAGES[:10] == [
        "shadow", "waiting for samples", "enabling", "zero", "ramp", "full", "stopping", "disabling", "over", "float"
    ]  # fmt: skip
