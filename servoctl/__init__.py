"""Constraint-following servo control: a task is a constraint, and the control is the constraint force.

    import servoctl as sc
    from plants.two_mass_spring import TwoMassSpring

    plant = TwoMassSpring()                                      # M q'' = Q + B u
    task = {"distance": sc.Holonomic("x2 - x1 - l - 0.1*(1 - cos(t))")}
    law = sc.ConstraintFollowing(correction=sc.Baumgarte(alpha=5, beta=5))
    run = sc.simulate(plant, task, law, q=[0, plant.l], duration=10)
    print(run.summary()["tasks"]["distance"]["max_violation"])   # [m]
    sc.plot(run, "run.png")

Design: the names below are imported when they are first used (PEP 562), so that `import servoctl` is fast and a
command line that only prints help loads neither NumPy nor CasADi.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from servoctl.assembly import Run as Run
    from servoctl.assembly import load as load
    from servoctl.assembly import simulate as simulate
    from servoctl.assembly.direct import evaluate as evaluate
    from servoctl.assembly.direct import fundamental_acceleration as fundamental_acceleration
    from servoctl.engine.decomposition import pinv as pinv
    from servoctl.engine.structured import Diagonal as Diagonal
    from servoctl.engine.symbol import clip as clip
    from servoctl.engine.symbol import where as where
    from servoctl.estimation.estimator import Estimator as Estimator
    from servoctl.identification import Identification as Identification
    from servoctl.identification import identify as identify
    from servoctl.laws.bounds import Bound as Bound
    from servoctl.laws.bounds import ReactionBound as ReactionBound
    from servoctl.laws.configured import ConstraintFollowing as ConstraintFollowing
    from servoctl.laws.corrections import Baumgarte as Baumgarte
    from servoctl.laws.corrections import PFeedback as PFeedback
    from servoctl.laws.corrections import Poles as Poles
    from servoctl.laws.corrections import SecondOrderCorrection as SecondOrderCorrection
    from servoctl.laws.funnel import Funnel as Funnel
    from servoctl.laws.input_output import InputOutput as InputOutput
    from servoctl.laws.law import Law as Law
    from servoctl.laws.secondary import Secondary as Secondary
    from servoctl.laws.user_code import Feedback as Feedback
    from servoctl.laws.user_code import Term as Term
    from servoctl.laws.user_code import law as law
    from servoctl.linear.convert import linearize as linearize
    from servoctl.linear.convert import to_control as to_control
    from servoctl.mechanics.constraint import Holonomic as Holonomic
    from servoctl.mechanics.constraint import Nonholonomic as Nonholonomic
    from servoctl.mechanics.constraint import SecondOrder as SecondOrder
    from servoctl.mechanics.coordinate_bounds import CoordinateRange as CoordinateRange
    from servoctl.mechanics.coordinate_bounds import CoordinateSpeed as CoordinateSpeed
    from servoctl.mechanics.friction import Friction as Friction
    from servoctl.mechanics.lagrangian import LagrangianPlant as LagrangianPlant
    from servoctl.mechanics.model import Model as Model
    from servoctl.mechanics.planar import PlanarLinkage as PlanarLinkage
    from servoctl.mechanics.planar import PointFollows as PointFollows
    from servoctl.mechanics.plant import Plant as Plant
    from servoctl.mechanics.shapes import Clearance as Clearance
    from servoctl.mechanics.shapes import SweptSphere as SweptSphere
    from servoctl.mechanics.spatial.plant import Robot as Robot
    from servoctl.mechanics.spatial.plant import RobotBuilder as RobotBuilder
    from servoctl.mechanics.spatial.task import Axis as Axis
    from servoctl.mechanics.spatial.task import CentreOfMass as CentreOfMass
    from servoctl.mechanics.spatial.task import Distance as Distance
    from servoctl.mechanics.spatial.task import DistanceBound as DistanceBound
    from servoctl.mechanics.spatial.task import Orientation as Orientation
    from servoctl.mechanics.spatial.task import Pose as Pose
    from servoctl.mechanics.spatial.task import Position as Position
    from servoctl.mechanics.spatial.task import Posture as Posture
    from servoctl.report import plot as plot
    from servoctl.run_folder.reader import load_run as load_run
    from servoctl.run_folder.trajectory import Trajectory as Trajectory
    from servoctl.run_folder.writer import save as save
    from servoctl.simulation.realism import PerCoordinate as PerCoordinate
    from servoctl.simulation.realism import Realism as Realism
    from servoctl.study.batch import batch as batch
    from servoctl.types import Command as Command
    from servoctl.types import State as State
    from servoctl.types import Status as Status

    __version__: str

_NAMES = {
    "assembly": "Run load simulate",
    "assembly.direct": "evaluate fundamental_acceleration",
    "engine.decomposition": "pinv",
    "engine.structured": "Diagonal",
    "engine.symbol": "clip where",
    "estimation.estimator": "Estimator",
    "identification": "Identification identify",
    "laws.bounds": "Bound ReactionBound",
    "laws.configured": "ConstraintFollowing",
    "laws.corrections": "Baumgarte PFeedback Poles SecondOrderCorrection",
    "laws.funnel": "Funnel",
    "laws.input_output": "InputOutput",
    "laws.law": "Law",
    "laws.secondary": "Secondary",
    "laws.user_code": "Feedback Term law",
    "linear.convert": "linearize to_control",
    "mechanics.constraint": "Holonomic Nonholonomic SecondOrder",
    "mechanics.coordinate_bounds": "CoordinateRange CoordinateSpeed",
    "mechanics.friction": "Friction",
    "mechanics.lagrangian": "LagrangianPlant",
    "mechanics.model": "Model",
    "mechanics.planar": "PlanarLinkage PointFollows",
    "mechanics.plant": "Plant",
    "mechanics.shapes": "Clearance SweptSphere",
    "mechanics.spatial.plant": "Robot RobotBuilder",
    "mechanics.spatial.task": "Axis CentreOfMass Distance DistanceBound Orientation Pose Position Posture",
    "report": "plot",
    "run_folder.reader": "load_run",
    "run_folder.trajectory": "Trajectory",
    "run_folder.writer": "save",
    "simulation.realism": "PerCoordinate Realism",
    "study.batch": "batch",
    "types": "Command State Status",
}
"""Module -> its public names."""

_HOME = {name: f"servoctl.{module}" for module, names in _NAMES.items() for name in names.split()}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from servoctl.version import VERSION

        value: Any = VERSION
    elif name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module 'servoctl' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


_ipython = sys.modules.get("IPython")
if _ipython is not None and (_shell := _ipython.get_ipython()) is not None:
    from servoctl.cli.notebook import register

    register(_shell)
