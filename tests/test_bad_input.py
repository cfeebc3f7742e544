"""Bad input from end to end: what the command line answers, that nothing is written, and what a broken run leaves.

Of a damaged run folder one sentence names the problem, and the exit code is 2.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import servoctl as sc
from servoctl.cli import main
from servoctl.errors import ConfigError, RunFolderError, ServoctlError
from servoctl.laws.observer import Observer
from servoctl.run_folder import load_run
from tests.config_texts import CART as CONFIG
from tests.config_texts import CART_PLANT as PLANT
from tests.faces import exit_code
from tests.refused import table
from tests.small_plants import Masses

TASK = '  - {name: follow, holonomic: "x - (1 - cos(t))"}'
CORRECTION = "{correction: {baumgarte: {alpha: 10, beta: 10}}}"


@dataclass(frozen=True)
class Answer:
    """What a command said."""

    code: int
    out: str
    err: str
    folder: Path

    def stopped(self) -> tuple[str, sc.Trajectory]:
        """Why the run `out` stopped, and its rows, all of which a reader finds finite."""
        trajectory = load_run(self.folder / "out")
        assert (self.code, trajectory.metadata["status"]) == (4, "stopped"), self.err
        assert np.isfinite(trajectory.q).all() and "Traceback" not in self.err
        return str(trajectory.metadata["error"]), trajectory


Servoctl = Callable[..., Answer]


@pytest.fixture
def servoctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Servoctl:
    """`servoctl COMMAND cart.yaml WORDS...` in a folder with this plant and config."""
    monkeypatch.chdir(tmp_path)

    def answer(*words: str, plant: str = PLANT, config: str = CONFIG, command: str = "run") -> Answer:
        (tmp_path / "cart.py").write_text(plant)
        (tmp_path / "cart.yaml").write_text(config)
        code = exit_code(command, "cart.yaml", *words)
        said = capsys.readouterr()
        return Answer(code, said.out, said.err, tmp_path)

    return answer


def changed(text: str, *pairs: tuple[str, str]) -> str:
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text


def of_law(law: str, *tasks: str) -> str:
    """The config with another law and other tasks."""
    rows = "\n".join(f"  - {task}" for task in tasks) or TASK
    return changed(CONFIG, (CORRECTION, law), (TASK, rows))


def test_the_config_that_all_others_are_made_of_runs(servoctl: Servoctl) -> None:
    assert servoctl("--out", "out").code == 0


MASS = "np.array([[self.m1 + self.m2, self.m2], [self.m2, self.m2]])"


def test_a_kinetic_energy_that_is_not_quadratic_is_refused(servoctl: Servoctl) -> None:
    plant = (
        "from dataclasses import dataclass\nimport servoctl as sc\n\n@dataclass(frozen=True)\n"
        'class Cart(sc.LagrangianPlant):\n    coordinates = {"x": "m", "s": "m"}\n    actuators = {}\n'
        "    def kinetic_energy(self, q, v, t):\n        return v[0]**2 + v[1]**2 + v[0]**4\n"
    )
    config = changed(CONFIG, (f"law: {CORRECTION}", "law: none"))
    answer = servoctl(plant=plant, config=config)
    assert answer.code == 2
    assert "Cart.kinetic_energy: not quadratic in v, T_vv changes with it" in answer.err


def test_a_constraint_class_needs_no_constructor(servoctl: Servoctl) -> None:
    plant = f"{PLANT}\nclass Mine(sc.Holonomic):\n    def phi(self, q, t):\n        return q[0] - t**2\n"
    assert servoctl("--out", "out", plant=plant, config=of_law("{}", '{name: a, class: "cart.py:Mine"}')).code == 0


def test_check_reports_everything_that_run_refuses_and_shows_the_model(servoctl: Servoctl) -> None:
    config = of_law(CORRECTION, '{name: a, holonomic: "x"}', '{name: b, holonomic: "x - 0.5"}')
    answer = servoctl(config=config, command="check")
    assert answer.code == 2
    assert "error: cart.yaml:2: initial: no state near the start satisfies a (off by 0.25), b" in answer.err
    assert "Cart: 2 coordinates (x [m], s [m]), 1 input (F [N])" in answer.out


# A run that goes wrong ------------------------------------------------------------------------------------------------

ROOT = changed(PLANT, ("[0.0, -self.k * q[1]]", "[-np.sqrt(0.5 - q[0]), 0.0]"), (MASS, "np.diag([1.0, 1.0])"))
OPAQUE = changed(ROOT, ("0.5 - q[0]", "0.5 - float(q[0])"))
RAISES = changed(ROOT, ("np.sqrt(0.5 - q[0])", "math.sqrt(0.5 - float(q[0]))"))
LONG = changed(CONFIG, ("0.02", "2, integrator: {step: 0.01}"))
"""Follows 1 - cos(t), which passes 0.5, where the force ends, at t = pi / 3."""


@pytest.mark.parametrize("method", ["rk4", "dop853", "radau", "held"])
@pytest.mark.parametrize(("plant", "engine"), [(ROOT, "auto"), (OPAQUE, "auto"), (ROOT, "numpy")])
def test_a_term_that_is_not_finite_stops_the_run_and_is_named(
    servoctl: Servoctl, plant: str, engine: str, method: str
) -> None:
    config = {
        "rk4": LONG,
        "held": changed(LONG, ("duration: 2", "duration: 2, period: 0.02")),
    }.get(method) or changed(LONG, ("{step: 0.01}", f"{{method: {method}, rtol: 1e-6}}"))
    answer = servoctl("--engine", engine, "--out", "out", plant=plant, config=config)
    reason, trajectory = answer.stopped()
    found = re.search(r"force not finite at t = ([\d.]+) s, x = ([\d.]+), s = ", reason)
    assert found is not None, reason
    assert float(found[1]) == pytest.approx(np.pi / 3, abs=0.03)
    assert float(found[2]) == pytest.approx(0.5, abs=0.03)
    assert trajectory.t[-1] == pytest.approx(np.pi / 3, abs=0.1)


@pytest.mark.parametrize("method", ["rk4", "dop853"])
def test_code_that_fails_during_the_run_is_named_and_no_row_before_it_is_lost(servoctl: Servoctl, method: str) -> None:
    config = LONG if method == "rk4" else changed(LONG, ("{step: 0.01}", "{method: dop853, rtol: 1e-6}"))
    answer = servoctl("--out", "out", plant=RAISES, config=config)
    reason, trajectory = answer.stopped()
    assert re.search(
        r"Cart.force: failed at t = 1\.0\d+ s, x=0\.5\d*, s=.*: ValueError: math domain error \(line \d+ of", reason
    )
    assert trajectory.t[-1] == pytest.approx(np.pi / 3, abs=0.1)


def test_a_mass_matrix_that_loses_its_sign_is_named(servoctl: Servoctl) -> None:
    answer = servoctl(
        "--out", "out", plant=changed(ROOT, ("np.diag([1.0, 1.0])", "np.diag([0.2 - q[0], 1.0])")), config=LONG
    )
    assert "smallest eigenvalue of mass_matrix -" in answer.stopped()[0]


def test_a_spring_that_pushes_runs_away_by_its_internal_dynamics(servoctl: Servoctl) -> None:
    """The mass behind the cart is left free; its pole is sqrt(1e6 / 2) = 707.1 1/s."""
    config = changed(LONG, ('"cart.py:Cart"', '"cart.py:Cart", parameters: {k: -1e6}'))
    answer = servoctl("--out", "out", config=config)
    error = answer.stopped()[0]
    assert "it ran away: internal dynamics: unstable" in error
    assert "the fastest pole is 707.1 1/s at the start" in error
    assert "reduce" not in error


def test_a_command_that_is_not_finite_is_named(servoctl: Servoctl) -> None:
    answer = servoctl("--out", "out", config=of_law("{null_space: {F: 1/x}}", '{name: a, holonomic: "x"}'))
    assert "the command not finite at t = 0 s, x = 0" in answer.stopped()[0]


TWO = of_law(CORRECTION, TASK[4:], '{name: rest, holonomic: "s + 0.01*t**2"}')


@pytest.mark.parametrize(
    ("on_infeasible", "code", "status", "word"),
    [
        ("fault", 4, "stopped", "INFEASIBLE"),
        ("warn", 0, "done", "INFEASIBLE"),
        ("damp", 0, "done", "DAMPED"),
    ],
)
def test_on_infeasible_decides_whether_an_infeasible_task_stops_the_run(
    servoctl: Servoctl, on_infeasible: str, code: int, status: str, word: str
) -> None:
    answer = servoctl(
        "--out", "out", config=changed(TWO, ("{correction", f"{{on_infeasible: {on_infeasible}, correction"))
    )
    assert answer.code == code
    assert "warning: task: rank 1 of 2 rows" in answer.err
    summary = json.loads((answer.folder / "out/summary.json").read_text())
    assert (summary["status"], list(summary["status_counts"])) == (status, [word])
    assert load_run(answer.folder / "out").metadata["status"] == status


def test_an_output_path_that_is_a_file_is_wrong_input(servoctl: Servoctl) -> None:
    answer = servoctl("--out", "cart.py")
    assert answer.code == 2
    assert "Invalid value for '--out': dir 'cart.py' is a file" in answer.err
    assert servoctl("--out", "cart.py/deeper").code == 3


def test_a_folder_without_permission_is_a_failure_of_writing(servoctl: Servoctl, tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    answer = servoctl("--out", "locked/out" if os.geteuid() else "/sys/out")  # root may write everywhere else
    assert answer.code == 3
    assert "cannot be written" in answer.err


def test_a_process_refuses_without_traceback(tmp_path: Path) -> None:
    (tmp_path / "cart.py").write_text(OPAQUE)
    (tmp_path / "cart.yaml").write_text(changed(CONFIG, ("{q: {x: 0, s: 0}", "{q: {x: 0.1, z: 0}")))
    command = [sys.executable, "-m", "servoctl", "run", "cart.yaml", "--out", "out"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "cart.yaml:2: initial.q.z: there is no coordinate 'z' (known: x, s)",
        "cart.yaml:2: initial.q: no value for s (give every coordinate)",
    ]
    assert not (tmp_path / "out").exists()


# From Python ----------------------------------------------------------------------------------------------------------


LAW = sc.ConstraintFollowing(correction=sc.Baumgarte(4, 4))


def simulate(plant: Any = None, task: Any = None, law: Any = LAW, **how: Any) -> sc.Trajectory:
    task = {"x": sc.Holonomic("x - t**2")} if task is None else task
    return sc.simulate(plant or Masses(m=2.0), task, law, **{"q": 0.0, "duration": 0.01, **how})


CALLED = {"sc": sc, "np": np, "replace": replace, "LAW": LAW, "Observer": Observer, "Masses": Masses}
"""What the arguments of the calls are made of."""


@pytest.mark.parametrize(("how", "sentence"), [(*how, *said) for _, how, said in table("calls")])
def test_python_calls_refuse_the_same_input_as_configs(how: str, sentence: str) -> None:
    with pytest.raises(ServoctlError, match=re.escape(sentence)):
        simulate(**eval(how, CALLED))


def test_python_calls_report_all_errors_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        simulate(q=[1.0], duration=0, method="euler", engine="fortran")
    assert [line.split(": ")[1] for line in caught.value.problems] == ["engine", "q", "duration", "method"]


def test_python_takes_mappings_numbers_for_limits_and_a_period_alone() -> None:
    law = sc.ConstraintFollowing(correction=sc.Baumgarte(4, 4), limits={"Fx": 3.0})
    run = simulate(law=law, q={"x": 0.0, "y": 1.0}, v={"y": 0.5}, period=0.0025)
    np.testing.assert_allclose(run.t, 0.0025 * np.arange(5), rtol=1e-12)
    assert run["u.Fx"].max() == 3.0  # 4 N are asked for
    assert run["q.y"][-1] == pytest.approx(1.005)


WRONG = ["text", 5, True, [1], {"a": 1}, {"a": {"b": []}}, [[]]]
"""Values one of which at least is of the wrong kind, whatever the key."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs") / "sound"
    assert exit_code("run", "two_mass_spring", "--set", "run.duration=0.05", "--engine", "vm", "--out", place) == 0
    return place


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    return shutil.copytree(sound, tmp_path / "run")


