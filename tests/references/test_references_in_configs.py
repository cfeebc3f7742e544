"""References in configs: the motion that follows them, on every engine, and what is refused.

What check says about them, what a run says that reaches beyond one, and where their files travel.
"""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.interpolate import CubicSpline

import servoctl as sc
from hil.core.controller import Controller
from servoctl.assembly.make import make_run
from servoctl.check.report import check
from servoctl.config import dump, load_config
from servoctl.config.load import moved
from servoctl.errors import ConfigError
from servoctl.expression import parse
from servoctl.reference.curve import Curve, Signal, jumps, peak_rate, too_fast, waypoint_curve, wraps
from servoctl.reference.table import spline
from servoctl.study.cluster import pack, unpack
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


SCARA = """\
plant: {class: plants.scara:Scara}
initial: {q: [0.1, 0, 0, 0], v: [0, 0, 0, 0]}
references:
  path: {file: path.csv}
  late: {waypoints: [{t: 1, a: 0}, {t: 2, a: 1}]}
task:
  - {name: first, holonomic: "q1 - path_x"}
  - {name: second, holonomic: "q2 - late_a"}
law: {correction: {baumgarte: {alpha: 10, beta: 10}}}
run: {duration: 0.05}
"""


@pytest.fixture
def scara(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("c.yaml").write_text(SCARA)
    Path("path.csv").write_text("t,x\n" + "".join(f"{t},{t * t}\n" for t in (0, 1, 2, 3, 4)))
    return tmp_path


def test_check_says_where_a_reference_starts_how_fast_it_is_and_how_it_ends(scara: Path) -> None:
    report = check(sc.load("c.yaml", engine="vm", strict=False))
    lines = dict(report.sections)["references"]
    assert lines == [
        "path: from t = 0 to 4 s, then held; 2 continuous derivatives",
        "  path_x: 0 at the start, fastest 8 per s at t = 4 s",
        "late: from t = 1 to 2 s, then held; 2 continuous derivatives",
        "  late_a: 0 at the start, fastest 1.875 per s at t = 1.5 s",
    ]
    assert report.values["references"]["path"]["columns"]["x"]["peak_rate"] == pytest.approx(8.0)
    away = "task.first: starts 0.1 rad away from its reference (path_x); move initial.q, or set initial.project: true"
    held = "references.path: path_x ends at t = 4 s with the rate 8, but it holds its value from then on"
    late = "references.late: its rows go from t = 1 to 2 s, the run from 0 to 0.05 s"
    never = f"{late}: it stands still all the time (shift its times)"
    assert [each for each in report.warnings if "reference" in each] == [never, away, held]


def test_check_says_where_only_the_rate_differs_at_the_start(scara: Path) -> None:
    overrides = ["initial.q=[0, 0, 0, 0]", "initial.v=[0.5, 0, 0, 0]"]
    warnings = check(sc.load("c.yaml", overrides, engine="vm", strict=False)).warnings
    away = "task.first: starts with a rate 0.5 rad/s away from that of its reference (path_x); set initial.v"
    assert away in warnings
    overrides[1] = "initial.v=[0.005, 0, 0, 0]"  # less than 1e-3 of the fastest rate, which is 8
    warnings = check(sc.load("c.yaml", overrides, engine="vm", strict=False)).warnings
    assert not any("away from" in each for each in warnings)


@pytest.mark.parametrize(("unit", "said"), [(1.0, True), (180 / np.pi, True), (0.1, False)])
def test_an_angle_that_is_written_within_one_turn_is_said(unit: float, said: bool) -> None:
    times = np.linspace(0.0, 4.0, 21)
    angles = (times + np.pi) % (2 * np.pi) - np.pi
    found = wraps(Signal("path", "yaw", spline(times, unit * angles[:, None]), 0))
    assert ["path_yaw moves from" in each and "t = 3 s and 3.2 s" in each for each in found] == [True] * said
    assert not wraps(Signal("path", "yaw", spline(times, unit * times[:, None]), 0)), "it goes on"


def test_a_reference_that_begins_later_with_a_velocity_is_said(scara: Path) -> None:
    Path("path.csv").write_text("t,x\n" + "".join(f"{t},{t}\n" for t in (1, 2, 3, 4)))
    warnings = check(sc.load("c.yaml", engine="vm", strict=False)).warnings
    starts = "references.path: path_x starts at t = 1 s with the rate 1, but it holds its value before"
    assert starts in warnings


@pytest.mark.parametrize("size", [1e-6, 0.1, 1e5])
def test_the_rounding_of_a_column_that_does_not_change_is_no_velocity(size: float) -> None:
    still = spline(np.linspace(0.0, 3.0, 301), np.full((301, 1), -size))
    assert still.value(3.0, 0, 1) != 0.0 and not jumps(Signal("path", "x", still, 0), 0.0)


def test_nothing_is_said_of_references_that_are_followed_from_rest_to_rest(scara: Path) -> None:
    text = SCARA.replace("{file: path.csv}", "{waypoints: [{t: 0, x: 0.1}, {t: 1, x: 1}], profile: trapezoidal}")
    Path("c.yaml").write_text(text)
    run = sc.load("c.yaml", ["run.duration=2"], engine="vm", strict=False)
    assert not [each for each in check(run).warnings if "reference" in each]


def test_a_run_that_reaches_beyond_a_reference_ends_and_names_it(scara: Path) -> None:
    curve = spline(np.arange(5) * 0.01, np.arange(5.0)[:, None] ** 2 * 0.01, extrapolate="error")
    signals = {"path_x": Signal("path", "x", curve, 0)}
    task = {"first": sc.Holonomic(parse("q1 - path_x").with_signals(signals))}
    from plants.scara import Scara

    trajectory = sc.simulate(
        Scara(), task, sc.ConstraintFollowing(sc.Baumgarte(10, 10)), q=[0, 0, 0, 0], duration=0.1, engine="vm"
    )
    summary = trajectory.summary()
    assert summary["status"] == "stopped"
    assert "reference 'path' ends at t = 0.04 s; give extrapolate: hold, or shorten the run" in summary["error"]


def test_a_controller_on_drives_names_the_reference_that_has_ended(scara: Path) -> None:
    error = "{file: path.csv, extrapolate: error}"
    Path("c.yaml").write_text(SCARA.replace("{file: path.csv}", error))
    controller = Controller(sc.load("c.yaml", engine="vm").loop)
    assert np.isfinite(controller.command(4.0, np.zeros(4), np.zeros(4))).all()
    assert np.isnan(controller.command(4.1, np.zeros(4), np.zeros(4))).all()
    assert controller.reason(4.1) == "reference 'path' ends at t = 4 s; give extrapolate: hold, or shorten the run"
    assert np.isnan(controller.command(-0.1, np.zeros(4), np.zeros(4))).all()
    assert controller.reason(-0.1).startswith("reference 'path' starts at t = 0 s;")


SPRING = """\
plant: {class: plants.two_mass_spring:TwoMassSpring}
initial: {q: {x1: 0, x2: 0.5}}
references:
  path: SOURCE
task:
  - {name: far, holonomic: "x2 - 0.5 - path_x"}
law: {kind: input_output, correction: {poles: -4}}
run: {duration: 1, integrator: {step: 0.005}}
"""
MOVE = "waypoints: [{t: 0, x: 0}, {t: 1, x: 0.1}]"


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("{file: path.csv}", "spline: {} 2 continuous derivatives (spline: quintic has 4)"),
        (f"{{{MOVE}}}", "profile: {} 2 continuous derivatives (a file with spline: quintic has 4)"),
        (f"{{{MOVE}, profile: septic}}", "profile: {} 3 continuous derivatives (a file with spline: quintic has 4)"),
    ],
)
def test_rows_of_a_relative_degree_above_2_need_smooth_references(scara: Path, source: str, what: str) -> None:
    Path("s.yaml").write_text(SPRING.replace("SOURCE", source))
    with pytest.raises(ConfigError) as caught:
        sc.load("s.yaml", engine="vm")
    assert len(caught.value.problems) == 1
    said = what.format("row far has relative degree 4, but 'path_x' has")
    assert caught.value.problems[0].startswith(f"s.yaml:4: references.path.{said}")


