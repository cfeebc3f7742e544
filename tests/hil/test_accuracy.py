"""The error that a loop explains, and the figures of a run at its end by their names and units."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hil.session.accuracy import explained_errors, impulse_norm, initial_response
from hil.session.start import Request, start
from servoctl.cli import main
from servoctl.cli.hil import say_figures
from tests.config_texts import plant_text
from tests.faces import on_drives

PLANT = plant_text(
    "Mass",
    "m: float = 2.0; load: float = 0.0",
    {"x": "m"},
    {"F": "N"},
    "np.array([[self.m]])",
    "np.array([-self.load])",
)
CONFIG = """
plant: {{class: "mass.py:Mass", parameters: {{load: {load}}}}}
initial: {{q: 0}}
task: [{{name: x, holonomic: "x - {path}"}}]
law: {{correction: {{baumgarte: {{alpha: 10, beta: 10}}}}}}
run: {{duration: 6}}
hil:
  period: {period}
  buses: {{main: {{interface: emulated}}}}
  drives:
    - {{actuator: F, bus: main, protocol: cia402, node: 1, gear: 1, rated_torque: {rated}, torque_limit: 40,
       torque_rate_limit: 1e5, speed_limit: 10, position_limits: [-5, 5], brake: true, counts_per_turn: {counts},
       velocity_unit: 2*pi/{counts}}}
  emulation: {{current_lag: {lag}, coulomb_friction: {friction}}}
