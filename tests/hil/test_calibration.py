"""Calibration by hand restores signs and zeros, sends nothing that enables, and refuses what the motion cannot tell."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from hil.assembly.emulation import hand_of, make_emulator
from hil.assembly.prepare import load, prepare
from hil.assembly.setup import RigSetup
from hil.drives.base import Sample
from hil.recorder.files import read_frames
from hil.safety import EventKind
from hil.safety.plan import Phase
from hil.session.by_hand import instructions
from hil.session.calibration import CalibratedAxis, Calibration, fitting_signs, zero_by_stops
from hil.session.run import RunResult
from hil.session.start import Request, start
from servoctl.config import load_config
from servoctl.errors import ConfigError
from servoctl.types import Array
from tests.faces import on_drives, on_rig
from tests.hil.command_observer import CommandObserver
from tests.hil.faults.carts.scenario import machine
from tests.hil.rigs import gantry, renewed

SAMPLES = 80
TIME = 10.0  # [s]


@cache
def setup_of(config: str) -> RigSetup:
    return load(config, engine="vm")


@cache
def motion_of(config: str) -> tuple[Array, Array]:
    """Times and true displacements, shape (SAMPLES, nodes), while the emulated hand moves the machine."""
    setup = setup_of(config)
    hand = hand_of(setup, TIME)
    t = np.linspace(0.0, TIME, SAMPLES)
    h, plant = setup.sensing.displacements, setup.loop.system.model.plant
    return t, np.array([h(plant, hand(time)[0]) for time in t])


def by_hand(
    config: str, signs: Sequence[float], offsets: Sequence[float], shift: float = 0.0, **change: Array
) -> list[CalibratedAxis]:
    """What a calibration finds if the drives are mounted so: displacement = sign * motor + offset.

    Args:
        config: A config; its own signs and offsets are what the loop believes.
        signs: True sign of each drive.
        offsets: True offset of each drive [joint unit].
        shift: Error of the start pose in the first coordinate [its unit].
        change: `y`: displacements in place of those of the emulated hand.
    """
    setup = setup_of(config)
    if shift:
        setup = replace(setup, start=setup.start._replace(q=setup.start.q + shift * np.eye(len(setup.start.q))[0]))
    return found(setup, change.get("y", motion_of(config)[1]), signs, offsets)


def found(setup: RigSetup, y: Array, signs: Sequence[float], offsets: Sequence[float]) -> list[CalibratedAxis]:
    nodes = setup.nodes
    sign = np.array([*signs, *(sensor.settings.sign for sensor in setup.sensors)])
    offset = np.array([*offsets, *(sensor.settings.offset for sensor in setup.sensors)])
    steps = np.array([node.visible() for node in nodes])
    motors = np.round(sign * (y - offset) / steps) * steps
    hand = Calibration(setup)
    for time, row in zip(np.linspace(0.0, TIME, len(motors)), motors, strict=True):
        for node, motor in zip(nodes, row, strict=True):
            shown = node.settings.sign * motor + node.settings.offset
            node.sample = Sample(float(shown), np.nan, np.nan, round(time * 1e9))
        hand.take(round(time * 1e9))
    hand.judge()
    return hand.axes


def test_any_subset_of_wrong_signs_and_any_zeros_are_restored_on_two_robots() -> None:
    """Six encoders check three degrees of freedom, so the residual judges the signs."""
    steps = np.array([drive.visible() for drive in setup_of("coordinated_robots").drives])
    for seed in range(12):
        numbers = np.random.default_rng(seed)
        signs, offsets = numbers.choice([-1.0, 1.0], 6), numbers.uniform(-1.0, 1.0, 6)
        axes = by_hand("coordinated_robots", signs, offsets)
        assert [axis.problem for axis in axes] == [""] * 6, seed
        assert [axis.sign for axis in axes] == signs.tolist(), seed
        assert (np.abs(np.array([axis.offset for axis in axes]) - offsets) <= 1.01 * steps).all(), seed
        assert max(axis.residual for axis in axes) < 3.0, seed


def test_the_first_move_gives_the_signs_of_an_arm_whose_joints_no_other_encoder_checks() -> None:
    for seed in range(10):
        numbers = np.random.default_rng(seed)
        signs, offsets = numbers.choice([-1.0, 1.0], 6), numbers.uniform(-1.0, 1.0, 6)
        axes = by_hand("arm_on_drives", signs, offsets)
        assert [(axis.problem, axis.sign) for axis in axes] == [("", sign) for sign in signs]
        np.testing.assert_allclose([axis.offset for axis in axes], offsets, atol=2e-6)
        assert {axis.evidence for axis in axes} == {"the first move, counted as positive"}


def test_the_range_seen_becomes_the_position_limits() -> None:
    _, y = motion_of("arm_on_drives")
    for axis, seen in zip(by_hand("arm_on_drives", [1.0] * 6, [0.0] * 6), y.T, strict=True):
        lower, upper = axis.position_limits
        assert lower <= seen.min() < lower + 2e-4 and upper - 2e-4 < seen.max() <= upper


def test_an_axis_that_did_not_move_is_named() -> None:
    y = motion_of("arm_on_drives")[1].copy()
    y[:, 3] = y[0, 3]
    problems = {axis.name: axis.problem for axis in by_hand("arm_on_drives", [1.0] * 6, [0.0] * 6, y=y)}
    assert "did not move: its encoder went 0 from end to end" in problems.pop("joint4")
    assert set(problems.values()) == {""}


def test_axes_that_move_together_do_not_tell_their_signs() -> None:
    y = motion_of("arm_on_drives")[1].copy()
    y[:, 1] -= y[:, 0] - y[0, 0]  # the second motor goes back while a hand moves the first joint
    problems = {axis.name: axis.problem for axis in by_hand("arm_on_drives", [1.0] * 6, [0.0] * 6, y=y)}
    assert "moved together with joint2" in problems.pop("joint1")
    assert "moved together with joint1: its first move does not tell its sign" in problems.pop("joint2")
    assert set(problems.values()) == {""}


def test_swapped_nodes_of_an_arm_are_noticed_by_the_order_of_the_moves() -> None:
    y = motion_of("arm_on_drives")[1][:, [0, 2, 1, 3, 4, 5]]
    axes = by_hand("arm_on_drives", [1.0] * 6, [0.0] * 6, y=y)
    assert "moved in the order joint1, joint3, joint2" in axes[1].problem
    assert "nodes are swapped" in axes[1].problem


def test_swapped_nodes_of_two_robots_contradict_the_closed_chain() -> None:
    y = motion_of("coordinated_robots")[1][:, [0, 2, 1, 3, 4, 5]]
    axes = by_hand("coordinated_robots", [1.0] * 6, [0.0] * 6, y=y)
    assert all("the encoders disagree by" in axis.problem for axis in axes)


def test_a_machine_that_is_not_at_its_known_pose_is_refused() -> None:
    axes = by_hand("coordinated_robots", [1.0] * 6, [0.0] * 6, shift=0.01)
    assert all("was the machine at initial.q?" in axis.problem for axis in axes)


def test_encoder_nodes_on_coordinates_are_taken_as_right() -> None:
    """A wrong start pose along what the node measures moves to what it says; a zero that rests on a far one says so."""
    y = motion_of("two_mass_spring_drive")[1]
    (axis,) = by_hand("two_mass_spring_drive", [-1.0], [0.2], y=y + np.array([0.0, 0.003]))
    assert (axis.sign, axis.problem) == (-1, "")
    (axis,) = by_hand("two_mass_spring_drive", [-1.0], [0.2], y=y + np.array([0.0, 0.02]))
    assert (axis.sign, axis.problem) == (-1, "")
    assert axis.offset == pytest.approx(0.2, abs=1e-3)
    assert axis.zero_from == "the start pose, although x2 was at 0.52 m, where initial.q says 0.5"


def test_a_motion_that_other_signs_fit_as_well_is_refused() -> None:
    setup = setup_of("coordinated_robots")
    safety = setup.settings.values.safety.model_copy(update={"residual_tolerance": 10.0})
    values = setup.settings.values.model_copy(update={"safety": safety})
    tolerant = replace(setup, settings=replace(setup.settings, values=values))
    problems = [axis.problem for axis in found(tolerant, motion_of("coordinated_robots")[1], [1.0] * 6, [0.0] * 6)]
    assert (
        "(move the machine farther; if these always move together no motion tells: set their signs by hand)"
        in "".join(problems)
    )


def test_two_motors_on_one_axis_say_that_no_motion_tells_their_signs() -> None:
    rig, y = gantry("odrive", "odrive"), np.interp(np.linspace(0.0, 4.0, SAMPLES), [0.0, 1.0, 3.0, 4.0], [0, 0, 0.3, 0])
    axes = found(load(rig.config, rig.overrides, "vm"), np.array([y, y]).T, [1.0, -1.0], [0.0, 0.0])
    assert {axis.problem.split(" (")[0] for axis in axes} == {
        "the motion does not tell its sign: it fits with A and B the other way round, too"
    }


def test_the_signs_of_many_drives_are_found_by_turning_them_alone_and_in_pairs() -> None:
    true = np.where(np.arange(16) % 3, 1.0, -1.0)

    def misfit(signs: Array) -> float:
        return 100.0 * float((signs != true).sum())

    fit = fitting_signs(misfit, np.ones(16), range(16))
    assert fit.signs.tolist() == true.tolist()
    assert (fit.misfit, fit.rival, len(fit.unclear)) == (0.0, 100.0, 1)


def mounted(signs: Sequence[int], offsets: Sequence[float], out: Path) -> RunResult:
    """A calibration over the emulated wire: the drives are mounted in another way than the config says."""
    drives = enumerate(zip(signs, offsets, strict=True), 1)
    keys = [f"hil.drives.u{i}.{key}" for i, pair in drives for key in (f"sign={pair[0]}", f"offset={pair[1]}")]
    truth = load("coordinated_robots", keys, "vm")
    believed = renewed(setup_of("coordinated_robots"), ())
    emulator = make_emulator(truth, "vm")
    observer = CommandObserver(emulator, truth.settings.drives)
    result = on_rig(believed, emulator, Phase.CALIBRATE, 2.0, out)
    assert not any(drive.motor.enabled for drive in emulator.drives.values())
    assert set(observer.findings.largest.values()) == {0.0}
    return result


SIGNS, OFFSETS = [1, -1, -1, 1, -1, 1], [0.3, 0.0, -0.9, 0.5, 1.0, 0.0]


@pytest.fixture(scope="module")
def over_the_wire(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunResult, Path]:
    folder = tmp_path_factory.mktemp("calibration") / "run"
    return mounted(SIGNS, OFFSETS, folder), folder


def test_a_calibration_over_the_wire_writes_a_patch_that_makes_the_config_true(
    over_the_wire: tuple[RunResult, Path],
) -> None:
    result, folder = over_the_wire
    assert (result.exit_code, result.patch) == (0, folder / "calibration.yaml")
    assert max(axis.residual for axis in result.calibration) < 3.0
    assert result.trajectory.metadata["calibration"]["u2"]["sign"] == -1
    assert result.patch is not None
    patched = load_config("coordinated_robots", [result.patch]).config.hil
    assert patched is not None
    assert [drive.sign for drive in patched.drives] == SIGNS
    np.testing.assert_allclose([drive.offset for drive in patched.drives], OFFSETS, atol=4e-6)
    assert all(lower < upper for lower, upper in (drive.position_limits for drive in patched.drives))
    load("coordinated_robots", [result.patch], "vm")  # the patched config is ready for drives


def test_the_hand_moves_the_machine_without_a_jump(over_the_wire: tuple[RunResult, Path]) -> None:
    columns = over_the_wire[0].trajectory.columns
    for name in (each.removeprefix("true_q.") for each in columns if each.startswith("true_q.")):
        q, v = columns[f"true_q.{name}"], columns[f"true_v.{name}"]
        between = (v[1:] + v[:-1]) / 2 * np.diff(columns["t"])
        assert np.abs(np.diff(q) - between).max() < 1e-2 * np.ptp(q)


def test_a_calibration_sends_nothing_that_enables_a_drive(over_the_wire: tuple[RunResult, Path]) -> None:
    sent = [frame for _, is_sent, frame, _ in read_frames(over_the_wire[1]) if is_sent]
    assert {frame.id & 0x780 for frame in sent} == {0x000, 0x080, 0x600}  # NMT, SYNC, SDO
    assert {frame.data[0] for frame in sent if frame.id == 0} == {1}  # start
    written = {
        int.from_bytes(frame.data[1:3], "little") for frame in sent if frame.id > 0x600 and frame.data[0] & 0xE0 == 0x20
    }
    assert all(0x1400 <= index < 0x1C00 for index in written), written  # PDO parameters alone


def test_a_calibration_that_is_refused_ends_with_the_rigs_exit_code_and_no_file(tmp_path: Path) -> None:
    stuck = "hil.faults=[{kind: encoder_stuck, drive: u3, since: power_on}]"
    result = on_drives("coordinated_robots", stuck, out=tmp_path / "run", duration=1.5, calibrate=True)
    refused = [event for event in result.events if event.kind is EventKind.CALIBRATION]
    assert {event.subject for event in refused} >= {"u3"}
    assert "did not move" in str(next(event for event in refused if event.subject == "u3"))
    assert (result.exit_code, result.patch) == (3, None)
    assert not (tmp_path / "run" / "calibration.yaml").exists()


def test_drives_that_answer_only_to_torque_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="--calibrate: mit: tau1, tau2, tau3, F4: answers only to commands of torque"):
        start(Request("scara_drive", engine="vm", calibrate=True))


def test_a_calibration_is_a_stage_of_its_own() -> None:
    with pytest.raises(ConfigError, match=r"--calibrate: is a stage of its own \(leave --stage zero out\)"):
        start(Request("coordinated_robots", stage="zero", engine="vm", calibrate=True))


def test_a_real_bus_needs_armed_even_though_nothing_is_enabled() -> None:
    bus = "hil.buses.main={interface: virtual, channel: nobody}"
    with pytest.raises(ConfigError, match=r"none that enables a drive \(add --armed to allow them\)"):
        start(Request("coordinated_robots", (bus,), engine="vm", calibrate=True))


@pytest.mark.parametrize("protocol", ["odrive", "cia402", "mit", "moteus"])
def test_every_protocol_that_can_be_read_without_torque_is_calibrated(protocol: str, tmp_path: Path) -> None:
    """Two carts; an encoder node checks the first drive, nothing checks the second."""
    faults = [
        {"kind": "encoder_flip", "drive": "a", "since": "power_on"},
        {"kind": "encoder_jump", "drive": "b", "delta": 0.25, "since": "power_on"},
    ]
    setup = renewed(machine(protocol, "standstill"), faults)
    first, second = on_rig(setup, None, Phase.CALIBRATE, 3.0, tmp_path / "run").calibration
    assert (first.sign, first.evidence, first.problem) == (-1, "the other encoders", "")
    assert first.residual < 3.0
    assert (second.sign, second.evidence, second.problem) == (1, "the first move, counted as positive", "")
    steps = [drive.visible() for drive in setup.drives]
    assert abs(first.offset) < 2 * steps[0]
    assert abs(second.offset + 0.25) < 2 * steps[1]
    sent = [frame for _, is_sent, frame, _ in read_frames(tmp_path / "run") if is_sent]
    if protocol == "moteus":
        assert {frame.data[0] >> 4 for frame in sent if frame.extended} == {1}  # reads alone, no register is written
        return
    kinds = {frame.id if protocol == "mit" else frame.id & (0x780 if protocol == "cia402" else 0x1F) for frame in sent}
    asks = {"cia402": {0x000, 0x080, 0x600}, "odrive": {0x00}, "mit": {0x7FF, 0x0E0}}  # Get_Version; refresh, read
    assert kinds == asks[protocol]
    if protocol == "mit":
        assert {frame.data[2] for frame in sent if frame.id == 0x7FF} == {0x33, 0xCC}


def pushed(t: Array, upper: float, lower: float, firmly: float = 1.0) -> Array:
    """A joint that is pushed against its upper stop, its lower stop, and its upper stop again."""
    corners = np.repeat([0.2, upper, lower, lower + firmly * (upper - lower), 0.0], 2)  # it rests at each
    return np.interp(t, np.linspace(0.0, TIME, len(corners)), corners)


def test_the_zero_against_stops_is_restored_for_any_sign_and_zero() -> None:
    """For both stops known, only the upper or only the lower one (which is touched once: refused)."""
    t, step, open_end = np.linspace(0.0, TIME, 5000), 2e-4, np.inf
    for seed in range(30):
        numbers = np.random.default_rng(seed)
        sign, offset = numbers.choice([-1.0, 1.0]), numbers.uniform(-1.0, 1.0)
        upper, lower = numbers.uniform(1.0, 3.0), numbers.uniform(-3.0, -1.0)
        motor = np.round(sign * (pushed(t, upper, lower) - offset) / step) * step
        for stops in ((lower, upper), (-open_end, upper)):
            found = zero_by_stops(motor, sign, stops, upper - lower, step)
            assert found.problem == "" and abs(found.zero - offset) <= 1.01 * step and found.residual <= step, seed
        once = zero_by_stops(motor, sign, (lower, open_end), upper - lower, step)
        assert once.problem.startswith(f"touched its stop at {lower:.4g} only once (push it there twice")


def test_stops_that_disagree_refuse_the_zero() -> None:
    t = np.linspace(0.0, TIME, 5000)
    loose = zero_by_stops(pushed(t, 2.0, -1.0, 0.995), 1.0, (-np.inf, 2.0), 3.0, 1e-4)
    assert loose.problem.startswith("its ends near the stop differ by 0.015 (push it firmly against the stop")
    geared = zero_by_stops(1.1 * pushed(t, 2.0, -1.0), 1.0, (-1.0, 2.0), 3.0, 1e-4)
    assert geared.problem.startswith("moved over 3.3 from end to end, but its stops are 3 apart (push it against both")


STOPS = [f"hil.drives.{name}.stops={{lower: -2, upper: 3}}" for name in "ab"]


@cache
def carts(*overrides: str) -> RigSetup:
    """Two carts without an encoder node, so that nothing but their stops checks them."""
    changed = [*overrides, "hil.sensors=[]"]
    first = machine("cia402", "standstill")
    assert first.run.loaded is not None
    return prepare(first.run.loaded.overridden(changed), "vm")


def guided(
    setup: RigSetup, truth: Sequence[float], offsets: Sequence[float], begin: float = 0.0
) -> list[CalibratedAxis]:
    """What a calibration finds when a hand that knows the stops moves the carts; it begins off the known pose."""
    start = setup.start._replace(q=setup.start.q + begin)
    hand = hand_of(replace(setup, start=start), TIME)
    h, plant = setup.sensing.displacements, setup.loop.system.model.plant
    y = np.array([h(plant, hand(time)[0]) for time in np.linspace(0.0, TIME, 600)])
    return found(setup, y, truth, offsets)


def test_with_stops_on_every_drive_the_start_pose_need_not_be_known() -> None:
    setup = carts(*STOPS)
    steps = [drive.visible() for drive in setup.drives]
    for seed in range(5):
        numbers = np.random.default_rng(seed)
        signs, offsets = numbers.choice([-1.0, 1.0], 2), numbers.uniform(-1.0, 1.0, 2)
        axes = guided(setup, signs, offsets, begin=0.4)
        assert [(axis.problem, axis.sign, axis.zero_from) for axis in axes] == [("", s, "its stops") for s in signs]
        assert (np.abs(np.array([axis.offset for axis in axes]) - offsets) <= 1.01 * np.array(steps)).all()
        assert max(axis.residual for axis in axes) < 3.0
        # the limits stay clear of the stops by a hundredth of the range in the config
        assert all(axis.position_limits == pytest.approx((-1.965, 2.965), abs=2e-4) for axis in axes)


def test_one_stop_is_touched_twice_and_agrees_with_the_start_pose() -> None:
    setup = carts("hil.drives.a.stops={lower: -2}")
    first, second = guided(setup, [-1.0, 1.0], [0.3, 0.0])
    assert (first.problem, first.sign, first.zero_from, second.zero_from) == ("", -1, "its stops", "the start pose")
    assert abs(first.offset - 0.3) <= 1.01 * setup.drives[0].visible()
    assert first.residual < 3.0 and np.isnan(second.residual)
    first, second = guided(setup, [1.0, 1.0], [0.0, 0.0], begin=0.1)
    assert (first.problem, first.zero_from, second.problem) == ("", "its stops", "")
    assert second.zero_from == "the start pose, although a was at 0.4 m, where initial.q says 0.3"


def test_what_the_operator_does_at_the_stops_is_said_before() -> None:
    lines = instructions(carts(*STOPS), 20.0, emulated=False)
    assert lines[1] == "1. put the machine anywhere between its stops and leave it there for the first second"
    assert lines[-1].endswith("twice where only one is known: a at -2 m and 3 m, b at -2 m and 3 m")


def test_limits_beyond_a_stop_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"the upper limit, 2.5, is beyond the stop at 2 \(keep the limits clear of"):
        carts("hil.drives.a.stops={upper: 2}")


def test_a_calibration_against_stops_over_the_wire_writes_a_patch(tmp_path: Path) -> None:
    setup = renewed(carts(*STOPS, "hil.drives.b.stops={upper: 3}"), [])
    result = on_rig(setup, None, Phase.CALIBRATE, 1.5, tmp_path / "run")
    assert [axis.problem for axis in result.calibration] == ["", ""]
    assert max(axis.residual for axis in result.calibration) < 3.0
    assert result.patch is not None and "zero from its stops; residual" in result.patch.read_text()
