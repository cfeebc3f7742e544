"""Levels of passive constraints in a config: refused inputs, and the report of `check` against batch solutions."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import servoctl as sc
from plants.three_rrr import ThreeRRR
from servoctl.check.report import check
from servoctl.check.sections import CheckReport
from servoctl.config import dump, load_config
from servoctl.errors import ConfigError, PlantError
from servoctl.mechanics.hierarchy import (
    Enforced,
    PassiveLevel,
    contradictions,
    declared_levels,
    motions,
)
from servoctl.mechanics.model import Model
from servoctl.types import State
from tests.faces import exit_code
from tests.multipliers import multiplier_equation
from tests.refused import Base, Case, assert_refused, cases

CASE = json.loads((Path(__file__).parent / "data" / "cases.json").read_text())["case6_recursive_kalman_3RRR"]

BEADS = '''
from dataclasses import dataclass
import numpy as np
import servoctl as sc


@dataclass(frozen=True)
class Beads(sc.Plant):
    """Three masses on a line; `tie` follows from `rod` and `wall`, and `pull` moves their sum by t^2 pull / 2."""
    m: float = 2.0
    pull: float = 0.0
    coordinates = {"x": "m", "y": "m", "z": "m"}
    actuators = {}

    def mass_matrix(self, q, t):
        M = np.diag([1.0, 3.0, 1.0])
        M[2, 2] = self.m
        return M

    def force(self, q, v, t):
        return np.array([1.0, -2.0, 4.0])

    def passive_constraints(self, q, t):
        tie = q[0] + q[1] - self.pull * t**2 / 2
        return {"wall": q[0], "rod": q[1] - q[0], "tie": np.array([tie, q[2] - q[1]])}


@dataclass(frozen=True)
class Twins(Beads):
    def passive_constraints(self, q, t):
        return {"equal": q[0] - q[1], "squares": q[0]**2 - q[1]**2}


@dataclass(frozen=True)
class Free(Beads):
    def passive_constraints(self, q, t):
        return {}
'''

LEVELS = """
      ground: {groups: [wall]}
      frame: {groups: [rod], after: [ground]}
      rest: {groups: [tie], after: [frame]}
"""


def text(levels: str = LEVELS, plant: str = '"beads.py:Beads"', parameters: str = "{}") -> str:
    return f"""plant:
  class: {plant}
  parameters: {parameters}
  passive:
    levels:{levels}
