"""Limits of period, delay and step for given gains, against closed forms and against simulated decay and growth."""

import math
from collections import deque
from pathlib import Path

import numpy as np
import pytest

import servoctl as sc
from servoctl.assembly.gains import Spacing
from servoctl.check.report import check
from servoctl.laws.corrections import Poles
from servoctl.laws.hold import RowFeedback, longest_spacing
from servoctl.linear import analyse
from servoctl.mechanics.constraint_rows import Row
from servoctl.mechanics.timing import Timing
from servoctl.types import Array

FIRST, SECOND, THIRD = (0.0, 1.0, False), (2.0, 1.0, True), (3.0, 1.0, True, (3.0,))
"""(damping, stiffness, has_rate, higher) with every pole at -1."""


def longest(gains: tuple[float, ...], delay: int) -> float:
    return longest_spacing(RowFeedback(*gains), Timing(1.0, delay=delay))


@pytest.mark.parametrize("delay", range(5))
def test_the_limit_of_p_feedback_is_the_closed_form(delay: int) -> None:
    assert longest(FIRST, delay) == pytest.approx(2 * math.sin(math.pi / (2 * (2 * delay + 1))), rel=1e-9)


@pytest.mark.parametrize(("delay", "limit"), [(0, 1.0), (1, 0.426), (2, 0.258)])
def test_the_limit_of_baumgarte_puts_a_root_on_the_unit_circle(delay: int, limit: float) -> None:
    """z^d (z - 1)^2 + 2 a h (z - 1) + a^2 h^2 (z + 1) / 2 = 0, written down from the hold by hand."""
    h = longest(SECOND, delay)
    assert h == pytest.approx(limit, abs=5e-4)
    for factor in (0.999, 1.001):
        x = factor * h
        plant = np.polymul([1.0] + [0.0] * delay, [1.0, -2.0, 1.0])
        radius = np.abs(np.roots(np.polyadd(plant, [2 * x + x**2 / 2, -2 * x + x**2 / 2]))).max()
        assert (radius > 1.0) == (factor > 1.0)


def sampled_error(gains: tuple[float, ...], h: float, delay: int) -> Array:
    """|y| of a chain of integrators under a command that is computed, waits, and is held: no eigenvalues."""
    damping, stiffness, has_rate, *higher = gains
    feedback = [stiffness, damping, *(higher[0] if higher else ())] if has_rate else [stiffness]
    z, waiting, sizes = np.array([1.0] + [0.0] * (len(feedback) - 1)), deque([0.0] * delay), []
    for _ in range(4000):
        waiting.append(-float(np.dot(feedback, z)))
        chain = [*z, waiting.popleft()]
        z = np.array([sum(h**k / math.factorial(k) * x for k, x in enumerate(chain[i:])) for i in range(len(z))])
        sizes.append(np.abs(z).max())
    return np.array(sizes)


@pytest.mark.parametrize("delay", [0, 1, 2, 4])
@pytest.mark.parametrize("gains", [FIRST, SECOND, THIRD, (0.4, 1.0, True)])
def test_two_percent_below_the_limit_it_decays_and_above_it_grows(gains: tuple[float, ...], delay: int) -> None:
    h = longest(gains, delay)
    below, above = (sampled_error(gains, factor * h, delay) for factor in (0.98, 1.02))
    assert below[-50:].max() < below[:50].max() / 2
    assert above[-50:].max() > 2 * above[:50].max()


def test_rk4_has_a_largest_stable_step() -> None:
    assert longest_spacing(RowFeedback(*SECOND), Timing(None)) == pytest.approx(2.785293563405282, rel=1e-3)


@pytest.mark.parametrize("method", ["dop853", "radau"])
def test_a_method_that_adapts_its_step_has_no_limit(method: str) -> None:
    assert Spacing("run.integrator.step", Timing(None), None, method).longest(RowFeedback(*SECOND)) == math.inf


