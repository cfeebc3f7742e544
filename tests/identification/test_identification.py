"""Parameters and friction from logs: the regressor, what it can tell apart, the fit, and logs of simulated runs."""

import html
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.interpolate import BPoly, make_interp_spline

import servoctl as sc
from plants.coordinated_robots import CoordinatedRobots
from plants.harmonic_drive import HarmonicDrive
from servoctl.cli import main
from servoctl.errors import ConfigError, PlantError
from servoctl.identification.fit import fit
from servoctl.identification.log import Log, read_logs
from servoctl.identification.result import Identification
from servoctl.identification.rows import Equations, Motion, bandwidth, cutoff_of, decimated
from servoctl.identification.solution import _eta, _moments, base, is_physical, physical_fit
from servoctl.identification.unknowns import Unknowns, link_of, moments_of, select
from servoctl.types import Array
from tests.config_texts import plant_text
from tests.faces import exit_code
from tests.identification.arm import Arm, LinearArm
from tests.small_plants import Masses


def random_motion(plant: sc.Plant, rows: int = 60) -> Motion:
    n, random = len(plant.coordinates), np.random.default_rng(1)
    q, v, a = (random.standard_normal((rows, n)) for _ in range(3))
    return Motion(np.zeros(rows), q, v, a, v)


def unknown(plant: sc.Plant, *names: str) -> Unknowns:
    return select(plant, names)[0]


def test_a_plant_whose_code_cannot_be_traced_is_named() -> None:
    class Opaque(Arm):
        def force(self, q: Array, v: Array, t: float) -> Array:
            return np.full(len(q), float(q[0]))

    with pytest.raises(PlantError, match=r"Opaque: cannot be differentiated in its parameters: .*float"):
        select(Opaque(), None)


LINEAR = [field.name for field in fields(LinearArm) if field.name != "g"]


def test_the_regressor_times_the_parameters_is_the_inverse_dynamics() -> None:
    plant = LinearArm()
    found = Equations(unknown(plant, *LINEAR)).along(random_motion(plant), np.zeros(8))
    motion = random_motion(plant)
    for k in range(len(motion)):
        state = motion.q[k], motion.v[k]
        force = plant.mass_matrix(motion.q[k], 0.0) @ motion.a[k] - plant.force(*state, 0.0)
        theta = np.array([getattr(plant, name) for name in LINEAR])
        assert np.allclose(found.residual[k] + found.regressor[k] @ theta, force, atol=1e-12, rtol=0)


@pytest.mark.parametrize(("g", "rank", "silent"), [(9.81, 10, {"m1"}), (0.0, 8, {"m1", "x1", "y1"})])
def test_an_arm_has_ten_base_parameters_and_eight_if_it_lies(g: float, rank: int, silent: set[str]) -> None:
    plant = LinearArm(g=g)
    unknowns = unknown(plant, *LINEAR, "friction")
    W = Equations(unknowns).along(random_motion(plant), unknowns.before).regressor.reshape(-1, 12)
    found = base(W)
    assert len(found.independent) == rank
    names = unknowns.names
    groups = [{names[i] for i in group} for group in found.groups]
    assert {name for group in groups if len(group) == 1 for name in group} == silent
    together = [group for group in groups if len(group) > 1]
    assert together == ([{"x1", "m2", "I1"}] if g else [{"m2", "I1"}])
    # whatever is taken as independent, the sums are x1 + 0.7 m2 and I1 + 0.49 m2
    theta = unknowns.before
    moved = theta.copy()
    moved[[names.index(name) for name in ("m2", "x1", "I1")]] += [1.0, -0.7, -0.49]
    assert np.allclose(found.sums @ theta, found.sums @ moved, atol=1e-12)
    assert np.allclose(W @ theta, W @ moved, atol=1e-11)


