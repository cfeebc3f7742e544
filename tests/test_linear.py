"""The linearised closed loop: against roots, closed forms, measured decay, and python-control's own differences.

Poles where the plant is not what the law takes it for, against the error's equation written down by hand.
"""

import json
import math

import control
import numpy as np
import pytest

import servoctl as sc
from servoctl.assembly.make import make_system
from servoctl.cli import main
from servoctl.errors import ConfigError, TaskError
from servoctl.laws.corrections import Correction
from servoctl.linear import analyse
from servoctl.linear.convert import state_at
from servoctl.linear.loop import LocalLoop, local, timings
from servoctl.linear.margins import AROUND, CACHED, POINTS, _frequencies, margins
from servoctl.linear.modes import means_of_clusters, modes
from servoctl.linear.reserve import reserve
from servoctl.mechanics.timing import Timing
from servoctl.simulation.engine_choice import make_loop
from servoctl.simulation.settings import Integrator, Settings
from servoctl.types import State
from tests.faces import exit_code
from tests.small_plants import Masses


def test_a_plant_alone_is_linearised_at_a_state() -> None:
    system = sc.linearize(Masses("x", "F", 4.0), State(0.0, np.array([0.3]), np.array([1.0])))
    assert pytest.approx(np.array([[0.0, 1.0], [0.0, 0.0]]), abs=1e-12) == system.A
    assert pytest.approx(np.array([[0.0], [0.25]]), abs=1e-12) == system.B
    with pytest.raises(TaskError, match="linearize: at: expected a State with a plant alone, got None"):
        sc.linearize(Masses("x", "F", 2.0))


def mass_run(correction: Correction, holonomic: bool, period: float | None = None) -> sc.Run:
    task = {"place": sc.Holonomic("x") if holonomic else sc.Nonholonomic("der(x)")}
    start = State(0.0, np.zeros(1), np.zeros(1))
    system = make_system(Masses("x", "F", 2.0), task, sc.ConstraintFollowing(correction), {}, start, None, 1e-6)
    return sc.Run("mass", make_loop(system, "vm"), start, Settings(1.0, period, Integrator("rk4", 0.01)))


STILL = ["task.object_y.holonomic=l*sin(theta1) + l*sin(theta2) + l/2*sin(theta3)"]
"""The object is held where it is."""


@pytest.mark.parametrize(("damping", "stiffness"), [(20, 100), (9, 70), (20, 36)])
@pytest.mark.parametrize("at", [None, 0.7])
def test_the_poles_of_the_robots_error_are_the_roots_that_were_chosen(
    damping: float, stiffness: float, at: float | None
) -> None:
    """In motion as at the start; no gain is read, only derivatives of the compiled loop."""
    law = f"law.correction={{second_order: {{damping: {damping}, stiffness: {stiffness}}}}}"
    run = sc.load("coordinated_robots", [law, "run.integrator.step=0.01"], engine="vm")
    found = modes(run, *state_at(run, at))
    chosen = np.sort_complex(np.roots([1.0, damping, stiffness]))
    for row in ("object_x", "object_y", "level"):
        poles = np.sort_complex([mode.pole for mode in found if mode.of == row])
        assert np.abs(poles - chosen).max() < 1e-6
    passive = [mode.pole for mode in found if mode.group == "passive"]
    assert len(passive) == 4 and np.abs(np.array(passive) + 5.0).max() < 1e-6
    assert not [mode for mode in found if mode.group == "internal"]


def test_the_decay_is_that_of_a_run() -> None:
    """Poles at -2 and -18 1/s: after 1 s only the slower is left."""
    off = ["task.level.holonomic=theta3 - 0.02", "run.duration=3", "law.correction={baumgarte: {alpha: 10, beta: 6}}"]
    run = sc.load("coordinated_robots", [*off, "run.integrator.step=0.005"], engine="vm")
    slowest = max((m for m in modes(run, *state_at(run, 0.5)) if m.of == "level"), key=lambda mode: mode.pole.real)
    trajectory = run.simulate()
    later = trajectory.t > 1.0
    slope = np.polyfit(trajectory.t[later], np.log(np.abs(trajectory["violation.level"][later])), 1)[0]
    assert slowest.decay == pytest.approx(0.5, rel=1e-9)
    assert -1.0 / slope == pytest.approx(slowest.decay, rel=0.01)


