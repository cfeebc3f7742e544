"""The one discrete loop: against maps that are differentiated by simulation, and closed forms."""

import cmath
import dataclasses
import json
import math

import numpy as np
import pytest

import servoctl as sc
from servoctl.assembly.context import run_timing
from servoctl.assembly.gains import drives_gains, gain_share
from servoctl.assembly.run import Run
from servoctl.check.report import check
from servoctl.laws.hold import RowFeedback, close, differences, hold, longest_spacing
from servoctl.linear import analyse, margins
from servoctl.linear.convert import state_at
from servoctl.linear.loop import LocalLoop, grows, local, means_of_clusters
from servoctl.linear.margins import Margins
from servoctl.linear.modes import Mode, modes
from servoctl.linear.reserve import gain_margin, held_loops, reserve
from servoctl.mechanics.timing import Timing
from servoctl.simulation.internal_dynamics import InternalDynamics
from servoctl.simulation.steps import step_of
from servoctl.types import Array
from tests.faces import exit_code

LATE = "realism={delay: 15*ms, lag: 20*ms}"
REST = ["initial.v=0", "initial.q={x1: 0, x2: 0.5}", "task.distance.holonomic=x2 - x1 - l", "run.period=0.01"]


STILL = "task.object_y.holonomic=l*sin(theta1) + l*sin(theta2) + l/2*sin(theta3)"
"""The robots' object is held where it is."""


@dataclasses.dataclass(frozen=True)
class Resting:
    """A run at an equilibrium.

    Attributes:
        config: Name of the config.
        overrides: Settings that put it at an equilibrium and set the period.
        actuator: The actuator whose torque gets the factor.
        delay: Delay in the case with lag and delay [s].
        lag: Time constant of the actuators [s].
    """

    config: str
    overrides: tuple[str, ...]
    actuator: str
    delay: float
    lag: float

    def run(self, late: bool) -> Run:
        """The run, with or without lag and delay."""
        more = [f"realism={{delay: {self.delay}, lag: {self.lag}}}"] if late else []
        return sc.load(self.config, [*self.overrides, *more], engine="vm")


CASES = (
    Resting("two_mass_spring", ("initial.v=0", "initial.q={x1: 0, x2: 0.5}", "task.distance.holonomic=x2 - x1 - l",
                                "run.period=0.02", "run.integrator.step=0.005", "run.output_step="), "F", 0.013, 0.02),
    Resting("crane", ("initial.q={s: 5, theta: 0}", "run.period=0.1", "run.integrator={method: rk4, step: 0.02}",
                      "run.output_step="), "F", 0.06, 0.1),
    Resting("coordinated_robots", (STILL, "run.period=0.01", "run.integrator.step=0.005", "run.output_step="),
            "u2", 0.015, 0.01),
    Resting("scara", ("initial.v=0", "initial.max_violation=1", "task.x.holonomic=q1 - 30*deg",
                      "task.y.holonomic=q2 + 55*deg", "task.heading.holonomic=q3 - 24*deg", "task.z.holonomic=q4",
                      "law.correction={baumgarte: {alpha: 8, beta: 8}}", "run.period=0.02",
                      "run.integrator={method: rk4, step: 0.005}", "run.output_step="), "tau1", 0.03, 0.02),
    Resting("mass_on_car", ("initial.q={x: 0.981/2, s: -0.981*sin(pi/4)}", "task.place.holonomic=x + s*cos(a)",
                            "run.period=0.02", "run.integrator={method: rk4, step: 0.005}", "run.output_step="),
            "F", 0.01, 0.03),
)  # fmt: skip
"""These cases cover: a neutral drift, relative degree 4, a closed chain with six motors, gravity, internal dynamics."""


def resting(run: Run) -> Array:
    """State vector of a sampled run at its equilibrium; torques and delayed commands are those of the law."""
    loop, m, realism = run.loop, run.system.model.m, run.system.realism
    x = loop.vector(run.start)
    u = loop.control(run.start.t, x[: loop.size])[:m]
    if realism is not None:
        first = loop.size + m * realism.timing.lagging
        x[loop.size : first] = u[: first - loop.size]
        x[first:] = np.tile(np.append(u, realism.timing.delay), realism.timing.latest)
    return x