def test_a_closed_chain_with_redundant_motors_gives_its_parameters_exactly() -> None:
    truth, random = CoordinatedRobots(m=1.3, I=0.8), np.random.default_rng(2)
    unknowns = unknown(CoordinatedRobots(), "m", "I")
    equations = Equations(unknowns)
    motion = random_motion(truth, 20)
    free = equations.along(motion, np.array([1.3, 0.8]))
    # torques that make the motion, and reactions and internal torques besides, which the projection must remove
    u = np.array([np.linalg.lstsq(B, r, rcond=None)[0] for B, r in zip(free.actuation, free.residual, strict=True)])
    null = np.eye(6) - np.linalg.pinv(free.actuation, rcond=1e-9) @ free.actuation
    u += np.einsum("kij,kj->ki", null, random.standard_normal(u.shape))
    found = equations.along(motion, unknowns.before)
    left = np.einsum("kij,kj->ki", found.actuation, u) - found.residual
    x = np.linalg.lstsq(found.regressor.reshape(-1, 2), left.ravel(), rcond=None)[0] + unknowns.before
    assert equations.freedom == 3
    assert np.allclose(x, [1.3, 0.8], atol=1e-10, rtol=0)


def test_what_enters_nonlinearly_or_through_constraints_is_left_out_by_name() -> None:
    unknowns, left = select(Arm(), None)
    assert unknowns.names[:4] == ["m1", "I1", "m2", "I2"]
    assert left["c1"] == "enters nonlinearly"
    assert left["g"].startswith("multiplies m")
    assert set(select(CoordinatedRobots(), None)[1]) == {"l", "g", "L"}
    with pytest.raises(ConfigError, match="--parameters L: enters the plant's own constraints"):
        select(CoordinatedRobots(), ["L"])
    with pytest.raises(ConfigError, match=r"--parameters mm: .* no such parameter"):
        select(CoordinatedRobots(), ["mm"])


def test_a_log_is_named_by_its_path() -> None:
    with pytest.raises(ConfigError, match=r"identify: expected paths of run folders or tables, got 3\.0"):
        sc.identify([3.0])  # type: ignore[list-item]


def test_every_free_vector_is_a_body_and_its_slope_is_that_of_differences() -> None:
    moments = moments_of(2.0, (0.1, -0.2, 0.3), (0.2, 0.25, 0.15, 0.01, 0.02, -0.01))
    eta = _eta(moments)
    back, slope = _moments(eta)
    assert np.allclose(back, moments, atol=1e-12)
    m, com, inertia = link_of(moments)
    assert np.allclose([m, *com, *inertia], [2.0, 0.1, -0.2, 0.3, 0.2, 0.25, 0.15, 0.01, 0.02, -0.01], atol=1e-12)
    steps = [(_moments(eta + 1e-6 * e)[0] - _moments(eta - 1e-6 * e)[0]) / 2e-6 for e in np.eye(10)]
    assert np.allclose(np.array(steps).T, slope, atol=1e-8)
    random = np.random.default_rng(0)
    assert all(is_physical(_moments(random.standard_normal(10))[0]) for _ in range(100))


def test_inertias_that_no_body_has_become_the_nearest_that_one_has() -> None:
    start = moments_of(2.0, (0.1, 0.0, 0.0), (0.2, 0.25, 0.15, 0.0, 0.0, 0.0))
    wrong = start.copy()
    wrong[4] = 0.6  # above the sum of the other two: least squares alone would return it
    assert not is_physical(wrong)
    found = physical_fit(np.eye(10), wrong, start, [slice(0, 10)], [])
    assert is_physical(found)
    assert np.linalg.norm(found - wrong) < np.linalg.norm(start - wrong)
    assert np.allclose(physical_fit(np.eye(10), start * 1.1, start, [slice(0, 10)], []), start * 1.1, atol=1e-9)


