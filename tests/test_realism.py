"""Realism: its arithmetic, its random numbers, and all engines and Python calls that use it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scipy.integrate import solve_ivp

import servoctl as sc
from plants.two_mass_spring import TwoMassSpring
from servoctl.assembly.context import run_timing
from servoctl.assembly.gains import task_gains, task_spacing
from servoctl.assembly.run import Run
from servoctl.check.report import check
from servoctl.engine import compiler
from servoctl.engine.ccode import BatchProgram
from servoctl.errors import ConfigError, TaskError
from servoctl.linear import analyse
from servoctl.linear.reserve import reserve
from servoctl.run_folder.trajectory import Trajectory
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.realism import tick_noise
from servoctl.simulation.side_by_side import plan_of
from servoctl.study.batch import random_of
from servoctl.types import Array
from tests.config_texts import plant_text

MASS = plant_text("Mass", "m: float = 2.0", {"x": "m"}, {"F": "N"}, "np.array([[self.m]])")
POSITION = "task: [{name: rest, holonomic: x}]\nlaw: {correction: {baumgarte: {alpha: %g, beta: %g}}}"
VELOCITY = "task: [{name: rest, nonholonomic: der(x)}]\nlaw: {correction: {p_feedback: {P: %g}}}"
OPEN = 'law: none\ninputs: {F: "%s"}'
H = 0.01


def mass(folder: Path, body: str, realism: str, duration: float = 1.0, **load: Any) -> Run:
    """A mass of 2 kg, sampled at 0.01 s."""
    (folder / "mass.py").write_text(MASS)
    path = folder / "mass.yaml"
    path.write_text(
        f"plant: {{class: 'mass.py:Mass'}}\ninitial: {{q: 0.1, v: 0.5}}\n{body}\nrealism: {realism}\n"
        f"run: {{duration: {duration}, period: {H}}}\n"
    )
    return sc.load(path, **load)


def done(run: Run) -> Trajectory:
    found = run.simulate()
    assert found.summary()["status"] == "done"
    return found


GRID = [(1.0, 0.0, 0.42616), (1.5, 0.0, None), (1.0, 0.7, None)]


@pytest.mark.parametrize(("cycles", "lag", "known"), GRID)
@pytest.mark.parametrize("side", [0.98, 1.02])
def test_baumgarte_decays_up_to_its_limit_and_grows_beyond(
    tmp_path: Path, cycles: float, lag: float, known: float | None, side: float
) -> None:
    realism = f"{{delay: {cycles * H}, lag: {lag * H}}}"
    limit = limit_of(mass(tmp_path, POSITION % (1, 1), realism))
    if known is not None:
        assert limit == pytest.approx(known, rel=1e-4)
    a = limit / H * side
    run = mass(tmp_path, POSITION % (a, a), realism, 30.0, strict=False, engine="c")
    assert_side(run, side)


def limit_of(run: Run) -> float:
    """Rate times period that the gains of a run at rate 1 bear, as `check` says it."""
    (gain,) = check(run).values["gains"].values()
    return float(gain["longest"])


def assert_side(run: Run, side: float) -> None:
    grows = side > 1
    assert any("unstable" in problem for problem in run.problems) == grows
    found = run.simulate()
    assert found.summary()["status"] == ("ran_away" if np.abs(found["violation.rest"][-1]) > 1e6 else "done")
    violation = np.abs(found["violation.rest"])
    early, late = violation[: len(violation) // 3].max(), violation[-len(violation) // 3 :].max()
    assert (late > 2 * early) if grows else (late < 0.5 * early)


@pytest.mark.parametrize("engine", ["vm", "c"])
@pytest.mark.parametrize("lag", [0.03, 0.0003, 1e-6])  # the steps are of 1 ms
def test_an_actuator_with_lag_and_delay_follows_the_exact_solution(tmp_path: Path, lag: float, engine: str) -> None:
    delay = 0.013
    found = done(mass(tmp_path, OPEN % "3", f"{{lag: {lag}, delay: {delay}}}", engine=engine))
    t = np.maximum(found.t - delay, 0.0)
    np.testing.assert_allclose(found["u.F"], 3 * (1 - np.exp(-t / lag)), atol=1e-12)
    speed = 0.5 + 3 / 2 * (t - lag * (1 - np.exp(-t / lag)))
    np.testing.assert_allclose(found["v.x"], speed, atol=1e-10)  # rk4 at 1 ms, restarted at the switch


def test_viscous_friction_follows_the_exact_solution(tmp_path: Path) -> None:
    found = done(mass(tmp_path, OPEN % "0", "{friction: {viscous: 4}}"))
    np.testing.assert_allclose(found["v.x"], 0.5 * np.exp(-2 * found.t), rtol=1e-10)
    np.testing.assert_array_equal(found["u.F"], 0.0)  # what the actuator gives, not what is left of it


def test_dry_friction_dissipates_its_power_and_stops_the_motion(tmp_path: Path) -> None:
    found = done(mass(tmp_path, OPEN % "0", "{friction: {coulomb: 3, speed: 1*mm}}", 0.5))
    energy = found["v.x"] ** 2  # m v^2 / 2 with m = 2
    assert np.all(np.diff(energy) <= 0.0) and energy[-1] < 1e-12
    fast = found["v.x"] > 0.02
    np.testing.assert_allclose(np.diff(found["v.x"][fast]), -1.5 * H, rtol=1e-6)


def test_actuators_saturate_at_their_limits(tmp_path: Path) -> None:
    wanted = np.array([mass(tmp_path, OPEN % "5*sin(6*t)", "{}").simulate()["u.F"]])[0]
    found = done(mass(tmp_path, OPEN % "5*sin(6*t)", "{saturation: {F: [-1, 2]}}"))
    np.testing.assert_allclose(found["u.F"], np.clip(wanted, -1, 2), atol=1e-15)
    assert found["u.F"].min() == -1 and found["u.F"].max() == 2


@pytest.mark.parametrize(("limits", "told"), [({}, True), ({"law.limits.F": 1}, False)])
def test_a_limit_that_the_law_does_not_know_is_told_where_it_clips(limits: dict[str, float], told: bool) -> None:
    settings = ["run.period=0.002", "realism.saturation=1", *(f"{path}={value}" for path, value in limits.items())]
    found = sc.load("two_mass_spring_off", settings, engine="vm").simulate()
    clipped = [event for event in found.summary()["events"] if event["event"] == "clipped"]
    count = int(np.sum(np.abs(found["u.F"]) >= 1.0))
    text = f"F is at realism.saturation in {count} of 2501 rows: the law does not know this limit"
    assert [event["text"] for event in clipped] == ([text] if told else [])


def test_a_wrong_model_is_a_law_and_a_plant_with_other_parameters() -> None:
    settings = ["run.period=0.01", "run.output_step=", "run.duration=2"]
    errors = "realism={parameter_error: {m1: 0.2, k: -0.3}}"
    found = done(sc.load("two_mass_spring", [*settings, errors], engine="vm"))
    expected = two_masses(found.t, known=(1.0, 2.0, 10.0), real=(1.2, 2.0, 7.0))
    np.testing.assert_allclose(found.q, expected, rtol=1e-9)


def two_masses(times: Array, known: tuple[float, float, float], real: tuple[float, float, float]) -> Array:
    """q of two masses with a spring of length 0.5, the force held that known parameters ask for; written by hand."""

    def acceleration(q: Array, F: float) -> Array:
        (m1, m2, k), stretch = real, q[1] - q[0] - 0.5
        return np.array([(F + k * stretch) / m1, -k * stretch / m2])

    x, states = np.array([0.0, 1.0, 0.2, 0.2]), []
    for t, end in zip(times, [*times[1:], None], strict=True):
        states.append(x[:2])
        if end is None:
            break
        (m1, m2, k), phi, rate = known, x[1] - x[0] - 1.0, x[3] - x[2]
        pull = k * (x[1] - x[0] - 0.5)
        F = m1 * (8.0 * rate + 16.0 * phi - pull / m2 - pull / m1)  # phi'' = -2 alpha phi' - alpha^2 phi, alpha = 4
        x = solve_ivp(
            lambda _, y, F=F: np.concatenate([y[2:], acceleration(y[:2], F)]),
            (t, end), x, method="DOP853", rtol=1e-12, atol=1e-14,
        ).y[:, -1]  # fmt: skip
    return np.array(states)


@pytest.mark.parametrize(
    ("realism", "late"),
    [
        ("{delay: 13*ms}", (0.013, 0.0)),
        ("{delay: 4*ms, jitter: 9*ms}", (0.004, 0.009)),
        ("{delay: 27*ms, jitter: 10*ms, lag: 6*ms, saturation: 4}", (0.027, 0.010)),
    ],
)
def test_commands_act_after_a_delay_of_any_length(tmp_path: Path, realism: str, late: tuple[float, float]) -> None:
    found = done(mass(tmp_path, POSITION % (6, 6), realism, 0.8))
    expected = late_mass(found.t, late, 0.006 if "lag" in realism else 0.0, 4.0 if "lag" in realism else np.inf)
    np.testing.assert_allclose(np.column_stack([found["q.x"], found["v.x"]]), expected, rtol=1e-8, atol=1e-10)


def late_mass(times: Array, late: tuple[float, float], lag: float, bound: float) -> Array:
    """x and v of the mass: commands wait in a list for the moment at which they arrive."""
    uniform = tick_noise(0, 0, len(times), 1)[:, -1]
    x, u, waiting, states = np.array([0.1, 0.5, 0.0]), 0.0, [], []
    for k, t in enumerate(times):
        states.append(x[:2])
        if k == len(times) - 1:
            break
        F = -2.0 * (12.0 * x[1] + 36.0 * x[0])
        waiting.append((t + late[0] + late[1] * uniform[k], max(-bound, min(bound, F))))
        for moment in [*[at for at, _ in waiting if t < at < times[k + 1]], times[k + 1]]:
            while waiting and waiting[0][0] <= t + 1e-12:
                u = waiting.pop(0)[1]

            def rates(_: float, y: Array, u: float = u) -> list[float]:
                force = y[2] if lag else u
                return [y[1], force / 2.0, (u - y[2]) / lag if lag else 0.0]

            x, t = solve_ivp(rates, (t, moment), x, method="DOP853", rtol=1e-11, atol=1e-13).y[:, -1], moment
    return np.array(states)


def test_measurements_have_the_configured_noise_and_resolution(tmp_path: Path) -> None:
    found = done(mass(tmp_path, VELOCITY % 0.5, "{noise: {v: 0.02}}", 40.0))
    noise = -found["u.F"] * 0.5 / 2.0 - found["v.x"]  # u = -m v~ / P
    np.testing.assert_allclose(noise, 0.02 * tick_noise(0, 0, len(noise), 1)[:, 1], atol=1e-14)
    n = len(noise)
    assert noise.std() == pytest.approx(0.02, rel=4 / np.sqrt(2 * n))
    assert abs(noise.mean()) < 4 * 0.02 / np.sqrt(n)
    assert abs(np.corrcoef(noise[1:], noise[:-1])[0, 1]) < 4 / np.sqrt(n)
    found = done(mass(tmp_path, VELOCITY % 0.5, "{quantisation: {v: 0.01}}"))
    seen = -found["u.F"] * 0.5 / 2.0 / 0.01
    np.testing.assert_allclose(seen, np.round(seen), atol=1e-9)
    assert np.abs(0.01 * seen - found["v.x"]).max() <= 0.005 + 1e-12


def test_only_the_seed_decides_the_random_numbers_of_a_run(tmp_path: Path) -> None:
    realism = "{noise: {q: 1e-3, v: 1e-2}, jitter: 3*ms}"
    runs = [
        mass(tmp_path, POSITION % (6, 6), realism, overrides=[f"run.seed={seed}"], engine="vm").simulate()
        for seed in (1, 1, 2)
    ]
    np.testing.assert_array_equal(runs[0].q, runs[1].q)
    assert np.abs(runs[0].q - runs[2].q).max() > 1e-6


def test_an_empty_realism_section_changes_nothing() -> None:
    settings = ["run.period=0.01", "run.output_step=", "run.duration=1"]
    plain = done(sc.load("two_mass_spring", settings, engine="vm"))
    empty = done(sc.load("two_mass_spring", [*settings, "realism={}"], engine="vm"))
    np.testing.assert_allclose(empty.q, plain.q, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(empty.u, plain.u, rtol=1e-12, atol=1e-12)


def test_friction_too_steep_for_the_step_gives_a_warning(tmp_path: Path) -> None:
    run = mass(tmp_path, OPEN % "0", "{friction: {coulomb: 3, speed: 0.0001}}")
    assert any("near rest its rate is 1.5e+04 1/s" in warning for warning in run.warnings)
    assert not mass(tmp_path, OPEN % "0", "{friction: {coulomb: 3, speed: 0.001}}").warnings


def test_the_summary_and_check_list_the_active_effects(tmp_path: Path) -> None:
    run = mass(tmp_path, POSITION % (6, 6), "{delay: 12*ms, jitter: 3*ms, noise: {q: 1e-4}}")
    said = run.simulate().summary()["realism"]
    assert said["noise"] == {"q": 1e-4} and "lag" not in said
    assert said["delay_cycles"] == pytest.approx({"least": 1.2, "most": 1.5})
    report = check(run)
    lines = dict(report.sections)["realism"]
    assert lines[0] == "delay: 1.2 to 1.5 periods of 0.01 s from a measurement to the torque"
    (one, *_) = dict(check(mass(tmp_path, POSITION % (6, 6), "{delay: 10*ms}")).sections)["realism"]
    assert one == "delay: 1 period of 0.01 s from a measurement to the torque"
    assert report.values["gains"]["rest"]["delay"] == pytest.approx(1.5)


def test_a_jitter_counts_by_the_worse_of_its_ends_wherever_gains_are_judged(tmp_path: Path) -> None:
    """With one cycle of delay alpha = beta is stable up to 0.42616 / h = 42.6 1/s, on average up to 71 1/s."""
    problems = mass(tmp_path, POSITION % (43, 43), f"{{jitter: {H}}}", strict=False).problems
    assert len(problems) == 1 and "task.rest: unstable at a period of 0.01 s (delay 0 to 1 cycle)" in problems[0]
    run = mass(tmp_path, POSITION % (21, 21), f"{{jitter: {H}}}")
    sure = mass(tmp_path, POSITION % (21, 21), f"{{delay: {H}}}")
    assert reserve(run) == reserve(sure)
    assert run_timing(run.system, run.settings).worst == run_timing(sure.system, sure.settings)


@pytest.mark.parametrize("share", [0.98, 1.02])
def test_the_shortest_delay_counts_where_a_late_command_is_borne_better(tmp_path: Path, share: float) -> None:
    """`z^2 - (1 - (1 - d) g) z + d g`, g = h / P: stable below 2 / (1 - 2 d), that is 2 at once, 4 a quarter late."""
    run = mass(tmp_path, VELOCITY % (H / (2.0 * share)), f"{{jitter: {H / 4}}}", strict=False)
    assert any("unstable at a period of 0.01 s (delay 0 to 0.25 cycle)" in text for text in run.problems) == (share > 1)
    (row,) = task_gains(run.system, task_spacing(run.system, run.settings))
    assert row.margin == pytest.approx(1.0 / share, rel=1e-6)
    early, late = analyse(run).margins
    assert (bool(early.actuators), bool(late.actuators)) == (share < 1, True)
    assert reserve(run).gain_margin == pytest.approx(1.0 if share > 1 else 1.0 / share, rel=1e-2)


def test_of_a_delay_that_is_predicted_the_jitter_is_left(tmp_path: Path) -> None:
    """Commands act up to half the jitter later than the state that the law gets."""
    run = mass(tmp_path, POSITION % (21, 21), f"{{measured: q, delay: {H}, jitter: {H}}}")
    spacing = task_spacing(run.system, run.settings)
    assert spacing.cycles["delay"] == pytest.approx(0.5)
    assert run.system.estimator is not None and run.system.estimator.timing.late == 2  # on average 1.5 periods


TWO = """
plant: {class: "two.py:Two"}
initial: {q: {x: 0.01, y: 0.01}}
task: [{name: slow, holonomic: x}, {name: quick, holonomic: y, correction: {baumgarte: {alpha: 60, beta: 60}}}]
law: {correction: {baumgarte: {alpha: 2, beta: 2}}}
run: {duration: 0.5, period: 0.01}
realism: {lag: {F: 0.1}}
"""


def test_only_the_lag_of_actuators_that_move_a_row_counts_for_its_gains(tmp_path: Path) -> None:
    """Two masses that do not act on each other: F lags by 0.1 s, and the gains of y are fast for G alone."""
    plant = plant_text("Two", "m: float = 2.0", {"x": "m", "y": "m"}, {"F": "N", "G": "N"}, "self.m * np.eye(2)")
    (tmp_path / "two.py").write_text(plant)
    (tmp_path / "two.yaml").write_text(TWO)
    found = done(sc.load(tmp_path / "two.yaml"))
    assert abs(found.q[-1, 1]) < 1e-6
    (tmp_path / "two.yaml").write_text(TWO.replace("{F: 0.1}", "{G: 0.1}"))
    assert "task.quick: unstable" in sc.load(tmp_path / "two.yaml", strict=False).problems[0]


def test_a_predicted_state_takes_the_delay_back_where_gains_are_judged(tmp_path: Path) -> None:
    """Two cycles of delay: alpha = beta = 40 is beyond the 25.8 1/s without a prediction."""
    delayed = f"{{delay: {2 * H}}}"
    assert "unstable" in mass(tmp_path, POSITION % (40, 40), delayed, strict=False).problems[0]
    predicted = POSITION % (40, 40) + "\nestimation: {kind: model}"
    assert abs(done(mass(tmp_path, predicted, delayed)).q[-1, 0]) < 1e-3


RAW = [16086915834549238692, 5448529601018347655, 7749434361382612120, 7478167007443709522]
"""The first words of Philox 4x64 with key 7: NumPy keeps the streams of its bit generators."""

REFERENCE = [
    [-0.1314763152899522, 1.6123793067872925, 1.010519666078222, -0.291082995635259, 0.2871048836002725],
    [0.6488903374192434, 1.028142733932515, 0.02613253823624987, -1.598223344541856, 0.4578199018013766],
]


def test_random_numbers_equal_the_reference() -> None:
    raw = np.random.Philox(key=7).random_raw(4)
    assert raw.tolist() == RAW
    np.testing.assert_allclose(tick_noise(7, 3, 2, 2), REFERENCE, rtol=1e-14)


def test_the_numbers_of_any_tick_are_made_directly() -> None:
    np.testing.assert_array_equal(tick_noise(3, 0, 50, 5)[17:29], tick_noise(3, 17, 12, 5))


EFFECTS: dict[str, Any] = {
    "noise": {"q": 1e-5},
    "quantisation": {"q": {"x1": 2e-5}},
    "delay": 0.001,
    "jitter": 0.0005,
    "lag": 0.002,
    "saturation": {"F": 8},
    "friction": {"coulomb": 0.1},
    "parameter_error": {"m1": 0.2},
}


@pytest.mark.parametrize("measured", ["q and v", "q"])
@pytest.mark.parametrize("estimation", [None, "model"])
def test_effects_in_python_are_those_of_a_config(tmp_path: Path, measured: str, estimation: str | None) -> None:
    effects = EFFECTS | {"measured": measured}
    config = {
        "plant": {"class": "plants.two_mass_spring:TwoMassSpring"},
        "initial": {"q": [0.0, 0.8], "v": [0.3, 0.1]},
        "task": [{"name": "distance", "holonomic": "x2 - x1 - 2*l"}],
        "law": {"correction": {"baumgarte": {"alpha": 4, "beta": 4}}},
        "bounds": [{"name": "slow", "velocity": {"x1": 0.4}}],
        "run": {"duration": 0.3, "period": 0.002},
        "realism": effects,
    } | ({} if estimation is None else {"estimation": {"kind": estimation}})
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(config))
    expected = sc.load(tmp_path / "c.yaml", engine="vm").simulate()
    found = sc.simulate(
        TwoMassSpring(),
        {"distance": sc.Holonomic("x2 - x1 - 2*l")},
        sc.ConstraintFollowing(sc.Baumgarte(4.0, 4.0)),
        q=[0.0, 0.8], v=[0.3, 0.1], duration=0.3, period=0.002, engine="vm", realism=effects,
        estimation=None if estimation is None else sc.Estimator(),
        bounds={"slow": sc.CoordinateSpeed.of({"x1": (-0.4, 0.4)})},
    )  # fmt: skip
    assert expected["bound_active.slow"].any()  # a bound counts on commands that act late
    np.testing.assert_array_equal(found.u, expected.u)
    np.testing.assert_array_equal(found.q, expected.q)


def test_realism_is_a_class_with_the_keys_of_the_section_and_its_refusals() -> None:
    def simulated(realism: Any) -> Any:
        task, law = {"distance": sc.Holonomic("x2 - x1 - 2*l")}, sc.ConstraintFollowing(sc.Baumgarte(4.0, 4.0))
        how: dict[str, Any] = {"q": [0.0, 0.8], "v": [0.3, 0.1], "duration": 0.1, "period": 0.002, "engine": "vm"}
        return sc.simulate(TwoMassSpring(), task, law, **how, realism=realism)

    parts = {"noise": sc.PerCoordinate(q=1e-5), "friction": sc.Friction(coulomb=0.1)}
    quantisation = sc.PerCoordinate(q={"x1": 2e-5})
    as_object = simulated(sc.Realism(**EFFECTS | parts | {"quantisation": quantisation}))
    np.testing.assert_array_equal(as_object.u, simulated(EFFECTS).u)
    with pytest.raises(ConfigError) as refused:
        simulated(sc.Realism(delay=-1.0, friction=sc.Friction(coulomb=-0.2, speed={"G": 1.0}), machine={}))
    assert str(refused.value).splitlines() == [
        "simulate: realism.delay: expected a time >= 0 [s], got -1.0",
        "simulate: realism.friction.coulomb: expected a number >= 0, got -0.2",
        "simulate: realism.friction: the machine of realism.machine has its own (change its file)",
        "simulate: realism.machine: expected exactly one of mjcf, urdf, got none",
    ]


def test_arrays_of_numpy_are_numbers_for_realism_as_lists_are_and_a_call_has_a_seed() -> None:
    def simulated(noise: Any, friction: Any, seed: int) -> Any:
        effects = sc.Realism(noise=sc.PerCoordinate(q=noise), friction=sc.Friction(coulomb=friction))
        task, law = {"distance": sc.Holonomic("x2 - x1 - 2*l")}, sc.ConstraintFollowing(sc.Baumgarte(4.0, 4.0))
        how: dict[str, Any] = {"duration": 0.1, "period": 0.002, "seed": seed, "engine": "vm", "realism": effects}
        return sc.simulate(TwoMassSpring(), task, law, q=[0.0, 0.8], v=[0.3, 0.1], **how)

    of_arrays = simulated(np.array([1e-5, 2e-5]), {"F": np.float32(0.5)}, 1)
    np.testing.assert_array_equal(of_arrays.u, simulated([1e-5, 2e-5], {"F": 0.5}, 1).u)
    assert np.abs(of_arrays.u - simulated([1e-5, 2e-5], {"F": 0.5}, 2).u).max() > 1e-6


def test_gains_that_are_unstable_at_the_period_are_refused_in_python_too() -> None:
    with pytest.raises(TaskError, match=r"simulate: period: task.distance: unstable at a period of 0.1 s"):
        sc.simulate(
            TwoMassSpring(),
            {"distance": sc.Holonomic("x2 - x1 - 2*l")},
            sc.ConstraintFollowing(sc.Baumgarte(40.0, 40.0)),
            q=[0.0, 0.8], duration=0.3, period=0.1, engine="vm",
        )  # fmt: skip


compiled = pytest.mark.skipif(compiler.compiler() is None, reason="no C compiler on the path")

ALL = (
    "{noise: {q: 1e-4, v: 1e-3}, quantisation: {q: 1e-5}, delay: 12*ms, jitter: 3*ms, lag: 3*ms, "
    "friction: {coulomb: 0.1, viscous: 0.05, speed: 0.05}, saturation: 9, parameter_error: {%s: 0.2}}"
)
SHORT = ["run.period=0.01", "run.output_step=", "run.duration=0.4"]
CASES = [
    ("two_mass_spring", [*SHORT, "realism=" + ALL % "m1"]),
    ("two_mass_spring", [*SHORT, "realism={delay: 25*ms, jitter: 10*ms, noise: {v: [0, 1e-3]}}"]),
    ("coordinated_robots", [*SHORT, "run.duration=0.1", "realism=" + ALL % "m"]),
    ("flexible_joint_motor_raised", ["run.duration=0.1", "run.period=2*ms", "run.output_step=",
     "run.integrator={method: rk4}", "realism={delay: 2*ms, noise: {q: 1e-6}}"]),
    ("coordinated_robots", [*SHORT, "run.duration=0.05", "realism={lag: {u2: 3*ms}}"]),
]  # fmt: skip


def made(case: tuple[str, list[str]], engine: str) -> Run:
    name, settings = case
    return sc.load(name, settings, engine=engine, strict=False)


def run(case: tuple[str, list[str]], engine: str) -> Trajectory:
    ready = made(case, engine)
    found = ready.simulate()
    assert ready.loop.engine == engine and found.summary()["status"] == "done", found.summary().get("error")
    return found


def assert_same(one: Trajectory, other: Trajectory) -> None:
    for name, column in one.columns.items():
        scale = max(np.abs(column).max(), 1e-4)  # violations of 1e-13 are rounding
        if name not in ("residual", "pivot_min"):
            np.testing.assert_allclose(other[name], column, atol=1e-9 * scale, err_msg=name)


@compiled
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_c_and_numpy_equal_the_virtual_machine(case: tuple[str, list[str]]) -> None:
    expected = run(case, "vm")
    for engine in ("c", "numpy"):
        assert_same(expected, run(case, engine))


@compiled
@pytest.mark.skipif(compiler.is_tcc(), reason="tcc has no vectors")
@pytest.mark.parametrize(("case", "lanes"), list(zip(CASES[:3], (2, 8, 2), strict=True)))
def test_a_lane_equals_the_scalar_code_to_the_bit(case: tuple[str, list[str]], lanes: int) -> None:
    first = made(case, "c")
    assert first.system.realism is not None
    late = [first.system.realism.timing.delay + 2e-4 * i for i in range(3)]
    runs = [made((case[0], [*case[1], f"run.seed={i}", f"realism.delay={x}"]), "c") for i, x in enumerate(late)]
    loop, plan = first.loop, plan_of(first.loop, first.start.t, first.settings)
    assert isinstance(loop, Loop) and plan is not None
    substeps = first.settings.substeps
    starts = np.array([other.loop.vector(other.start) for other in runs])
    parameters = np.array([other.loop.step_parameters for other in runs])
    drawn = random_of(runs, len(plan.times))
    outcome = BatchProgram(loop.step(substeps), lanes).load().run(plan, parameters, starts, None, *drawn)
    library = loop.c_library(substeps)
    assert library is not None
    for i, other in enumerate(runs):
        random = tick_noise(other.settings.seed, 0, len(plan.times) - 1, other.system.model.n)
        stops = np.array(plan.stops)
        states, _ = library.steps(starts[i], plan.times, parameters[i], plan.status, stops, random)
        np.testing.assert_array_equal(outcome.ends[i], states[-1])
        assert outcome.good[i] == len(plan.times)
