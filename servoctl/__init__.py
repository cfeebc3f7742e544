"""Constraint-following servo control: a task is a constraint, and the control is the constraint force.

Design: the names below are imported when they are first used (PEP 562), so that `import servoctl` costs next to
nothing and a command line that only prints help loads neither NumPy nor CasADi.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from servoctl.engine.linalg import pinv as pinv
    from servoctl.engine.symbol import clip as clip
    from servoctl.engine.symbol import where as where
    from servoctl.laws.constraint_following import ConstraintFollowing as ConstraintFollowing
    from servoctl.laws.corrections import Baumgarte as Baumgarte
    from servoctl.laws.corrections import PFeedback as PFeedback
    from servoctl.laws.corrections import Poles as Poles
    from servoctl.laws.corrections import SecondOrderCorrection as SecondOrderCorrection
    from servoctl.laws.input_output import InputOutput as InputOutput
    from servoctl.laws.secondary import Secondary as Secondary
    from servoctl.linear.convert import linearize as linearize
    from servoctl.linear.convert import to_control as to_control
    from servoctl.mechanics.constraint import Holonomic as Holonomic
    from servoctl.mechanics.constraint import Nonholonomic as Nonholonomic
    from servoctl.mechanics.constraint import SecondOrder as SecondOrder
    from servoctl.mechanics.lagrangian import LagrangianPlant as LagrangianPlant
    from servoctl.mechanics.model import Model as Model
    from servoctl.mechanics.planar import PlanarLinkage as PlanarLinkage
    from servoctl.mechanics.planar import PointFollows as PointFollows
    from servoctl.mechanics.plant import Plant as Plant
    from servoctl.mechanics.unforced import fundamental_acceleration as fundamental_acceleration
    from servoctl.runs import Run as Run
    from servoctl.runs import load as load
    from servoctl.runs import simulate as simulate
    from servoctl.trajectory import Trajectory as Trajectory
    from servoctl.types import Command as Command
    from servoctl.types import State as State
    from servoctl.types import Status as Status

    __version__: str

_HOME = {
    "Baumgarte": "servoctl.laws.corrections",
    "Command": "servoctl.types",
    "ConstraintFollowing": "servoctl.laws.constraint_following",
    "Holonomic": "servoctl.mechanics.constraint",
    "InputOutput": "servoctl.laws.input_output",
    "LagrangianPlant": "servoctl.mechanics.lagrangian",
    "Model": "servoctl.mechanics.model",
    "Nonholonomic": "servoctl.mechanics.constraint",
    "PFeedback": "servoctl.laws.corrections",
    "Poles": "servoctl.laws.corrections",
    "PlanarLinkage": "servoctl.mechanics.planar",
    "Plant": "servoctl.mechanics.plant",
    "PointFollows": "servoctl.mechanics.planar",
    "Run": "servoctl.runs",
    "Secondary": "servoctl.laws.secondary",
    "SecondOrder": "servoctl.mechanics.constraint",
    "SecondOrderCorrection": "servoctl.laws.corrections",
    "State": "servoctl.types",
    "Status": "servoctl.types",
    "Trajectory": "servoctl.trajectory",
    "clip": "servoctl.engine.symbol",
    "fundamental_acceleration": "servoctl.mechanics.unforced",
    "linearize": "servoctl.linear.convert",
    "load": "servoctl.runs",
    "pinv": "servoctl.engine.linalg",
    "simulate": "servoctl.runs",
    "to_control": "servoctl.linear.convert",
    "where": "servoctl.engine.symbol",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("servoctl")
    elif name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module 'servoctl' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
