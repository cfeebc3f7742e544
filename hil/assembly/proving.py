"""How the drives of a config are tested: their torques in stage zero, and their watchdogs before it."""

from collections.abc import Sequence

import numpy as np

from hil.drives.base import Drive
from hil.rig.watchdogs import LetGo
from hil.safety.proof import ProofPlan
from hil.sensing.gravity import Hold
from hil.sensing.sensing import Sensing
from servoctl.config.hil import Hil
from servoctl.mechanics.actuator_parameters import friction_of
from servoctl.mechanics.plant import Plant

QUARTER = 0.01  # [s] shortest time for which a torque of the test in stage zero keeps its sign
BLUR = 0.02  # [s] time over which a speed by an encoder shows one of its steps
TURN, TRAVEL = 0.005, {"m": 0.001}  # largest motion of a test: of a joint that turns [rad], and by unit


def proof_plan(values: Hil, plant: Plant, drives: Sequence[Drive], sensing: Sensing) -> ProofPlan:
    """How stage zero tests the drives.

    Args:
        values: Section `hil` of the config.
        plant: The plant.
        drives: In the order of its actuators.
        sensing: Sensing of the rig.
    """
    units, friction = sensing.displacements.units[: len(drives)], friction_of(plant)
    visible = np.array([drive.visible() for drive in drives])
    _, speeds, torques = np.array([drive.quantum() for drive in drives]).T
    by_positions = sensing.filtered or bool(np.isnan(speeds).any())
    return ProofPlan(
        np.zeros(len(drives)) if friction is None else np.array(friction.coulomb),
        visible,
        np.fmax(speeds, visible / BLUR),
        np.nan_to_num(torques),
        _travel(units),
        max(QUARTER, (8 if by_positions else 4) * values.period),
        units,
        not by_positions,
    )


def let_go(hold: Hold, units: Sequence[str]) -> list[LetGo]:
    """How each axis may move while the watchdog of its drive is tested.

    Args:
        hold: What holds the start pose.
        units: Units of the displacements, of the drives first.
    """
    inertia = np.diag(hold.inertia)
    accelerations = np.divide(np.abs(hold.u), inertia, out=np.zeros_like(inertia), where=inertia > 0.0)
    travel = _travel(units[: len(inertia)])
    return [LetGo(*each) for each in zip(accelerations.tolist(), travel.tolist(), units, strict=False)]


def _travel(units: Sequence[str]) -> np.ndarray:
    return np.array([TRAVEL.get(unit, TURN) for unit in units])