initial: {{q: 0}}
law: none
run: {{duration: 0.01}}
"""


@pytest.fixture
def beads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A config in the current folder, so that messages call it c.yaml, beside its plant."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "beads.py").write_text(BEADS)
    file = tmp_path / "c.yaml"
    file.write_text(text())
    return file


def report(file: Path | str, *overrides: str) -> CheckReport:
    return check(sc.load(file, overrides, strict=False))


def section(report: CheckReport) -> list[str]:
    return dict(report.sections)["hierarchy"]


@pytest.mark.parametrize("case", cases("levels"))
def test_wrong_levels_are_refused_all_at_once_with_place_and_remedy(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert_refused(case, Base(text("LEVELS"), beside={"beads.py": BEADS}), tmp_path, capsys)


def test_levels_are_ordered_by_after_and_then_as_in_the_config(beads: Path) -> None:
    beads.write_text(
        text("\n      d: {groups: [wall], after: [b]}\n      c: {groups: [rod]}\n      b: {groups: [tie]}\n")
    )
    assert [level.name for level in sc.load(beads).levels] == ["c", "b", "d"]


def test_a_dumped_config_contains_the_levels(beads: Path) -> None:
    beads.write_text(text(LEVELS.replace("after: [frame]", "clearance: [1e-3, 2*3]")))
    config = load_config(beads).config
    assert config.plant.passive.levels is not None
    assert config.plant.passive.levels["rest"].clearance == (1e-3, 6.0)
    beads.write_text(dump(config))
    assert load_config(beads).config == config


def test_the_order_of_levels_does_not_change_a_run(beads: Path) -> None:
    beads.write_text(text())
    run = sc.load(beads).simulate()
    without = sc.load(beads, ["plant.passive.levels="]).simulate()
    np.testing.assert_array_equal(run.q, without.q)


def shipped(*overrides: str) -> tuple[CheckReport, Any, list[list[int]]]:
    """The report on the 3RRR, its matrices at the start, and the rows of both levels."""
    run = sc.load("three_rrr", overrides, strict=False)
    rows = run.system.model.passive_rows
    index = [[i for i, row in enumerate(rows) if row.group in level.groups] for level in run.levels]
    return check(run), run.system.model.matrices(run.start), index


def test_the_levels_of_the_3rrr_move_as_the_batch_of_their_rows() -> None:
    found, m, (legs, platform) = shipped()
    values = found.to_dict()["hierarchy"]
    assert [*values["levels"]] == ["legs", "platform"]
    assert (len(legs), len(platform)) == (9, 6)
    before = np.linalg.solve(m.M, m.Q)
    np.testing.assert_allclose([*values["free"].values()], before, rtol=0, atol=1e-13)
    for level, rows in zip(values["levels"].values(), [legs, legs + platform], strict=True):
        a = multiplier_equation(m.M, m.Q, m.passive.A[rows], m.passive.b[rows])
        rank = np.linalg.matrix_rank(m.passive.A[rows])
        np.testing.assert_allclose([*level["acceleration"].values()], a, rtol=0, atol=1e-12)
        assert level["trace"] == pytest.approx(18 - rank, abs=1e-12)
        assert level["change"] == pytest.approx(np.abs(a - before).max(), abs=1e-12)
        assert (level["skipped"], level["yields"]) == ([], {})
        before = a
    assert [level["rank"] for level in values["levels"].values()] == [9, 6]
    assert values["levels"]["platform"]["rows"] == [f"wrist_{k}.{i}" for k in "abc" for i in range(2)]
    assert values["off_all_at_once"] < 1e-12
    first, legs_line, platform_line, last = section(found)
    assert first == "level by level at the start, with zero inputs; trace of P: remaining degrees of freedom"
    assert legs_line.startswith("legs: 9 rows of rank 9; trace of P 9; accelerations change by up to ")
    change = values["levels"]["platform"]["change"]
    assert platform_line == (
        f"platform: 6 rows of rank 6; trace of P 3; accelerations change by up to {change:.3g} rad/s^2 (forearm_c_phi)"
    )
    assert last.startswith("difference from all rows at once, without clearance: ")


def test_a_clearance_yields_as_in_the_batch_solution() -> None:
    R = np.array([0.01, 0.0, 0.02, 0.0, 0.5, 0.01])
    found, m, (legs, platform) = shipped(f"plant.passive.levels.platform.clearance={R.tolist()}")
    values = found.to_dict()["hierarchy"]
    level, every = values["levels"]["platform"], legs + platform
    A, b = m.passive.A[every], m.passive.b[every]
    a = multiplier_equation(m.M, m.Q, A, b, R=np.concatenate([np.zeros(9), R]))
    np.testing.assert_allclose([*level["acceleration"].values()], a, rtol=0, atol=1e-11)
    left = dict(zip(level["rows"], (b - A @ a)[9:], strict=True))
    assert [*level["yields"]] == ["wrist_a.0", "wrist_b.0", "wrist_c.0", "wrist_c.1"]
    assert level["yields"] == pytest.approx({name: left[name] for name in level["yields"]}, abs=1e-11)
    assert level["rank"] == 2
    root = np.linalg.inv(np.linalg.cholesky(m.M))
    P = np.eye(18)
    for rows, noise in [(legs, np.zeros((9, 9))), (platform, np.diag(R))]:
        H = m.passive.A[rows] @ root.T
        P = P - P @ H.T @ np.linalg.inv(H @ P @ H.T + noise) @ H @ P
    assert level["trace"] == pytest.approx(np.trace(P), abs=1e-11)
    rigid = multiplier_equation(m.M, m.Q, A, b)
    assert values["off_all_at_once"] == pytest.approx(np.abs(a - rigid).max(), abs=1e-11)
    most = max(level["yields"].items(), key=lambda item: abs(item[1]))
    line = section(found)[2]
    assert line.startswith(f"platform: 6 rows, 4 with clearance, the others of rank 2; trace of P {level['trace']:.7g}")
    assert line.endswith(f"; under all levels {most[0]} yields most, by {most[1]:.3g}")


def test_the_yield_of_an_early_clearance_is_reported_under_all_levels(beads: Path) -> None:
    beads.write_text(text("\n      a: {groups: [wall], clearance: 0.5}\n      b: {groups: [rod, tie], after: [a]}\n"))
    values = report(beads).to_dict()["hierarchy"]["levels"]
    # 1 a = 1 + lambda, -a = lambda / 2: a = 1/3; then the exact rows stop the mass altogether
    assert values["a"]["acceleration"]["x"] == pytest.approx(1 / 3, abs=1e-15)
    assert values["a"]["trace"] == pytest.approx(2 + 1 / 3, abs=1e-14)
    assert values["a"]["yields"] == pytest.approx({"wall": 0.0}, abs=1e-14)
    assert section(report(beads))[1].startswith("a: 1 row, all with clearance; trace of P 2.333333; ")


def test_dependent_rows_are_skipped_by_name(beads: Path) -> None:
    found = report(beads)
    levels = found.to_dict()["hierarchy"]["levels"]
    assert [levels[name]["rank"] for name in ("ground", "frame", "rest")] == [1, 1, 1]
    assert levels["rest"]["skipped"] == ["tie.0"]
    assert section(found)[3] == (
        "rest: 2 rows of rank 1; skipped, since they depend on earlier levels: tie.0; trace of P 0; "
        "accelerations change by up to 2 m/s^2 (z)"
    )
    assert found.errors == []


def test_a_contradiction_between_levels_is_an_error_that_names_level_and_rows(
    beads: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    beads.write_text(text(parameters="{pull: 3}"))
    with pytest.raises(ConfigError) as caught:
        sc.load(beads)
    sentence = (
        "c.yaml:8: plant.passive.levels.rest: level 'rest': tie.0 by 3: cannot be met "
        "(at odds with 'ground' and 'frame': correct b, or give a clearance)"
    )
    assert sentence in caught.value.problems
    for words in (["check", "c.yaml"], ["check", "c.yaml", "--json"], ["run", "c.yaml"]):
        assert exit_code(*words) == 2
        said = capsys.readouterr()
        assert sentence in (json.loads(said.out)["errors"] if "--json" in words else said.err)


DECLARED = '''
from dataclasses import dataclass
from servoctl.mechanics.planar import PlanarLinkage


@dataclass(frozen=True)
class Plates(PlanarLinkage):
    """A plate on a slide carries another on a pin, which may be a level of its own."""
    later: int = 1

    def build(self, linkage):
        linkage.gravity(0.0, -9.81)
        linkage.body("a", m=1.0, J=1.0)
        linkage.body("b", m=2.0, J=1.0)
        linkage.prismatic("guide", "ground", (0, 0), "a", (0, 0), axis=(1, 0))
        linkage.revolute("pin", "a", (0, 0), "b", (0, 0), level=self.later)
'''


@pytest.mark.parametrize(("later", "names"), [(1, []), (2, ["level 1", "level 2"]), (-7, ["level -7", "level 1"])])
def test_a_linkage_declares_its_levels_if_the_config_has_none(beads: Path, later: int, names: list[str]) -> None:
    (beads.parent / "plates.py").write_text(DECLARED)
    beads.write_text(text(" null", '"plates.py:Plates"', f"{{later: {later}}}"))
    found = report(beads)
    assert found.errors == []
    assert [*found.to_dict().get("hierarchy", {"levels": {}})["levels"]] == names


def test_the_levels_that_the_3rrr_declares_are_those_of_its_config() -> None:
    declared, levels = declared_levels(ThreeRRR()), load_config("three_rrr").config.plant.passive.levels
    assert levels is not None
    assert [level.name for level in declared] == ["level 2", "level 3"]
    assert [level.groups for level in declared] == [level.groups for level in levels.values()]


def test_a_singular_mass_matrix_has_no_motion_level_by_level(beads: Path) -> None:
    beads.write_text(text(parameters="{m: 0}"))
    found = report(beads)
    (line,) = section(found)
    assert line.startswith("cannot be enforced: mass matrix: singular without the mechanism constraints, so only")
    assert found.errors == []
    run = sc.load(beads)
    with pytest.raises(PlantError, match="give every body mass and inertia to see level by level"):
        motions(run.system.model, run.start, run.levels)


def test_a_start_that_is_slightly_open_contradicts_no_level(beads: Path) -> None:
    # dependent rows demand different accelerations of a loop whose rates are open; the closed mechanism has none of it
    beads.write_text(text("\n      a: {groups: [equal]}\n      b: {groups: [squares]}\n", '"beads.py:Twins"'))
    run = sc.load(beads, ["initial.q=1", "initial.v=[1, 1.00001, 0]"])
    (found,) = contradictions(run.system.model, run.start, run.levels, 1e-9, 1e-9)
    assert (found.level, found.names, found.against) == ("b", ("squares",), ("a",))
    assert found.residual == pytest.approx((4e-5,), rel=1e-4)


def test_the_json_of_check_is_strict(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("check", "three_rrr", "--json") == 0

    def refuse(word: str) -> None:
        raise AssertionError(word)

    values = json.loads(capsys.readouterr().out, parse_constant=refuse)["hierarchy"]
    assert values["levels"]["platform"]["acceleration"].keys() == ThreeRRR().coordinates.keys()
    assert values["levels"]["legs"]["rank"] == 9


def published() -> list[Enforced]:
    plant, levels = ThreeRRR(), (PassiveLevel("bodies", ()), *declared_levels(ThreeRRR()))
    state = State(0.0, np.array(CASE["state"]["q"]), np.array(CASE["state"]["qd"]))
    return motions(Model(plant, {}, state), state, levels, np.array(CASE["params"]["tau"]))


@pytest.mark.parametrize("level", [1, 2, 3])
def test_the_plants_own_groups_lead_to_the_published_accelerations(level: int) -> None:
    motion = published()[level]
    # the state carries 13 digits, magnified by the condition of the constraints
    np.testing.assert_allclose(motion.acceleration, CASE[f"alpha_level{level}"], rtol=0, atol=1e-8)
    platform = [0.0, -9.81, 0.0] if level < 3 else [1.45061094, -10.71969506, 0.82612908]
    np.testing.assert_allclose(motion.acceleration[-3:], platform, rtol=0, atol=1e-8)
    assert motion.trace == pytest.approx([18, 9, 3][level - 1], abs=1e-12)