@pytest.mark.parametrize("period", [None, 0.01])
@pytest.mark.parametrize("config", ["coordinated_robots", "mass_on_car", "swarm_still"])
def test_derivatives_are_those_that_python_control_finds_by_differences(config: str, period: float | None) -> None:
    overrides = [] if period is None else [f"run.period={period}", "run.integrator={method: rk4, step: 0.005}"]
    run = sc.load(config, overrides, engine="vm")
    exact = sc.linearize(run, full=True)
    x = np.concatenate([run.start.q, run.start.v])
    found = sc.to_control(run).linearize(x, np.zeros(run.system.model.m), t=0.0)
    assert exact.dt == found.dt == (period or 0)
    for name in ("A", "B", "C"):
        own, other = getattr(exact, name), getattr(found, name)
        assert np.abs(own - other).max() < 1e-5 * (1.0 + np.abs(own).max())


def test_python_control_simulates_what_a_run_simulates() -> None:
    run = sc.load("two_mass_spring", ["run.duration=1", "run.period=0.01"], engine="vm")
    trajectory = run.simulate()
    times = np.arange(101) * 0.01
    start = np.concatenate([run.start.q, run.start.v])
    response = control.input_output_response(sc.to_control(run), times, np.zeros((1, 101)), start)
    assert np.abs(response.outputs[:2].T - trajectory.q).max() < 1e-12


def test_only_free_motions_are_modes_if_constraints_are_redundant_or_passive() -> None:
    """At rest the eigenvalues are the chosen roots: six for the task, and four at -5 that break the loop."""
    run = sc.load("coordinated_robots", STILL, engine="vm")
    free, full = sc.linearize(run).poles(), sc.linearize(run, full=True).poles()
    assert (len(free), len(full)) == (6, 10)
    assert np.abs(free + 10.0).max() < 1e-4  # triple and double roots spread by the root of the rounding
    assert free.mean() == pytest.approx(-10.0, abs=1e-9)
    assert np.sum(np.abs(full + 5.0) < 1e-3) == 4


@pytest.mark.parametrize("delay", [0, 1, 2])
def test_the_delayed_map_has_the_poles_of_its_polynomial(delay: int) -> None:
    """z^d (z - 1) + kappa h = 0; the place is let be: one more at 1."""
    found = sc.linearize(mass_run(sc.PFeedback(0.25), False, 0.02), delay=delay).poles()
    expected = np.append(np.roots(np.polyadd(np.poly([1.0] + [0.0] * delay), [4.0 * 0.02])), 1.0)
    assert np.sort_complex(found) == pytest.approx(np.sort_complex(expected), abs=1e-9)


@pytest.mark.parametrize("delay", [0, 1, 2])
def test_the_gain_margin_of_a_sampled_loop_is_the_closed_form(delay: int) -> None:
    run = mass_run(sc.PFeedback(0.25), False, 0.02)
    timing = Timing.of(0.02, ["F"], delay * 0.02)
    (found,) = margins(LocalLoop(local(run, run.start.t, run.loop.x_at(run.start)), timing).closed, ["F"])
    limit = 2 * math.sin(math.pi / (2 * (2 * delay + 1)))
    assert found.gain == pytest.approx(limit / (4.0 * 0.02), rel=1e-4)
    assert found.gain_down == 0.0


