"""References in configs: the motion that follows them, on every engine, and what is refused."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.interpolate import CubicSpline

import servoctl as sc
from servoctl.assembly.make import make_run
from servoctl.config import dump, load_config
from servoctl.config.load import moved
from servoctl.errors import ConfigError
from servoctl.types import Array
from tests.config_texts import plant_text
from tests.refused import Base, Case, assert_refused, cases

PLANT = plant_text(  # a mass in the plane
    "Mass", "m: float = 2.0; path_w: float = 1.0", {"x": "m", "y": "m"}, {"Fx": "N", "Fy": "N"}, "self.m * np.eye(2)"
)
CONFIG = """\
plant: {class: "mass.py:Mass"}
initial: {q: [1, 0.5], v: [0, 0]}
references:
  path: {file: path.csv}
  move: {waypoints: [{t: 0, x: 0}, {t: 1, x: 2}]}
task:
  - {name: a, holonomic: "x - path_x - move_x"}
  - {name: b, holonomic: "y - path_y"}
law: {correction: {baumgarte: {alpha: 10, beta: 10}}}
run: {duration: 0.5, integrator: {step: 0.01}}
"""


def path_rows() -> tuple[Array, Array]:
    t = np.arange(21) * 0.05
    return t, np.stack([np.cos(3 * t), 0.5 + 0.1 * np.sin(2 * t) ** 2], axis=1)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with plant, path and config, which is the current one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mass.py").write_text(PLANT)
    (tmp_path / "c.yaml").write_text(CONFIG)
    write_path()
    return tmp_path


def write_path(name: str = "path.csv", values: Array | None = None) -> None:
    t, xy = path_rows()
    rows = [
        f"{a!r},{x!r},{y!r}" for a, (x, y) in zip(t.tolist(), (xy if values is None else values).tolist(), strict=True)
    ]
    Path(name).write_text("\n".join(["t,x,y", *rows]) + "\n")


def changed(*replacements: tuple[str, str], base: str = CONFIG) -> Path:
    for old, new in replacements:
        assert old in base
        base = base.replace(old, new)
    path = Path("c.yaml")
    path.write_text(base)
    return path


def test_the_motion_follows_the_spline_and_the_profile_with_their_second_derivatives(folder: Path) -> None:
    trajectory = sc.load("c.yaml", engine="vm").simulate()
    t, (times, xy) = trajectory.t, path_rows()
    spline = CubicSpline(times, xy, bc_type="not-a-knot")
    move = 2 * (10 * t**3 - 15 * t**4 + 6 * t**5)
    assert np.abs(trajectory["q.x"] - spline(t)[:, 0] - move).max() < 1e-4  # its first rate is not 0
    acceleration = spline(t, 2)[:, 0] + 2 * (60 * t - 180 * t**2 + 120 * t**3)
    gap, rate = trajectory["violation.a"], trajectory["violation_rate.a"]
    expected = 2.0 * (acceleration - 20 * rate - 100 * gap)
    assert np.abs(trajectory["u.Fx"] - expected).max() < 1e-9


def test_rates_of_references_may_stand_in_holonomic_and_nonholonomic_rows(folder: Path) -> None:
    t, xy = path_rows()
    spline = CubicSpline(t, xy, bc_type="not-a-knot")
    start = spline(0.0, 1)
    vx, vy = float(start[0] + 0.01 * spline(0.0, 2)[0]), float(start[1])
    config = changed(
        ("v: [0, 0]", f"v: [{vx!r}, {vy!r}]"),
        ("x - path_x - move_x", "x - path_x - 0.01*der(path_x)"),
        ('holonomic: "y - path_y"', 'nonholonomic: "der(y) - der(path_y)", correction: {p_feedback: {P: 0.1}}'),
    )
    trajectory = sc.load(config, engine="vm").simulate()
    assert np.abs(trajectory["v.y"] - spline(trajectory.t, 1)[:, 1]).max() < 1e-6
    gap = trajectory["q.x"] - spline(trajectory.t)[:, 0] - 0.01 * spline(trajectory.t, 1)[:, 0]
    assert np.abs(gap - trajectory["violation.a"]).max() < 1e-12


def test_open_loops_and_null_spaces_use_references(folder: Path) -> None:
    start = CONFIG.index("task:")
    Path("c.yaml").write_text(
        CONFIG[:start] + 'law: none\ninputs: {Fx: "path_x", Fy: "2*der(path_y)"}\nrun: {duration: 0.2}\n'
    )
    trajectory = sc.load("c.yaml", engine="vm").simulate()
    spline = CubicSpline(*path_rows(), bc_type="not-a-knot")
    assert np.abs(trajectory["u.Fx"] - spline(trajectory.t)[:, 0]).max() < 1e-12
    assert np.abs(trajectory["u.Fy"] - 2 * spline(trajectory.t, 1)[:, 1]).max() < 1e-11
    text = changed(
        ('  - {name: b, holonomic: "y - path_y"}\n', ""),
        ("law: {", 'law: {null_space: {Fy: "path_y"}, '),
    )
    trajectory = sc.load(text, engine="vm").simulate()
    assert np.abs(trajectory["u.Fy"] - spline(trajectory.t)[:, 1]).max() < 1e-12


def test_a_run_is_made_anew_only_if_the_content_of_its_references_changes(folder: Path) -> None:
    first = sc.load("c.yaml", engine="vm")
    again = make_run(load_config("c.yaml"), "vm", results=first.results)
    assert again.task_map is first.task_map
    write_path(values=path_rows()[1] + [[0.0, 0.125]])
    later = make_run(load_config("c.yaml"), "vm", results=first.results)
    assert later.task_map is not first.task_map
    assert float(later.signals["path_y"](0.0)) == 0.625
    assert later.simulate().q[-1, 1] - first.simulate().q[-1, 1] == pytest.approx(0.125, abs=0.02)


def test_set_names_another_file(folder: Path) -> None:
    write_path("other.csv", path_rows()[1] + 1.0)
    run = sc.load("c.yaml", ["references.path.file=other.csv"], engine="vm")
    assert run.signals["path_x"](0.0) == 2.0


def test_paths_are_relative_to_the_folder_of_the_config(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    assert sc.load("../c.yaml", engine="vm").signals["path_x"](0.0) == 1.0


def test_a_dump_of_the_config_loads_again_with_the_defaults_of_each_kind(folder: Path) -> None:
    config = load_config("c.yaml").config
    Path("d.yaml").write_text(dump(config))
    assert load_config("d.yaml").config == config
    path, move = config.references["path"], config.references["move"]
    assert (path.time, path.spline, path.extrapolate, path.profile) == ("t", "cubic", "hold", None)
    assert (move.profile, move.blend, move.time, move.extrapolate) == ("quintic", None, None, "hold")


def test_a_run_may_go_to_the_end_of_a_reference_that_is_not_continued(folder: Path) -> None:
    ends = changed(("file: path.csv}", "file: path.csv, extrapolate: error}"), ("duration: 0.5", "duration: 1"))
    end = sc.load(ends, engine="vm").simulate()
    assert end.t[-1] == pytest.approx(1.0) and np.isfinite(end.q).all()


@pytest.mark.parametrize("case", cases("references"))
def test_wrong_references_are_refused(case: Case, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    beside = {"mass.py": PLANT, "path.csv": Path("path.csv").read_text(), "bad.csv": "t,x\n0,1\n0,nan\n"}
    rows = "".join(f"{t},{t},{t},{t}\n" for t in range(5))
    beside |= {"more.csv": f"t,x,y,w\n{rows}", "spaced.csv": f"t,b c,d,e\n{rows}"}
    assert_refused(case, Base(CONFIG, beside=beside), folder, capsys)


def test_a_longer_run_than_an_earlier_one_is_refused_too(folder: Path) -> None:
    config = changed(("file: path.csv}", "file: path.csv, extrapolate: error}"))
    run = sc.load(config, engine="vm")
    with pytest.raises(
        ConfigError, match=r"references\.path\.extrapolate: it goes from t = 0 to 1 s, the run from 0 to 2"
    ):
        make_run(load_config(config, ["run.duration=2"]), "vm", results=run.results)


def test_units_and_expressions_stand_in_waypoints(folder: Path) -> None:
    run = sc.load(changed(("{t: 1, x: 2}", "{t: 500*ms, x: 90*deg}")), engine="vm")
    assert run.signals["move_x"](0.5) == pytest.approx(math.pi / 2, rel=1e-15)


def test_tasks_that_are_classes_use_references(folder: Path) -> None:
    code = "import servoctl as sc\n\n\nclass Follow(sc.Holonomic):\n    def phi(self, q, t):\n"
    Path("follow.py").write_text(code + "        return q[0] - self.signals['path_x'](t) - self.signals['move_x'](t)\n")
    equation = sc.load("c.yaml", engine="vm").simulate()
    by_class = sc.load(
        changed(('name: a, holonomic: "x - path_x - move_x"', 'name: a, class: "follow.py:Follow"')), engine="vm"
    ).simulate()
    assert np.array_equal(by_class.q, equation.q)


def test_best_configs_of_a_search_find_the_files_of_references(folder: Path) -> None:
    run = sc.load("c.yaml", engine="vm")
    assert run.loaded is not None
    (folder / "out" / "deep").mkdir(parents=True)
    config = moved(run.loaded.config, run.loaded.folder, folder / "out" / "deep")
    Path("out/deep/best.yaml").write_text(dump(config))
    again = sc.load("out/deep/best.yaml", engine="vm")
    assert again.signals == run.signals
