"""Runs side by side in C: each is the run that it would be alone, whatever runs beside it, fails, or is left over.

Plants, tasks, laws, realism and engines at random: the same values give the same rows, verdict and metrics. A saved run
reads back equal, and the exported law gives the commands of the loop. Each draw is a config of a chain of sprung
masses. Its structure comes from a small set, so that few functions are compiled; its numbers are free, and may be
absurd. `SERVOCTL_DRAWS` asks for more draws than a usual session makes, `SERVOCTL_SEED` for others.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import servoctl as sc
from servoctl.assembly.run import Run
from servoctl.engine import compiler
from servoctl.engine.ccode import BatchLibrary, BatchProgram, BatchResult
from servoctl.errors import ServoctlError
from servoctl.export import export
from servoctl.run_folder.trajectory import Trajectory
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.side_by_side import plan_of, summary_of
from servoctl.study.batch import Machine, batch, run_all
from servoctl.study.metrics import metrics_of
from servoctl.types import Array
from tests.config_texts import plant_text
from tests.test_export import built, passes

pytestmark = pytest.mark.skipif(compiler.compiler() is None or compiler.is_tcc(), reason="no C compiler on the path")

ALPHA = "law.correction.baumgarte.alpha"
SHORT = ["run.duration=0.3"]
MEMORY = "flexible_joint_motor_raised"
RK4 = "run.integrator={method: rk4, step: 0.005}"
BOUND = "bounds=[{name: wall, holonomic: '0.03 - x1'}]"
SUMS = 1e-13
"""Relative: sums of squares over some hundred rows, in another order."""

CASES = [
    ("coordinated_robots", SHORT),
    ("coordinated_robots", ["run.duration=0.2995", "run.output_step=0.03"]),  # a last step that is shorter
    ("coordinated_robots", ["run.duration=0.3", "run.period=0.01", "run.output_step="]),
    ("coordinated_robots_limited", [*SHORT, RK4, "run.period=", "run.output_step="]),
    ("two_mass_spring", SHORT),
    (MEMORY, [*SHORT, RK4]),
]


def loaded(name: str, settings: list[str], engine: str = "c") -> Run:
    return sc.load(name, [*settings, "initial.max_violation=1"], engine=engine)


def plan_for(run: Run) -> Any:
    return plan_of(run.loop, run.start.t, run.settings)


def parts_of(run: Run) -> int | None:
    step = run.settings.integrator.step
    return None if run.settings.period is None else max(1, round(run.settings.period / step))


def starts_of(run: Run, count: int) -> Array:
    """The start, and states near it."""
    x = np.concatenate([run.start.q, run.start.v, run.loop.memory_start])
    return x + 1e-3 * np.arange(count)[:, None] * np.sin(np.arange(len(x)))


def taken(run: Run, lanes: int, count: int, parameters: Array | None = None) -> BatchResult:
    loop = run.loop
    assert isinstance(loop, Loop)
    library = BatchProgram(loop.step(parts_of(run)), lanes).load()
    given = np.repeat(loop.parameters[None], count, axis=0) if parameters is None else parameters
    return library.run(plan_for(run), given, starts_of(run, count))


WIDTHS = [(4, 4), (8, 11), (8, 1), (2, 3)]
"""(lanes, runs); 4 lanes of each case are compiled anyway, for the metrics below."""


@pytest.mark.parametrize(
    ("name", "settings", "lanes", "count"),
    [
        *((name, settings, *WIDTHS[0]) for name, settings in CASES),
        pytest.param(*CASES[0], *WIDTHS[0], marks=pytest.mark.optimised),
        *(pytest.param("two_mass_spring", SHORT, *width, marks=pytest.mark.optimised) for width in WIDTHS[1:]),
    ],
)
def test_a_run_ends_where_the_scalar_code_ends_to_the_bit(
    name: str, settings: list[str], lanes: int, count: int
) -> None:
    run = loaded(name, settings)
    loop, plan = run.loop, plan_for(run)
    assert isinstance(loop, Loop) and loop.engine == "c"
    library = loop.c_library(parts_of(run))
    assert library is not None
    outcome = taken(run, lanes, count)
    for start, end, good in zip(starts_of(run, count), outcome.ends, outcome.good, strict=True):
        states, _ = library.steps(start, plan.times, loop.parameters, plan.status, np.array(plan.stops))
        assert good == len(plan.times) == len(states)
        np.testing.assert_array_equal(end, states[-1])


def test_a_failed_run_stops_and_the_others_go_on() -> None:
    run = loaded("two_mass_spring", ["run.duration=3"])
    beyond = ["run.duration=3", f"{ALPHA}=3000"]  # what the step bears, by far
    wild = sc.load("two_mass_spring", beyond, engine="c", strict=False)
    wild.prepare()
    loop, other, plan = run.loop, wild.loop, plan_for(run)
    assert isinstance(loop, Loop) and isinstance(other, Loop)
    parameters = np.array([loop.parameters] * 2 + [other.parameters] + [loop.parameters] * 3)
    parameters[4] *= np.nan
    mixed, alone = taken(run, 8, 6, parameters), taken(run, 8, 6)
    steps = len(plan.times) - 1
    sound = [0, 1, 3, 5]
    assert list(mixed.good[sound]) == [steps + 1] * 4
    for mine, others in zip(vars(mixed).values(), vars(alone).values(), strict=True):
        np.testing.assert_array_equal(mine[sound], others[sound])
    library = other.c_library(None)
    assert library is not None
    states, rows = library.steps(starts_of(run, 3)[2], plan.times, other.parameters, plan.status, np.array(plan.stops))
    assert 0 < mixed.good[2] == len(rows) < steps
    np.testing.assert_array_equal(mixed.ends[2], states[-1])
    assert mixed.of("count")[2, 0] == len(rows[:: plan.every])
    assert mixed.good[4] == 0 and mixed.of("count")[4].sum() == 0
    np.testing.assert_array_equal(mixed.ends[4], starts_of(run, 5)[4])
    for failed in (2, 4):
        assert summary_of(loop, mixed, failed, plan) is None


def test_a_run_whose_squares_overflow_is_simulated_alone() -> None:
    run = loaded("two_mass_spring", SHORT)
    outcome, plan = taken(run, 2, 2), plan_for(run)
    for huge in (1e200, 1e-200, np.inf):
        outcome.metrics[1, 0, 1] = huge
        outcome.metrics[1, 0, 0] = 0.0
        assert summary_of(run.loop, outcome, 1, plan) is None
    assert summary_of(run.loop, outcome, 0, plan) is not None


def test_a_stop_request_ends_the_batch() -> None:
    run = loaded("two_mass_spring", ["run.duration=3000"])
    loop = run.loop
    assert isinstance(loop, Loop)
    library = BatchProgram(loop.step(None), 2).load()
    outcome = library.run(plan_for(run), loop.parameters[None], starts_of(run, 1), np.ones(1, dtype=np.int64))
    assert outcome.good[0] == 0


# The batch of a config ------------------------------------------------------------------------------------------------


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of runs that are taken side by side from now on."""
    sizes: list[int] = []
    original = BatchLibrary.run

    def noted(self: BatchLibrary, plan: Any, parameters: Array, starts: Array, halt: Any = None) -> BatchResult:
        sizes.append(len(starts))
        return original(self, plan, parameters, starts, halt)

    monkeypatch.setattr(BatchLibrary, "run", noted)
    return sizes


