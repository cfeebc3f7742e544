"""What a run and a check say of a task that no gain, step or period can serve, from end to end."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import servoctl as sc
from servoctl.assembly.diagnosis import of_task
from servoctl.check.report import check
from servoctl.run_folder.missed import missed_tasks
from servoctl.run_folder.trajectory import Trajectory
from servoctl.study.batch import batch
from servoctl.types import Status
from tests.config_texts import plant_text
from tests.faces import answer

PLANTS = Path(__file__).parent / "diagnosis_plants"


def changed(folder: Path, name: str, *changes: tuple[str, str]) -> str:
    """A copy of a config of these plants, with other text."""
    for path in PLANTS.glob("*.py"):
        shutil.copy(path, folder)
    text = (PLANTS / f"{name}.yaml").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / f"{name}.yaml").write_text(text)
    return str(folder / f"{name}.yaml")


def checked(capsys: pytest.CaptureFixture[str], config: str) -> dict[str, Any]:
    """What `check --json` says."""
    code, out, _ = answer(capsys, "check", config, "--json")
    assert code == 0
    return dict(json.loads(out))


def test_the_quadrotor_needs_two_integrators_before_its_total_thrust(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Place and yaw are four rows; at acceleration level thrust alone moves the place: rank 2."""
    config = str(PLANTS / "quadrotor.yaml")
    code, out, err = answer(capsys, "run", config, "--out", str(tmp_path / "out"), "--json")
    summary = json.loads(out)
    assert (code, summary["status"], summary["rank_max"]) == (4, "missed", 2)
    assert summary["status_counts"] == {"INFEASIBLE": 1501}
    for text in (err, summary["error"], summary["diagnosis"]):
        assert "x, y, z depend on only one combination of the inputs, F1 + F2 + F3 + F4" in text
        assert "dynamic extension (put 2 integrators before F1 + F2 + F3 + F4" in text
    assert summary["error"].startswith(f"{Status.MISSED.value}: x in 100% of the time")
    report = checked(capsys, config)
    assert [(found["kind"], found["rows"]) for found in report["diagnosis"]] == [("dynamic_extension", ["x", "y", "z"])]
    assert max(found["value"]["baumgarte"]["alpha"] for found in report["recommended"]) < 20.0


