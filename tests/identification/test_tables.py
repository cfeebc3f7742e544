"""Tables of a machine that another program moved: what is read, what is refused, and what they give."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.signal import lfilter

import servoctl as sc
from servoctl.errors import ConfigError
from servoctl.identification.log import read_tables
from servoctl.types import Array
from tests.faces import exit_code
from tests.identification import recorded
from tests.identification.arm import LinearArm
from tests.refused import table
from tests.small_plants import Masses

FOLDER = Path(__file__).parent
ARM = LinearArm(m1=2.4, x1=0.8, I2=0.2)  # the machine; the config has the values of the class
J = np.array([0.05, 0.03])  # [kg m^2] its rotors
DELAY = 0.004  # [s]

CONFIG = f"""plant: {{class: "{FOLDER}/arm.py:LinearArm"}}
initial: {{q: 0, v: 0}}
task: [{{name: a, holonomic: q1}}, {{name: b, holonomic: q2}}]
law: {{correction: {{baumgarte: {{alpha: 10, beta: 10}}}}}}
run: {{duration: 1}}
log: {{time: t, q: [q1, q2], u: {{u1: tau1, u2: tau2}}}}
"""


def rows(seed: int = 0, time: float = 20.0) -> Array:
    """Columns t, q1, q2, tau1, tau2 at 200 Hz: inverse dynamics, friction, rotors, a delay, and 0.1 % of noise."""
    t = np.arange(0.0, time, 0.005)
    q = recorded.motion(seed, t, 2)[0]
    later = recorded.motion(seed, t + DELAY, 2)
    u = np.array(
        [(ARM.mass_matrix(x, 0.0) + np.diag(J)) @ a - ARM.force(x, v, 0.0) for x, v, a in zip(*later, strict=True)]
    )
    u += 0.8 * np.tanh(later[1] / 0.01) + 0.3 * later[1]
    u *= 1.0 + 0.001 * np.random.default_rng(seed).standard_normal(u.shape)
    return np.column_stack([t, q, u])


HEADER = "t,q1,q2,tau1,tau2"


def written(path: Path, table: Array, header: str = HEADER, separator: str = ",") -> Path:
    np.savetxt(path, table, fmt="%.9g", delimiter=separator, header=header.replace(",", separator), comments="")
    return path


def config_of(folder: Path, log: str = "", text: str = CONFIG) -> str:
    path = folder / "arm.yaml"
    path.write_text(text if not log else text[: text.index("log: ")] + log)
    return str(path)


def done(*words: str) -> None:
    """Runs a command that succeeds."""
    assert exit_code(*words) == 0


def test_rotors_alone_can_be_asked_for(tmp_path: Path) -> None:
    """Their values before are zero, so the torque of the model does not show that the machine moves."""
    true = CONFIG.replace(':LinearArm"', ':LinearArm", parameters: {m1: 2.4, x1: 0.8, I2: 0.2}')
    config, log = config_of(tmp_path, text=true), written(tmp_path / "log.csv", rows())
    found = sc.identify(log, ["armature", "friction"], config=config)
    assert [found.values[f"armature.{name}"] for name in ("u1", "u2")] == pytest.approx(J.tolist(), rel=0.02)


def test_a_table_gives_parameters_rotors_friction_and_delay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, log, out = config_of(tmp_path), written(tmp_path / "log.csv", rows()), tmp_path / "found"
    done("identify", str(log), "--config", config, "--out", str(out))
    assert f"next: servoctl run {config} --set-file {out}/identified.yaml" in capsys.readouterr().out
    said = json.loads((out / "identification.json").read_text())
    values = {name: entry["value"] for name, entry in said["parameters"].items()}
    assert values["armature.u2"] == pytest.approx(J[1], rel=0.02)
    assert values["I2"] == pytest.approx(ARM.I2, rel=0.02)
    assert values["friction.coulomb.u1"] == pytest.approx(0.8, rel=0.01)
    assert values["friction.viscous.u2"] == pytest.approx(0.3, rel=0.01)
    assert said["delays"] == pytest.approx([DELAY], abs=2e-4)
    assert said["validation_share"] < 0.002  # the noise's own is 0.001 before the filter
    assert said["parameters"]["armature.u2"]["sigma"] < 0.02 * J[1]
    done("check", config, "--set-file", str(out / "identified.yaml"))
    done("run", config, "--set-file", str(out / "identified.yaml"), "--out", str(tmp_path / "run"))


@pytest.mark.parametrize("separator", [";", "\t", " ", ","])
@pytest.mark.parametrize("named", [True, False])
def test_separators_are_found_and_names_may_be_missing(separator: str, named: bool, tmp_path: Path) -> None:
    table = rows()[:300]
    log = written(tmp_path / "log.txt", table, HEADER if named else "", separator)
    if not named:
        log.write_text(log.read_text().lstrip())
    config = config_of(tmp_path, "" if named else "log: {time: 1, q: [2, 3], u: [4, 5]}")
    _, [read], _ = read_tables([log], config)
    assert np.allclose(read.q, table[:, 1:3], atol=1e-8)
    assert np.allclose(read.u, table[:, 3:], rtol=1e-7)
    assert read.h == pytest.approx(0.005)


def test_parquet_units_factors_and_a_rate(tmp_path: Path) -> None:
    table = rows()[:300]
    columns = {"q1": np.degrees(table[:, 1]), "q2": table[:, 2], "i1": table[:, 3] / 14.87, "tau2": 1e3 * table[:, 4]}
    pq.write_table(pa.table(columns), tmp_path / "log.parquet")
    scale = "scale: {q1: deg, i1: 14.87, tau2: mN m}"
    config = config_of(tmp_path, f"log: {{rate: 200, q: {{q2: q2, q1: q1}}, u: [i1, tau2], {scale}}}")
    _, [read], _ = read_tables([tmp_path / "log.parquet"], config)
    assert np.allclose(read.q, table[:, 1:3], atol=1e-12)
    assert np.allclose(read.u, table[:, 3:], rtol=1e-12)
    assert read.h == pytest.approx(0.005, rel=1e-12)


def test_uneven_stamps_and_gaps_and_several_files_give_the_same_machine(tmp_path: Path) -> None:
    random, paths = np.random.default_rng(3), []
    for seed in (1, 2):
        table = rows(seed)
        kept = np.sort(random.choice(len(table), 3 * len(table) // 4, replace=False))
        table = table[kept[(table[kept, 0] < 8.0) | (table[kept, 0] > 9.0)]]
        paths.append(written(tmp_path / f"log{seed}.csv", table))
    config = config_of(tmp_path)
    assert len(read_tables(paths, config)[1]) == 4
    found = sc.identify(paths, config=config)
    assert found.values["armature.u2"] == pytest.approx(J[1], rel=0.05)
    assert found.validation_share < 0.005
    assert found.fit.delays == pytest.approx(DELAY, abs=1e-3)


@dataclass(frozen=True)
class Cart(Masses):
    """A mass on a spring."""

    names: str = "x"
    forces: str = "F"
    k: float = 5.0  # [N/m]

    def force(self, q: Array, v: Array, t: float) -> Array:
        return -self.k * q


CART = f"""plant: {{class: "{FOLDER}/test_tables.py:Cart"}}
initial: {{q: 0, v: 0}}
task: [{{name: rest, holonomic: x}}]
law: {{correction: {{baumgarte: {{alpha: 10, beta: 10}}}}}}
run: {{duration: 1}}
log: {{time: t, q: [x], u: [F]}}
"""


def cart_log(path: Path, h: float, fastest: float, noise: float = 0.0, time: float = 20.0, seed: int = 0) -> Path:
    """The log of a mass of 1.3 kg on a spring of 6 N/m; the noise of the force [N] is one of 0.3 s."""
    random, t = np.random.default_rng(seed), np.arange(0.0, time, h)
    angle = 2 * np.pi * fastest * np.outer(t, [0.4, 0.7, 1.0]) + random.uniform(0.0, 6.0, 3)
    x, a = np.sin(angle).sum(axis=1), -(np.sin(angle) @ (2 * np.pi * fastest * np.array([0.4, 0.7, 1.0])) ** 2)
    slow = np.exp(-h / 0.3)
    noisy = lfilter([np.sqrt(1 - slow**2)], [1.0, -slow], random.standard_normal(len(t)))
    return written(path, np.column_stack([t, x, 1.3 * a + 6.0 * x + noise * noisy]), "t,x,F")


def test_logs_of_different_rates_give_one_machine_in_either_order(tmp_path: Path) -> None:
    """The motion of the first needs 48 Hz, and the second shows 10 Hz at most."""
    config = config_of(tmp_path, text=CART)
    logs = [cart_log(tmp_path / "fast.csv", 0.001, 6.0), cart_log(tmp_path / "slow.csv", 0.02, 0.5)]
    for order in (logs, logs[::-1]):
        found = sc.identify(order, ["m", "k"], config=config)
        assert found.values == pytest.approx({"m": 1.3, "k": 6.0}, rel=1e-3)
        assert not found.findings
    with pytest.raises(
        ConfigError, match=r"--bandwidth 12: expected a frequency above 0 and up to 10 Hz, 0.2 of the rate"
    ):
        sc.identify(logs[1], config=config, bandwidth=12.0)


def test_intervals_cover_the_truth_where_noise_is_slower_than_the_rows(tmp_path: Path) -> None:
    """Intervals of 95 % that count each row as new cover the truth in 7 of 10 logs."""
    config, inside, logs = config_of(tmp_path, text=CART), dict.fromkeys(("m", "k"), 0), 25
    for seed in range(logs):
        log = cart_log(tmp_path / "log.csv", 0.004, 0.5, noise=0.5, seed=seed)
        found = sc.identify(log, ["m", "k"], config=config)
        for name, true in (("m", 1.3), ("k", 6.0)):
            inside[name] += abs(found.values[name] - true) < 1.96 * found.parameters[name]["sigma"]
    assert min(inside.values()) >= 0.84 * logs, inside


@pytest.mark.parametrize(
    ("kind", "where", "columns", "change"),
    [
        ("torque_sign", "u1,u2", [3, 4], lambda x: -x),
        ("position_unit", "q1,q2", [1, 2], np.degrees),
        ("time_unit", "time", [0], lambda x: 1000.0 * x),
    ],
)
def test_a_finding_of_one_file_names_it(
    kind: str, where: str, columns: list[int], change: Callable[[Array], Array], tmp_path: Path
) -> None:
    """No change of both files explains that only one is wrong: findings of both together named other things."""
    wrong = rows(2)
    wrong[:, columns] = change(wrong[:, columns])
    logs = [written(tmp_path / "right.csv", rows(1)), written(tmp_path / "wrong.csv", wrong)]
    found = sc.identify(logs, config=config_of(tmp_path))
    assert [(one.kind, one.where) for one in found.findings] == [(kind, name) for name in where.split(",")]
    assert all(f"{one.where}: in {logs[1]}: the " in one.text for one in found.findings)
    assert found.values["armature.u2"] == pytest.approx(J[1], rel=0.02) and found.validation_share < 0.002


def test_no_unit_makes_a_torque_vanish(tmp_path: Path) -> None:
    """A torque of the wrong sign is explained best by a factor near 0, among those that are positive."""
    log = cart_log(tmp_path / "log.csv", 0.004, 0.5)
    table = np.loadtxt(log, delimiter=",", skiprows=1)
    written(log, np.column_stack([table[:, :2], -table[:, 2]]), "t,x,F")
    found = sc.identify(log, config=config_of(tmp_path, text=CART))
    assert [(one.kind, one.where) for one in found.findings] == [("torque_sign", "F")]


def test_masses_in_millimetres_of_a_machine_without_gravity_are_doubted(tmp_path: Path) -> None:
    """A mass a thousand times too small explains such a log as well as one in metres; it was judged good."""
    table = np.loadtxt(cart_log(tmp_path / "log.csv", 0.004, 0.5), delimiter=",", skiprows=1)
    log = written(tmp_path / "log.csv", table * [1.0, 1000.0, 1.0], "t,x,F")
    found = sc.identify(log, config=config_of(tmp_path, text=CART))
    assert found.values["k"] == pytest.approx(0.006, rel=0.01)
    assert not found.good
    assert "do not use them: " in found.verdict and "had another unit" in found.verdict
    assert sc.identify(
        log, ["m", "k", "friction"], config=config_of(tmp_path, text=CART)
    ).good  # a small one may be right


def test_the_verdict_compares_the_values_before_on_the_rows_that_were_not_used(tmp_path: Path) -> None:
    """The machine has lost its load by then and moves less: the values before explain these rows, not the others."""
    t, x, _ = np.loadtxt(cart_log(tmp_path / "log.csv", 0.004, 0.5), delimiter=",", skiprows=1).T
    x *= 0.75 - 0.25 * np.tanh(4.0 * (t - 14.0))
    a = np.gradient(np.gradient(x, t), t)
    log = written(tmp_path / "log.csv", np.column_stack([t, x, np.where(t < 14.5, 1.3, 1.0) * a + 5.0 * x]), "t,x,F")
    found = sc.identify(log, ["m"], config=config_of(tmp_path, text=CART))
    assert found.torque_rms_before > found.validation_rms > 3.0 * found.validation_rms_before
    assert "do not use them: the values before explain the torque as well" in found.verdict


def test_a_force_that_only_the_rows_of_the_fit_have_counts_in_the_verdict(tmp_path: Path) -> None:
    """Something pushes until the last quarter, which alone was looked at: the model was judged usable."""
    table = np.loadtxt(cart_log(tmp_path / "log.csv", 0.004, 0.5), delimiter=",", skiprows=1)
    table[:, 2] += np.where(table[:, 0] < 14.0, 3.0 * np.sin(0.9 * table[:, 0]), 0.0)
    log = written(tmp_path / "log.csv", table, "t,x,F")
    found = sc.identify(log, ["m", "k"], config=config_of(tmp_path, text=CART))
    assert found.validation_rms < 0.1 * found.torque_rms < found.torque_rms_after / 2
    assert not found.good
    assert found.verdict.startswith("poor: ") and "% on those of the fit; the machine does something" in found.verdict


@pytest.mark.parametrize("delay", [0.0005, 0.001, 0.004])
def test_a_short_delay_of_a_torque_does_not_turn_its_sign_round(delay: float, tmp_path: Path) -> None:
    """Friction cannot drive, so only a torque of the other sign has the friction that such a delay looks like."""
    log = cart_log(tmp_path / "log.csv", 0.0005, 6.0)
    t, x, F = np.loadtxt(log, delimiter=",", skiprows=1).T
    shift = round(delay / 0.0005)
    written(log, np.column_stack([t[:-shift], x[:-shift], F[shift:]]), "t,x,F")
    found = sc.identify(log, config=config_of(tmp_path, text=CART))
    assert not found.findings
    assert found.values["m"] + found.values["armature.F"] == pytest.approx(1.3, rel=1e-3)


def log_of(name: str, folder: Path, signs: Sequence[float] = (1.0,)) -> tuple[Path, str]:
    """The log of a machine that ships, with signs of its torques, and `log` of its config."""
    changes = [
        "run.period=0.002",
        "run.integrator={method: rk4, step: 0.002}",
        "realism.noise.q=1e-6",
        "run.duration=8",
    ]
    run = sc.load(name, changes, engine="vm")
    plant, rows, count = run.system.model.plant, run.simulate(), run.system.model.n
    positions = rows.q + 1e-6 * np.random.default_rng(1).standard_normal(rows.q.shape)
    header = ["t", *(f"q_{x}" for x in plant.coordinates), *(f"u_{x}" for x in plant.actuators)]
    log = written(folder / "log.csv", np.column_stack([rows.t, positions, rows.u * signs])[:-1], ",".join(header))
    columns = f"{{time: t, q: [{', '.join(header[1 : count + 1])}], u: [{', '.join(header[count + 1 :])}]}}"
    return log, f"log={columns}"


@pytest.mark.parametrize(
    ("name", "true"),
    [
        ("crane", {"M": 20.0, "m": 50.0}),
        ("crane_rope", {"M": 20.0, "m": 50.0}),
        ("coordinated_robots", {"m": 1.0, "I": 1.0}),
        ("four_bar", {"density": 2.0}),
    ],
)
def test_a_clean_log_of_a_machine_that_ships_has_no_finding(name: str, true: dict[str, float], tmp_path: Path) -> None:
    """A load whose sway hides in the noise, an object that does not turn, and a density and a crane.

    A sign turns the last two round, where small effects such as a delay of half a period speak for it.
    """
    log, columns = log_of(name, tmp_path)
    found = sc.identify(log, config=name, overrides=[columns])
    assert not found.findings
    assert {key: found.values[key] for key in true} == pytest.approx(true, rel=0.02)


def test_a_log_with_a_load_gives_the_load(tmp_path: Path) -> None:
    load = "bodies: {load: {m: 1, on: tool, at: {xyz: [0, 0, 0.1]}}}"
    text = recorded.CONFIG.replace("robot: {urdf: %s}", f"robot: {{urdf: {recorded.ARM7}}}, {load}")
    config = config_of(tmp_path, "", text)
    robot = sc.load(config).system.model.plant
    log = recorded.write(tmp_path, *recorded.record(robot=recorded.loaded(robot, load_m=2.5)))[0]
    config = config_of(tmp_path, "", text)
    found = sc.identify(log, ["load_m", "armature", "friction"], config=config)
    assert found.values["load_m"] == pytest.approx(2.5, rel=0.005)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: text.replace("tau2", "tau9", 1), r"log\.csv: no column 'tau2' \(there are: t, q1, q2, tau1, "),
        (lambda text: edited(text, 40, 2, ""), r"log\.csv: line 40, column 'q2': empty \(a number is expected\) \(cor"),
        (lambda text: edited(text, 41, 3, "nan"), r"log\.csv: line 41, column 'tau1': nan is not finite \(correct"),
        (lambda text: edited(text, 42, 4, "off"), r"log\.csv: line 42, column 'tau2': 'off' is not a number \(correct"),
        (lambda text: text.replace(",", ";").replace(".", ","), r"line 2, column 'q1': '0,5\d+' has a decimal comma"),
        (lambda text: edited(text, 43, 0, "0.1"), r"log\.csv: line 43, column 't': 0\.1 follows 0\.2 .*sort the rows"),
        (lambda text: text.replace("\n", ",1\n", 50).replace(",1\n", "\n", 49), r"log\.csv: line 50: 6 cells, but the"),
        (lambda text: "\n".join(text.split("\n")[:150]), r"log\.csv: too short: 149 rows \(at least 200 are needed\)"),
        (lambda text: zeros(text), r"log\.csv: no torques in the log: tau1, tau2 are 0 in every row \(log"),
        (lambda text: "", r"log\.csv: empty"),
        (lambda text: scattered(text), r"log\.csv: too short: no 200 rows without a gap of more than 0\.05 s"),
    ],
)  # fmt: skip
def test_a_bad_table_is_refused_by_file_column_line_and_remedy(change, says: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    log = written(tmp_path / "log.csv", rows()[:400])
    log.write_text(change(log.read_text()))
    with pytest.raises(ConfigError, match=says):
        read_tables([log], config_of(tmp_path))


def edited(text: str, line: int, column: int, cell: str) -> str:
    lines = text.split("\n")
    cells = lines[line - 1].split(",")
    cells[column] = cell
    return "\n".join([*lines[: line - 1], ",".join(cells), *lines[line:]])


def zeros(text: str) -> str:
    head, *lines = text.split("\n")
    return "\n".join([head, *(",".join([*line.split(",")[:3], "0", "0"]) for line in lines if line)])


def scattered(text: str) -> str:
    head, *lines = text.split("\n")
    return "\n".join([head, *(line for i, line in enumerate(lines) if i % 150 < 130)])


@pytest.mark.parametrize(("log", "says"), [(*log, *said) for _, log, said in table("log")])
def test_a_wrong_section_log_is_named_by_field(log: str, says: str, tmp_path: Path) -> None:
    path = written(tmp_path / "log.csv", rows()[:300])
    text = CONFIG[: CONFIG.index("log: ")]
    config = config_of(tmp_path, log, CONFIG) if log else config_of(tmp_path, "", text)
    with pytest.raises(ConfigError, match=re.escape(says)):
        read_tables([path], config)


def test_tables_need_a_config_and_run_folders_have_one(tmp_path: Path) -> None:
    log, config = written(tmp_path / "log.csv", rows()[:300]), config_of(tmp_path)
    with pytest.raises(
        ConfigError, match=r"log\.csv: not a run folder \(name the config of a table: --config CONFIG\)"
    ):
        sc.identify(log)
    with pytest.raises(ConfigError, match="a folder beside --config, which is for tables"):
        sc.identify([log, tmp_path], config=config)


def test_the_log_that_ships_is_the_one_that_its_program_makes() -> None:
    assert recorded.ARM6_LOG.read_text() == recorded.arm6_log()


def test_check_says_once_what_missing_rotors_cost_behind_gears(capsys: pytest.CaptureFixture[str]) -> None:
    done("check", "arm_on_drives")
    said = capsys.readouterr().out
    assert said.count("no rotors behind the gears (plant.armature): at joint6 a rotor of 1.3e-08 kg m^2 behind") == 1
    done("check", "arm_on_drives", "--set", "plant.armature.joint6=0.02")
    assert "no rotors" not in capsys.readouterr().out