def margins_of(run: Run) -> Margins:
    """Those of the run in simulation."""
    return analyse(run, change=0.0).margins[-1]


def loop_at_start(run: sc.Run) -> LocalLoop:
    return LocalLoop(local(run, run.start.t, run.loop.x_at(run.start)), run_timing(run.system, run.settings))


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.config)
def test_the_poles_are_those_of_a_period_that_is_simulated(case: Resting, late: bool) -> None:
    """Differences of the run's own period at fine steps, each command's delay apart, on the passive constraints."""
    run = dataclasses.replace(case, overrides=(*case.overrides, "run.integrator.step=0.001")).run(late)
    loop, h, realism = run.loop, run.settings.period, run.system.realism
    m, rest, step = run.system.model.m, resting(run), 1e-3
    first = loop.size + m * (realism is not None and realism.timing.lagging)
    commands = [i for i in range(loop.size, len(rest)) if i < first or (i - first) % (m + 1) != m]
    W = local(run, run.start.t, run.loop.x_at(run.start)).W
    body = np.vstack([W, np.zeros((len(rest) - len(W), W.shape[1]))])
    basis = np.hstack([body, np.eye(len(rest))[:, commands]])
    advance = step_of(loop, run.settings, 0.0)

    def slope(e: Array) -> Array:
        after = [advance(0.0, rest + k * step * e, h)[0] for k in (-2, -1, 1, 2)]
        return (after[0] - 8.0 * after[1] + 8.0 * after[2] - after[3]) / (12.0 * step)

    found = np.linalg.eigvals(basis.T @ np.array([slope(e) for e in basis.T]).T)
    expected = means_of_clusters(np.linalg.eigvals(loop_at_start(run).matrix), 2)
    found = found[np.argsort(-np.abs(found))][: len(expected)]  # the rest: commands that the law cannot give, at 0
    pairs = zip(np.sort_complex(means_of_clusters(found, 2, 1e-10)), np.sort_complex(expected), strict=True)
    assert max(abs(one - other) for one, other in pairs) < 1e-6


def test_analyse_counts_lag_and_delay_in_margins_and_in_the_poles_of_the_error() -> None:
    plain, lagged = (analyse(sc.load("two_mass_spring", [*REST, *more], engine="vm"), change=0.0)
                     for more in ([], [LATE]))  # fmt: skip
    assert plain.margins[-1].actuators[0].gain == pytest.approx(25.0, rel=1e-3)
    assert lagged.margins[-1].actuators[0].gain == pytest.approx(7.07, rel=1e-2)
    task = [[mode for mode in found.modes if mode.group == "task"] for found in (plain, lagged)]
    assert [len(found) for found in task] == [2, 5]  # one lagging torque, two commands on their way
    for mode in task[1]:
        assert np.exp(mode.pole * 0.01) == pytest.approx(mode.z, abs=1e-12)


def test_the_delay_margin_is_the_delay_at_which_the_loop_is_unstable() -> None:
    margin = margins_of(sc.load("two_mass_spring", [*REST, LATE], engine="vm"))
    for factor, stable in ((0.99, True), (1.01, False)):
        late = f"realism={{delay: {0.015 + factor * margin.delay_margin}, lag: 20*ms}}"
        assert (
            bool(margins_of(sc.load("two_mass_spring", [*REST, late], engine="vm", strict=False)).actuators) == stable
        )