def summary_with(key: str, value: Any) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / "summary.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))

    return edit


def metadata_with(key: str, text: bytes) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        table = pq.read_table(folder / "trajectory.parquet")
        table = table.replace_schema_metadata(table.schema.metadata | {f"servoctl.{key}".encode(): text})
        pq.write_table(table, folder / "trajectory.parquet")

    return edit


def column_of(name: str, value: Any) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        table = pq.read_table(folder / "trajectory.parquet")
        place = table.column_names.index(name)
        pq.write_table(table.set_column(place, name, pa.array([value] * len(table))), folder / "trajectory.parquet")

    return edit


def without_times(folder: Path) -> None:
    table = pq.read_table(folder / "trajectory.parquet")
    pq.write_table(table.drop_columns(["t"]), folder / "trajectory.parquet")


def drawing_with(name: str, array: Any) -> Callable[[Path], None]:
    return lambda folder: np.savez(folder / "drawing.npz", t=np.zeros(4), **{name: array})


@pytest.mark.parametrize("key", ["left_out", "realtime"])  # both are lists of sentences
@pytest.mark.parametrize("value", [[], ["first sentence", "second sentence"]])
def test_sentences_about_a_run_on_drives_are_read_back(folder: Path, key: str, value: list[str]) -> None:
    summary_with(key, value)(folder)
    assert load_run(folder).metadata[key] == value


