"""Sweeps: every run equals a single run with `--set`, for all samples and numbers of processes."""

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import servoctl as sc
from servoctl.engine.kernel import Kernel
from servoctl.errors import ConfigError
from servoctl.study.batch import Machine, batch, run_all, run_at
from servoctl.study.metrics import metric_names, metrics_of
from servoctl.study.points import points_of, read_varies
from servoctl.study.sweep import Study, plan, sweep
from servoctl.study.sweep_files import draw
from tests.config_texts import TWO_MASSES, plant_text
from tests.faces import exit_code
from tests.refused import table

SHORT = ["run.duration=0.3", "run.integrator.step=0.005"]
ALPHA, X2 = "law.correction.baumgarte.alpha", "initial.q.x2"
OFF = [*SHORT, "initial.max_violation=1"]
LIMITED = [*OFF, "law.limits.F=500", "law.on_infeasible=fault", "initial.q.x2=1.1"]


BALL = plant_text(
    "Ball", "m: float = 1.0", "z", "", "np.array([[self.m]])", "np.array([-9.8 * self.m])", more="""
    def energy(self, q, v, t):
        if self.m == 13.0:
            raise RuntimeError("thirteen")
        return 9.8 * self.m * q[0] + self.m * v[0] ** 2 / 2
""",
)  # fmt: skip
MASSES = plant_text(  # a share of the force acts on the second mass too
    "Masses", "share: float = 0.0", "x y", "F", "np.eye(2)", "5.0 * np.array([q[1] - q[0], q[0] - q[1]])",
    "np.array([[1.0], [self.share]])",
)  # fmt: skip
MASSES_CONFIG = """
plant: {class: "masses.py:Masses"}
initial: {q: 0, v: {y: 0.1}}
task: [{name: second, holonomic: "y - 0.1*sin(t)"}]
law: {kind: input_output, correction: {poles: -4}}
run: {duration: 0.2, integrator: {method: rk4, step: 0.005}}
"""
BALL_CONFIG = """
plant: {class: "ball.py:Ball"}
initial: {q: 1}
law: none
run: {duration: 0.1}
"""


def study(varied: list[str], sample: str = "grid", seed: int = 0, jobs: int = 1, samples: int = 5) -> Study:
    """A sweep of the two masses, on the virtual machine."""
    run = sc.load("two_mass_spring", OFF, engine="vm")
    varies = read_varies(varied, run)
    with Machine(jobs) as workers:
        return sweep(run, varies, points_of(varies, sample, samples, seed), sample, seed, workers)


def words(code: int, *line: str) -> None:
    """Runs a command line in this process and holds its exit code against what is expected."""
    assert exit_code(*line) == code


VARIED = [
    ("two_mass_spring", [], ALPHA, (2.0, 4.0, 7.3)),
    ("two_mass_spring", [], "plant.parameters.m1", (0.5, 1.7)),
    ("two_mass_spring", [], "plant.parameters.l", (0.45, 0.55)),
    ("two_mass_spring", [], X2, (0.9, 1.0, 1.05)),
    ("two_mass_spring", [], "run.period", (0.005, 0.01, 0.02)),
    ("two_mass_spring", [], "run.integrator.step", (0.005, 0.0025)),
    ("two_mass_spring", [], "law.limits.F", (1.0, 200.0)),
    ("two_mass_spring", ["run.integrator={method: dop853}"], "run.integrator.rtol", (1e-6, 1e-9)),
    ("coordinated_robots", ["law.allocation={weighted: {u1: 1}}"], "law.allocation.weighted.u1", (0.3, 3.0)),
    ("coordinated_robots", [], "plant.passive.correction.baumgarte.alpha", (3.0, 9.0)),
    ("coordinated_robots", [], "plant.parameters.g", (9.8, 1.6)),
    ("coordinated_robots", [], "task.level.priority", (1, 2)),
    ("coordinated_robots_limited", [], "law.limits.u1", (4.0, 40.0)),
    ("flexible_joint_motor_raised", [], "law.correction.poles", (-4.0, -6.0)),
    ("flexible_joint_motor_raised", [], "initial.v", (0.0, 0.01)),
    ("three_masses", [], "law.correction.poles", (-6.0, -3.0)),
    ("three_masses", [], "plant.parameters.k1", (5.0, 7.0)),
    ("slider_crank", [], "initial.v", (0.0,)),
    ("projectile", [], "run.duration", (0.1, 0.2)),
]