@pytest.mark.parametrize("more", [[], ["law.observer.rate=20"], ["estimation={kind: model, noise: {q: 1e-5}}"]])
def test_the_tip_of_a_double_pendulum_runs_away_by_its_internal_dynamics(
    more: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = str(PLANTS / "cart_double_pendulum.yaml")
    sets = [f"--set={each}" for each in (*more, *["run.period=0.001"] * bool(more))]
    code, out, err = answer(capsys, "run", config, "--out", str(tmp_path / "out"), "--json", *sets)
    summary = json.loads(out)
    assert (code, summary["status"]) == (4, "stopped")
    for text in (err, summary["error"]):
        assert "it ran away: internal dynamics: unstable: 2 of 4 modes grow while the task is met" in text
        assert "the fastest pole is 14.03 1/s at the start (choose another output, add an actuator, or feed" in text
        assert "reduce" not in text
        assert "gains" not in text
        assert "period" not in text


def test_a_machine_that_the_law_does_not_know_is_named_when_its_loop_runs_away() -> None:
    gains = [f"law.correction.baumgarte.{name}=30" for name in ("alpha", "beta")]
    changes = ["run.period=0.01", "realism.parameter_error.m1=-0.9", *gains]
    error = str(sc.load("two_mass_spring_off", changes, engine="vm").simulate().summary()["error"])
    assert "(it ran away: the machine is not the law's model: see servoctl analyse, or reduce the step" in error


def test_an_integrator_that_cannot_go_on_names_the_internal_dynamics(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = changed(tmp_path, "cart_double_pendulum", ("duration: 10", "duration: 10, integrator: {method: dop853}"))
    code, out, _ = answer(capsys, "run", config, "--out", str(tmp_path / "out"), "--json")
    assert code == 4
    assert "internal dynamics: unstable" in json.loads(out)["error"]


def test_gains_are_not_recommended_by_a_fast_unstable_internal_mode(capsys: pytest.CaptureFixture[str]) -> None:
    """2.5 times the mode at 14 1/s would be 35 1/s; the tip itself moves with sin(t)."""
    report = checked(capsys, str(PLANTS / "cart_double_pendulum.yaml"))
    assert report["internal"]["modes"][0][0] == pytest.approx(14.03, abs=0.01)
    (found,) = report["recommended"]
    assert found["value"] == {"baumgarte": {"alpha": 5.0, "beta": 5.0}}
    assert "unstable internal dynamics do not count" in " ".join(found["reasons"])
    assert [found["kind"] for found in report["diagnosis"]] == ["internal_dynamics"]


def test_free_motions_at_rest_that_grow_by_e_in_a_week_draw_no_word() -> None:
    """A chain whose tip is held: what 3e-12 m of the start leave of the task's feedback has poles of 2e-6 1/s."""
    held = ("tip_x.holonomic=reach/6*({}) - 1.6371580426", "tip_y.holonomic=reach/6*({}) - 0.288675134595")
    sums = (" + ".join(f"{f}(theta{i})" for i in range(1, 7)) for f in ("cos", "sin"))
    changes = [f"task.{each.format(total)}" for each, total in zip(held, sums, strict=True)]
    run = sc.load("chain", [*changes, "initial.v=0", "law.secondary={}", "law.allocation=minimum_norm"], engine="vm")
    assert run.internal is not None and run.internal.stable is None and run.internal.growing == 0
    assert run.internal.modes[0].real > 1e-6
    assert not [str(found) for found in run.findings if found.kind == "internal_dynamics"]


def test_a_nearly_singular_start_draws_a_word(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    upright = ("{x: 0, theta1: 3.6, theta2: 3.6}", "{x: 0, theta1: 3.1, theta2: 3.2}")
    report = checked(capsys, changed(tmp_path, "cart_double_pendulum", upright))
    gain = report["reach"]["rows"]["tip"]["gain"]
    assert gain == pytest.approx(0.00133, rel=0.01)
    assert any(
        "task.tip: the start is nearly singular" in text and "gain of 0.0013" in text for text in report["warnings"]
    )


def test_two_rows_for_one_input_are_reported_as_too_many(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = changed(tmp_path, "cart_double_pendulum", ("\nlaw:", '\n  - {name: cart, holonomic: "x - 1"}\nlaw:'))
    report = checked(capsys, config)
    (found, _) = report["diagnosis"]
    assert (found["kind"], found["rows"]) == ("too_few_inputs", ["tip", "cart"])
    assert "task: rank 1 of 2 rows: one input can follow at most 1 of them" in found["text"]


OPTIONAL = [('name: x, holonomic: "x"', 'name: x, required: false, holonomic: "x"'),
            ('name: y, holonomic: "y"', 'name: y, required: false, holonomic: "y"'),
            ('name: z, holonomic: "z"', 'name: z, required: false, holonomic: "z"')]  # fmt: skip


def test_a_task_that_is_not_required_may_be_missed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = changed(tmp_path, "quadrotor", *OPTIONAL)
    code, out, _ = answer(capsys, "run", config, "--out", str(tmp_path / "out"), "--json")
    summary = json.loads(out)
    assert (code, summary["status"]) == (0, "done")
    assert summary["status_counts"] == {"INFEASIBLE": 1501}
    assert summary["tasks"]["x"]["max_violation"] > 2.0


def test_only_the_required_task_is_named_if_others_are_optional(tmp_path: Path) -> None:
    found = sc.load(changed(tmp_path, "quadrotor", *OPTIONAL[1:])).simulate().summary()
    assert found["status"] == "missed"
    assert found["error"].startswith(f"{Status.MISSED.value}: x in 100% of the time (")


def test_a_task_of_lower_priority_cannot_be_required(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = changed(tmp_path, "quadrotor", ("{name: z,", "{name: z, priority: 2, required: true,"))
    code, _, err = answer(capsys, "check", config)
    assert code == 2
    assert "required: true, but a task of priority 2 may be missed (leave required out, or use priority 1)" in err


def test_a_sweep_reports_the_same_status_as_a_single_run() -> None:
    run = sc.load(PLANTS / "quadrotor.yaml", ["run.duration=0.2"])
    found = batch(run, {"law.correction.baumgarte.alpha": [1.0, 2.0], "law.correction.baumgarte.beta": [1.0, 2.0]})
    assert found["status"] == ["missed", "missed"]


def trajectory(codes: list[Status], violation: list[float], t: list[float] | None = None) -> Trajectory:
    """A run of one task."""
    columns = {
        "t": np.arange(len(codes), dtype=float) if t is None else np.array(t),
        "violation.a": np.array(violation), "violation_rate.a": np.zeros(len(codes)),
        "residual": np.ones(len(codes)), "status": np.array([status.code for status in codes]),
    }  # fmt: skip
    return Trajectory(columns, {}, {"tasks": {"a": ["a"]}})


IN, OK, LIMIT = Status.INFEASIBLE, Status.OK, Status.SATURATED


@pytest.mark.parametrize(
    ("found", "share"),
    [
        (trajectory([IN] * 5, [1.0] * 5), 1.0),
        (trajectory([LIMIT] * 5, [1.0] * 5), None),  # an input limit took it, by name
        (trajectory([IN, IN, OK, OK, OK], [1.0] * 5), None),
        (trajectory([IN, IN, IN, OK, OK], [1.0] * 5), 0.75),
        (trajectory([IN] * 5, [1e-4] * 5), None),  # within the settling band
        (trajectory([IN, IN, IN, OK, OK], [1.0] * 5, [0.0, 0.1, 0.2, 0.3, 1.0]), None),  # of the time, not of the rows
        (trajectory([IN] * 5, [np.nan] * 5), 1.0),  # a row without a violation: by what of it stays out of reach
    ],
)
def test_a_task_is_missed_where_it_is_out_of_reach_and_off_over_most_of_the_time(
    found: Trajectory, share: float | None
) -> None:
    missed = missed_tasks(found, [])
    assert missed == ({} if share is None else {"a": pytest.approx(share)})
    assert missed_tasks(found, ["a"]) == {}


def test_the_same_extension_is_found_without_symbols() -> None:
    run = sc.load(PLANTS / "quadrotor.yaml", engine="numpy")
    (found,) = of_task(run.system, run.start, run.task_map)
    assert found.kind == "dynamic_extension"


UNICYCLE = plant_text(
    "Craft", "m: float = 2.0; J: float = 0.5", {"x": "m", "y": "m", "a": "rad"}, {"thrust": "N", "turn": "N m"},
    "np.diag([self.m, self.m, self.J])", "np.zeros(3) + 0 * v",
    "np.array([[np.cos(q[2]), 0.0], [np.sin(q[2]), 0.0], [0.0, 1.0]])",
)  # fmt: skip


def craft(folder: Path, task: str, law: str, q: str = "{x: 0.3, y: 0.2, a: 0.4}") -> str:
    """The config of a craft with these tasks."""
    (folder / "craft.py").write_text(UNICYCLE)
    path = folder / "craft.yaml"
    path.write_text(
        f"plant: {{class: 'craft.py:Craft'}}\ninitial: {{q: {q}}}\ntask: [{task}]\nlaw: {law}\nrun: {{duration: 1}}\n"
    )
    return str(path)


POLES = "{kind: input_output, correction: {poles: -2}}"
BAUMGARTE = "{correction: {baumgarte: {alpha: 2, beta: 2}}}"


@pytest.mark.parametrize("law", [BAUMGARTE, POLES])
def test_a_craft_with_thrust_and_turn_extends_its_thrust(tmp_path: Path, law: str) -> None:
    """y'' = R(a) (thrust, 0) / m: the turn appears in y'''' once thrust'' is the input."""
    run = sc.load(craft(tmp_path, '{name: x, holonomic: "x - t"}, {name: y, holonomic: "y"}', law))
    (found,) = of_task(run.system, run.start, run.task_map)
    assert (found.kind, found.rows) == ("dynamic_extension", ("x", "y"))
    assert "put 2 integrators before thrust in the plant" in str(found)


def test_rows_that_stay_dependent_in_every_extension_are_reported_as_dependent(tmp_path: Path) -> None:
    rows = '{name: a, holonomic: "a - 0.4"}, {name: twice, holonomic: "2*a - 0.8 + 0*x"}'
    run = sc.load(craft(tmp_path, rows, BAUMGARTE))
    (found,) = of_task(run.system, run.start, run.task_map)
    assert (found.kind, found.rows) == ("dependent_rows", ("a", "twice"))
    assert "task: rank 1 of 2 rows: a, twice depend on only one combination of the inputs, turn" in str(found)


ROLLING = plant_text(
    "Skate", "m: float = 2.0; held: int = 0", {"x": "m", "y": "m", "a": "rad", "z": "m"}, {"push": "N"},
    "np.diag([self.m, self.m, 1.0, 1.0])", "np.zeros(4) + 0 * v",
    "np.array([[np.cos(q[2])], [np.sin(q[2])], [0.0], [0.0]])",
    """
    def passive_constraints(self, q, t):
        return {"floor": q[3]} if self.held else {}

    def passive_rates(self, q, v, t):
        return {"blade": v[0] * np.sin(q[2]) - v[1] * np.cos(q[2])}
""",
)  # fmt: skip


@pytest.mark.parametrize(
    ("held", "expected"),
    [(0, {"p_feedback": {"P": 0.1}}), (1, {"p_feedback": {"P": 0.1, "rate": 10.0}})],
)
def test_a_recommended_passive_correction_fits_the_kind_of_its_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], held: int, expected: dict[str, Any]
) -> None:
    (tmp_path / "skate.py").write_text(ROLLING)
    config = (
        f"plant: {{class: 'skate.py:Skate', parameters: {{held: {held}}}}}\ninitial: {{q: 0, v: 0}}\n"
        "law: none\nrun: {duration: 0.1}\n"
    )
    (tmp_path / "skate.yaml").write_text(config)
    (found,) = checked(capsys, str(tmp_path / "skate.yaml"))["recommended"]
    assert (found["field"], found["value"]) == ("plant.passive.correction", expected)
    taken = config.replace("}}\ninit", f"}}, passive: {{correction: {json.dumps(expected)}}}}}\ninit")
    (tmp_path / "skate.yaml").write_text(taken)
    assert sc.load(tmp_path / "skate.yaml").simulate().metadata["status"] == "done"


AT_THE_START = "initial: task.far is not finite at the start, x = 0, y = 0, a = 0"


@pytest.mark.parametrize(
    ("equation", "said"),
    [
        *((equation, AT_THE_START) for equation in ("y - sqrt(t)", "log(y)", "y/t")),
        ("asin(x - 100)*y", "task rows far have no finite value at the start and at 5 states near it"),
    ],
)
@pytest.mark.parametrize("command", ["run", "check"])
def test_an_input_output_row_without_a_value_at_or_near_the_start_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], equation: str, said: str, command: str
) -> None:
    config = craft(tmp_path, f'{{name: far, holonomic: "{equation}"}}', POLES, "0")
    code, _, err = answer(capsys, command, config)
    assert code == 2
    assert said in err and "bug" not in err


def test_findings_are_listed_by_the_path_that_they_are_about(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A period too long for the gains is an error; an obstacle that no bound uses is a warning."""
    post = tmp_path / "post.yaml"
    post.write_text("plant: {obstacles: {post: {sphere: {at: [1, 0, 0], radius: 0.1}}}}\n")
    changes = ["--set-file", str(post), "--set", "run.period=10*ms", "--set", "law.correction.baumgarte.alpha=150"]
    code, out, _ = answer(capsys, "check", "two_mass_spring", "--json", *changes)
    report = json.loads(out)
    found = {each["path"]: (each["severity"], each["place"]) for each in report["findings"]}
    assert code == 2
    assert found == {"run.period": ("error", "--set run.period=10*ms"), "plant.obstacles.post": ("warning", "")}
    assert [each["text"] for each in report["findings"]] == report["errors"] + report["warnings"]


def test_findings_of_a_config_that_cannot_be_read_are_json_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the grammar, then of names: on stdout by path, and on stderr in words as without --json."""
    for change, path in (("run.duration=-1", "run.duration"), ("law.limits={G: 3}", "law.limits.G")):
        code, out, err = answer(capsys, "check", "two_mass_spring", "--json", "--set", change)
        (found,) = json.loads(out)["findings"]
        assert (code, found["severity"], found["path"]) == (2, "error", path)
        assert err.splitlines()[-1] == found["text"]


def test_check_says_where_it_knows_nothing_of_what_the_task_leaves_free(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A plant in NumPy has no derivatives; the same plant on symbols has two modes that grow."""
    config = changed(tmp_path, "cart_double_pendulum")
    plant = tmp_path / "cart_double_pendulum.py"
    plant.write_text(plant.read_text().replace("[[1.0], [0.0]", "[[1.0], [0.0 * float(q[0])]"))
    code, out, _ = answer(capsys, "check", config)
    assert code == 0
    title = (
        "internal dynamics\n  not known whether what the task leaves free decays or grows: what runs in NumPy has no"
    )
    assert title in out


def test_damping_is_no_remedy_where_a_second_motor_moves_nothing_more(tmp_path: Path) -> None:
    """Two motors on the cart of the double pendulum: more inputs than rows, and none is free."""
    config = changed(tmp_path, "cart_double_pendulum")
    plant = tmp_path / "cart_double_pendulum.py"
    for old, new in (('{"F": "N"}', '{"F": "N", "G": "N"}'), ("[[1.0], [0.0], [0.0]]", "[[1, 1], [0, 0], [0, 0.0]]")):
        assert old in plant.read_text()
        plant.write_text(plant.read_text().replace(old, new))
    found = check(sc.load(config, engine="vm", strict=False)).warnings
    (text,) = [text for text in found if text.startswith("internal dynamics: unstable")]
    assert text.endswith("(choose another output, add an actuator, or feed the internal state back)")


def test_rounding_of_a_projected_start_is_not_printed() -> None:
    run = sc.load("two_mass_spring", ["initial.q={x1: 1e-20, x2: 1}", "initial.v=0"], engine="vm")
    assert dict(check(run).sections)["start"][:2] == ["x1 = 0 m, rate 0 m/s", "x2 = 1 m, rate 0 m/s"]