@pytest.mark.parametrize("cached", [CACHED, 1])
def test_margins_of_a_double_integrator_are_the_closed_form(cached: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """L = (2 a s + a^2) / s^2: |L| = 1 at w = a sqrt(2 + sqrt(5)), with the phase margin atan(2 w / a)."""
    monkeypatch.setattr("servoctl.linear.margins.CACHED", cached)  # 1: solved as a loop of hundreds of states
    run = mass_run(sc.Baumgarte(3.0, 3.0), True)
    (found,) = margins(LocalLoop(local(run, run.start.t, run.loop.x_at(run.start)), Timing(None)).closed, ["F"])
    w = 3.0 * math.sqrt(2.0 + math.sqrt(5.0))
    phase = math.atan(2.0 * w / 3.0)
    assert (found.gain, found.gain_down) == (math.inf, 0.0)
    assert found.crossover == pytest.approx(w, rel=1e-4)
    assert found.phase == pytest.approx(math.degrees(phase), rel=1e-4)
    assert found.delay == pytest.approx(phase / w, rel=1e-4)


def test_poles_that_rounding_moves_add_no_frequencies() -> None:
    """Those of 50 robots, each loop opened in turn, were 260,000 frequencies."""
    run = sc.load("swarm", ["run.period=0.01", "realism.delay=0.02", "realism.lag=0.005"], engine="vm")
    linear = LocalLoop(local(run, run.start.t, run.loop.x_at(run.start)), timings(run)[0]).closed
    count, poles = linear.B.shape[1], np.linalg.eigvals(linear.A)
    assert len(poles) == 50 and len(np.unique(poles)) * count > 300
    assert len(_frequencies(linear)) < POINTS + 2 * len(AROUND)


def test_margins_on_drives_are_those_of_the_period_one_cycle_late() -> None:
    found = analyse(sc.load("coordinated_robots", engine="vm"))
    assert [(one.timing.period, one.timing.delay) for one in found.margins] == [(None, 0), (0.0025, 0.0025)]
    assert [one.actuator for one in found.margins[1].actuators] == ["u1", "u2", "u3", "u4", "u5", "u6"]
    assert all(one.gain < math.inf for one in found.margins[1].actuators)


@pytest.mark.parametrize(("damping", "growing"), [(3.0, 0), (-1.0, 2)])
def test_unstable_internal_dynamics_are_named(damping: float, growing: int) -> None:
    run = sc.load("mass_on_car", [f"plant.parameters.d={damping}"], engine="vm")
    found = analyse(run)
    internal = [mode for mode in found.modes if mode.group == "internal"]
    assert len(internal) == 2 and len([mode for mode in internal if mode.stable is False]) == growing
    assert len([line for line in found.warnings if "internal dynamics: unstable" in line]) == growing // 2  # a pair
    assert ("has no margins" in " ".join(found.warnings)) == bool(growing)


def test_a_cluster_stands_for_a_multiple_eigenvalue() -> None:
    spread = -3.0 + 1e-6 * np.exp(2j * np.pi * np.arange(3) / 3)
    assert means_of_clusters(np.append(spread, -7.0), 3, 1e-15) == pytest.approx([-3.0, -3.0, -3.0, -7.0], abs=1e-12)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"time": "sampled"}, r"time: expected run, continuous or discrete, got 'sampled'"),
        ({"time": "discrete"}, r"period: the run has none \(give one \[s\]\)"),
        ({"delay": 1}, r"delay: expected cycles of a period, got 1 \(give time='discrete'\)"),
        ({"time": "continuous", "period": 0.01}, r"period: does not fit time='continuous', got 0.01"),
        ({"at": -1.0}, r"at: expected a time from the start, 0 s, on, got -1"),
        ({"at": 1e9}, r"at: 1e.11 steps of"),
    ],
)
def test_arguments_that_make_no_sense_are_named(arguments: dict[str, float], text: str) -> None:
    with pytest.raises(TaskError, match=text):
        sc.linearize(mass_run(sc.Baumgarte(3.0, 3.0), True), **arguments)


