"""`sc.simulate(realism=...)` is the run of a config with the same section."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import servoctl as sc
from plants.two_mass_spring import TwoMassSpring
from servoctl.errors import ConfigError, TaskError

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
    )  # fmt: skip
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


def test_bounds_in_python_know_the_delay_of_the_actuators_as_those_of_a_config(tmp_path: Path) -> None:
    """The mass speeds up to a limit of 1 m/s; commands act 30 ms late."""
    effects, limit = {"delay": 0.03, "lag": 0.004}, 1.0
    config = {
        "plant": {"class": "plants.two_mass_spring:TwoMassSpring"},
        "task": [{"name": "place", "holonomic": "x1 - 1"}],
        "law": {"correction": {"baumgarte": {"alpha": 5, "beta": 5}}},
        "bounds": [{"name": "slow", "velocity": {"x1": limit}}],
        "run": {"duration": 1.0, "period": 0.01},
        "initial": {"q": [0.0, 1.0], "max_violation": 2},
        "realism": effects,
    }
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(config))
    expected = sc.load(tmp_path / "c.yaml", engine="vm").simulate()
    found = sc.simulate(
        TwoMassSpring(),
        {"place": sc.Holonomic("x1 - 1")},
        sc.ConstraintFollowing(sc.Baumgarte(5.0, 5.0)),
        q=[0.0, 1.0], duration=1.0, period=0.01, engine="vm", realism=effects,
        bounds={"slow": sc.CoordinateSpeed.of({"x1": (-limit, limit)})},
    )  # fmt: skip
    np.testing.assert_array_equal(found.u, expected.u)
    assert found.v[:, 0].max() < 1.05 * limit  # without the delay 1.8


def test_gains_that_are_unstable_at_the_period_are_refused_in_python_too() -> None:
    with pytest.raises(TaskError, match=r"simulate: period: task.distance: unstable at a period of 0.1 s"):
        sc.simulate(
            TwoMassSpring(),
            {"distance": sc.Holonomic("x2 - x1 - 2*l")},
            sc.ConstraintFollowing(sc.Baumgarte(40.0, 40.0)),
            q=[0.0, 0.8], duration=0.3, period=0.1, engine="vm",
        )  # fmt: skip