def assert_alike(table: dict[str, list[Any]], i: int, single: dict[str, Any]) -> None:
    assert {name for name, values in table.items() if values[i] is not None} == {
        name for name, value in single.items() if value is not None
    }
    for name, value in single.items():
        assert table[name][i] == (pytest.approx(value, rel=SUMS) if isinstance(value, float) else value), name


VARIED = [
    ("two_mass_spring", SHORT, ALPHA, (2.0, 4.0, 7.3)),
    ("two_mass_spring", SHORT, "plant.parameters.m1", (0.5, 1.7)),
    ("two_mass_spring", SHORT, "initial.q.x2", (0.9, 1.0, 1.05)),
    ("two_mass_spring", ["run.duration=0.3", "run.period=0.02"], ALPHA, (2.0, 4.0)),
    ("two_mass_spring", [], "run.duration", (0.1, 0.2, 0.1)),
    ("coordinated_robots", SHORT, "plant.passive.correction.baumgarte.alpha", (3.0, 9.0)),
    ("coordinated_robots", SHORT, "plant.parameters.g", (9.8, 1.6)),
    (MEMORY, [*SHORT, RK4], "law.correction.poles", (-4.0, -6.0)),
    ("two_mass_spring", [*SHORT, BOUND], "plant.parameters.k", (10.0, 12.0)),
    ("coordinated_robots", ["run.duration=0.2995", "run.output_step=0.03"], "plant.parameters.g", (9.8, 1.6)),
    ("coordinated_robots_limited", [*SHORT, RK4, "run.period=", "run.output_step="], "plant.parameters.g", (9.8, 7.0)),
]