@pytest.mark.parametrize(("config", "settings", "path", "values"), VARIED, ids=lambda x: x if type(x) is str else "")
def test_every_run_is_the_single_run_to_the_bit(
    config: str, settings: list[str], path: str, values: tuple[float, ...], engine: str = "vm"
) -> None:
    fixed = [*SHORT, "initial.max_violation=1"]
    if "method" in str(settings):
        fixed = ["run.duration=0.3", "initial.max_violation=1"]
    elif config != "two_mass_spring":
        fixed[1] = "run.integrator={method: rk4, step: 0.005}"
    run = sc.load(config, [*fixed, *settings], engine=engine)
    table = batch(run, {path: values})
    for i, value in enumerate(values):
        single = sc.load(config, [*fixed, *settings, f"{path}={value!r}"], engine=engine)
        expected = metrics_of(single.simulate().summary())
        assert {name: table[name][i] for name in expected} == expected


def test_every_run_on_the_numpy_engine_is_the_single_run() -> None:
    test_every_run_is_the_single_run_to_the_bit("two_mass_spring", [], "plant.parameters.m1", (0.95, 1.02), "numpy")


def test_the_command_gives_what_servoctl_run_gives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = [part for setting in OFF for part in ("--set", setting)] + ["--engine", "vm"]
    grid = ["--vary", f"{ALPHA}=2:6:3", "--vary", f"{X2}=0.9:1.1:2"]
    words(0, "sweep", "two_mass_spring", *grid, *common, "--out", str(tmp_path / "sweep"), "--json")
    summary = json.loads(capsys.readouterr().out)
    assert summary == json.loads((tmp_path / "sweep/summary.json").read_text())
    assert (summary["runs"], summary["failed"], summary["engines"]) == (6, 0, ["vm"])
    table = pq.read_table(tmp_path / "sweep/sweep.parquet").to_pylist()
    assert [(row[ALPHA], row[X2]) for row in table] == [(a, x) for a in (2.0, 4.0, 6.0) for x in (0.9, 1.1)]
    for row in (table[0], table[3]):
        own = ["--set", f"{ALPHA}={row[ALPHA]}", "--set", f"{X2}={row[X2]}", "--set", "run.output_step="]
        words(0, "run", "two_mass_spring", *common, *own, "--out", str(tmp_path / f"run{row['run']}"), "--json")
        single = metrics_of(json.loads(capsys.readouterr().out))
        assert {name: row[name] for name in single} == single
    best, worst, mean = (summary[which]["rms_violation"] for which in ("best", "worst", "mean"))
    assert mean == pytest.approx(np.mean([row["rms_violation"] for row in table]))
    assert worst["value"] == max(row["rms_violation"] for row in table)
    assert worst["at"] == {path: table[worst["run"]][path] for path in (ALPHA, X2)}
    assert best["value"] == min(row["rms_violation"] for row in table) == table[best["run"]]["rms_violation"]
    assert sc.load(tmp_path / "sweep/config.yaml").settings.duration == 0.3


def test_two_processes_give_the_table_of_one() -> None:
    varied = [f"{ALPHA}=2:6:3", "plant.parameters.m1=-1:1:2"]
    assert study(varied).columns == study(varied, jobs=2).columns


def test_workers_ignore_ctrl_c_before_they_have_loaded_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = []

    class Pool:
        def __init__(self, *_: object) -> None: ...

        def map(self, work: object, points: list[object], chunksize: int) -> Iterator[dict[str, str]]:
            heard.append(signal.getsignal(signal.SIGINT))
            return iter([{"status": "done"} for _ in points])

        def shutdown(self, **_: object) -> None: ...

    monkeypatch.setattr("servoctl.study.batch.ProcessPoolExecutor", Pool)
    before = signal.getsignal(signal.SIGINT)
    with Machine(2) as workers:
        list(run_all(sc.load("two_mass_spring", OFF, engine="vm"), [{ALPHA: 1.0}, {ALPHA: 2.0}], workers))
    assert (heard, signal.getsignal(signal.SIGINT)) == ([signal.SIG_IGN], before)


@pytest.mark.parametrize("sample", ["lhs", "monte-carlo"])
def test_a_seed_reproduces_the_points_and_another_gives_others(sample: str) -> None:
    varied = [f"{ALPHA}=2:6", f"{X2}=0.9:1.1"]
    first, again, other = (study(varied, sample, seed) for seed in (3, 3, 4))
    assert first.columns == again.columns
    assert first.columns[ALPHA] != other.columns[ALPHA]
    assert all(2.0 <= value <= 6.0 for value in first.columns[ALPHA])
    assert len(first.columns["run"]) == 5
    if sample == "lhs":  # one point in each fifth of the range
        assert sorted(int((value - 2.0) / 0.8) for value in first.columns[ALPHA]) == [0, 1, 2, 3, 4]