def test_a_rate_of_a_reference_in_a_row_takes_one_derivative_more(scara: Path) -> None:
    text = SPRING.replace("SOURCE", f"{{{MOVE}, profile: septic}}")
    Path("s.yaml").write_text(text.replace('holonomic: "x2 - 0.5 - path_x', 'nonholonomic: "der(x2) - der(path_x)'))
    with pytest.raises(ConfigError, match=r"row far has relative degree 3 and der\(path_x\), but 'path_x' has 3 cont"):
        sc.load("s.yaml", engine="vm")


def test_a_row_of_relative_degree_4_follows_a_quintic_spline(scara: Path) -> None:
    t = np.linspace(0, 1, 41)
    x = 0.1 * t**5  # the spline is this polynomial, so it starts at rest as the masses do
    Path("path.csv").write_text("t,x\n" + "".join(f"{a},{b}\n" for a, b in zip(t.tolist(), x.tolist(), strict=True)))
    Path("s.yaml").write_text(SPRING.replace("SOURCE", "{file: path.csv, spline: quintic}"))
    trajectory = sc.load("s.yaml", engine="vm").simulate()
    assert np.abs(trajectory["violation.far"]).max() < 1e-8


def test_speed_limits_are_compared_with_the_largest_rate() -> None:
    signal = Signal("guided", "elbow", waypoint_curve(np.array([0.0, 2.0]), np.array([[0.0], [3.0]]), "quintic"), 0)
    peak = peak_rate(signal)
    assert peak.rate == pytest.approx(15 / 8 * 3 / 2, rel=1e-12) and peak.t == pytest.approx(1.0)
    assert too_fast({"elbow": signal, "wrist": signal}, {"elbow": 2.0}) == [
        "reference 'guided' asks for 2.812 of elbow at t = 1 s, its speed limit is 2 (slow the reference down)"
    ]
    assert too_fast({"elbow": signal}, {"elbow": 3.0}) == []