def test_an_undamped_row_is_unstable_at_any_period() -> None:
    assert longest_spacing(RowFeedback(0.0, 4.0), Timing(1.0)) == 0.0


def test_poles_come_back_from_the_gains_of_poles() -> None:
    gains = Poles([-1.0, -2.0, -5.0])
    ((damping, stiffness, *higher),) = gains.gains([Row("y", "y", "holonomic", True, True, 3)])
    assert sorted(RowFeedback(damping, stiffness, True, tuple(higher)).poles.real) == pytest.approx([-5.0, -2.0, -1.0])


PLANE = """
plant: {class: "tests.small_plants:Masses"}
initial: {q: 0, v: {x: 0, y: 1}}
task: [{name: line, holonomic: x}]
law: {correction: {baumgarte: {alpha: 5, beta: 5}}}
run: {duration: 4, period: 0.02, integrator: {method: rk4, step: 0.01}}
"""


@pytest.mark.parametrize("delay", [0, 1])
def test_a_damping_of_the_free_motion_has_the_limit_of_a_speed_that_it_slows(tmp_path: Path, delay: int) -> None:
    """v+ = v - D h / m v, or d periods later: a mass of 1 kg that the task leaves free."""
    config, h = tmp_path / "plane.yaml", 0.02
    config.write_text(PLANE)
    limit = 2 * math.sin(math.pi / (2 * (2 * delay + 1))) / h

    def damped(factor: float) -> sc.Run:
        changes = [f"law.secondary.damping={factor * limit}", f"realism.delay={delay * h}"]
        return sc.load(config, changes, engine="vm", strict=False)

    just = damped(0.98)
    (warning,) = map(str, just.findings)
    assert not just.refused and warning.startswith("law.secondary.damping: the period of 0.02 s")
    assert warning.endswith("more than half of the longest stable period, 20.4 ms")
    speed = np.abs(just.simulate().v[:, 1])
    assert speed[-20:].max() < 0.7 * speed[:20].max()
    (problem,) = map(str, damped(1.02).refused)
    assert problem.startswith(f"{config}:6: run.period: law.secondary.damping: unstable at a period of 0.02 s")
    assert problem.endswith("these gains are stable up to a period of 19.6 ms (shorten it, or lower the gains)")


def test_a_damping_where_the_task_cannot_be_met_is_a_warning(tmp_path: Path) -> None:
    config = tmp_path / "plane.yaml"
    config.write_text(PLANE)
    run = sc.load(config, ["law.on_infeasible=damp", "law.damping=101"], engine="vm")
    assert [str(found) for found in run.findings if found.path == "law.damping"] == [
        "law.damping: unstable at a period of 0.02 s: these gains are stable up to a period of 19.8 ms "
        "(shorten it, or lower the gains)"
    ]


NO_LAG = "hil.emulation.current_lag=0"


def test_check_reports_the_longest_stable_period_in_simulation_and_on_drives() -> None:
    report = check(
        sc.load("coordinated_robots", ["run.period=0.02", "law.correction={baumgarte: {alpha: 20, beta: 20}}", NO_LAG])
    )
    simulated, on_drives = report.values["gains"]["level"], report.values["hil_gains"]["level"]
    assert simulated["longest"] == pytest.approx(1.0 / 20.0, rel=1e-9)
    assert simulated["margin"] == pytest.approx(2.5, rel=1e-9)
    assert on_drives["longest"] == pytest.approx(0.42616 / 20.0, rel=1e-4)
    assert on_drives["margin"] == pytest.approx(0.42616 / 20.0 / 0.0025, rel=1e-4)
    assert not report.errors and not any("period" in warning for warning in report.warnings)


