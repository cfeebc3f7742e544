"""A law and a term of one's own, by their classes in a config: wherever those of servoctl run."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import servoctl as sc
from servoctl.assembly.make import make_system
from servoctl.engine import compiler
from servoctl.errors import ServoctlError
from servoctl.export import export
from servoctl.linear.convert import state_at
from servoctl.linear.modes import modes
from servoctl.simulation.engine_choice import make_loop
from servoctl.types import Array, State, Status
from tests.faces import exit_code
from tests.rail_mass import written
from tests.small_plants import Masses
from tests.test_export import built, passes

CONFIGS = Path(__file__).parents[2] / "configs"

LAW = """
from dataclasses import dataclass
import numpy as np
import servoctl as sc


@dataclass(frozen=True)
class ComputedTorque(sc.Feedback):
    kp: float = 100.0
    kd: float = 20.0

    def inputs(self, at):
        e, de = at.task.violation, at.task.violation_rate
        qdd = np.linalg.solve(at.task.A, at.task.b - self.kd * de - self.kp * e)
        return np.linalg.inv(at.B) @ (at.M @ qdd - at.Q)


@dataclass(frozen=True)
class Spring(sc.Feedback):
    k: float = 3.0

    def inputs(self, at):
        return [-self.k * at.q[0]]


@dataclass(frozen=True)
class Tuned(Spring):
    def __post_init__(self):
        object.__setattr__(self, "stiffness", self.k)

    def inputs(self, at):
        return [-self.stiffness * at.q[0] - 0.1 * self.k * at.v[0]]


class Numbered(Spring):
    numbers = []

    def inputs(self, at):
        self.numbers.append(1.0)
        return np.ones(4) * len(self.numbers)


class Held(Spring):
    # computed every 10 ms, and held meanwhile
    last = [0.0, None]

    def inputs(self, at):
        if self.last[1] is None or not 0.0 <= float(at.t) - self.last[0] < 0.01:
            self.last[:] = float(at.t), -self.k * np.array(at.q, dtype=float)
        return self.last[1]


class Changing(Spring):
    def inputs(self, at):
        at.q[0] = 0.0
        return -self.k * at.q


class Named(Spring):
    def inputs(self, at):
        return {"F": 1.0}


class Turned(Spring):
    def inputs(self, at):
        return 1j * at.q


class Caught(Spring):
    def inputs(self, at):
        try:
            return [-self.k * at.q[0] if at.q[0] > -10.0 else 0.0]
        except Exception:
            return [7.0 + 0.0 * at.q[0]]
"""


OWN = 'law={class: "laws.py:ComputedTorque", parameters: {kp: 400, kd: 40}}'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("own")
    (made / "laws.py").write_text(LAW)
    (made / "scara.yaml").write_text((CONFIGS / "scara_drive.yaml").read_text())
    (made / "spring.yaml").write_text((CONFIGS / "two_mass_spring.yaml").read_text())
    return made


def own(folder: Path, *sets: str, **more: Any) -> sc.Run:
    return sc.load(folder / "scara.yaml", [OWN, "run.duration=1", *sets], **more)


def spring(folder: Path, *sets: str) -> sc.Run:
    return sc.load(folder / "spring.yaml", ['law={class: "laws.py:Spring"}', *sets], engine="vm")


@pytest.mark.parametrize("engine", ["vm", "c", "numpy"])
def test_computed_torque_is_constraint_following_where_rows_motors_and_coordinates_are_as_many(
    folder: Path, engine: str
) -> None:
    mine = own(folder, engine=engine).simulate()
    ours = sc.load(folder / "scara.yaml", ["run.duration=1"], engine="vm").simulate()
    np.testing.assert_allclose(mine.u, ours.u, rtol=0, atol=1e-9)
    np.testing.assert_allclose(mine.q, ours.q, rtol=0, atol=1e-11)


def test_gains_that_the_drives_are_too_slow_for_are_named_by_check_and_refused_on_drives(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """e'' = -kd e' - kp e decays; held for 2 ms, a cycle late, it does not: kd of 1500 1/s is beyond 1 / 2 ms."""
    config, gains = str(folder / "scara.yaml"), ["--set", "law.parameters={kp: 500000, kd: 1500}"]
    assert exit_code("check", config, "--set", OWN) == 0
    assert "gains of your own\n  stable at the start (on drives: period 0.002 s" in capsys.readouterr().out
    assert exit_code("check", config, "--set", OWN, *gains) == 2
    said = "hil.period: law: unstable at the start (on drives: period 0.002 s, delay 1 cycle"
    assert said in capsys.readouterr().err
    assert exit_code("hil", config, "--set", OWN, *gains) == 2
    assert said in capsys.readouterr().err


