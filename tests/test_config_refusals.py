"""Wrong configs and plants of `refusals/*.txt`, a case a line; what shipped configs with changes are told.

Sections of a config: drives, gains of several rows, realism, robots.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import servoctl as sc
from hil.assembly.prepare import load as load_drives
from hil.assembly.prepare import notes_on
from hil.session.replay import replay
from servoctl.config import LoadedConfig, dump, load_config, shipped_configs
from servoctl.config.schema import LawConfig
from servoctl.errors import ConfigError
from tests.config_texts import CART, CART_PLANT, GRAMMAR, HEAD, HIL, REALISM, ROBOT, SHAPES, plant_text
from tests.estimation.test_estimator import CONFIG as ESTIMATED
from tests.laws.test_observer import CONFIG as OBSERVED
from tests.laws.test_uncertainty import CONFIG as UNCERTAIN
from tests.laws.test_uncertainty import PLANT as UNCERTAIN_PLANT
from tests.rail_mass import RAIL_MASS
from tests.refused import Base, Case, assert_refused, cases, table
from tests.small_robot import SMALL, small_urdf

CART_FILE = {"cart.py": CART_PLANT}
MORE = """

class Torn(sc.SecondOrder):
    def A(self, q, v, t):
        return np.array([[1.0, 0.0], [1.0, 0.0]])

    def b(self, q, v, t):
        return np.array([0.0, 1.0])


class Mine(sc.Holonomic):
    def phi(self, q, t):
        return q[0]
"""
RAIL = "\n    def passive_constraints(self, q, t):\n        return {'rail': q[1]}\n"
BASES = {
    "grammar": Base("".join(GRAMMAR.values()), command=()),
    "hil": Base(HEAD + HIL, command=()),
    "realism": Base(REALISM),
    "robot": Base(ROBOT, command=()),
    "cart": Base(CART, "cart.yaml", CART_FILE),
    "bounds": Base(
        CART.replace("0.02}", "0.02, period: 1*ms}") + "bounds: [{name: b, holonomic: 1 - x}]\n", "cart.yaml", CART_FILE
    ),
    "shapes": Base(SHAPES),
    "plant": Base(CART.replace("{x: 0, s: 0}", "0"), "cart.yaml", {"cart.py": f"{CART_PLANT}\n    #method\n\n#code\n"}),
    "task": Base(
        CART.replace("{correction: {baumgarte: {alpha: 10, beta: 10}}}", "{}"),
        "cart.yaml",
        {"cart.py": CART_PLANT + MORE},
    ),
    "rail": Base(CART, "cart.yaml", {"cart.py": CART_PLANT + RAIL}),
    "observed": Base(OBSERVED, beside={"mass.py": RAIL_MASS}),
    "estimated": Base(ESTIMATED, beside={"mass.py": RAIL_MASS}),
    "uncertain": Base(UNCERTAIN, beside={"cart.py": UNCERTAIN_PLANT}),
    "robots": Base(shipped_configs()["coordinated_robots"].read_text()),
    "small_robot": Base(SMALL, beside={"files/small.urdf": small_urdf()}),
}


@pytest.mark.parametrize("name, case", [pytest.param(n, *p.values, id=f"{n}-{p.id}") for n in BASES for p in cases(n)])
def test_a_wrong_config_is_refused_in_these_sentences_with_their_lines(
    name: str, case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if name == "grammar":  # the old text is the name of a section
        case = replace(case, changes=tuple((GRAMMAR[old], new and f"{new}\n") for old, new in case.changes))
    assert_refused(case, BASES[name], tmp_path, capsys)


def told(config: str, sets: list[str]) -> tuple[bool, list[str]]:
    """Whether a config with overrides is refused, and all that it is told; `hil CONFIG`: for its drives."""
    name = config.removeprefix("hil ")
    try:
        return False, notes_on(load_drives(name, sets, "vm")) if name != config else sc.load(name, sets, "vm").warnings
    except ConfigError as refused:
        return True, refused.problems


@pytest.mark.parametrize(
    ("refused", "words", "sentences"),
    [
        pytest.param(name == "shipped", words, sentences, id=f"{title}-{number}")
        for name in ("shipped", "notes")
        for number, (title, words, sentences) in enumerate(table(name), 1)
    ],
)
def test_a_config_with_overrides_is_told_these_sentences_and_no_others(
    refused: bool, words: list[str], sentences: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line is `config or base  ->  PATH=VALUE  +  PATH=VALUE  =>  sentence`; without a sentence nothing is said."""
    config, *sets = words
    if config in BASES:
        monkeypatch.chdir(tmp_path)
        config = BASES[config].write(tmp_path)
    found, said = told(config, sets[0].split("  +  ") if sets else [])
    assert found is refused and len(said) == len(sentences), said
    for sentence in sentences:
        (line,) = [line for line in said if sentence in line]
        said.remove(line)