def test_the_largest_rate_of_a_cubic_spline_is_found_within_a_hundredth() -> None:
    t = np.linspace(0, 6, 9)
    signal = Signal("path", "x", spline(t, np.sin(t)[:, None]), 0)
    dense = np.abs(signal.rate(np.linspace(0, 6, 100_001))).max()
    assert peak_rate(signal).rate == pytest.approx(dense, rel=1e-2)


def test_files_of_references_travel_to_a_cluster(scara: Path, tmp_path: Path) -> None:
    run = sc.load("c.yaml", engine="vm")
    other = unpack(pack(run, "vm"), tmp_path / "elsewhere")  # type: ignore[arg-type]
    assert other.signals == run.signals and other.loaded is not None
    assert other.loaded.folder != run.loaded.folder  # type: ignore[union-attr]


def test_a_curve_is_hashable_and_survives_pickling() -> None:
    import pickle

    curve = waypoint_curve(np.array([0.0, 1.0]), np.array([[0.0], [1.0]]), "quintic")
    again: Curve = pickle.loads(pickle.dumps(curve))
    assert again == curve and hash(again) == hash(curve)


def test_a_reference_may_not_hide_behind_a_wrong_engine_or_plant(scara: Path) -> None:
    Path("c.yaml").write_text(SCARA.replace("plants.scara:Scara", "plants.scara:Skara"))
    with pytest.raises(ConfigError, match="Skara"):
        sc.load("c.yaml", engine="vm")