@pytest.mark.parametrize(("alpha", "said", "refused"), [(80, 0, 0), (90, 3, 0), (165, 3, 0), (175, 0, 3)])
def test_check_warns_of_drives_from_half_of_the_limit_and_refuses_beyond(alpha: float, said: int, refused: int) -> None:
    """alpha h = 0.426 with one cycle of delay: 170 1/s at 2.5 ms."""
    run = sc.load("coordinated_robots", [f"law.correction={{baumgarte: {{alpha: {alpha}, beta: {alpha}}}}}", NO_LAG])
    report = check(run)
    assert len([line for line in report.warnings if "more than half of the longest stable" in line]) == said
    errors = [line for line in report.errors if "hil.period: task." in line]
    assert len(errors) == len(report.errors) == refused
    if refused:
        assert (
            "unstable at a period of 0.0025 s (delay 1 cycle): these gains are stable up to a period of 2.44 ms"
            in errors[0]
        )


def recommended(config: str, *overrides: str) -> dict[str, tuple[dict[str, object], str]]:
    found = check(sc.load(config, overrides, engine="vm", strict=False)).values["recommended"]
    return {one["field"]: (one["value"], "; ".join(one["reasons"])) for one in found}


def test_the_recommendation_follows_the_fastest_motion_of_the_task() -> None:
    """The task of the robots moves with cos(3 t): 3 1/s, so 7.5 1/s."""
    value, reasons = recommended(
        "coordinated_robots",
        "task.object_y.holonomic=l*sin(theta1) + l*sin(theta2) + l/2*sin(theta3) - l/2*(1 - cos(3*t))",
    )["law.correction"]
    assert value == {"baumgarte": {"alpha": 7.5, "beta": 7.5}}
    assert "that object_y prescribes: 3 1/s" in reasons


def test_dependent_rows_are_projected_and_check_and_run_warn_of_a_correction_instead() -> None:
    corrected = "plant.passive.correction={baumgarte: {alpha: 20, beta: 20}}"
    value, reasons = recommended("parallelogram_flat", corrected)["plant.passive"]
    assert value == {"projection": True}
    assert "mechanism rows are dependent" in reasons
    said = sc.load("parallelogram_flat", [corrected], engine="vm").warnings
    assert said == [f"{reasons} (set plant.passive.projection: true)"]
    assert not recommended("parallelogram_flat")
    assert sc.load("parallelogram_flat", engine="vm").warnings == []


def test_recommended_poles_are_stable_with_half_and_twice_the_torque_where_the_plant_has_springs() -> None:
    """2.5 times the motion of the task, 8.7 1/s, is far below the drive's spring: a torque 0.3 % larger is unstable."""
    value, reasons = recommended("harmonic_drive")["law.correction"]
    assert "with 8.73 1/s, half or twice the torque would make the loop unstable" in reasons
    slow, chosen = (
        analyse(sc.load("harmonic_drive", [f"law.correction.poles={poles}"], engine="vm"), change=0.0).margins[-1].worst
        for poles in (-8.7, value["poles"])
    )
    assert slow["gain"] < 1.01
    assert chosen["gain"] > 1.9 and chosen["gain_down"] < 0.55


def test_a_coarse_step_bounds_the_recommendation() -> None:
    value, reasons = recommended("coordinated_robots", "run.integrator.step=0.05", "run.output_step=0.05")[
        "law.correction"
    ]
    assert value == {"baumgarte": {"alpha": 2.0, "beta": 2.0}}  # alpha h = 0.1
    assert "alpha h at most 0.1, because rk4 loses accuracy above" in reasons
    held, reasons = recommended("coordinated_robots", "run.period=0.125", "run.integrator.step=0.005")["law.correction"]
    assert held == {"baumgarte": {"alpha": 4.0, "beta": 4.0}}  # half of alpha h = 1
    assert "half of the stability limit, 8 1/s at a period of 0.125 s" in reasons


def test_the_recommendation_can_be_pasted_into_a_config() -> None:
    for config in ("coordinated_robots", "mass_on_car", "swarm"):
        for one in check(sc.load(config, engine="vm")).values["recommended"]:
            field, _, value = one["text"].partition(": ")
            run = sc.load(config, [f"{field}={value}"], engine="vm")
            assert not run.problems and not any("longest stable" in warning for warning in run.warnings)