def config(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "c.yaml"
    path.write_text(HEAD + text)
    return path


def test_keys_of_protocols_and_interfaces_are_passed_on_and_survive_a_dump(tmp_path: Path) -> None:
    loaded = load_config(config(tmp_path, HIL))
    hil = loaded.config.hil
    assert hil is not None
    assert hil.drives[0].options == {"counts_per_turn": 65536}
    assert hil.buses["main"].options == {"channel": "can0"}
    assert hil.drives[0].position_limits == pytest.approx((-2.9670597, 2.9670597))
    (tmp_path / "d.yaml").write_text(dump(loaded.config))
    assert load_config(tmp_path / "d.yaml").config == loaded.config


PLANT = plant_text(
    "Free", "m: float = 1.0", {"x": "m", "y": "m", "yaw": "rad"}, {"X": "N", "Y": "N", "T": "N m"},
    "self.m * np.eye(3)", "-0.1 * v",
)  # fmt: skip
CONFIG = """
plant: {class: "free.py:Free"}
initial: {q: 0}
task:
  - {name: x, holonomic: "x - 1"}
  - {name: y, holonomic: "y - 1"}
  - {name: yaw, holonomic: "yaw - 1"}
law: {kind: input_output, correction: {poles: -4}}
run: {duration: 0.01}
"""


def start_of(folder: Path, *overrides: str) -> list[float]:
    """The first command: -(violation) times the product of a row's poles, from rest."""
    (folder / "free.py").write_text(PLANT)
    (folder / "free.yaml").write_text(CONFIG)
    run = sc.load(folder / "free.yaml", list(overrides)).simulate()
    return [float(np.round(run[f"u.{name}"][0], 9)) for name in ("X", "Y", "T")]


def test_a_tuple_of_two_numbers_is_a_parameter_that_takes_two(tmp_path: Path) -> None:
    text = PLANT.replace("m: float = 1.0", "m: tuple[float, float] = (1.0, 2.0)").replace("self.m *", "self.m[0] *")
    (tmp_path / "free.py").write_text(text)
    (tmp_path / "free.yaml").write_text(CONFIG)
    path = tmp_path / "free.yaml"
    (swept,) = sc.batch(sc.load(path, ["plant.parameters.m=[1, 2]"]), {"plant.parameters.m.0": [3.0]})["input_max.X"]
    assert swept == pytest.approx(3 * 16.0)
    with pytest.raises(ConfigError, match=r"plant.parameters.m: expected 2 numbers, got \[1, 2, 3\]"):
        sc.load(path, ["plant.parameters.m=[1, 2, 3]"])


def test_a_mapping_of_poles_gives_each_task_one_number_or_a_list(tmp_path: Path) -> None:
    assert start_of(tmp_path, "law.correction.poles={x: -4, y: [-2, -3], yaw: [-5, -6]}") == [16.0, 6.0, 30.0]


def test_a_task_has_a_list_of_poles_of_its_own(tmp_path: Path) -> None:
    assert start_of(tmp_path, "task.yaw.correction={poles: [-5, -6]}") == [16.0, 16.0, 30.0]


def test_a_list_of_gains_is_for_the_tasks_without_a_correction_of_their_own(tmp_path: Path) -> None:
    law = "law={kind: constraint_following, correction: {baumgarte: {alpha: [1, 1], beta: [2, 3]}}}"
    own = "task.y.correction={baumgarte: {alpha: 1, beta: 7}}"
    assert start_of(tmp_path, law, own) == [4.0, 49.0, 9.0]


@pytest.mark.parametrize("case", cases("poles"))
def test_gains_that_do_not_fit_are_refused_with_the_right_row(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert_refused(case, Base(CONFIG, "free.yaml", {"free.py": PLANT}), tmp_path, capsys)


SAMPLED = ["run.period=0.01", "run.output_step="]


def test_drives_keep_out_of_it_and_replay_says_why_it_cannot(tmp_path: Path) -> None:
    prepared = load_drives("two_mass_spring_drive", ["run.period=0.01", "realism={friction: {viscous: 3}}"])
    assert prepared.run.system.friction is None and prepared.run.system.realism is None
    sc.load("two_mass_spring", [*SAMPLED, "run.duration=0.1", "realism.delay=0.01"]).simulate(tmp_path / "run")
    with pytest.raises(ConfigError, match="the logged u is the input after delay and actuators"):
        replay(tmp_path / "run")


FORMS = """\
task:
  - {name: a, pose: box, xyz: [0.5, 0, "0.4 + 0.1*sin(t)"], rpy: [0, 90*deg, 0], relative_to: left_tool}
  - {name: b, pose: box, reference: path}
  - {name: c, pose: box, reference: path, rpy: [0, 0, 0]}
  - {name: d, position: left_tool, reference: path}
  - {name: e, position: left_tool, xyz: [1, 2, left_link7_m]}
  - {name: f, orientation: left_tool, rpy: [0, 0, t]}
  - {name: g, orientation: left_tool, reference: path}
  - {name: h, axis: [left_tool, z], along: [0, 0, -1]}
  - {name: i, axis: [left_tool, [0, 1, 1]], along: [0, sin(t), -1]}
  - {name: j, distance: [left_tool, right_tool], value: 0.4}
  - {name: k, distance: [left_tool, [0, 0, 500*mm]], value: "0.4*t"}
  - {name: l, com: [x, y], value: [0.1, 0]}
  - {name: m, com: [z], value: 0.1}
  - {name: n, posture: initial, priority: 2}
  - {name: o, posture: {left_joint3: 0, left_joint4: sin(t)}}
  - {name: p, posture: reference, reference: guided}
"""


def load(tmp_path: Path, text: str, *overrides: str) -> LoadedConfig:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    return load_config(file, overrides)


def with_forms() -> str:
    before, _, after = ROBOT.partition("task:\n")
    return before + FORMS + "law:" + after.partition("law:")[2]


@pytest.mark.parametrize("text", [ROBOT, with_forms()], ids=["two arms", "every form"])
def test_a_dump_of_a_config_of_robots_loads_back_to_the_same_config(text: str, tmp_path: Path) -> None:
    config = load(tmp_path, text).config
    assert load(tmp_path, dump(config)).config == config


def test_defaults_of_a_robot_are_written_into_the_config(tmp_path: Path) -> None:
    plant = load(tmp_path, ROBOT).config.plant
    assert plant.gravity == (0.0, 0.0, -9.81)
    assert plant.robots is not None
    assert (plant.robots["left"].base, plant.robots["left"].motors) == (None, "all")
    assert plant.robots["right"].at.xyz == (0.0, 0.0, 0.0)
    assert plant.loops is not None
    assert plant.loops["hold"].weld == ("box", "grip")


def test_gravity_among_the_parameters_leaves_no_default_beside_it(tmp_path: Path) -> None:
    config = load(tmp_path, ROBOT.replace("initial:", "  parameters: {gravity: [0, 0, -1.62]}\ninitial:")).config
    assert config.plant.gravity is None
    assert load(tmp_path, dump(config)).config == config


def test_a_robot_needs_no_start(tmp_path: Path) -> None:
    text = ROBOT.replace("{q: {left_joint4: -2.2}, solve: {box: {xyz: [0.5, 0, 0.4]}}}", "{}")
    assert load(tmp_path, text).config.initial.q == {}


def test_targets_are_kept_as_text_and_numbers_of_places_are_evaluated(tmp_path: Path) -> None:
    config = load(tmp_path, with_forms()).config
    assert config.task[0].xyz == ("0.5", "0.0", "0.4 + 0.1*sin(t)")
    assert config.task[0].rpy == ("0.0", "90*deg", "0.0")
    assert config.task[8].axis == ("left_tool", (0.0, 1.0, 1.0))
    assert config.task[10].distance == ("left_tool", ("0.0", "0.0", "500*mm"))
    assert config.task[12].value == "0.1"
    assert [task.form for task in config.task[:4]] == ["pose", "pose", "pose", "position"]


def test_numbers_of_a_robot_are_set_from_the_command_line(tmp_path: Path) -> None:
    changed = ["plant.parameters.left_link7_m=0.9", "plant.bodies.box.m=2", "task.box.rpy=[0, 0, 90*deg]"]
    config = load(tmp_path, ROBOT, *changed).config
    assert config.plant.parameters == {"left_link7_m": 0.9}
    assert config.plant.bodies is not None
    assert config.plant.bodies["box"].m == 2.0
    assert config.task[0].rpy == ("0.0", "0.0", "90*deg")


def test_a_list_of_gains_has_one_value_per_row_of_all_forms(tmp_path: Path) -> None:
    rows = ROBOT.replace("posture: initial", "posture: {left_joint1: 0, left_joint2: 0}")
    right = rows.replace("law: {", "law: {correction: {baumgarte: {alpha: [1, 2, 3, 4, 5, 6, 7, 8], beta: 1}}, ")
    law = load(tmp_path, right).config.law
    assert isinstance(law, LawConfig) and law.correction is not None and law.correction.baumgarte is not None
    assert law.correction.baumgarte.alpha == (1, 2, 3, 4, 5, 6, 7, 8)
    with pytest.raises(ConfigError, match=r"alpha: 7 values for 8 rows \(give one per row\)"):
        load(tmp_path, right.replace("7, 8]", "7]"))
