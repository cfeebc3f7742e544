"""Mistakes of one stage (grammar, then names): all are told in one message, each once, in order of lines."""

from pathlib import Path

import pytest

from servoctl.cli import main
from tests.faces import exit_code
from tests.refused import Base, Case, assert_refused, cases

WRONG = """\
plant: {class: "plants.two_mass_spring:TwoMassSpring", parameters: {mm: 2, k: -x}}
initial: {q: {x1: 0, x9: 0.5}}
task:
  - {name: distance, holonomic: "x2 - x1 - l - sin(tt)"}
  - {name: other, holonomic: "x1"}
law:
  correction: {baumgarte: {alpha: 8, beta: 8}}
  limits: {G: 30}
run: {duration: 1, period: 0.001}
realism: {noise: {q: {x7: 0.1}}, delay: 0.001}
hil:
  period: 1*ms
  buses: {main: {interface: emulated}}
  drives:
    - {actuator: F, bus: mian, protocol: odriv, node: 1, torque_limit: 9, torque_rate_limit: 400, speed_limit: 1, position_limits: [-1, 1]}
  sensors:
    - {coordinate: x3, bus: main, protocol: odrive, node: 1, encodr_bits: 14}
  safety: {drive_watchdog: 2*ms}
  faults: [{kind: lots, at: 1}]
"""  # noqa: E501

OF_NAMES = [
    "1: plant.parameters.mm: TwoMassSpring has no such parameter",
    "1: plant.parameters.k: a number is expected, 'x' is no constant",
    "2: initial.q.x9: there is no coordinate 'x9'",
    "2: initial.q: no value for x2",
    "4: task.distance.holonomic: unknown word 'tt' (did you mean 't'?)",
    "8: law.limits.G: there is no actuator 'G' (known: F)",
    "10: realism.noise.q.x7: there is no coordinate 'x7'",
    "15: hil.drives[0].bus: there is no bus 'mian' (did you mean 'main'?)",
    "15: hil.drives[0].protocol: no protocol 'odriv' (did you mean 'odrive'?)",
    "17: hil.sensors[0].coordinate: there is no coordinate 'x3'",
    "17: hil.sensors[0].encodr_bits: no such option (did you mean 'encoder_bits'?)",
    "18: hil.safety.drive_watchdog: 0.002 s is less than 3 periods of 0.001 s",
    "19: hil.faults[0].kind: no such fault",
]
GRAMMAR = {
    "initial: {q: {x1: 0, x9: 0.5}}": "initial: {q: {x1: 0, x9: 0.5}, v: fast}",
    'name: other, holonomic: "x1"': 'name: other, nonholonomic: "x1"',
    "correction: {baumgarte": "correctoin: {baumgarte",
    "duration: 1,": "duration: -1,",
    "delay: 0.001": "delay: 1",
    "torque_limit: 9, ": "",
    "safety: {": "safety: {drive_watchdg: 50*ms, ",
}
"""Text -> the same with a mistake that the grammar alone shows."""

OF_GRAMMAR = [
    "2: initial.v: expected a number, got 'fast'",
    "5: task.other.nonholonomic: no der() in a nonholonomic equation",
    "7: law.correctoin: unknown key (did you mean 'correction'?)",
    "9: run.duration: expected a positive time [s], got -1",
    "10: realism.delay: 1 s is 1000 periods of 0.001 s",
    "15: hil.drives[0].torque_limit: missing",
    "18: hil.safety.drive_watchdg: unknown key (did you mean 'drive_watchdog'?)",
    "20: tune.trials: expected an integer >= 1, got 0",
]
OF_DRIVES = (
    "drives[0].bus",
    "drives[0].protocol",
    "sensors[0].coordinate",
    "sensors[0].encodr",
    "drive_watchdog: 0.002",
    "hil.faults",
)
"""What only the commands that look at drives can know."""

RIGHT = """\
plant: {class: "plants.two_mass_spring:TwoMassSpring", parameters: {k: 12}}
initial: {q: {x1: 0, x2: 0.5}}
task:
  - {name: distance, holonomic: "x2 - x1 - l"}
law: {correction: {baumgarte: {alpha: 8, beta: 8}}, limits: {F: 5}}
run: {duration: 0.1, period: 0.001}
realism: {noise: {q: {x1: 0.1}}}
hil:
  period: 1*ms
  buses: {main: {interface: emulated}}
  drives:
    - {actuator: F, bus: main, protocol: odrive, node: 1, torque_limit: 9, torque_rate_limit: 400, speed_limit: 1, position_limits: [-1, 1]}
  sensors:
    - {coordinate: x2, bus: main, protocol: odrive, node: 2}
"""  # noqa: E501