def test_analyse_prints_one_json_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("analyse", "mass_on_car", "--at", "0.01", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["t"] == 0.01
    assert [mode["pole"][0] for mode in said["modes"] if mode["group"] == "task"] == pytest.approx([-5, -5], abs=1e-6)
    assert said["margins"][0]["actuators"]["F"]["phase"] > 0.0


def test_analyse_prints_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("analyse", "mass_on_car") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "task error" in lines and "internal dynamics" in lines
    assert any(line.split() == ["place", "-5", "5", "1", "0.2"] for line in lines)


HELD = ["run.period=0.002", "realism.delay=0.002"]
BOX = "law.uncertainty={m1: [-0.2, 0.3], k: 0.3}"


@pytest.mark.parametrize("held_back", ["law.limits={F: 1}", "bounds=[{name: wall, holonomic: 'x1 + 0.001', rate: 5}]"])
def test_an_input_that_is_held_back_at_the_start_has_the_margin_of_its_feedback(held_back: str) -> None:
    """Of a linearised input at its limit any gain looks stable: `analyse` says so, searches use the law without it."""
    free, bound = (
        sc.load("two_mass_spring_off", ["run.period=0.01", *more], engine="vm") for more in ([], [held_back])
    )
    assert reserve(bound).gain_margin == reserve(free).gain_margin
    (warning,) = analyse(bound, change=0.0).warnings
    assert "poles and margins are those of this command" in warning
    assert not analyse(free, change=0.0).warnings


def test_the_worst_machine_has_the_margins_of_a_run_with_that_machine() -> None:
    """Corner by corner; the machines inside are no worse for these margins."""
    found = analyse(sc.load("two_mass_spring", [*HELD, BOX], engine="vm"), change=0.0).box
    assert (found.machines, found.corners) == (12, True)
    corners = [(m1, k) for m1 in (-0.2, 0.3) for k in (-0.3, 0.3)]
    alone = {}
    for m1, k in corners:
        run = sc.load("two_mass_spring", [*HELD, f"realism.parameter_error={{m1: {m1}, k: {k}}}"], engine="vm")
        alone[m1, k] = analyse(run, change=0.0).margins[0].worst
    simulated = found.margins[0].figures
    for name in ("gain", "phase"):
        worst = min(corners, key=lambda corner: alone[corner][name])
        assert simulated[name].worst == pytest.approx(alone[worst][name], rel=1e-6)
        assert dict(simulated[name].machine) == dict(zip(("m1", "k"), worst, strict=True))
        assert simulated[name].worst < simulated[name].nominal
    least = reserve(sc.load("two_mass_spring", [*HELD, BOX], engine="vm")).gain_margin
    assert least == pytest.approx(simulated["gain"].worst, rel=1e-3)  # of tune, found by bisection


def test_a_machine_of_the_box_that_is_unstable_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """alpha^2 r + (k / m2) (1 - r) < 0: with alpha = 1 from r = 1.25 on, a mass 20 % smaller."""
    gains = ["--set", "law.correction.baumgarte={alpha: 1, beta: 1}", "--set", "law.uncertainty.m1=[-0.25, 0]"]
    assert exit_code("analyse", "two_mass_spring", "--change", "0", *gains) == 0
    out, err = capsys.readouterr()
    assert "unstable for a machine of law.uncertainty: m1 -25 %" in err
    assert "over the box of law.uncertainty: m1 -25 to +0 %; 10 machines (every corner, and some inside)" in out
    assert exit_code("analyse", "two_mass_spring", "--change", "0", *gains, "--json") == 0
    margins = json.loads(capsys.readouterr().out)["box"]["margins"][0]
    # phi'' + r (2 phi' + phi) + s phi = 0 with r = 4/3 and s = k (1/m1' + 1/m2) - r k (1 + 1/m2)
    s = 10 * (4 / 3 + 1 / 2) - 4 / 3 * 10 * 1.5
    assert margins["growth"]["worst"] == pytest.approx(max(np.roots([1, 8 / 3, 4 / 3 + s]).real), rel=1e-6)
    assert margins["growth"]["machine"] == {"m1": -0.25}
    assert (margins["gain"]["worst"], margins["phase"]["worst"]) == (1.0, 0.0)


def test_an_oscillation_that_grows_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("analyse", "projectile", "--change", "0") == 0
    assert capsys.readouterr().err.count("motion: unstable: grows by e every") == 1


def test_of_a_box_with_many_corners_random_ones_are_compared_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    box = ", ".join(f"{name}: 0.1" for name in ("m1", "m2", "m3", "m4", "Iz1", "Iz2", "Iz3"))
    assert exit_code("analyse", "scara", "--change", "0", "--set", f"law.uncertainty={{{box}}}") == 0
    assert "72 machines (random corners of the box, not all, and some inside)" in capsys.readouterr().out


ALPHA, K, M2 = 4.0, 10.0, 2.0  # of configs/two_mass_spring.yaml, where m1 is 1


def polynomial(parameter: str, factor: float, alpha: float) -> list[float]:
    """phi'' + r (2 alpha phi' + alpha^2 phi) + s phi = 0: r = m1 / m1', s the spring that the law does not cancel.

    The spring's share of phi'' is -k (1/m1 + 1/m2); the force is m1 times what the law wants, which the mass divides.
    """
    m1, m2, k = (value * (factor if name == parameter else 1.0) for name, value in (("m1", 1.0), ("m2", M2), ("k", K)))
    r = 1.0 / m1
    s = k * (1.0 / m1 + 1.0 / m2) - r * K * (1.0 + 1.0 / M2)
    return [1.0, 2.0 * alpha * r, r * alpha**2 + s]


@pytest.mark.parametrize("change", [0.1, 0.3])
def test_poles_of_a_wrong_mass_or_spring_are_those_of_the_error_equation(change: float) -> None:
    shifted = analyse(sc.load("two_mass_spring", engine="vm"), change=change).robustness
    named = [(one.parameter, one.change) for one in shifted]
    assert named == [(None, 0.0), *((name, sign * change) for name in ("m1", "m2", "k", "l") for sign in (-1.0, 1.0))]
    for one in shifted:
        expected = np.roots(polynomial(one.parameter or "", 1.0 + one.change, ALPHA))
        error = sorted((pole for pole in one.poles if abs(pole) > 1e-3), key=lambda pole: pole.imag)
        assert len(one.poles) == 4 and len(error) == 2  # the rest: both masses drift together
        by_parts = sorted(expected, key=lambda pole: (pole.imag, -pole.real))
        np.testing.assert_allclose(error, by_parts, rtol=1e-7, atol=1e-7)
        assert one.slowest is not None and one.least_damped is not None
        assert one.slowest.decay == pytest.approx(-1.0 / max(expected.real), rel=1e-7)
        assert one.least_damped.damping == pytest.approx(min(-expected.real / abs(expected)), rel=1e-7)


def test_a_parameter_that_makes_it_unstable_is_named() -> None:
    """alpha^2 r + (k / m2) (1 - r) < 0: with alpha = 1 from r = 1.25 on, a mass 20 % smaller."""
    gains = ["law.correction.baumgarte.alpha=1", "law.correction.baumgarte.beta=1"]
    run = sc.load("two_mass_spring", gains, engine="vm")
    growth = max(np.roots(polynomial("m1", 0.75, 1.0)).real)
    said = f"m1: unstable if it is 25 % smaller than in the law's model: grows by e every {1 / growth:.3g} s"
    assert said in analyse(run, change=0.25).warnings
    assert not [line for line in analyse(run, change=0.19).warnings if line.startswith("m1")]


@pytest.mark.parametrize("at", [None, 0.7])
def test_in_motion_and_on_passive_constraints_the_known_poles_come_out(at: float | None) -> None:
    known, *shifted = analyse(sc.load("coordinated_robots", engine="vm"), at).robustness
    np.testing.assert_allclose(known.poles, np.full(6, -10.0), rtol=1e-6)
    assert {one.parameter for one in shifted} == {"m", "I", "l", "g", "L"}
    for one in shifted:  # as many poles, all of them near
        assert len(one.poles) == 6 and one.stable
        assert 1e-4 < np.abs(np.array(one.poles) + 10.0).max() < 7.0


def test_a_change_out_of_range_is_named_and_none_leaves_the_table_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyse", "two_mass_spring", "--change", "120"]) == 2
    assert capsys.readouterr().err == "--change 120: expected at least 0 and less than 100 percent\n"
    with pytest.raises(ConfigError, match="--change -5: expected at least 0"):
        analyse(sc.load("two_mass_spring", engine="vm"), change=-0.05)
    assert exit_code("analyse", "two_mass_spring", "--change", "0", "--json") == 0
    assert json.loads(capsys.readouterr().out)["robustness"] == []


def test_the_table_has_two_lines_for_each_parameter(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("analyse", "two_mass_spring") == 0
    title = "robustness: one parameter of the plant differs from the law's model\n"
    table = capsys.readouterr().out.partition(title)[2]
    said, *rows = table.splitlines()
    assert said == "gain, phase, delay: the smallest margins of all inputs, continuous law"
    lines = [line.split() for line in rows]
    assert lines[1][:5] == ["(none)", "-4", "0.25", "1", "inf"]
    assert lines[3][:6] == ["m1", "+10", "%", "-3.63636-1.33299j", "0.275", "0.9389"]
    assert [line[0] for line in lines[2:]] == ["m1", "m1", "m2", "m2", "k", "k", "l", "l"]


def test_margins_of_a_wrong_mass_are_those_of_its_open_loop() -> None:
    """L = r (2 alpha s + stiffness) / (s^2 + spring), r = m1 / m1': of the law's model, and of the springs that are."""
    run = sc.load("two_mass_spring", engine="vm")
    stiffness = ALPHA**2 - K * (1.0 + 1.0 / M2)
    for one in analyse(run, change=0.2).robustness[1:3]:
        assert one.parameter == "m1"
        r = 1.0 / (1.0 + one.change)
        spring = K * (r + 1.0 / M2)
        # |L| = 1: (spring - w^2)^2 = r^2 ((2 alpha w)^2 + stiffness^2)
        squares = np.roots([1.0, -2 * spring - (2 * ALPHA * r) ** 2, spring**2 - (r * stiffness) ** 2])
        crossings = [float(np.sqrt(w)) for w in squares.real if w > 0.0]
        turned = [float(np.angle(-r * (2j * ALPHA * w + stiffness) / (spring - w * w))) for w in crossings]
        (margin,) = one.margins[0].actuators
        assert margin.phase == pytest.approx(min(abs(np.degrees(x)) for x in turned), rel=1e-4)
        delays = [x % (2 * np.pi) / w for x, w in zip(turned, crossings, strict=True)]
        assert margin.delay == pytest.approx(min(delays), rel=1e-4)


def test_a_parameter_that_makes_it_unstable_leaves_no_margins() -> None:
    gains = ["law.correction.baumgarte.alpha=1", "law.correction.baumgarte.beta=1"]
    shifted = analyse(sc.load("two_mass_spring", gains, engine="vm"), change=0.25).robustness
    for one in shifted:
        assert bool(one.margins[0].actuators) == one.stable
        assert str(one.margins[0].timing) == "continuous law"
    assert not all(one.stable for one in shifted)
