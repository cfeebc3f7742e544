"""The stability limit in the picture of a sweep: cases with a closed form, and cases where runs are refused."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import servoctl as sc
from servoctl.assembly import context, make
from servoctl.study.points import points_of, read_varies
from servoctl.study.sweep import Limit, limits_of, sweep
from servoctl.study.sweep_files import draw
from tests.faces import exit_code

ALPHA, P, PERIOD = "law.correction.baumgarte.alpha", "law.correction.p_feedback.P", "run.period"
SHORT = ["run.duration=0.3", "run.integrator={method: rk4}", "run.output_step=", "initial.max_violation=1"]
FEEDBACK = "law.correction={p_feedback: {P: 1}}"
NO_LAG = "hil.emulation.current_lag=0"
CRITICAL = "law.correction={baumgarte: {alpha: 20, beta: 20}}"


def limits(name: str, settings: list[str], *vary: str) -> dict[str, Limit]:
    run = sc.load(name, [*SHORT, *settings])
    return {limit.name: limit for limit in limits_of(run, read_varies(vary, run))}


@pytest.mark.parametrize(("delay", "feedback", "critical"), [(0, 2.0, 1.0), (1, 1.0, 0.426), (2, 0.618, 0.258)])
def test_the_limit_on_drives_matches_the_closed_form(
    delay: int, feedback: float, critical: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kappa h of first-order feedback, and alpha h of a double pole, by cycles of delay."""
    monkeypatch.setattr(context, "DRIVES_DELAY", delay)
    found = limits("two_mass_spring_drive", [FEEDBACK, NO_LAG], f"{P}=0.0002:0.01")
    (step,) = found["stability limit"].crossings  # the run has no period: what a step of rk4 bears
    assert 0.001 / step == pytest.approx(2.7853, abs=5e-4)
    (crossing,) = found["stability limit on drives"].crossings
    assert 0.001 / crossing == pytest.approx(feedback, abs=5e-4)
    found = limits("two_mass_spring_drive", [CRITICAL, NO_LAG], "hil.period=0.001:0.1")
    (crossing,) = found["stability limit on drives"].crossings
    assert 20.0 * crossing == pytest.approx(critical, abs=5e-4)


def test_a_limit_over_the_period_traces_no_loop_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """kappa h < 2 of a held first-order feedback, in as many steps of rk4 a period as it takes."""
    run = sc.load("two_mass_spring", [*SHORT, FEEDBACK, f"{P}=0.03", f"{PERIOD}=0.01"], engine="vm")
    monkeypatch.setattr(make, "make_loop", None)
    (limit,) = limits_of(run, read_varies([f"{PERIOD}=0.02:0.15:7"], run))
    assert limit.crossings == [pytest.approx(2.0 * 0.03, abs=5e-4)]


def test_the_limit_over_two_paths_matches_the_closed_form_and_is_drawn() -> None:
    """A period bears kappa h < 2: h = 2 P; on it lie the ends of what ran, beyond it every run is refused."""
    one_function = "run.integrator={method: dop853}"  # rk4 has one for each number of steps in a period
    run = sc.load("two_mass_spring", [*SHORT, FEEDBACK, one_function], engine="vm")
    varies = read_varies([f"{P}=0.01:0.05:4", f"{PERIOD}=0.02:0.15:4"], run)
    study = sweep(run, varies, points_of(varies))
    beyond = study.numbers(PERIOD) >= 2.0 * study.numbers(P)
    assert np.array_equal(study.done, ~beyond) and 3 < beyond.sum() < 13
    assert set(np.array(study.columns["status"])[beyond]) == {"refused"}
    (axes, _) = draw(study, "rms_violation").axes
    crosses = axes.lines[0]
    assert np.array_equal(crosses.get_xdata(), study.numbers(P)[beyond])
    (line,) = [drawn for drawn in axes.collections if hasattr(drawn, "allsegs")]
    corners = np.concatenate(line.allsegs[0])
    assert len(corners) > 50 and corners[:, 1].max() > 0.09
    np.testing.assert_allclose(corners[:, 1], 2.0 * corners[:, 0], rtol=0.01)
    assert [text.get_text() for text in axes.texts] == ["stability limit"]