"""
PERIOD, LAG, STIFFNESS = 0.002, 0.001, 100.0


def ran(folder: Path, **changes: object) -> tuple[np.ndarray, np.ndarray, float]:
    """Task time, true x, and the bound."""
    (folder / "mass.py").write_text(PLANT)
    usual = {"load": 0, "path": "0", "period": PERIOD, "rated": 1, "counts": 2**24, "lag": LAG, "friction": 0}
    (folder / "mass.yaml").write_text(CONFIG.format(**usual | changes))
    begun = start(Request(folder / "mass.yaml"))
    ended = begun.run(None, lambda event: None)
    assert ended.exit_code == 0
    trajectory = ended.trajectory
    full = trajectory["stage"] == trajectory["stage"][trajectory["task_time"] > 0].min()
    return trajectory["task_time"][full], trajectory["true_q.x"][full], explained_errors(begun.setup, trajectory)["x"]


@pytest.mark.parametrize(
    ("gains", "expected"),
    [
        ((5.0,), 1 / 5),  # e' + 5 e = w
        ((100.0, 20.0), 1 / 100),  # critically damped: no sign change, so the area is the gain at rest
        ((6.0, 5.0), 1 / 6),
        ((24.0, 50.0, 35.0, 10.0), 1 / 24),  # (s + 1)(s + 2)(s + 3)(s + 4)
        # h = exp(-s t) sin(w t) / w: areas of its half waves are a geometric series
        ((200.0, 0.5), (1 / 200) / math.tanh(math.pi * 0.25 / (2 * math.sqrt(200 - 0.0625)))),
    ],
)
def test_the_area_under_an_impulse_response(gains: tuple[float, ...], expected: float) -> None:
    assert impulse_norm(gains) == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize("gains", [(0.0,), (-1.0,), (0.0, 3.0), (4.0, 0.0), (-4.0, 2.0)])
def test_a_row_that_does_not_come_to_rest_has_no_bound(gains: tuple[float, ...]) -> None:
    assert math.isnan(impulse_norm(gains))
    assert math.isnan(initial_response(gains, np.ones(2)))


def test_an_undisturbed_row_decays_from_its_start() -> None:
    assert initial_response((4.0,), np.array([0.3])) == pytest.approx(0.3)
    assert initial_response((100.0, 20.0), np.array([0.3, 0.0])) == pytest.approx(0.3)
    # e = v t exp(-10 t), greatest at t = 0.1
    assert initial_response((100.0, 20.0), np.array([0.0, 2.0])) == pytest.approx(2.0 * 0.1 / math.e, rel=1e-3)


def test_a_rounded_torque_under_a_load_lets_the_mass_sink_by_the_missing_part(tmp_path: Path) -> None:
    # 7.09 N in steps of 0.1 N, towards zero: 7.0 N where x is 0, and x = -0.09 / (m k) where it stands
    t, x, bound = ran(tmp_path, load=7.09, rated=100, period=0.002)
    sunk = (7.09 - 7.0) / (2.0 * STIFFNESS)
    assert np.abs(x).max() <= bound <= 20 * sunk
    assert -x[t > 4].mean() == pytest.approx(sunk / 2, abs=sunk)


@pytest.mark.parametrize("lag", [0.0, 0.003])
@pytest.mark.parametrize("period", [0.001, 0.004])
def test_a_late_torque_makes_the_error_that_the_delay_makes(tmp_path: Path, period: float, lag: float) -> None:
    # u = m x_d'', so that w = delay x_d'''; the delay is some 1.5 periods, the lag and the time to read
    t, x, bound = ran(tmp_path, path="0.1*sin(2*t)**3", rated=10, period=period, lag=lag)
    error = x - 0.1 * np.sin(2 * t) ** 3

    def late(delay: float) -> float:
        """Largest |e| of e'' + 20 e' + 100 e = -delay x_d''', from two frequencies."""
        T = np.linspace(0, 2 * np.pi, 5000)
        parts = [(2.0, 0.075), (6.0, -0.025)]
        response = [-delay * a * (1j * w) ** 3 / ((1j * w + 10) ** 2) * np.exp(1j * w * T) for w, a in parts]
        return float(np.abs(np.imag(sum(response))).max())

    assert late(0.5 * period) < np.abs(error).max() < late(3.5 * period + lag + 0.0005)
    assert np.abs(error).max() <= bound <= 20 * np.abs(error).max()


def test_the_error_bound_covers_friction(tmp_path: Path) -> None:
    t, x, bound = ran(tmp_path, path="0.1*sin(2*t)**3", rated=10, friction=1.0)
    error = np.abs(x - 0.1 * np.sin(2 * t) ** 3).max()
    assert 1.0 / (2.0 * STIFFNESS) / 4 < error <= bound <= 20 * error


def test_coarse_encoders_are_in_the_bound(tmp_path: Path) -> None:
    t, x, bound = ran(tmp_path, path="0.1*sin(2*t)**3", rated=10, counts=2000)
    fine = ran(tmp_path, path="0.1*sin(2*t)**3", rated=10)[2]
    step = 2 * np.pi / 2000
    assert np.abs(x - 0.1 * np.sin(2 * t) ** 3).max() <= bound
    # half a step by which position is seen wrong, and half a step that the law makes of it; rates add a little
    assert fine + step <= bound <= fine + 1.5 * step


STALL = "hil.faults=[{kind: stall, at: 0.02, for: 0.0025, since: engaged}]"


def test_the_figures_at_the_end_are_those_of_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["hil", "two_mass_spring_drive", "--duration", "0.1", "--set", STALL, "--out", str(tmp_path / "run")])
    out = capsys.readouterr().out
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    timing, bus = summary["timing"], summary["bus"]["main"]
    parts = (
        r"^[\d.]+ s in total: loading, tracing and compiling [\d.]+ s, bring-up and writing [\d.]+ s, running [\d.]+ s$"
    )
    assert re.search(parts, out, re.MULTILINE)
    header = next(line for line in out.splitlines() if line.startswith("time [us]"))
    assert header.split()[2:] == ["mean", "std", "p50", "p99", "p99.9", "max"]
    durations = {name: timing[f"{name}_s"] for name in ("lateness", "period", "execution", "read", "law", "write")}
    ages = timing["age_s"]
    oldest = max(ages, key=lambda name: float(ages[name]["max"]))
    for name, found in (durations | {f"age of samples (oldest: {oldest})": ages[oldest]}).items():
        said = re.search(rf"^{re.escape(name)} +(.*)$", out, re.MULTILINE)
        assert said is not None, name
        figures = [float(figure) for figure in said[1].split()]
        wanted = [1e6 * found[key] for key in ("mean", "std", "p50", "p99", "p99_9", "max")]
        assert figures == pytest.approx(wanted, rel=1e-3)
    assert set(timing["age_s"]) == {"F", "x2"}
    assert timing["skipped_periods"] == 1 and timing["late_ticks"] == 1
    assert "1 period skipped; at most 1 late tick in a row" in out
    assert f"{timing['ticks']} ticks, 1 of them late by a period or more; least time left in a period -" in out
    assert (
        f"samples: {summary['counts']['missed']} missing at their tick, 0 implausible; 0 invalid frames from drives"
        in out
    )
    load = re.search(r"bus main: load (\d+) % on average, (\d+) % at most, ", out)
    assert load is not None
    # F and x2 each send 1000 frames of 135 bits a second, and F is sent as many: 40.5 %, less where it stalls
    assert 25 <= int(load[1]) <= int(load[2]) <= 50
    assert f"{bus['sent']} frames sent, {bus['received']} received, 0 error frames" in out


def test_a_task_of_several_rows_has_each_with_what_the_loop_explains_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = on_drives("two_mass_spring_drive", out=tmp_path / "run", duration=0.2).trajectory
    one = run["violation.distance"]
    own = {name: values for name, values in run.columns.items() if not name.startswith("violation")}
    rows = replace(
        run,
        columns=own | {"violation.mine.0": one, "violation.mine.1": 2.0 * one},
        metadata=run.metadata | {"tasks": {"mine": ["mine.0", "mine.1"]}},
    )
    say_figures(rows, rows.summary(), {"mine.0": 0.001, "mine.1": 0.002}, {})
    table = [line.split() for line in capsys.readouterr().out.splitlines()]
    first, second = (next(line for line in table if line[:1] == [f"mine.{i}"]) for i in (0, 1))
    assert (first[4], second[4]) == ("0.001", "0.002")
    assert float(second[2]) == pytest.approx(2.0 * float(first[2]), rel=1e-3)