@pytest.mark.skipif(compiler.compiler() is None or compiler.is_tcc(), reason="no C compiler on the path")
def test_it_is_exported(folder: Path, tmp_path: Path) -> None:
    made = export(own(folder, engine="vm"))
    assert passes(built(made, tmp_path)) > made.vectors


def test_gains_of_an_exported_law_are_named_but_not_those_that_its_constructor_takes_apart(folder: Path) -> None:
    headers = [export(spring(folder, f"law={{class: 'laws.py:{name}'}}")).files for name in ("Spring", "Tuned")]
    named, fixed = (files["spring_law.h"] for files in headers)
    assert "double gains[1]; /* the parameters of the user's law; in order: k; default 3 */" in named
    assert "gains" not in fixed


def test_its_modes_are_those_of_the_whole_loop(folder: Path) -> None:
    run = spring(folder)
    wanted = np.linalg.eigvals(np.asarray(sc.linearize(run).A))
    found = [mode.pole for mode in modes(run, run.start.t, run.loop.x_at(run.start))]
    assert np.sort_complex(np.round(found, 9)) == pytest.approx(np.sort_complex(np.round(wanted, 9)), abs=1e-6)


def test_an_open_loop_with_tasks_has_the_modes_of_the_plant() -> None:
    run = sc.load("two_mass_spring", ["law=none"], engine="vm")
    k, m1, m2 = (getattr(run.system.model.plant, name) for name in ("k", "m1", "m2"))
    w = np.sqrt(k * (m1 + m2) / (m1 * m2))
    found = sorted(abs(mode.pole) for mode in modes(run, run.start.t, run.loop.x_at(run.start)))
    assert found == pytest.approx([0.0, 0.0, w, w], abs=1e-6)


def test_a_task_that_it_misses_is_no_failure(folder: Path) -> None:
    run = spring(folder, "initial.q={x1: 0.1, x2: 5}", "initial.project=false", "run.duration=0.5").simulate()
    assert run.metadata["status"] == "done" and run.summary()["tasks"]["distance"]["max_violation"] > 3.0


@pytest.mark.parametrize(
    ("sets", "sentence"),
    [
        ([OWN, "law.limits.F4=30"], r"law.limits: does not go with law.class \(the class makes the inputs alone"),
        ([OWN, "task.z.priority=2"], "task.z.priority: does not go with law.class"),
        ([OWN, "law.parameters.q=3"], r"law.parameters.q: ComputedTorque has no such parameter \(known: kp, kd\)"),
        ([OWN, "law.parameters.kp=x"], "law.parameters.kp"),
        (["law={class: 'laws.py:Foo'}"], "there is no class 'Foo' in laws.py .known: ComputedTorque, Spring"),
        (["law={class: 'laws.py:np'}"], "np is not a Feedback"),
        (["law.parameters={kp: 3}"], r"law.parameters: needs law.class"),
        (
            ["law={class: 'laws.py:Numbered'}"],
            r"Numbered: two answers at one state, \[2. 2. 2. 2.\] and \[17. 17. 17. 17.\]",
        ),
        (["law={class: 'laws.py:Held'}"], "Held: two answers at one state"),
        (
            ["law={class: 'laws.py:Changing'}"],
            r"Changing: ValueError: .* \(line .*\) \(it may not change its arguments",
        ),
        (["law={class: 'laws.py:Named'}"], r"Named returns {'F': 1.0} \(expected numbers\)"),
        (["law={class: 'laws.py:Turned'}"], r"Turned returns array\(.*j.*\) \(expected numbers\)"),
        (["law={class: 'laws.py:Spring'}"], r"Spring returns shape \(1,\), the plant has 4 inputs"),
    ],
)
def test_what_does_not_fit_is_refused(folder: Path, sets: list[str], sentence: str) -> None:
    with pytest.raises(ServoctlError, match=sentence):
        sc.load(folder / "scara.yaml", sets, engine="vm").simulate()


def test_a_law_that_takes_another_way_on_symbols_is_called_in_numpy(folder: Path) -> None:
    motions = [spring(folder, f"law={{class: 'laws.py:{name}'}}").simulate().q for name in ("Caught", "Spring")]
    np.testing.assert_allclose(*motions, atol=1e-12)