def test_runs_that_fail_keep_their_rows_with_a_reason() -> None:
    refused = study(["plant.parameters.m1=-1:1:3"])
    assert refused.columns["status"] == ["refused", "refused", "done"]
    assert "TwoMassSpring.mass_matrix: not positive definite" in refused.columns["error"][0]
    assert refused.columns["rms_violation"][0] is None
    assert refused.summary()["failed"] == 2
    assert refused.summary()["best"]["rms_violation"]["run"] == 2
    stopped = batch(sc.load("two_mass_spring", LIMITED, engine="vm"), {"law.limits.F": [1.0, 500.0]})
    assert stopped["status"] == ["stopped", "done"]
    assert stopped["error"][0]


def test_a_point_has_the_warnings_of_a_run_with_its_values() -> None:
    singular = ["initial.q.q2=0", "initial.q.q3=-30*deg"]
    run = sc.load("scara", singular, engine="vm")
    alone = sc.load("scara", [*singular, "plant.parameters.l1=0.21"], engine="vm")
    assert alone.warnings[0] == "task: rank 3 at the start, 4 nearby: the start is a singular pose"
    assert run_at(run, {"plant.parameters.l1": 0.21}).warnings == alone.warnings


def test_a_failing_run_does_not_change_the_next_one() -> None:
    run = sc.load("two_mass_spring", OFF, engine="vm")
    after = batch(run, {"plant.parameters.m1": [-1.0, 1.5]})
    alone = batch(run, {"plant.parameters.m1": [1.5]})
    assert {name: values[1] for name, values in after.items()} == {name: values[0] for name, values in alone.items()}


