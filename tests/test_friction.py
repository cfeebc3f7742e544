"""`plant.friction`: friction that the law knows, against the friction that the machine has."""

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import servoctl as sc
from hil.assembly.prepare import load as load_drives
from plants.two_mass_spring import TwoMassSpring
from servoctl.mechanics.friction import Friction, friction_of, with_friction, without_friction
from servoctl.run_folder.trajectory import Trajectory
from tests.config_texts import plant_text

RUBS = "{coulomb: {F: 3}, viscous: {F: 0.5}, speed: 0.05}"
SHORT = ["run.duration=0.2", "run.output_step="]
SAMPLED = [*SHORT, "run.period=0.001"]


def ran(*overrides: str, engine: str = "vm") -> Trajectory:
    found = sc.load("two_mass_spring", overrides, engine=engine).simulate()
    assert found.summary()["status"] == "done"
    return found


def resistance(v: Any) -> Any:
    return 3 * np.tanh(v / 0.05) + 0.5 * v


@pytest.mark.parametrize("engine", ["vm", "numpy"])
def test_the_law_adds_the_friction_of_the_plant_and_moves_it_as_without(engine: str) -> None:
    known, none = (ran(*SHORT, *friction, engine=engine) for friction in ([f"plant.friction={RUBS}"], []))
    np.testing.assert_allclose(known["q.x1"], none["q.x1"], atol=1e-12)
    np.testing.assert_allclose(known["u.F"], none["u.F"] + resistance(none["v.x1"]), atol=1e-10)


def test_friction_of_the_plant_moves_the_machine_as_friction_of_realism_does() -> None:
    unforced = ["law=none", "task=[]", "initial.v=1", *SAMPLED]
    one, other = (ran(*unforced, f"{section}.friction={RUBS}") for section in ("plant", "realism"))
    np.testing.assert_allclose(one["v.x1"], other["v.x1"], atol=1e-12)
    assert "energy_drift" not in one.summary()


def test_friction_of_realism_takes_the_place_of_the_friction_of_the_plant() -> None:
    same, other = f"realism.friction={RUBS}", "realism.friction={viscous: {F: 2}}"
    exact, known, wrong = (ran(*SAMPLED, f"plant.friction={RUBS}", *more) for more in ([], [same], [other]))
    np.testing.assert_allclose(known["q.x1"], exact["q.x1"], atol=1e-12)
    unforced = ["law=none", "task=[]", "initial.v=1", *SAMPLED]
    both, alone = (ran(*unforced, *more, other) for more in ([f"plant.friction={RUBS}"], []))
    np.testing.assert_allclose(both["v.x1"], alone["v.x1"], atol=1e-12)
    assert np.abs(wrong["violation.distance"]).max() > 2 * np.abs(exact["violation.distance"]).max()


def test_friction_of_emulated_drives_takes_the_place_of_the_friction_of_the_plant() -> None:
    known, worn = "plant.friction={coulomb: {F: 1}}", "hil.emulation.coulomb_friction=2"
    prepared = load_drives("two_mass_spring_drive", [known])
    assert prepared.simulated is prepared.run.system
    assert friction_of(load_drives("two_mass_spring_drive", [known, worn]).simulated.model.plant) is None


def test_a_plant_with_friction_is_of_its_own_class_and_can_be_copied() -> None:
    friction = Friction((1.0,), (2.0,), (0.1,))
    plant = with_friction(TwoMassSpring(m1=3.0), friction)
    for other in (plant, copy.copy(plant), pickle.loads(pickle.dumps(plant))):
        assert isinstance(other, TwoMassSpring) and other == plant and type(other) is type(plant)
        assert friction_of(other) == friction and without_friction(other) == TwoMassSpring(m1=3.0)


def test_a_robot_with_friction_is_compiled_and_its_error_is_a_parameter_error() -> None:
    friction = ["plant.friction={coulomb: 2, viscous: 1, speed: 0.1}", "run.period=0.005", "run.duration=0.1"]
    run = sc.load("arm_path", [*friction, "realism.parameter_error.friction_coulomb=0.5"], engine="vm")
    assert run.system.model.opaque is None and isinstance(run.system.model.plant, sc.Robot)
    assert run.system.simulated is not None
    assert friction_of(run.system.simulated.plant) == Friction((3.0,) * 7, (1.0,) * 7, (0.1,) * 7)


def test_what_a_robot_keeps_for_speed_is_not_taken_over_by_one_with_friction() -> None:
    robot = sc.Robot.from_urdf(Path(__file__).parents[1] / "configs" / "robots" / "arm6.urdf")
    robot.mass_matrix(np.full(6, 0.3), 0.0)
    rough: Any = with_friction(robot, Friction((0.5,) * 6, (0.1,) * 6, (0.01,) * 6))
    assert len(rough.known.p) == len(robot.known.p) + 18  # three numbers per actuator


@pytest.mark.parametrize(
    ("force", "said"), [("np.sign(v)", True), ("np.tanh(v / 1e-3)", True), ("np.tanh(v / 0.05)", False), ("v", False)]
)
def test_dry_friction_in_the_code_of_a_plant_that_the_steps_cannot_follow_gives_a_warning(
    tmp_path: Path, force: str, said: bool
) -> None:
    """A push of 3 N moves a mass that friction of 5 N holds, by 33 mm in 3 s."""
    (tmp_path / "rough.py").write_text(plant_text("Rough", "m: float = 0.1", "x", "F", "[[self.m]]", f"-5.0 * {force}"))
    (tmp_path / "rough.yaml").write_text(
        "plant: {class: 'rough.py:Rough'}\ninitial: {q: {x: 0}, v: 0}\nlaw: none\ninputs: {F: 3}\n"
        "run: {duration: 0.1}\n"
    )
    warnings = sc.load(tmp_path / "rough.yaml", engine="vm").warnings
    assert any("plant: its forces jump or are steep at rest" in text for text in warnings) is said


class Plain(TwoMassSpring):
    """B = I is written as None."""

    actuators = {"F1": "N", "F2": "N"}  # noqa: RUF012

    def actuation(self, q: Any, t: Any) -> None:  # type: ignore[override]
        return None


def test_a_plant_whose_actuation_is_none_rubs_at_its_coordinates() -> None:
    friction = Friction((0.3, 0.1), (0.2, 0.4), (0.05, 0.05))
    q, v = np.array([0.1, 0.2]), np.array([0.4, -0.7])
    force = with_friction(Plain(), friction).right_hand_side(q, v, 0.0)
    np.testing.assert_allclose(force, Plain().right_hand_side(q, v, 0.0) - friction.resistance(v), rtol=1e-15)