def test_a_law_that_does_not_look_at_a_velocity_gives_no_inputs_where_it_is_no_number() -> None:
    law = sc.law(lambda t, q, v: -3.0 * q)
    start = State(0.0, np.zeros(1), np.zeros(1))
    loop = make_loop(make_system(Masses("x", "F", 2.0), {}, law, {}, start, None, 1e-6), "vm")
    u, status = loop.layout.slices["u"], loop.layout.slices["status"]
    row = loop.control(0.0, np.array([0.1, 0.2]))
    assert row[u] == pytest.approx([-0.3]) and row[status] == Status.OK.code
    row = loop.control(0.0, np.array([0.1, np.nan]))
    assert np.isnan(row[u]).all() and row[status] == Status.NON_FINITE.code


def test_live_gains_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    live = "hil.live={law.parameters.kp: [100, 500]}"
    assert exit_code("hil", str(folder / "scara.yaml"), "--set", OWN, "--set", live) == 2
    assert "hil.live: needs constraint following" in capsys.readouterr().err


CONFIG = """
plant: {class: "mass.py:Mass"}
initial: {q: {x: 0}, v: {x: 0.1}, max_violation: 1}
task: [{name: x, holonomic: "x - 0.1*sin(t)"}]
law:
  correction: {baumgarte: {alpha: 4, beta: 4}}
  terms: {integral: {class: "terms.py:Integral", parameters: {k: 60}}}
run: {duration: 2, period: 0.01}
"""