ARM_CONFIG = """
plant: {class: "arm.py:Arm"}
initial: {q: {q1: 0.3, q2: 0.5}, v: 0}
task:
  - {name: a, holonomic: "q1 - (0.3 + 0.8*sin(0.9*t)**2 + 0.3*sin(2.9*t)**2 - 0.15*sin(4.3*t)**2)"}
  - {name: b, holonomic: "q2 - (0.5 + 0.7*sin(1.7*t)**2 - 0.4*(1-cos(3.3*t)) - 0.2*sin(5.1*t)**2)"}
law: {correction: {baumgarte: {alpha: 10, beta: 10}}}
run: {duration: 10, period: 0.001, integrator: {method: rk4, step: 0.001}, seed: 3}
realism:
  quantisation: {q: 2*pi/16384}
  friction: {coulomb: {u1: 0.6, u2: 0.3}, viscous: {u1: 0.4, u2: 0.2}}
  parameter_error: {m1: 0.3, m2: -0.2, I1: 0.3, I2: -0.2}
"""


@pytest.fixture(scope="session")
def arm_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 10 s of an arm with friction, encoders of 14 bits, and other masses than the law knows."""
    folder = tmp_path_factory.mktemp("arm")
    shutil.copy(Path(__file__).with_name("arm.py"), folder)
    (folder / "arm.yaml").write_text(ARM_CONFIG)
    sc.load(folder / "arm.yaml").simulate(folder / "run")
    return folder / "run"


def test_a_log_of_an_arm_with_friction_gives_its_parameters_within_a_percent(arm_log: Path) -> None:
    found = sc.identify(arm_log, classes=arm_log.parent)
    truth = Arm(m1=2.6, m2=1.2, I1=0.39, I2=0.12)
    for name in ("m1", "m2", "I1", "I2"):
        assert found.values[name] == pytest.approx(getattr(truth, name), rel=0.01), name
    friction = {"coulomb.u1": 0.6, "coulomb.u2": 0.3, "viscous.u1": 0.4, "viscous.u2": 0.2}
    for name, value in friction.items():
        assert found.values[f"friction.{name}"] == pytest.approx(value, rel=0.02), name
    assert found.good
    assert found.verdict.startswith("good: ")
    assert found.validation_rms < 1e-3 * found.torque_rms  # rows that were not used
    assert found.torque_rms_before > 50 * found.validation_rms
    error = _torque_error(found.plant_parameters, truth)
    assert error < 1e-3
    assert _torque_error({}, truth) > 100 * error  # what the law's model lacks falls by 100 times


def moves(rate: float, time: float) -> tuple[Array, Array]:
    """Moves from rest to rest of 0.7 to 2 s with quintic polynomials, of three axes: times and positions."""
    random, t = np.random.default_rng(5), np.arange(time * rate) / rate
    q = np.zeros((len(t), 3))
    for axis in range(3):
        begin = 0.0
        while begin < time:
            duration = random.uniform(0.7, 2.0)
            s = np.clip((t - begin) / duration, 0.0, 1.0)
            q[:, axis] += random.uniform(-1.0, 1.0) * s**3 * (10 - 15 * s + 6 * s**2)
            begin += duration
    return t, q


def test_the_bandwidth_depends_on_the_motion_and_not_on_encoder_rate_or_length_of_the_log() -> None:
    """A spectrum that is compared with its own noise gives 6 to 200 Hz here."""
    found = []
    for rate in (100.0, 250.0, 1000.0):
        for time in (20.0, 60.0):
            t, exact = moves(rate, time)
            for bits in (12, 14, 20, None):
                for hum in (0.0, 1e-5):
                    q = exact + hum * np.sin(2 * np.pi * 45.0 * t)[:, None]
                    q = q if bits is None else np.rint(q * 2**bits / (2 * np.pi)) * 2 * np.pi / 2**bits
                    found.append(bandwidth(q, 1 / rate))
    assert max(found) < 1.2 * min(found)


def joint_moves(speed: float, rest: float, time: float) -> list[BPoly]:
    """Moves of two joints from rest to rest, with a cruise between smooth ends: positions of times."""
    random, joints = np.random.default_rng(5), []
    for _ in range(2):
        at, now, knots, states = 0.5, 0.0, [0.0], [[0.0, 0.0, 0.0]]
        while at < time:
            step = random.uniform(0.4, 1.6) * (-1.0 if now > 0.0 else 1.0)
            length = abs(step) / speed
            for share, part, rate in ((0.0, 0.0, 0.0), (0.2, 0.125, 1.25), (0.8, 0.875, 1.25), (1.0, 1.0, 0.0)):
                knots.append(at + share * length)
                states.append([now + part * step, rate * step / length, 0.0])
            now, at = now + step, at + length + rest * random.uniform(0.5, 1.5)
        joints.append(BPoly.from_derivatives(knots, states))
    return joints


def along(joints: list[BPoly], t: Array) -> tuple[Array, Array, Array]:
    """Positions, speeds and accelerations, shape (rows, 2) each."""
    q, v, a = (np.column_stack([joint(t, order) for joint in joints]) for order in range(3))
    return q, v, a


@pytest.mark.parametrize(
    ("rate", "bits", "noise", "speed"),
    [(1000.0, 14, 0.01, 0.3), (100.0, 14, 0.01, 1.2), (250.0, 12, 0.05, 0.8)],
)
def test_the_bandwidth_is_near_the_one_with_the_smallest_errors(
    rate: float, bits: int, noise: float, speed: float
) -> None:
    truth, friction, turn = LinearArm(m1=2.4, x1=0.8, I2=0.2), (0.8, 0.3), 2.0 * np.pi / 2**bits
    equations = Equations(select(LinearArm(), None)[0])

    def torques(q: Array, v: Array, a: Array) -> Array:
        own = [truth.mass_matrix(x, 0.0) @ z - truth.force(x, y, 0.0) for x, y, z in zip(q, v, a, strict=True)]
        return np.array(own) + friction[0] * np.tanh(v / 0.01) + friction[1] * v

    t, joints = np.arange(0.0, 30.0, 1.0 / rate), joint_moves(speed, 0.5, 31.0)
    q, v, a = along(joints, t)
    exact, checked = torques(q, v, a), along(joint_moves(1.5, 0.3, 20.0), np.arange(1.0, 19.0, 0.05))
    right = torques(*checked)
    errors, chosen = np.zeros(5), []
    for seed in range(2):
        random = np.random.default_rng(seed)
        u = exact + noise * np.sqrt(np.mean(exact**2, axis=0)) * random.standard_normal(exact.shape)
        log = Log("moves", 1.0 / rate, t, turn * np.rint(q / turn + random.uniform(0.0, 1.0, 2)), u, 0.0, True)
        chosen.append(cutoff_of([log]))
        for k, factor in enumerate((0.25, 0.5, 1.0, 2.0, 4.0)):
            cutoff = min(factor * chosen[0], 0.4 * rate)
            found = fit(equations, [decimated(log, cutoff)], cutoff, True)
            values = dict.fromkeys(equations.unknowns.names, 0.0)
            values |= dict(zip(found.unknowns.names, found.x, strict=True))
            motion = Motion(np.zeros(len(right)), *checked, checked[1])
            result = equations.along(motion, np.array(list(values.values())))
            errors[k] += np.linalg.norm(result.residual - right) / np.linalg.norm(right)
    assert max(chosen) < 2.0 * min(chosen)
    assert errors[2] < 2.0 * errors.min()


def test_intervals_of_95_percent_cover_the_truth(arm_log: Path) -> None:
    """One motion with its reversals of friction, and other noise of the encoders in every log."""
    run, logs = read_logs([arm_log], arm_log.parent)
    exact, rows = sc.load_run(arm_log).q, slice(0, 6000)
    unknowns = select(run.system.model.plant, None)[0]
    equations = Equations(unknowns)
    truth = {"m1": 2.6, "m2": 1.2, "I1": 0.39, "I2": 0.12}
    truth |= {"friction.coulomb.u1": 0.6, "friction.coulomb.u2": 0.3}
    truth |= {"friction.viscous.u1": 0.4, "friction.viscous.u2": 0.2}
    covered, seeds, step = dict.fromkeys(truth, 0), 25, 2 * np.pi / 16384
    for seed in range(seeds):
        noisy = exact[rows] + 1e-4 * np.random.default_rng(seed).standard_normal(exact[rows].shape)
        log = replace(logs[0], t=logs[0].t[rows], q=step * np.rint(noisy / step), u=logs[0].u[rows])
        log = replace(log, sure=True)
        found = fit(equations, [log], cutoff_of([log]), pruned=True)
        for name, x, sigma in zip(found.unknowns.names, found.x, found.sigma, strict=True):
            covered[name] += abs(x - truth[name]) < 1.96 * sigma
            assert sigma < 0.1 * truth[name]
    assert min(covered.values()) >= 0.9 * seeds, covered


@dataclass(frozen=True)
class Slides(Masses):
    """Two masses on rails with one damping of both."""

    forces: str = "F G"
    m1: float = 1.0  # [kg]
    m2: float = 1.0  # [kg]
    d: float = 0.3  # [N s/m]

    def mass_matrix(self, q: Array, t: float) -> Array:
        return np.array([[self.m1, 0.0], [0.0, self.m2]])

    def force(self, q: Array, v: Array, t: float) -> Array:
        return -self.d * v


def test_viscous_friction_beside_a_damping_of_all_joints_is_found() -> None:
    """One of d, viscous.F and viscous.G is left out, for only two sums act; the others then explain the torques."""
    t = np.linspace(0.0, 10.0, 2001)
    q = np.stack([np.sin(1.3 * t) + 0.3 * np.sin(4.1 * t), np.cos(1.7 * t) - 0.4 * np.sin(3.2 * t)], axis=1)
    v = np.stack(
        [1.3 * np.cos(1.3 * t) + 1.23 * np.cos(4.1 * t), -1.7 * np.sin(1.7 * t) - 1.28 * np.cos(3.2 * t)], axis=1
    )
    a = np.stack(
        [-1.69 * np.sin(1.3 * t) - 5.043 * np.sin(4.1 * t), -2.89 * np.cos(1.7 * t) + 4.096 * np.sin(3.2 * t)], axis=1
    )
    truth, coulomb, viscous = Slides(m1=1.4, m2=0.9, d=0.15), np.array([0.4, 0.1]), np.array([0.1, 0.0])
    u = a * [truth.m1, truth.m2] + (truth.d + viscous) * v + coulomb * np.tanh(v / 0.01)
    equations = Equations(select(Slides(), None)[0])
    log = Log("slides", 0.005, t, q, u, 0.0, True)
    found = fit(equations, [log], cutoff_of([log]), pruned=True)
    values = dict(zip(found.unknowns.names, found.x, strict=True))
    damping = values["d"] + np.array([values.get("friction.viscous.F", 0.0), values.get("friction.viscous.G", 0.0)])
    assert damping == pytest.approx([0.25, 0.15], rel=0.02)
    assert values["friction.coulomb.F"] == pytest.approx(0.4, rel=0.02)


def _torque_error(values: Mapping[str, object], truth: sc.Plant) -> float:
    """Relative rms error of the torque of another motion, friction apart, with some parameters changed."""
    known: sc.Plant = replace(Arm(), **values)
    motion = random_motion(truth, 200)

    def torque(plant: sc.Plant) -> Array:
        rows = zip(motion.q, motion.v, motion.a, strict=True)
        return np.array([plant.mass_matrix(q, 0.0) @ a - plant.force(q, v, 0.0) for q, v, a in rows])

    right = torque(truth)
    return float(np.linalg.norm(torque(known) - right) / np.linalg.norm(right))


def test_identified_values_lie_over_the_config_and_the_error_of_the_law_falls(arm_log: Path, tmp_path: Path) -> None:
    folder, config = tmp_path / "found", arm_log.parent / "arm.yaml"
    assert exit_code("identify", arm_log, "--classes", arm_log.parent, "--out", folder) == 0
    written = json.loads((folder / "identification.json").read_text())
    assert written["unidentifiable"] == []
    assert set(written["parameters"]) >= {"m1", "I1", "friction.coulomb.u1"}
    assert {path.name for path in folder.iterdir()} == {
        "identified.yaml", "machine.yaml", "identification.json", "torque.png", "parameters.png", "report.html",
    }  # fmt: skip
    page, without = (
        (folder / "report.html").read_text(),
        written["left_out"] | dict.fromkeys(written["not_significant"]),
    )
    assert without and all(name in page for name in without)  # what has no value, and why
    assert all(html.escape(f"not identified: {name}: {why}") in page for name, why in written["left_out"].items())
    # the machine as it was: the law's new numbers must not move it
    values = {"m1": 2.6, "m2": 1.2, "I1": 0.39, "I2": 0.12}
    errors = [f"realism.parameter_error.{n}={v / written['parameters'][n]['value'] - 1}" for n, v in values.items()]
    before = sc.load_run(arm_log)
    after = sc.load(config, [folder / "identified.yaml", *errors, "run.duration=5"]).simulate()
    late = slice(3000, 5000)
    rms = [np.sqrt(np.mean(run["violation.a"][late] ** 2)) for run in (before, after)]
    assert rms[1] < rms[0] / 30  # the encoders' resolution is what remains


def _damaged(log: Path, folder: Path, change: str) -> Path:
    shutil.copytree(log, folder)
    table = pq.read_table(folder / "trajectory.parquet")
    columns = {name: table[name].to_numpy().copy() for name in table.column_names}
    if change == "nan":
        columns["u.u2"][5000] = np.nan
    elif change == "no torques":
        columns = {name: x for name, x in columns.items() if not name.startswith("u.")}
    elif change == "zero torques":
        columns |= {name: 0 * x for name, x in columns.items() if name.startswith("u.")}
    elif change == "other plant":
        columns["q.elbow"] = columns.pop("q.q2")
    elif change == "short":
        columns = {name: x[:150] for name, x in columns.items()}
    elif change == "still":
        columns |= {name: 0 * x + x[0] for name, x in columns.items() if name.startswith(("q.", "v.", "u."))}
    pq.write_table(pa.table(columns).replace_schema_metadata(table.schema.metadata), folder / "trajectory.parquet")
    return folder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("nan", "u.u2: 1 values are not finite, the first at t = 5 s"),
        ("no torques", "u.u1, u.u2: no torques in the log"),
        ("zero torques", "no torques in the log: every u is 0"),
        ("other plant", "q.q2: is a log of another plant"),
        ("short", "too short: 150 rows"),
        ("still", "no excitation"),
    ],
)
def test_a_bad_log_is_refused_by_name_and_nothing_is_written(
    arm_log: Path, tmp_path: Path, change: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log, out = _damaged(arm_log, tmp_path / "log", change), tmp_path / "out"
    assert main(["identify", str(log), "--classes", str(arm_log.parent), "--out", str(out)]) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_values_that_should_not_be_used_have_no_next_command(
    arm_log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Identification, "validation_rms_before", 1e-9)  # as if the values before explained all
    assert exit_code("identify", arm_log, "--classes", arm_log.parent, "--out", tmp_path / "out") == 0
    said = capsys.readouterr().out
    assert "do not use them: the values before explain the torque as well" in said
    assert "written to" in said and "next:" not in said


WHEEL = """<robot name="wheel"><link name="ground"/><link name="wheel"><inertial><mass value="1"/>
<inertia ixx="0.006" iyy="0.006" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="turn" type="revolute"><parent link="ground"/><child link="wheel"/><axis xyz="0 0 1"/>
<limit lower="-3" upper="3" velocity="9" effort="5"/></joint></robot>"""

WHEEL_RUN = """
plant: {robot: {urdf: wheel.urdf}}
initial: {q: {turn: 0}, v: {turn: 3.6}}
task: [{name: t, holonomic: "turn - 0.5*sin(3*t) - 0.3*sin(7*t)"}]
law: {correction: {baumgarte: {alpha: 10, beta: 10}}}
run: {duration: 4, period: 0.005, integrator: {method: rk4, step: 0.005}}
realism: {parameter_error: {wheel_I: 1.0}, noise: {q: 1e-6}}
"""


def test_identified_bodies_can_exist_and_the_next_run_keeps_the_simulated_machine(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    recwarn: pytest.WarningsRecorder,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("wheel.urdf").write_text(WHEEL)
    Path("c.yaml").write_text(WHEEL_RUN)
    before = sc.load("c.yaml", engine="vm").simulate(Path("log"))
    assert exit_code("identify", "log", "--out", "found") == 0
    said = capsys.readouterr().out
    # only Izz turns: 0.02 in truth, which no body with Ixx = Iyy = 0.006 can have
    plant = sc.load("log/config.yaml", [Path("found/identified.yaml"), Path("found/machine.yaml")], engine="vm")
    xx, yy, zz, *_ = plant.system.model.plant.wheel_I  # type: ignore[attr-defined]
    assert zz == pytest.approx(0.02, rel=0.02) and zz <= (xx + yy) * (1.0 + 1e-6)
    assert "\ngood: " in said and not [w for w in recwarn if issubclass(w.category, RuntimeWarning)]
    assert "next: servoctl run log/config.yaml --set-file found/identified.yaml --set-file found/machine.yaml" in said
    machine = plant.system.simulated.plant  # type: ignore[union-attr]
    assert machine.wheel_I == pytest.approx((0.012, 0.012, 0.02, 0, 0, 0), rel=1e-9, abs=1e-12)  # type: ignore[attr-defined]
    after = plant.simulate()
    errors = [np.abs(run["violation.t"][run.t > 2.0]).max() for run in (before, after)]
    assert errors[1] < 0.1 * errors[0]  # the law knows the machine that it had not known


def test_torques_of_a_log_with_uneven_steps_are_taken_at_the_times_of_the_positions(tmp_path: Path) -> None:
    (tmp_path / "wheel.urdf").write_text(WHEEL)
    text = WHEEL_RUN.split("run:")[0] + "run: {duration: 4, integrator: {method: radau}}\n"
    (tmp_path / "c.yaml").write_text(text)
    sc.load(tmp_path / "c.yaml", engine="vm").simulate(tmp_path / "log")
    found = sc.identify(tmp_path / "log", ["wheel_I[2]"])
    assert found.values["wheel_I[2]"] == pytest.approx(0.01, rel=1e-3)  # what the interpolation costs
    assert found.validation_rms < 5e-3 * found.torque_rms


CART = plant_text("Cart", "m: float = 1.0", {"x": "m"}, {"F": "N"}, "np.array([[self.m]])", "np.array([-0.5 * v[0]])")


def test_friction_alone_may_be_asked_for_where_there_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cart.py").write_text(CART)
    Path("c.yaml").write_text(
        'plant: {class: "cart.py:Cart"}\ninitial: {q: {x: 0}, v: 1.7}\n'
        'task: [{name: go, holonomic: "x - 0.5*sin(t) - 0.3*sin(4*t)"}]\n'
        "law: {correction: {baumgarte: {alpha: 5, beta: 5}}}\nrun: {duration: 4, period: 0.01}\n"
    )
    sc.load("c.yaml", engine="vm").simulate(Path("log"))
    assert exit_code("identify", "log", "--parameters", "friction", "--out", "found", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["friction"]["coulomb"] == {"F": 0.0} == found["friction"]["viscous"]


@pytest.mark.parametrize(("delay", "sure"), [(0.003, True), (0.0, True), (0.0025, False)])
def test_a_delay_of_whole_periods_is_known_exactly(tmp_path: Path, delay: float, sure: bool) -> None:
    changes = ["run.period=0.001", "run.duration=0.4", "run.output_step=0.001", f"realism.delay={delay}"]
    sc.load("two_mass_spring", [*changes, "run.integrator.step=0.001"], engine="vm").simulate(tmp_path / "run")
    (log,) = read_logs([tmp_path / "run"])[1]
    assert log.sure == sure


def drive_log(noise: float) -> tuple[HarmonicDrive, HarmonicDrive, Log]:
    """A link on the spring of a drive, which winds up by 2 mrad: the plant before, the true one, and its log."""
    before, t = HarmonicDrive(K1=12e3, K2=12e3), np.arange(0.0, 20.0, 0.004)
    truth = replace(before, J=0.55, m=5.5)
    w, size = 2.0 * np.pi * np.array([0.1, 0.3, 0.5]), np.array([0.6, 0.2, 0.1])
    link, a = (np.sin(np.outer(t, w)) @ (size * factor) for factor in (1.0, -(w**2)))
    torque = truth.J * a + truth.m * truth.g * truth.l * np.sin(link)
    twist = make_interp_spline(t, torque / truth.K1, k=7)
    motor, motor_a = (truth.N * x for x in (link + twist(t), a + twist(t, 2)))
    q = np.stack([link, motor], axis=1) + noise * np.random.default_rng(0).standard_normal((len(t), 2))
    u = truth.Jw * motor_a + torque / truth.N
    return before, truth, Log("moves", 0.004, t, q, u[:, None], 0.0, True)


def test_all_that_acts_on_a_coordinate_without_a_motor_does_not_vanish_with_noise() -> None:
    """Zeros meet its equation whatever the motion is: they were the answer, within a thousandth of the values."""
    before, truth, log = drive_log(1e-4)
    found = fit(Equations(select(before, None)[0]), [log], cutoff_of([log]), pruned=True)
    for name, x, sigma in zip(found.unknowns.names, found.x, found.sigma, strict=True):
        assert abs(x - getattr(truth, name)) < 3.0 * sigma, name
        assert sigma < 0.6 * getattr(truth, name)


def test_a_better_balance_of_a_coordinate_without_a_motor_counts_in_the_verdict() -> None:
    """The torque shows no mass behind a spring whose stiffness is right."""
    before, truth, log = drive_log(1e-6)
    unknowns, left_out = select(before, ["J", "m"])
    found = fit(Equations(unknowns), [log], cutoff_of([log]), pruned=True)
    result = Identification("drive", ("log",), before, found, left_out, (), cutoff_of([log]))
    assert result.values["m"] == pytest.approx(truth.m, rel=1e-3)
    assert result.validation_rms >= result.validation_rms_before
    assert "the forces on link add up better than before" in result.verdict
    assert result.good


def test_a_body_at_its_limit_is_the_best_that_there_is() -> None:
    """A wheel of which only Izz turns: searches end early near the limit, by rounding, up to 8 % off."""
    start = moments_of(1.0, (0.0, 0.0, 0.0), (0.006, 0.006, 0.01, 0.0, 0.0, 0.0))
    R = np.diag([1e-2, 1e-1, 1e-1, 1e-1, 1.0, 1.0, 1e5, 1.0, 1.0, 1.0])
    for izz in (0.0199, 0.01999807, 0.02, 0.0202, 0.03, 0.1):
        aim = start.copy()
        aim[6] = izz
        assert physical_fit(R, R @ aim, start, [slice(0, 10)], [])[6] == pytest.approx(izz, rel=1e-4)