def test_the_limit_is_drawn_on_logarithmic_axes_too() -> None:
    """Its label cuts a gap into the line as wide as itself: on linear axes up to 3000 that would be the whole line."""
    run = sc.load("two_mass_spring_off", ["run.duration=0.1", "run.period=0.01"], engine="vm")
    varies = read_varies([f"{ALPHA}=1:3000:3:log", "law.correction.baumgarte.beta=1:3000:3:log"], run)
    (axes, _) = draw(sweep(run, varies, points_of(varies)), "rms_violation").axes
    (line,) = [drawn for drawn in axes.collections if hasattr(drawn, "allsegs")]
    corners = np.concatenate([path.vertices for path in line.get_paths()])  # without the gap
    assert corners.min(axis=0) == pytest.approx([1.0, 1.0]) and corners[:, 0].max() == pytest.approx(100.0, rel=0.01)
    assert corners[:, 1].max() > 90.0 and len(corners) > 60


def test_a_limit_that_depends_on_one_of_two_paths_is_a_straight_line() -> None:
    run = sc.load("two_mass_spring", [*SHORT, CRITICAL, "run.period=0.02"], engine="vm")
    varies = read_varies(["plant.parameters.m1=1:2:2", f"{PERIOD}=0.02:0.08:4"], run)
    study = sweep(run, varies, points_of(varies))
    (limit,) = study.limits
    assert limit.crossings == pytest.approx([0.05], rel=1e-3) and list(limit.axes) == [PERIOD]
    (axes, _) = draw(study, "rms_violation").axes
    (line,) = [drawn for drawn in axes.collections if hasattr(drawn, "allsegs")]
    np.testing.assert_allclose(np.concatenate(line.allsegs[0])[:, 1], 0.05, rtol=1e-3)


def test_the_command_prints_the_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = [part for setting in [*SHORT, CRITICAL, "run.period=0.02"] for part in ("--set", setting)]
    line = ["sweep", "two_mass_spring", "--vary", f"{ALPHA}=12:92:5", "--engine", "vm", *settings]
    assert exit_code(*line, "--out", tmp_path) == 0
    said = capsys.readouterr().out
    assert f"\nstability limit: {ALPHA} = 50\n" in said  # alpha h < 1, whatever beta below alpha
    assert "5 runs, 3 failed" in said and "these gains are stable up to" in said
    table = pq.read_table(tmp_path / "sweep.parquet").to_pydict()
    assert table["gain_share"][:2] == pytest.approx([0.24, 0.64], rel=1e-3)  # alpha h
    assert table["gain_share"][2:] == [None] * 3
    assert None not in table["overshoot"][:2] and None not in table["gain_margin"][:2]


def test_output_step_does_not_change_the_metrics() -> None:
    """phi'' + 2 alpha phi' + alpha^2 phi = 0 from rest: u jumps and decays between two rows."""
    start = ["run.duration=0.4", "initial.q={x1: 0, x2: 1.02}", "initial.v=0"]
    columns = []
    for step in ("0.2", ""):
        run = sc.load("two_mass_spring", [*start, CRITICAL, f"run.output_step={step}"], engine="vm")
        varies = read_varies([f"{ALPHA}=20:40:2"], run)
        columns.append(sweep(run, varies, points_of(varies)).columns)
    assert columns[0] == columns[1] and columns[0]["status"] == ["done", "done"]


@pytest.mark.parametrize(
    "vary",
    [
        ["plant.parameters.k=5:15"],
        [f"{ALPHA}=1:3"],  # all of it below the limit
        [f"{ALPHA}=1:100", "law.correction.baumgarte.beta=1:100", f"{PERIOD}=0.01:0.1"],  # a surface
        [f"{PERIOD}=-2:-1"],  # nothing that a config takes
    ],
)
def test_no_line_is_drawn_without_a_limit(vary: list[str]) -> None:
    run = sc.load("two_mass_spring", [*SHORT, "run.period=0.02"])
    assert limits_of(run, read_varies(vary, run)) == ()