SENTENCES = [
    (summary_with("settling_band", "x"), 'summary.json: settling_band: expected a number, got "x" (restore it from a'),
    (summary_with("duration", [1]), "summary.json: duration: expected a number, got [1]"),
    (summary_with("status", 5), "summary.json: status: expected text, got 5"),
    (summary_with("task_span", [1]), "summary.json: task_span: expected two times, or none, got [1]"),
    (summary_with("events", [5]), "summary.json: events.0: expected an object, got 5"),
    (summary_with("tasks", {"a": {"b": []}}), "summary.json: tasks.a.b: expected a number or null, got []"),
    (metadata_with("run", b'{"tasks": 5}'), "trajectory.parquet: tasks: expected an object, got 5"),
    (metadata_with("run", b'{"settling_band": {}}'), "trajectory.parquet: settling_band: expected a number, got {}"),
    (metadata_with("units", b'{"t": 5}'), "trajectory.parquet: units.t: expected text, got 5"),
    (metadata_with("status", b'{"x": ["OK", ""]}'), "trajectory.parquet: status.x: expected a code and its name"),
    (metadata_with("status", b'{"0": 5}'), "trajectory.parquet: status.0: expected a code and its name, as in"),
    (column_of("t", "a"), "trajectory.parquet: column t: expected numbers, got object"),
    (column_of("t", True), "trajectory.parquet: column t: expected numbers, got bool"),
    (column_of("status", None), "trajectory.parquet: column status: expected numbers, got object"),
    (column_of("q.x1", [1.0]), "trajectory.parquet: column q.x1: expected numbers, got object"),
    (without_times, "trajectory.parquet: column t is missing (restore it from a copy, or run again)"),
    (
        drawing_with("rod", np.zeros(3)),
        "drawing.npz: is damaged: rod: unexpected shape (3,) for 4 frames (delete it to load the run without it)",
    ),
    (drawing_with("rod", np.array(["a"] * 4)), "drawing.npz: is damaged: rod: expected numbers, got <U1"),
    (drawing_with("energy", np.zeros((4, 2))), "drawing.npz: is damaged: energy: unexpected shape (4, 2) for 4"),
]