def told(command: str, text: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    path = folder / "wrong.yaml"
    path.write_text(text)
    assert main([command, str(path)]) == 2
    err = capsys.readouterr().err
    assert "Traceback" not in err
    return [line.removeprefix(f"{path}:") for line in err.splitlines()]


@pytest.mark.parametrize("command", ["check", "hil", "run"])
def test_mistakes_of_the_grammar_are_told_at_once_and_alone(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = WRONG + "tune: {trials: 0, search: {law.damping: [1, 2]}}\n"
    for right, wrong in GRAMMAR.items():
        assert right in text
        text = text.replace(right, wrong)
    lines = told(command, text, tmp_path, capsys)
    assert [line[: len(each)] for line, each in zip(lines, OF_GRAMMAR, strict=True)] == OF_GRAMMAR


@pytest.mark.parametrize("command", ["check", "hil", "run"])
def test_wrong_names_are_told_at_once_each_once(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unknown = {"run": OF_DRIVES, "hil": ("realism",), "check": ()}[command]  # on drives the machine is real
    said = [each for each in OF_NAMES if not any(word in each for word in unknown)]
    lines = told(command, WRONG, tmp_path, capsys)
    assert [line[: len(each)] for line, each in zip(lines, said, strict=True)] == said


@pytest.mark.parametrize("case", cases("alone"))
def test_nothing_follows_from_a_mistake(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each is a mistake that something else hangs on."""
    assert_refused(case, Base(RIGHT, command=("check",)), tmp_path, capsys)


@pytest.mark.parametrize("parameters", ["{n: 2, mas: 1}", "{n: 2, mass: heavy}"])
def test_names_are_checked_beside_a_wrong_parameter_that_they_do_not_depend_on(
    parameters: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "row.py").write_text(ROW.replace("    n: int = 1", "    mass: float\n    n: int = 1"))
    text = RIGHT.replace("plants.two_mass_spring:TwoMassSpring", "row.py:Row").replace("{k: 12}", parameters)
    text = text[: text.index("realism:")].replace("x2: 0.5}", "x3: 0.5}").replace("- l", "")
    lines = told("check", text, tmp_path, capsys)
    assert [line.partition(": ")[2].partition(":")[0] for line in lines if "needs the parameter" not in line] == [
        f"plant.parameters.{'mas' if 'mas:' in parameters else 'mass'}",
        "initial.q.x3",
        "initial.q",
    ]


def test_names_are_not_checked_against_a_plant_whose_names_depend_on_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "row.py").write_text(ROW)
    text = RIGHT.replace("plants.two_mass_spring:TwoMassSpring", "row.py:Row").replace("{k: 12}", "{n: two}")
    text = text[: text.index("realism:")].replace("{F: 5}", "{G: 5}")
    lines = told("check", text, tmp_path, capsys)
    assert [line.partition(": ")[2].partition(":")[0] for line in lines] == [
        "plant.parameters.n",
    ]


ROW = '''
from dataclasses import dataclass
import numpy as np
import servoctl as sc

@dataclass(frozen=True)
class Row(sc.Plant):
    """Carts in a row."""
    n: int = 1
    actuators = {"F": "N"}

    @property
    def coordinates(self):
        return {f"x{i + 1}": "m" for i in range(self.n)}

    def mass_matrix(self, q, t):
        return np.eye(self.n)

    def force(self, q, v, t):
        return np.zeros(self.n)

    def actuation(self, q, t):
        return np.ones((self.n, 1))
'''


SECOND_ORDER = "law.correction={second_order: {damping: 20, stiffness: 100}}"


@pytest.mark.parametrize(
    ("path", "changes", "code"),
    [
        ("alpha", ["--set", SECOND_ORDER], 0),
        ("alphaa", [], 2),
        ("alphaa", ["--set", "tune.trials=9"], 2),
    ],
)
def test_a_search_that_a_change_elsewhere_leaves_without_its_paths_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], path: str, changes: list[str], code: int
) -> None:
    """A run does not look at the search; the file alone, and changes of the search itself, must be right."""
    import servoctl as sc

    text = Path(sc.load("two_mass_spring", strict=False).loaded.path).read_text()  # type: ignore[union-attr]
    search = f"{{law.correction.baumgarte.{path}: {{low: 2, high: 20}}}}"
    (tmp_path / "c.yaml").write_text(text.split("\ntune:")[0] + f"\ntune: {{search: {search}}}\n")
    assert exit_code("check", tmp_path / "c.yaml", *changes) == code
    said = capsys.readouterr().err
    assert f"{'error' if code else 'warning'}: {tmp_path}/c.yaml:" in said and "tune.search.law.correction" in said
    assert ("`tune` would refuse it with this --set" in said) is (code == 0)


def test_files_and_classes_are_told_at_once_where_there_is_no_plant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = RIGHT.replace("plants.two_mass_spring:TwoMassSpring", "no_plant.py:P")
    text = text.replace('"x2 - x1 - l"}\n', '"x2"}\n  - {name: own, class: "no_task.py:T"}\n')
    text = text.replace("law: {", 'law: {terms: {a: {class: "no_term.py:T"}}, ')
    lines = told("run", text + "references: {path: {file: none.csv, columns: [x]}}\n", tmp_path, capsys)
    fields = ["1: plant.class", "5: task.own.class", "6: law.terms.a.class", "16: references.path.file"]
    assert [line[: len(field)] for line, field in zip(lines, fields, strict=True)] == fields
    assert all("there is no such file" in line for line in lines)
