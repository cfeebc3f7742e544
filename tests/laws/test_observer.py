"""The disturbance observer: it finds what the model does not explain, exactly for held commands, and never winds up."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import servoctl as sc
from hil.core.controller import Controller
from servoctl.check.report import check
from servoctl.errors import TaskError
from servoctl.laws.hold import RowFeedback
from servoctl.laws.observer import Observer, RowObserver, largest_rate
from servoctl.mechanics.timing import Timing
from tests.rail_mass import written

CONFIG = """plant: {class: "mass.py:Mass"}
initial: {q: {x: 0}}
task:
  - {name: x, holonomic: "x"}
law:
  correction: {second_order: {damping: 20, stiffness: 100}}
  observer: {rate: 100}
run: {duration: 0.2, period: 0.001}
"""
FEEDBACK = RowFeedback(damping=20.0, stiffness=100.0)  # its correction


@pytest.fixture
def mass(tmp_path: Path) -> Path:
    return written(tmp_path, CONFIG)


@pytest.mark.parametrize("delay", [0.0, 0.001, 0.0015, 0.002])
def test_a_constant_disturbance_is_found_as_the_closed_form_says(mass: Path, delay: float) -> None:
    run = sc.load(mass, ["realism.parameter_error={push: 0.7}", f"realism.delay={delay}"], engine="vm").simulate()
    ticks = np.arange(len(run.t))
    # the first tick has no tick before, so that it learns nothing
    np.testing.assert_allclose(run["disturbance.x"], 0.7 * (1.0 - np.exp(-100 * 0.001 * ticks)), atol=1e-11)


@pytest.mark.parametrize("engine", ["numpy", "vm", "c"])
def test_every_engine_finds_the_same(mass: Path, engine: str) -> None:
    changes = ["realism.parameter_error={push: 0.7, m: 0.4}", "realism.delay=0.0015", "realism.lag=0.002"]
    run = sc.load(mass, changes, engine=engine).simulate()
    reference = sc.load(mass, changes, engine="numpy").simulate()
    for column in ("q.x", "u.F", "disturbance.x"):
        np.testing.assert_allclose(run[column], reference[column], atol=1e-11)


def test_positions_alone_are_estimated_when_the_command_acts_so_the_observer_counts_no_delay(mass: Path) -> None:
    """The default estimator predicts like one that the config names; the delay was counted twice without a name."""
    changes = ["realism.delay=0.002", "realism.measured=q", "realism.parameter_error={push: 0.7}"]
    runs = [sc.load(mass, [*changes, *more], engine="vm").simulate() for more in ([], ["estimation.kind=difference"])]
    np.testing.assert_array_equal(runs[0]["disturbance.x"], runs[1]["disturbance.x"])


def test_the_loop_remembers_commands_once_and_the_observer_counts_on_what_the_drives_got(mass: Path) -> None:
    """1 kg: what is expected of the next period is the torque under way, 3 N, and not the 0.2 N that were asked."""
    mass.write_text(CONFIG.replace("x: 0}", "x: -0.002}"))
    loop = sc.load(mass, ["realism.delay=0.001"], engine="vm").loop
    names = loop.memory_names
    assert [name for name in names if "sent" in name] == ["commands.sent1.F"]
    controller = Controller(loop)
    for got, expected in ((3.0, 0.0), (0.0, 3.0)):
        assert controller.command(0.0, np.array([-0.002]), np.zeros(1)) == pytest.approx([0.2])
        controller.remember(0.001)
        controller.sent(np.array([got]))
        memory = dict(zip(names, controller.memory.tolist(), strict=True))
        assert memory["commands.sent1.F"] == got
        assert memory["expected.x"] == pytest.approx(expected, abs=1e-12)


def test_lag_is_no_disturbance(mass: Path) -> None:
    mass.write_text(CONFIG.replace("x: 0}", "x: 0.01}"))
    run = sc.load(
        mass, ["realism.lag=0.003", "realism.delay=0.0005", "run.integrator.step=0.001"], engine="vm"
    ).simulate()
    # rk4 integrates a lagging torque to 1e-5 of the accelerations of up to 1 m/s^2
    assert np.abs(run["disturbance.x"]).max() < 1e-4


def test_saturation_winds_nothing_up(mass: Path) -> None:
    """3.5 N for 1 s against 3 N, then 1 N: an integral of the asked torque would push the mass past its place."""
    changes = ["realism.parameter_error={pulse: 1.0}", "realism.saturation=3", "run.duration=4"]
    run = sc.load(mass, changes, engine="vm").simulate()
    assert run["violation.x"].max() > 0.2
    assert run["violation.x"].min() > -1e-4
    assert abs(run["violation.x"][-1]) < 1e-4


@pytest.mark.parametrize(("late", "error"), [(0, 1.0), (0, 2.0), (1, 1.0), (1, 2.0), (2, 1.0), (2, 2.0)])
def test_the_limit_of_the_rate_is_that_of_the_simulated_loop(mass: Path, late: int, error: float) -> None:
    observer = RowObserver(("x",), (True,), 200.0, timing=Timing.of(0.001, ("F",), late * 1e-3))
    limit = largest_rate(observer, FEEDBACK, error)
    mass.write_text(CONFIG.replace("x: 0}", "x: 0.001}"))
    grows = []
    for factor in (0.98, 1.02):
        changes = [f"realism.delay={late * 1e-3}", f"realism.parameter_error={{m: {1 / (1 + error) - 1}}}"]
        run = sc.load(mass, [*changes, f"law.observer.rate={factor * limit}", "run.duration=2"], engine="vm").simulate()
        bend = np.abs(np.diff(run["violation.x"], 2))  # shows the fast mode beside the slow decay of the error
        half, end = len(bend) // 2, 3 * len(bend) // 4
        grows.append(bend[end:].max() > bend[half:end].max())
    assert grows == [False, True]


def test_the_limit_of_the_rate_under_a_jitter_is_that_of_its_worst_delay() -> None:
    """The observer knows 1.5 ms; torques that act after 2 ms look to it like a disturbance."""
    sure, jittery = (Timing.of(0.001, ("F",), delay, jitter) for delay, jitter in ((0.0015, 0.0), (0.001, 0.001)))
    assert largest_rate(RowObserver(("x",), (True,), 200.0, timing=sure), FEEDBACK) == math.inf
    limit = largest_rate(RowObserver(("x",), (True,), 200.0, timing=jittery), FEEDBACK)
    assert limit == pytest.approx(5293.0, rel=1e-3)
    # written out: phi'' = u two ticks late; d follows phi' / h minus the mean of the last two commands
    h, grows = 0.001, []
    for rate in (0.98 * limit, 1.02 * limit):
        share, state = 1.0 - math.exp(-rate * h), np.array([1e-3, 0.0])
        d, before, sent, seen = 0.0, 0.0, [0.0, 0.0, 0.0], []
        for tick in range(4000):
            if tick:
                d += share * ((state[1] - before) / h - (sent[1] + sent[2]) / 2.0 - d)
            before = state[1]
            sent = [-100.0 * state[0] - 20.0 * state[1] - d, *sent[:2]]
            state = np.array([state[0] + h * state[1] + h * h / 2.0 * sent[2], state[1] + h * sent[2]])
            seen.append(abs(d))
        grows.append(max(seen[-500:]) > max(seen[2000:2500]))
    assert grows == [False, True]


def test_a_model_that_is_right_bears_any_rate() -> None:
    observer = RowObserver(("x",), (True,), 200.0, timing=Timing.of(0.001, ("F",), 0.001))
    assert largest_rate(observer, FEEDBACK) == math.inf


def test_a_nonholonomic_row_is_observed_too(mass: Path) -> None:
    mass.write_text(
        CONFIG.replace('holonomic: "x"', 'nonholonomic: "der(x) - 1"')
        .replace("{x: 0}}", "{x: 0}, v: 1}")
        .replace("second_order: {damping: 20, stiffness: 100}", "p_feedback: {P: 0.05}")
    )
    run = sc.load(mass, ["realism.parameter_error={push: 0.7}", "run.duration=1"], engine="vm").simulate()
    assert run["disturbance.x"][-1] == pytest.approx(0.7, abs=1e-9)
    assert abs(run["violation.x"][-1]) < 1e-9


def test_check_gives_the_limit_of_each_row(mass: Path) -> None:
    report = check(sc.load(mass, ["realism.delay=0.001"]))
    values = report.values["observer"]["x"]
    assert values["rate"] == 100.0
    assert values["limit"] is None  # it is infinite
    assert values["limit_if_off"] == pytest.approx(3874, rel=1e-3)


def test_auto_is_a_fifth_of_the_sampling_rate(mass: Path) -> None:
    for text in ("auto", "{rate: auto}", "{}"):
        law = sc.load(mass, [f"law.observer={text}"]).system.law
        assert law.observer.rate == pytest.approx(200.0)  # type: ignore[union-attr]


def test_an_observer_of_a_law_made_in_python_has_the_period_of_the_run(mass: Path) -> None:
    """Its default rate is a fifth of the sampling rate."""
    plant = sc.load(mass).system.model.plant
    law, task = sc.ConstraintFollowing(sc.Baumgarte(10.0, 10.0), observer=Observer()), {"x": sc.Holonomic("x")}
    run = sc.simulate(plant, task, law, q=0.1, duration=0.01, period=0.002, engine="vm")
    same = sc.simulate(plant, task, replace(law, observer=Observer(100.0)), q=0.1, duration=0.01, period=0.002)
    np.testing.assert_allclose(run.u, same.u, rtol=1e-12)
    with pytest.raises(TaskError, match=r"law\.observer: needs a sampled law \(give run\.period\)"):
        sc.simulate(plant, task, law, q=0.0, duration=0.01, engine="vm")