def traces(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the functions that are compiled from now on."""
    compiled: list[str] = []
    original = Kernel.compile.__func__

    def counted(kind: type[Kernel], name: str, *arguments: Any) -> Kernel:
        compiled.append(name)
        kernel: Kernel = original(kind, name, *arguments)
        return kernel

    monkeypatch.setattr(Kernel, "compile", classmethod(counted))
    return compiled


@pytest.mark.parametrize(
    ("config", "path", "values", "traced"),
    [
        ("two_mass_spring", ALPHA, [3.0, 5.0, 8.0], 0),
        ("two_mass_spring", "plant.parameters.k", [5.0, 8.0, 9.0], 0),
        ("two_mass_spring", X2, [0.95, 1.0, 1.1], 0),
        ("two_mass_spring", "task.distance.priority", [1, 2], 1),  # at priority 2 the row is a wish: another law
        # other steps in a hold: three functions of a new kind, once
        ("two_mass_spring", "run.period", [0.005, 0.01, 0.005, 0.01], 3),
        # tasks of higher relative degree
        ("three_masses", "law.correction.poles", [-6.0, -5.0, -3.0], 0),
        ("three_masses", "plant.parameters.m1", [1.0, 1.5, 2.0], 0),
        ("three_masses", "initial.q.x1", [0.0, 0.1, 0.2], 0),
        ("flexible_joint_motor_raised", "initial.v", [0.0, 0.1], 0),
        # a row that must be derived once more, for other tolerances: its degrees, its rows, plant, rates
        ("three_masses", "plant.passive.rank_tolerance", [1e-6, 1e-7], 5 + 3),
    ],
)
def test_only_what_changes_more_than_parameters_is_traced_again(
    config: str, path: str, values: list[float], traced: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = OFF if config == "two_mass_spring" else ["run.duration=0.1", "run.integrator={method: rk4, step: 0.005}"]
    run = sc.load(config, settings, engine="vm")
    batch(run, {path: values[:1]})
    run.simulate()
    compiled = traces(monkeypatch)
    assert batch(run, {path: values})["status"] == ["done"] * len(values)
    assert len(compiled) == traced, compiled


def test_the_relative_degree_of_a_row_follows_a_parameter(tmp_path: Path) -> None:
    (tmp_path / "masses.py").write_text(MASSES)
    (tmp_path / "masses.yaml").write_text(MASSES_CONFIG)
    run = sc.load(tmp_path / "masses.yaml")
    shares = [0.0, 0.5, 0.0, 1.0]
    table = batch(run, {"plant.parameters.share": shares})
    for i, share in enumerate(shares):
        single = sc.load(tmp_path / "masses.yaml", [f"plant.parameters.share={share}"])
        assert single.system.model.task_rows[0].degree == (2 if share else 4)
        expected = metrics_of(single.simulate().summary())
        assert {name: table[name][i] for name in expected} == expected


def test_a_run_shares_its_functions_and_does_not_change() -> None:
    run = sc.load("two_mass_spring", OFF, engine="vm")
    before = run.simulate().columns
    batch(run, {ALPHA: [9.0], "plant.parameters.m1": [3.0]})
    after = run.simulate().columns
    assert all(np.array_equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize(("vary", "said"), [(vary[0].split("  +  "), *said) for _, vary, said in table("varied")])
def test_a_number_that_cannot_be_varied_is_named(
    vary: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words(2, "sweep", "two_mass_spring", *[part for text in vary if text for part in ("--vary", text)])
    captured = capsys.readouterr()
    assert said in captured.err
    assert (captured.out, "Traceback" in captured.err) == ("", False)


def test_an_unknown_metric_lists_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    words(2, "sweep", "two_mass_spring", "--vary", f"{ALPHA}=2:3:2", "--metric", "rms_violatoin")
    said = capsys.readouterr().err
    assert "--metric rms_violatoin: there is no such metric (did you mean 'rms_violation'?; known: " in said
    assert all(name in said for name in metric_names(sc.load("two_mass_spring")))


def test_samples_must_be_positive_and_a_run_folder_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["sweep", "two_mass_spring", "--vary", f"{ALPHA}=2:3:2"]
    words(2, *line, "--sample", "lhs", "--samples", "0")
    assert "--samples 0: expected at least 1" in capsys.readouterr().err
    words(0, *line, "--samples", "3", "--seed", "1", "--out", str(tmp_path / "grid"))
    assert "warning: --samples and --seed have no effect on a grid" in capsys.readouterr().err
    (tmp_path / "trajectory.parquet").touch()
    words(2, *line, "--out", str(tmp_path))
    assert "holds a run (trajectory.parquet; choose another folder)" in capsys.readouterr().err


def test_a_batch_needs_a_config_and_lists_of_one_length() -> None:
    run = sc.load("two_mass_spring", OFF)
    for bad in ("a", None, [1.0]):
        with pytest.raises(ConfigError, match=re.escape(f"batch: {ALPHA}: expected a number, got {bad!r}")):
            batch(run, {ALPHA: [1.0, bad]})  # type: ignore[list-item]
    with pytest.raises(ConfigError, match=f"expected lists of one length, got {ALPHA} 1, {X2} 2"):
        batch(run, {ALPHA: [1.0], X2: [1.0, 1.1]})
    with pytest.raises(ConfigError, match="batch: expected a mapping of paths to lists of values, got"):
        batch(run, [{ALPHA: 1.0}])  # type: ignore[arg-type]
    bare = sc.Run("bare", run.loop, run.start, run.settings)
    with pytest.raises(ConfigError, match=r"this run has no config \(take one from servoctl.load\)"):
        list(run_all(bare, [{ALPHA: 1.0}]))


def test_the_heat_map_has_the_values_of_the_grid(tmp_path: Path) -> None:
    found = study([f"{ALPHA}=2:6:3", f"{X2}=0.9:1.1:2"])
    with open(tmp_path / "sweep.png", "wb") as file:
        figure = draw(found, "rms_violation", file)
    (mesh,) = figure.axes[0].collections
    expected = found.numbers("rms_violation").reshape(3, 2).T
    assert np.array_equal(np.asarray(mesh.get_array()), expected)
    assert (figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()) == ("baumgarte alpha [1/s]", "x2 [m]")
    assert (tmp_path / "sweep.png").read_bytes()[:4] == b"\x89PNG"


def test_one_path_is_a_line_and_failures_are_crosses() -> None:
    found = study(["plant.parameters.m1=-1:1:3"])
    line, *crosses, best, rings = draw(found, "input_rms.F").axes[0].lines
    assert best.get_xdata() == [1.0] and not len(rings.get_xdata())
    assert np.array_equal(line.get_xdata(), [-1.0, 0.0, 1.0])
    assert np.array_equal(line.get_ydata(), [np.nan, np.nan, found.columns["input_rms.F"][2]], equal_nan=True)
    assert len(crosses) == 2


def test_the_star_is_on_the_best_run_within_the_bounds_and_rings_are_on_those_left_out() -> None:
    """Gains near the stability limit have the smallest error, and no run of theirs is recommended."""
    found = study([f"{ALPHA}=2:6:3", f"{X2}=0.9:1.1:2"])
    first, second, *_ = found.ranking("rms_violation")
    examined = found.examined([second], {first: {"gain_margin": 1.1}, second: {"gain_margin": 3.0}})
    for of, star in ((found, first), (examined, second)):
        *_, best, rings = draw(of, "rms_violation").axes[0].lines
        assert [*best.get_xdata(), *best.get_ydata()] == [of.columns[ALPHA][star], of.columns[X2][star]]
        assert [*rings.get_xdata()] == [of.columns[ALPHA][i] for i in of.beyond]
    assert examined.beyond == (first,) and examined.columns["gain_margin"][first] == 1.1
    assert draw(examined, "rms_violation").axes[0].get_title("right").endswith("left out, beyond a bound of tune")
    beyond = found.examined([], {first: {"gain_margin": 1.1}})
    assert draw(beyond, "rms_violation").axes[0].get_title("right") == "star: best run; all are beyond a bound of tune"


def test_runs_that_rounding_alone_tells_apart_have_no_star() -> None:
    """A run that begins on its task stays there whatever its gains."""
    run = sc.load("two_mass_spring", ["run.duration=0.1"], engine="vm")
    varies = read_varies([f"{ALPHA}=2:6:3"], run)
    (axes,) = draw(sweep(run, varies, points_of(varies, "grid", 0, 0), "grid", 0), "rms_violation").axes
    assert "star" not in axes.get_title("right") and "*" not in [line.get_marker() for line in axes.lines]


def test_a_run_without_a_value_is_a_square() -> None:
    """A settling time, of a run that never settles: it was missing in picture and table, without a word."""
    for varied in ([f"{ALPHA}=2:6:3"], [f"{ALPHA}=2:6:3", f"{X2}=0.9:1.1:2"], [f"{ALPHA}=2:6:9", f"{X2}=0.9:1.1:9"]):
        found = study(varied, "grid" if varied[0].endswith("3") else "lhs")
        found.columns["settling_time"][1] = None
        found.columns["settling_time"][0] = 0.1
        (axes, *_) = draw(found, "settling_time").axes
        squares = [line for line in axes.get_lines() if line.get_marker() == "s"]
        numbers = np.concatenate([np.asarray(line.get_xdata(), dtype=float) for line in squares])
        lacking = found.lacks("settling_time")
        assert lacking[1] and np.array_equal(numbers, found.numbers(ALPHA)[lacking])
        assert axes.get_title("right").endswith("squares: no value")
        assert "squares" not in draw(found, "rms_violation").axes[0].get_title("right")


def test_random_points_are_scattered_and_three_paths_have_a_panel_each() -> None:
    two = study([f"{ALPHA}=2:6", f"{X2}=0.9:1.1"], "monte-carlo")
    (points,) = draw(two, "max_violation").axes[0].collections
    assert np.array_equal(np.asarray(points.get_offsets())[:, 0], two.columns[ALPHA])
    assert np.array_equal(np.asarray(points.get_array()), two.columns["max_violation"])
    three = study([f"{ALPHA}=2:6", f"{X2}=0.9:1.1", "plant.parameters.k=5:15"], "lhs")
    assert [axes.get_xlabel() for axes in draw(three, "rms_violation").axes] == ["baumgarte alpha [1/s]", "x2 [m]", "k"]


def test_all_runs_failed_ends_with_4_and_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["--vary", "plant.parameters.m1=-2:-1:2", "--vary", f"{ALPHA}=2:3:2", "--engine", "vm"]
    words(4, "sweep", "two_mass_spring", *line, "--out", str(tmp_path))
    said = capsys.readouterr().out
    assert "two_mass_spring: 4 runs, 4 failed" in said
    assert "run 0 failed: " in said
    files = {"config.yaml", "summary.json", "sweep.jsonl", "sweep.parquet", "sweep.png"}
    assert {path.name for path in tmp_path.iterdir()} == files


def test_the_table_shows_the_best_runs_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = [part for setting in [*OFF, "initial.q.x2=1.1"] for part in ("--set", setting)]
    line = ["--vary", f"{ALPHA}=2:20:4", "--metric", "input_max.F", "--engine", "vm"]
    words(0, "sweep", "two_mass_spring", *line, *settings, "--out", str(tmp_path))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("two_mass_spring: 4 runs, 0 failed, in ")
    assert lines[0].endswith("runs per second")
    assert lines[2].split()[:5] == ["run", ALPHA, "[1/s]", "input_max.F", "[N]"]
    values = [float(text.split()[2]) for text in lines[3:] if text[:1].isdigit() and len(text.split()) == 6]
    assert values == sorted(values) and len(values) >= 2  # alpha = 2 with beta = 4 swings past zero by 16 %: left out
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert [int(text.split()[0]) for text in lines[3:6]] == summary["within_bounds"] == [1, 2, 3]
    assert summary["beyond_bounds"] == [0] and summary["best"]["input_max.F"]["run"] == 0


def test_an_open_loop_is_compared_by_its_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words(0, "sweep", "projectile", "--vary", "run.duration=0.1:0.2:2", "--out", str(tmp_path), "--json")
    assert json.loads(capsys.readouterr().out)["best"]["input_rms.Fr"]["run"] == 0


def test_a_plant_that_raises_fails_only_its_own_run(tmp_path: Path) -> None:
    (tmp_path / "ball.py").write_text(BALL)
    (tmp_path / "ball.yaml").write_text(BALL_CONFIG)
    run = sc.load(tmp_path / "ball.yaml")
    found = batch(run, {"plant.parameters.m": [1.0, 13.0, 2.0]})
    assert found["status"] == ["done", "refused", "done"]
    assert "thirteen" in found["error"][1]
    with pytest.raises(ConfigError, match="ball: there is nothing to compare runs by"):
        plan(run, None)


def test_a_plant_that_cannot_be_traced_is_swept_in_numpy_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = []
    for name, sine in (("traced", "np.sin"), ("opaque", "math.sin")):
        code = MASSES.replace("5.0 * np", f"({sine}(q[0]) + 5.0) * np")
        (tmp_path / f"{name}.py").write_text("import math\n" + code)
        config = MASSES_CONFIG.replace("masses.py", f"{name}.py").replace("y - 0.1*sin(t)", "x - 0.1*sin(t)")
        config = config.replace("input_output", "constraint_following").replace(
            "poles: -4", "baumgarte: {alpha: 5, beta: 5}"
        )
        (tmp_path / f"{name}.yaml").write_text(config.replace("v: {y: 0.1}", "v: {x: 0.1}"))
        vary = ["--vary", "plant.parameters.share=0:1:3", "--out", str(tmp_path / name)]
        words(0, "sweep", str(tmp_path / f"{name}.yaml"), *vary)
        tables.append(pq.read_table(tmp_path / name / "sweep.parquet").to_pylist())
        said = capsys.readouterr().err
        assert said.startswith("warning: the plant runs in NumPy") == (name == "opaque")
    for traced, opaque in zip(*tables, strict=True):
        assert opaque["input_rms.F"] == pytest.approx(traced["input_rms.F"], rel=1e-12)  # the order of sums may differ


def test_the_folder_of_a_sweep_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words(0, "sweep", "two_mass_spring", "--vary", f"{ALPHA}=2:3:2", "--engine", "vm")
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("two_mass_spring-sweep-")


def test_the_table_leaves_out_runs_at_the_edge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "masses.yaml"
    path.write_text(f"{TWO_MASSES}run: {{duration: 0.3, period: 0.01}}\n")
    words = ["--vary", "law.correction.baumgarte.alpha=10:90:9", "--engine", "vm", "--out", str(tmp_path / "out")]
    assert exit_code("sweep", path, *words) == 0
    said = capsys.readouterr().out
    rows = [line.split() for line in said.splitlines() if line[:1].isdigit() and len(line.split()) == 6]
    assert [row[0] for row in rows] == ["0", "1", "2"]  # alpha h of 0.1, 0.2, 0.3; 0.4 and above: no gain margin of 2
    assert "gain_share  overshoot  gain_margin" in said
    assert "left out: 6 runs beyond a bound of tune.share, tune.overshoot, tune.gain_margin" in said
    assert exit_code("sweep", path, *words, "--set", "tune={search: {run.period: [0.01]}, gain_margin: 50}") == 0
    said = capsys.readouterr().out
    rows = [line.split() for line in said.splitlines() if line[:1].isdigit() and len(line.split()) == 6]
    assert [row[0] for row in rows] == ["0", "1", "2", "3", "4"]  # no run has this margin: the best are shown
    assert "all of these are beyond a bound of tune.share, tune.overshoot, tune.gain_margin" in said