@pytest.mark.parametrize(("name", "settings", "path", "values"), VARIED)
def test_every_row_equals_that_of_the_single_run(
    name: str, settings: list[str], path: str, values: tuple[float, ...], blocks: list[int]
) -> None:
    table = batch(loaded(name, settings), {path: values})
    assert sum(blocks) == len(values)
    for i, value in enumerate(values):
        single = loaded(name, [*settings, f"{path}={value!r}"]).simulate()
        assert single.metadata["engine"] == "c"
        assert_alike(table, i, metrics_of(single.summary()))


def test_failed_and_refused_runs_keep_their_rows(blocks: list[int]) -> None:
    run = loaded("two_mass_spring", ["run.duration=3"])
    alphas, masses, springs = [5.0, 5.0, 5.0, 6.0], [1.0, 1.0, -1.0, 1.0], [10.0, 1e300, 10.0, 10.0]
    table = batch(run, {ALPHA: alphas, "plant.parameters.m1": masses, "plant.parameters.k": springs})
    assert table["status"] == ["done", "stopped", "refused", "done"]
    assert "mass_matrix" in table["error"][2] and blocks == [3]
    for i in (0, 1, 3):
        own = ["run.duration=3", f"{ALPHA}={alphas[i]}", f"plant.parameters.k={springs[i]}"]
        assert_alike(table, i, metrics_of(loaded("two_mass_spring", own).simulate().summary()))


def test_the_number_of_threads_changes_no_result() -> None:
    values = list(np.linspace(2.0, 9.0, 4 * 8 + 5))
    tables = [batch(loaded("two_mass_spring", SHORT), {ALPHA: values}, jobs) for jobs in (1, 2, 3)]
    assert tables[0] == tables[1] == tables[2]
    assert tables[0]["status"] == ["done"] * len(values)


def test_runs_of_another_kind_in_between_run_alone(blocks: list[int]) -> None:
    """A period of another number of steps is another function; the order stays."""
    run = loaded("two_mass_spring", [*SHORT, "run.period=0.02"])
    periods = [0.02, 0.02, 0.03]
    table = batch(run, {"run.period": periods})
    assert blocks == [2]
    for i, period in enumerate(periods):
        single = loaded("two_mass_spring", [*SHORT, f"run.period={period}"]).simulate()
        assert_alike(table, i, metrics_of(single.summary()))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("two_mass_spring", [*SHORT, "run.integrator={method: dop853}"]),
        ("two_mass_spring", [*SHORT, "run.output_step=0.0137"]),  # rows between the steps
        ("coordinated_robots", [*SHORT, "plant.passive.projection=true"]),
    ],
)
def test_runs_that_cannot_run_side_by_side_run_one_by_one(name: str, settings: list[str], blocks: list[int]) -> None:
    table = batch(loaded(name, settings), {ALPHA: [4.0, 6.0]})
    assert blocks == []
    for i, alpha in enumerate((4.0, 6.0)):
        expected = metrics_of(loaded(name, [*settings, f"{ALPHA}={alpha}"]).simulate().summary())
        assert {metric: table[metric][i] for metric in expected} == expected