@pytest.mark.parametrize(("edit", "sentence"), SENTENCES)
def test_every_problem_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str], edit: Callable[[Path], None], sentence: str
) -> None:
    edit(folder)
    with pytest.raises(RunFolderError) as found:
        load_run(folder)
    assert str(found.value).startswith(f"{folder}/{sentence}")
    for command in (["report", str(folder)], ["replay", str(folder)], ["compare", str(folder), str(folder)]):
        assert main(command) == 2
        assert capsys.readouterr().err.startswith(f"{folder}")


def test_every_kind_of_value_under_every_key_is_accepted_or_refused_with_a_sentence(folder: Path) -> None:
    whole = json.loads((folder / "summary.json").read_text())
    refused = 0
    for key in [*whole, "task_span", "settling_band", "error", "timing", "drives", "faults", "left_out"]:
        for value in WRONG:
            (folder / "summary.json").write_text(json.dumps(whole | {key: value}))
            try:
                json.dumps(load_run(folder).summary(), allow_nan=False)
            except RunFolderError as error:
                refused += 1
                assert re.search(rf"summary\.json: {key}(\.\w+)*: expected ", str(error))
    assert refused > 100


@pytest.mark.parametrize("name", ["summary.json", "config.yaml", "trajectory.parquet", "drawing.npz", "events.jsonl"])
@pytest.mark.parametrize("kind", ["loop", "dangling", "folder", "fifo", "empty", "deep", "bytes"])
def test_any_file_may_be_of_another_kind(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, kind: str
) -> None:
    path = folder / name
    path.unlink(missing_ok=True)
    if kind == "loop":
        path.symlink_to(name)
    elif kind == "dangling":
        path.symlink_to("nowhere")
    elif kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.write_bytes({"empty": b"", "deep": b"[" * 100_000, "bytes": bytes(range(256))}[kind])
    code = exit_code("report", folder, "--html")
    said = capsys.readouterr().err
    assert code in (0, 2) and "this is a bug" not in said
    assert code == 0 or said.startswith(f"{path}: ")


def test_a_folder_that_links_to_itself_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "run").symlink_to("run")
    with pytest.raises(RunFolderError, match="run: "):
        load_run(tmp_path / "run")