TERMS = """
from dataclasses import dataclass
import numpy as np
import servoctl as sc


@dataclass(frozen=True)
class Integral(sc.Term):
    k: float = 100.0

    def memory(self, rows):
        return dict.fromkeys(rows, 0.0)

    def acceleration(self, at, memory):
        return -self.k * memory

    def memory_rate(self, at, memory, u):
        return at.task.violation


class Opaque(Integral):
    def acceleration(self, at, memory):
        return [-self.k * float(memory[0])]


@dataclass(frozen=True)
class Push(sc.Term):
    a: float = 0.5

    def acceleration(self, at, memory):
        return [self.a]


class Wide(Push):
    def acceleration(self, at, memory):
        return [self.a, self.a]


class Endless(Integral):
    def memory(self, rows):
        return {"x": np.inf}


class Listed(Integral):
    def memory(self, rows):
        return [0.0]


class Forgetful(Integral):
    def memory_rate(self, at, memory, u):
        return [0.0, 0.0]
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "terms.py").write_text(TERMS)
    return written(tmp_path, CONFIG)


def of(name: str, **parameters: float) -> str:
    given = ", ".join(f"{key}: {value}" for key, value in parameters.items())
    return f'law.terms={{own: {{class: "terms.py:{name}", parameters: {{{given}}}}}}}'


def poles(run: sc.Run) -> Array:
    return np.sort_complex(np.array([mode.pole for mode in modes(run, *state_at(run, None))]))


@pytest.mark.parametrize("k", [60.0, 127.0, 129.0, 300.0])
def test_the_poles_of_the_error_are_those_of_its_equation(path: Path, k: float) -> None:
    """e''' + 8 e'' + 16 e' + k e = 0, stable below k = 128."""
    run = sc.load(path, [of("Integral", k=k), "run.period="], engine="vm")
    np.testing.assert_allclose(poles(run), np.sort_complex(np.roots([1, 8, 16, k])), atol=1e-6)
    assert bool(poles(run).real.max() < 0.0) is (k < 128.0)


def test_the_poles_of_a_sampled_loop_are_those_of_its_step(path: Path) -> None:
    """The memory changes once a period: i <- i + h e, under u = -16 e - 8 e' - k i held for h."""
    h, k = 0.01, 60.0
    hold = np.array([[1, h], [0, 1]]) - np.outer([h * h / 2, h], [16, 8])
    step = np.block([[hold, -k * np.array([[h * h / 2], [h]])], [np.array([[h, 0, 1.0]])]])
    expected = np.log(np.linalg.eigvals(step).astype(complex)) / h
    np.testing.assert_allclose(poles(sc.load(path, engine="vm")), np.sort_complex(expected), atol=1e-6)


def test_all_engines_and_a_term_that_symbols_cannot_follow_give_the_same_motion(path: Path) -> None:
    changes = ["initial.q.x=0.05"]
    runs = {engine: sc.load(path, changes, engine=engine).simulate() for engine in ("vm", "numpy")}
    if shutil.which("cc"):
        runs["c"] = sc.load(path, changes, engine="c").simulate()
    opaque = sc.load(path, [*changes, of("Opaque", k=60.0)], engine="vm")
    assert "a function of the law runs in NumPy" in opaque.loop.note and "float(memory[0])" in opaque.loop.note
    for run in (*runs.values(), opaque.simulate()):
        np.testing.assert_allclose(run.q, runs["vm"].q, atol=1e-12)


def test_a_term_without_states_is_what_it_adds(path: Path) -> None:
    """e'' + 8 e' + 16 e = a, so e = a / 16 in the end."""
    run = sc.load(path, [of("Push", a=0.8), "run.duration=6"], engine="vm").simulate()
    assert run["violation.x"][-1] == pytest.approx(0.8 / 16, rel=1e-3)
    assert not [name for name in run.columns if name.startswith("memory")]


@pytest.mark.parametrize("name", ["disturbance", "bounds", "observer", "estimation"])
def test_a_term_with_the_name_of_another_part_of_the_law_is_the_same_term(path: Path, name: str) -> None:
    changes = ["initial.q.x=0.05", "law.observer.rate=5"]
    term = '{class: "terms.py:Integral", parameters: {k: 60}}'
    runs = [
        sc.load(path, [*changes, f"law.terms={{{key}: {term}}}"], engine="vm").simulate() for key in ("integral", name)
    ]
    np.testing.assert_array_equal(runs[0].q, runs[1].q)
    np.testing.assert_array_equal(runs[0]["memory.terms.integral.x"], runs[1][f"memory.terms.{name}.x"])
    assert len(runs[0].columns) == len(runs[1].columns)


def test_a_law_made_in_python_has_it_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(path.parent))
    terms: Any = pytest.importorskip("terms")
    mass: Any = pytest.importorskip("mass")
    law = sc.ConstraintFollowing(sc.Baumgarte(4, 4), terms={"integral": terms.Integral(60.0)})
    task = {"x": sc.Holonomic("x - 0.1*sin(t)")}
    run = sc.simulate(mass.Mass(), task, law, q=0.05, v=0.1, duration=2.0, period=0.01, engine="vm")
    changes = ["initial.q.x=0.05"]
    np.testing.assert_allclose(run.q, sc.load(path, changes, engine="vm").simulate().q, atol=1e-12)


@pytest.mark.parametrize("terms", [{"own": 3.0}, {"own": sc.Term}, {"my own": None}])
def test_a_law_made_in_python_refuses_what_is_no_term(terms: Any) -> None:
    law = sc.ConstraintFollowing(sc.Baumgarte(4, 4), terms=terms)
    with pytest.raises(ServoctlError, match=r"law.terms.\w+.*: expected a name and an instance of a servoctl.Term"):
        sc.simulate(Masses(), {"x": sc.Holonomic("x")}, law, q=0.0, duration=0.1)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (of("Wide"), "law.terms.own: Wide.acceleration returns shape (2,), the task has 1 rows"),
        (of("Forgetful"), "law.terms.own: Forgetful.memory_rate returns shape (2,), it has 1 states"),
        (of("Endless"), "law.terms.own: memory: x: expected a finite number, got inf"),
        (of("Listed"), "law.terms.own: memory: expected a mapping of names to numbers: TypeError"),
        (of("Absent"), "there is no class 'Absent' in terms.py"),
        (of("Integral", gain=3.0), "law.terms.own.parameters.gain: Integral has no such parameter (known: k)"),
        ("law.terms={own: {parameters: {k: 3}}}", "law.terms.own.class: missing"),
    ],
)
def test_what_is_no_term_is_refused(path: Path, change: str, sentence: str) -> None:
    with pytest.raises(ServoctlError) as error:
        sc.load(path, [change], engine="vm")
    assert sentence in str(error.value)


def test_check_says_that_its_limits_do_not_know_the_term(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("check", str(path)) == 0
    assert "law.terms: integral: no limit of gains knows them (analyse has the whole loop)" in capsys.readouterr().out


def test_a_run_folder_names_the_class_and_runs_again(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert exit_code("run", str(path), "--out", str(out)) == 0
    again = sc.load(out / "config.yaml", engine="vm").simulate()
    np.testing.assert_allclose(again.q, sc.load_run(out).q, atol=1e-12)
    assert json.loads((out / "summary.json").read_text())["status"]