def test_without_a_compiler_the_runs_take_the_virtual_machine(
    blocks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "/no/such/cc")
    run = loaded("two_mass_spring", SHORT)
    table = batch(run, {ALPHA: [4.0, 6.0]})
    assert (blocks, table["engine"], table["status"]) == ([], ["vm", "vm"], ["done", "done"])
    assert any("no C compiler" in line for line in run.warnings)


def test_finished_rows_are_written_early_and_few_runs_wait() -> None:
    run, made = loaded("two_mass_spring", ["run.duration=0.05"]), []

    class Points(list[dict[str, float]]):
        def __getitem__(self, key: Any) -> Any:
            made.append(key)
            return super().__getitem__(key)

    points = Points({ALPHA: 5.0 + i} for i in range(1000))
    rows = run_all(run, points, Machine(2))
    assert next(rows)["status"] == "done"
    assert len(made) == 5  # two blocks for each thread wait, and one is handed out
    rows.close()  # type: ignore[attr-defined]
    assert len(made) == 5


def test_auto_compiles_if_it_pays(tmp_path: Path, blocks: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVOCTL_CACHE", str(tmp_path))
    run = loaded("two_mass_spring", SHORT, engine="auto")
    assert batch(run, {ALPHA: [4.0, 6.0]})["engine"] == ["vm", "vm"] and blocks == []
    monkeypatch.setattr("servoctl.simulation.engine_choice.LONG", 0.1)  # 1000 runs of five steps
    many = batch(run, {ALPHA: list(np.linspace(3.0, 9.0, 1000))})
    assert set(many["engine"]) == {"c"} and sum(blocks) == 1000


CHAIN = plant_text(
    "Chain", "m1: float = 1.0; m2: float = 1.0; k: float = 1.0; d: float = 0.1", "x y", "F G",
    "np.diag([self.m1, self.m2 + 0.1 * self.m2 * np.cos(q[0])])",
    "(self.k * (q[1] - q[0]) + self.d * np.maximum(v[1] - v[0], 0.0)) * np.array([1.0, -1.0])"
    " - self.d * v[1] * np.array([0.0, 1.0])",
    "np.array([[1.0, -0.3], [0.0, 1.0]])",
)  # fmt: skip
HEAD = "plant: {class: 'chain.py:Chain'}\ninitial: {q: {x: 0.1, y: 0}, max_violation: 100}\n"
STRUCTURES = {
    "plain": "task: [{name: a, holonomic: x}]\nlaw: {correction: {baumgarte: {alpha: 4, beta: 4}}}\n",
    "limits": "task: [{name: a, holonomic: x - 0.1*sin(t)}, {name: b, holonomic: y, priority: 2}]\n"
    "law: {correction: {baumgarte: {alpha: 4, beta: 4}}, limits: {F: 1, G: 1}}\n",
    "rolling": "task: [{name: a, nonholonomic: 'der(x) - der(y) - 0.1'}]\nlaw: {correction: {p_feedback: {P: 0.2}}}\n",
}
REAL = (
    "realism: {delay: 10*ms, jitter: 3*ms, lag: {F: 5*ms}, noise: {q: 1e-6}, saturation: {G: 5}, "
    "friction: {viscous: 0.1}, parameter_error: {m1: 0}}\n"
)
KINDS = [(name, real) for name in STRUCTURES for real in (False, True)]
DRAWS = int(os.environ.get("SERVOCTL_DRAWS", "8"))
"""Draws per case; each makes a single run, a quarter of them on two engines, and all together one batch."""

SEED = int(os.environ.get("SERVOCTL_SEED", "0"))

ROUNDING = 1e-6
"""Relative: engines round differently, and a run of 0.3 s of the steepest gains multiplies that."""


def drawn(random: np.random.Generator, name: str, real: bool) -> dict[str, list[float]]:
    """Path -> numbers; some masses are negative, some gains beyond what the period allows."""
    wide = lambda low, high: (10.0 ** random.uniform(low, high, DRAWS)).tolist()  # noqa: E731
    # the step of 1 ms resolves all of these: where it does not, engines differ by what their rounding grows to
    found = {f"plant.parameters.{key}": wide(-1, 2) for key in ("m1", "m2", "k")}
    found["plant.parameters.d"] = wide(-2, 1)
    found["plant.parameters.m1"][::7] = [-1.0] * len(found["plant.parameters.m1"][::7])
    found["initial.q.x"] = random.uniform(-1, 1, DRAWS).tolist()
    if name == "rolling":
        found["law.correction.p_feedback.P"] = wide(-3, 1)
    else:
        alphas = wide(-1, 2.5)
        found |= {"law.correction.baumgarte.alpha": alphas, "law.correction.baumgarte.beta": alphas}
    if real:
        found["realism.parameter_error.m1"] = random.uniform(-0.95, 2, DRAWS).tolist()
        found["realism.delay"] = random.uniform(0, 0.02, DRAWS).tolist()
        found["run.seed"] = random.integers(0, 100, DRAWS).astype(float).tolist()
    return found


def words(values: dict[str, float]) -> list[str]:
    return [f"{key}={int(value) if key == 'run.seed' else repr(value)}" for key, value in values.items()]


def made(path: Path, values: dict[str, float], engine: str) -> tuple[str, str | None, Trajectory | None]:
    """Status, error and rows of the single run with these values."""
    try:
        run: Run = sc.load(path, words(values), engine=engine)
        found = run.simulate()
    except ServoctlError as error:
        return "refused", str(error), None
    return found.metadata["status"], found.metadata.get("error"), found


def assert_same_motion(one: Trajectory, other: Trajectory) -> None:
    for name, column in one.columns.items():
        if name in ("residual", "pivot_min", "status", "rank") or name.startswith("given_up"):
            continue
        scale = max(float(np.abs(np.nan_to_num(column)).max(initial=0.0)), 1e-3)
        np.testing.assert_allclose(other[name], column, atol=ROUNDING * scale, err_msg=name)


def assert_read_back(rows: Trajectory, folder: Path) -> None:
    """Equal to the bit, NaN included."""
    again = sc.load_run(sc.save(rows, folder))
    assert list(again.columns) == list(rows.columns)
    for name, column in rows.columns.items():
        np.testing.assert_array_equal(again[name], column, err_msg=name)
    assert again.summary() == rows.summary()


def assert_same_metrics(row: dict[str, Any], single: dict[str, Any]) -> None:
    rounding = 1e-9 * max(1.0, single["max_violation"])
    for name, value in single.items():
        if name not in ("engine", "error") and isinstance(value, float) and abs(value) < 1e100:
            assert row[name] == pytest.approx(value, rel=1e-9, abs=rounding), name


@pytest.mark.parametrize(("name", "real"), KINDS)
def test_the_same_values_give_the_same_rows_verdict_and_metrics(tmp_path: Path, name: str, real: bool) -> None:
    (tmp_path / "chain.py").write_text(CHAIN)
    path = tmp_path / "chain.yaml"
    path.write_text(f"{HEAD}{STRUCTURES[name]}run: {{duration: 0.3, period: 0.01}}\n{REAL if real else ''}")
    values = drawn(np.random.default_rng([len(name), real, SEED]), name, real)
    table = batch(sc.load(path, engine="c"), values)
    seen, exported = set(), False
    for i in range(DRAWS):
        point = {key: of[i] for key, of in values.items()}
        status, error, rows = made(path, point, "vm")
        seen.add(status)
        assert table["status"][i] == status, (point, table["error"][i], error)
        if rows is None:
            continue
        if i % 8 == 0:
            assert_read_back(rows, tmp_path / "saved")
        if status == "done" and not exported:
            made_law, exported = export(sc.load(path, words(point), engine="vm")), True
            assert passes(built(made_law, tmp_path / "law")) > made_law.vectors
        if i % 4 == 0:
            again, _, numbers = made(path, point, "numpy")
            assert again == status and numbers is not None
            if status == "done":
                assert_same_motion(rows, numbers)
        if status == "done":
            assert_same_metrics({key: of[i] for key, of in table.items()}, metrics_of(rows.summary()))
    assert {"done", "refused"} <= seen
