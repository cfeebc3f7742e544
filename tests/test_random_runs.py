"""Plants, tasks, laws, realism and engines at random: the same values give the same rows, verdict and metrics.

A saved run reads back equal, and the exported law gives the commands of the loop.

Each draw is a config of a chain of sprung masses. Its structure comes from a small set, so that few functions are
compiled; its numbers are free, and may be absurd. `SERVOCTL_DRAWS` asks for more draws than a usual session makes,
`SERVOCTL_SEED` for others.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import servoctl as sc
from servoctl.assembly.run import Run
from servoctl.engine import compiler
from servoctl.errors import ServoctlError
from servoctl.export import export
from servoctl.run_folder.trajectory import Trajectory
from servoctl.study.batch import batch
from servoctl.study.metrics import metrics_of
from tests.config_texts import plant_text
from tests.test_export import built, passes

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
CASES = [(name, real) for name in STRUCTURES for real in (False, True)]
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


def assert_alike(one: Trajectory, other: Trajectory) -> None:
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


@pytest.mark.skipif(compiler.compiler() is None or compiler.is_tcc(), reason="no C compiler on the path")
@pytest.mark.parametrize(("name", "real"), CASES)
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
                assert_alike(rows, numbers)
        if status == "done":
            assert_same_metrics({key: of[i] for key, of in table.items()}, metrics_of(rows.summary()))
    assert {"done", "refused"} <= seen