def test_delays_of_many_periods_from_the_frequency_response_are_those_of_a_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two masses are unstable from 0.16 s on: 40 and 80 periods."""
    for period in (0.004, 0.002):
        run = sc.load("two_mass_spring", [*REST[:3], f"run.period={period}"], engine="vm")
        by_response = margins_of(run).delay_margin
        with monkeypatch.context() as searching:
            searching.setattr(margins, "LONGEST", 1000)
            assert by_response == pytest.approx(margins_of(run).delay_margin, rel=2e-4)
        assert by_response > margins.LONGEST * period


def test_a_slow_crossing_has_a_delay_margin_of_thousands_of_periods() -> None:
    """A weak pull in a loop of 1 ms: a search would take matrices of thousands of states."""
    slow = ["run.period=1*ms", "law.correction={baumgarte: {alpha: 0.01, beta: 0.01}}", "plant.parameters.k=0"]
    run = sc.load("two_mass_spring", [*REST[:3], *slow], engine="vm")
    found = margins_of(run).delay_margin
    assert math.isfinite(found) and found > 1000 * 0.001


def test_the_delay_margin_of_all_actuators_is_below_that_of_each_and_a_neutral_pole_is_no_limit() -> None:
    """Six motors on one object; a joint that drifts freely beside two springs."""
    robots = analyse(sc.load("coordinated_robots", engine="vm"), change=0.0).margins[0]
    alone = min(one.delay for one in robots.actuators)
    assert robots.delay_margin is not None and 0.0 < robots.delay_margin < 0.7 * alone
    more = ["run.period=0.005", "run.integrator={method: rk4}", "run.output_step="]
    arm = analyse(sc.load("flexible_joint_links", more, engine="vm"), change=0.0).margins[0]
    assert arm.delay_margin is not None and arm.delay_margin > 1e-4


def test_the_loop_becomes_unstable_where_check_says_that_gains_are_too_fast() -> None:
    """The spring, which `check` leaves out of a hold, moves it by less than a percent."""
    run = sc.load("two_mass_spring", [*REST, LATE], engine="vm")
    limit = 1.0 / reserve(run).gain_share
    assert abs(limit / margins_of(run).worst["gain"] - 1.0) > 0.2  # another factor than that on a torque
    for factor, stable in ((0.99, True), (1.01, False)):
        alpha = 4.0 * factor * limit
        gains = f"law.correction={{baumgarte: {{alpha: {alpha}, beta: {alpha}}}}}"
        other = sc.load("two_mass_spring", [*REST, LATE, gains], engine="vm", strict=False)
        assert bool(margins_of(other).actuators) == stable


@pytest.mark.parametrize("more", [[], ["run.period=0.001"], ["run.period=0.02", "realism={delay: 10*ms}"]])
def test_a_free_drift_is_neutral_and_not_unstable(more: list[str]) -> None:
    run = sc.load("two_mass_spring", [*REST[:3], *more], engine="vm")
    internal = [mode for mode in modes(run, run.start.t, run.loop.x_at(run.start)) if mode.group == "internal"]
    assert [mode.stable for mode in internal] == [None, None]
    assert all(abs(mode.pole) < 1e-4 for mode in internal)
    found = analyse(run, change=0.0)
    assert found.warnings == () and found.margins[-1].actuators
    assert any("neutral" in note for note in found.notes)


@pytest.mark.parametrize(
    "section", ["law.observer={rate: 20}", "estimation={kind: model}", "estimation={kind: alpha_beta}"]
)
def test_what_the_controller_remembers_is_no_internal_dynamics(section: str) -> None:
    """Both masses move together without a task: two neutral modes. All others are those of the error and the memory."""
    run = sc.load("two_mass_spring_off", ["run.period=0.01", section], engine="vm")
    found = modes(run, *state_at(run, None))
    assert [mode.stable for mode in found if mode.group == "internal"] == [None, None]
    slow = [mode.pole for mode in found if mode.group == "task" and abs(mode.pole) < 6.0]
    np.testing.assert_allclose(np.sum(slow), -8.0, rtol=0.05)  # alpha = beta = 4


def test_the_bound_of_a_continuous_adaptive_term_is_no_internal_dynamics() -> None:
    adaptive = "law.adaptive={kind: leakage, rate: 20, leak: 3, width: 0.15, gain_budget: 20}"
    run = sc.load("two_mass_spring", [adaptive], engine="vm")
    found = modes(run, *state_at(run, None))
    assert [mode.stable for mode in found if mode.group == "internal"] == [None, None]
    assert [mode.pole.real for mode in found if mode.of == "adaptive.bound"] == pytest.approx([-3.0], rel=1e-6)  # leak


def test_a_pole_that_does_grow_is_not_taken_for_a_neutral_one() -> None:
    assert not grows(np.array([1.0 + 1e-7j, 1.0 - 1e-7j, 0.5]), 0.001)
    assert grows(np.array([1.0 + 1e-6, 0.5]), 0.001)
    assert not grows(np.array([1e-9, -1.0]), None)
    assert grows(np.array([1e-3, -1.0]), None)


def test_dry_friction_is_left_out_with_a_note() -> None:
    friction = "realism={friction: {coulomb: 0.5, viscous: 0.1}}"
    viscous = "realism={friction: {viscous: 0.1}}"
    runs = (sc.load("two_mass_spring", [*REST, text], engine="vm") for text in (friction, viscous))
    both, one = (analyse(run, change=0.0) for run in runs)
    assert both.margins[-1].actuators == one.margins[-1].actuators
    assert any("but not dry (Coulomb) friction" in note for note in both.notes)
    assert not any("friction" in note for note in one.notes)


def test_the_lag_of_each_actuator_is_its_own() -> None:
    case = CASES[3]
    slow = [margins_of(case.run(False)).worst["gain"]]
    for lag in ("{tau1: 20*ms}", "20*ms"):
        run = sc.load(case.config, [*case.overrides, f"realism={{lag: {lag}}}"], engine="vm")
        gains = {one.actuator: one.gain for one in analyse(run, change=0.0).margins[-1].actuators}
        slow.append(gains["F4"])
    assert slow[0] == pytest.approx(slow[1], rel=1e-6) and abs(slow[2] / slow[1] - 1.0) > 0.05


def test_with_a_period_the_last_margins_hold_what_the_run_states_and_units_are_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = ["analyse", "two_mass_spring_drive", "--change", "0", "--set", "run.period=0.01", "--set", LATE, "--json"]
    assert exit_code(*given) == 0
    said = json.loads(capsys.readouterr().out)
    assert [one["drives"] for one in said["margins"]] == [True, False]
    last = said["margins"][-1]
    assert (last["period"], last["delay"], last["lag"]) == (0.01, 1.5, [0.02])
    assert said["units"]["actuators"]["phase"] == "deg" and said["units"]["pole"] == "1/s"


def test_a_pole_of_the_velocity_filter_is_in_the_loop_on_drives() -> None:
    """kappa h of first-order feedback of a differenced position, against the observer stepped by hand."""
    h, tau, kappa = 0.01, 0.03, 20.0
    p = math.exp(-2.0 * h / tau)
    a, b = 1.0 - p * p, (1.0 - p) ** 2
    chain = hold(np.eye(2, k=1), np.array([[0.0], [1.0]]), Timing(h))
    estimate = differences(np.array([[1.0, 0.0]]), np.array([[0.0], [1.0]]), h, tau)
    found = close(chain, np.array([[0.0, -kappa]]), estimate).A
    columns = []
    for x, v, position, rate in np.eye(4):
        surprise = x - (position + h * rate)
        position, rate = position + h * rate + a * surprise, rate + b / h * surprise
        u = -kappa * rate
        columns.append([x + h * v + h * h / 2 * u, v + h * u, position, rate])
    assert np.abs(found - np.array(columns).T).max() < 1e-12


LAWS = {
    "p_feedback": lambda factor: f"{{p_feedback: {{P: {0.05 / factor}}}}}",
    "baumgarte": lambda factor: f"{{baumgarte: {{alpha: {4.0 * factor}, beta: {4.0 * factor}}}}}",
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("velocity", ["drive", "filter"])
@pytest.mark.parametrize("lag", [0.0, 0.01])
def test_check_and_the_margins_on_drives_know_the_same_limit_of_the_gains(law: str, velocity: str, lag: float) -> None:
    """The spring, which `check` leaves out of a hold, moves it by less than a percent."""

    def at(factor: float) -> tuple[sc.Run, Margins]:
        given = [f"law.correction={LAWS[law](factor)}", f"hil.velocity={velocity}", "hil.period=0.005"]
        run = sc.load("two_mass_spring_drive", [*given, f"hil.emulation.current_lag={lag}"], engine="vm", strict=False)
        return run, next(each for each in analyse(run, change=0.0).margins if each.timing.on_drives)

    run, found = at(1.0)
    share = gain_share(drives_gains(run.system, run.hil))
    assert found.actuators and at(0.99 / share)[1].actuators and not at(1.01 / share)[1].actuators
    assert ("velocities from positions" in str(found.timing)) == (velocity == "filter")
    assert ("lag 0.01 s" in str(found.timing)) == (lag > 0.0)


def test_analyse_says_what_its_figures_on_drives_leave_out() -> None:
    given = ["hil.prediction=true", "hil.emulation.viscous_friction=0.1"]
    notes = " ".join(analyse(sc.load("two_mass_spring_drive", given, engine="vm"), change=0.0).notes)
    assert "on drives: the lag is hil.emulation.current_lag, 0.001 s" in notes
    assert "on drives: the figures leave out hil.prediction, hil.emulation.viscous_friction" in notes
    assert "leave out" not in " ".join(analyse(sc.load("two_mass_spring_drive", engine="vm"), change=0.0).notes)


def test_a_velocity_filter_lowers_the_longest_stable_period() -> None:
    row = RowFeedback(8.0, 16.0)
    measured, filtered = (longest_spacing(row, Timing(1.0, velocity_filter=tau)) for tau in (None, 4.0))
    assert filtered < 0.6 * measured


@pytest.mark.parametrize("alpha", [5.0, 21.5443, 39.2, 100.0, 200.0])
def test_a_free_drift_beside_a_fast_pole_is_neutral_so_the_gain_margin_is_unlimited(alpha: float) -> None:
    """PD feedback on two sprung masses is stable at any gain; their common motion drifts: a double pole at 0."""
    assert gain_margin(sc.load("two_mass_spring", [f"law.correction.baumgarte.alpha={alpha}"], engine="vm")) == math.inf


@pytest.mark.parametrize("slow", [[1e-3], [1e-3, -1e-3], [1e-3 + 1j, 1e-3 - 1j]])
def test_a_slow_growth_beside_a_fast_pole_is_found(slow: list[complex]) -> None:
    assert grows(np.array([*slow, -2e4]), None)
    assert not grows(np.array([*(x - 2 * x.real for x in np.array(slow[:1])), -2e4]), None)


def test_a_fast_swing_that_grows_by_e_in_minutes_is_unstable_and_a_slow_one_within_a_day_too() -> None:
    for pole in (0.005 + 1000j, 2e-5 + 0j):
        assert grows(np.array([pole, pole.conjugate()]), None)
        assert InternalDynamics(2, (pole, pole.conjugate()), False).stable is False
        assert Mode(pole, "internal", "internal").stable is False
    assert InternalDynamics(1, (2e-6 + 0j,), False).stable is None


@pytest.mark.parametrize("pole", [6e-6 + 0j, 5e-4 + 1000j])
def test_a_mode_that_is_called_neutral_does_not_make_the_loop_unstable(pole: complex) -> None:
    """A loop that also has a mode which neither grows nor decays had no margins."""
    h = 0.001
    z = cmath.exp(pole * h)
    assert Mode(pole, "internal", "internal").stable is None
    assert Mode(pole, "internal", "internal", z=z).stable is None
    assert not grows(np.array([pole, pole.conjugate(), -1.0]), None)
    assert not grows(np.array([z, z.conjugate(), 0.5]), h)


@pytest.mark.parametrize("delay", ["0", "20*ms"])
def test_a_free_motion_that_only_the_hold_and_the_delay_make_grow_is_said_and_grows_so(delay: str) -> None:
    swing = ["initial.v=0", "initial.q={x1: 0, x2: 0.6}", "task=[{name: first, holonomic: x1}]", "run.duration=40"]
    timing = ["run.period=0.02", "run.integrator.step=0.005", "run.output_step=", f"realism.delay={delay}"]
    run = sc.load("two_mass_spring", [*swing, *timing], engine="vm")
    (loop,) = held_loops(run)
    assert not loop.stable
    assert any(f"grows by e every {1 / loop.rate:.3g} s" in text for text in check(run).warnings)
    stretch = np.abs(run.simulate()["q.x2"] - 0.5)
    swings = np.array([stretch[:300].max(), stretch[-300:].max()])  # 6 s each: a period is 2.8 s
    assert np.log(swings[1] / swings[0]) / 34.0 == pytest.approx(loop.rate, rel=0.03)
    short = sc.load("two_mass_spring", [*swing, *timing, "run.duration=1"], engine="vm")
    assert held_loops(short)[0].stable, "it grows by less than a tenth"
