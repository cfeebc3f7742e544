"""Good configs that tests make wrong ones of, and files of small plants."""

import json


def plant_text(
    name: str, fields: str, coordinates: dict[str, str] | str, actuators: dict[str, str] | str, mass: str,
    force: str = "", actuation: str = "", more: str = "",
) -> str:  # fmt: skip
    """The file of a plant.

    Args:
        name: Of its class.
        fields: Its parameters, `m: float = 1.0`, with `; ` between them.
        coordinates: Coordinate -> unit; or their names, all in m.
        actuators: Actuator -> unit; or their names, all in N.
        mass: Mass matrix, an expression.
        force: Force; by default none.
        actuation: Actuation matrix; by default each actuator acts on a coordinate of its own.
        more: Further methods.
    """
    q, u = ({name: unit for name in given.split()} if isinstance(given, str) else given
            for given, unit in ((coordinates, "m"), (actuators, "N")))  # fmt: skip
    values = {"mass_matrix(self, q, t)": mass, "force(self, q, v, t)": force or f"np.zeros({len(q)})"}
    if u:
        values["actuation(self, q, t)"] = actuation or f"np.eye({len(q)})"
    methods = "".join(f"\n    def {method}:\n        return {value}\n" for method, value in values.items())
    parameters = "".join(f"    {field}\n" for field in fields.split("; "))
    return (
        "from dataclasses import dataclass\nimport numpy as np\nimport servoctl as sc\n\n\n@dataclass(frozen=True)\n"
        f"class {name}(sc.Plant):\n{parameters}    coordinates = {json.dumps(q)}\n"
        f"    actuators = {json.dumps(u)}\n{methods}{more}"
    )


GRAMMAR = {
    "plant": "plant: {class: plants.cart:Cart}\n",
    "initial": "initial: {q: 0}\n",
    "task": "task:\n  - {name: a, holonomic: x}\n  - {name: b, nonholonomic: der(x)}\n",
    "law": "law: {correction: {baumgarte: {alpha: 1, beta: 2}}}\n",
    "run": "run: {duration: 1}\n",
}
"""Sections of a config whose plant does not exist, for tests of the grammar alone."""

LAW_FIELD = "law: {{correction: {{baumgarte: {{alpha: 1, beta: 2}}}}, {}}}\n"
CORRECTION = "law: {{correction: {}}}\n"

CART_PLANT = '''
from dataclasses import dataclass
import math
import numpy as np
import servoctl as sc


@dataclass(frozen=True)
class Cart(sc.Plant):
    """A driven cart carries a sprung mass."""

    m1: float = 1.0
    m2: float = 2.0
    k: float = 5.0
    w: tuple[float, ...] = (1.0, 2.0)
    n: int = 3
    coordinates = {"x": "m", "s": "m"}
    actuators = {"F": "N"}

    def mass_matrix(self, q, t):
        return np.array([[self.m1 + self.m2, self.m2], [self.m2, self.m2]])

    def force(self, q, v, t):
        return np.array([0.0, -self.k * q[1]])

    def actuation(self, q, t):
        return np.array([[1.0], [0.0]])
'''
CART = """\
plant: {class: "cart.py:Cart"}
initial: {q: {x: 0, s: 0}, v: 0}
task:
  - {name: follow, holonomic: "x - (1 - cos(t))"}
law: {correction: {baumgarte: {alpha: 10, beta: 10}}}
run: {duration: 0.02}
"""

RAIL_CART = plant_text("Cart", "m: float = 3.0", {"x": "m"}, {"F": "N"}, "np.array([[self.m]])")
"""A cart alone, driven along a rail, as a file."""

HEAD = "plant: {class: a:B}\ninitial: {q: 0}\nlaw: none\nrun: {duration: 1}\n"
DRIVE = (
    "actuator: u, bus: main, protocol: cia402, node: 1, torque_limit: 12, torque_rate_limit: 400, speed_limit: 6, "
    "position_limits: [-170*deg, 170*deg]"
)
HIL = (
    "hil:\n  period: 2.5*ms\n  buses: {main: {channel: can0}}\n  drives:\n"
    f"  - {{{DRIVE}, counts_per_turn: 65536}}\n"
)

TWO_MASSES = """\
plant: {class: "plants.two_mass_spring:TwoMassSpring"}
initial: {q: {x1: 0, x2: 1.02}, v: 0}
task: [{name: distance, holonomic: "x2 - x1 - 2*l"}]
law: {correction: {baumgarte: {alpha: 10, beta: 10}}}
"""
"""A config for searches, without `run`."""

REALISM = """\
plant: {class: "plants.two_mass_spring:TwoMassSpring"}
initial: {q: {x1: 0, x2: 0.5}}
task: [{name: distance, holonomic: "x2 - x1 - l"}]
law: {correction: {baumgarte: {alpha: 1, beta: 1}}}
run: {duration: 1, period: 0.01}
realism: {}
"""

ROBOT = """\
plant:
  robots: {left: {urdf: arm7.urdf, at: {xyz: [0, 0.5, 0]}}, right: {urdf: arm7.urdf, base: fixed, motors: all}}
  bodies: {box: {m: 5, size: [0.3, 0.4, 0.2], on: left_tool}}
  frames: {grip: {on: right_tool, at: {rpy: [90*deg, 0, 0]}}}
  loops: {hold: {weld: [box, grip]}}
initial: {q: {left_joint4: -2.2}, solve: {box: {xyz: [0.5, 0, 0.4]}}}
task:
  - {name: box, pose: box, xyz: [0.5, 0, "0.4 + 0.1*(1 - cos(t))"], rpy: [0, 0, 0]}
  - {name: rest, posture: initial, priority: 2}
law: {limits: robot, preload: {hold: {y: -30}}}
run: {duration: 1}
references: {path: {file: path.csv}, guided: {file: guided.csv}}
"""
"""A config whose files do not exist, for tests of the grammar alone."""

SHAPES = """\
plant:
  class: plants.chain:Chain
  parameters: {N: 2}
  shapes: {arm_1: {capsule: {from: [0, 0, 0], to: [0.9, 0, 0], radius: 0.05}}, arm_2: {sphere: {radius: 0}}}
  obstacles: {pillar: {sphere: {at: [1.2, 0.8, 0], radius: 0.1}}, dot: {sphere: {radius: 0}}}
initial: {q: [0, 0]}
task: [{name: level, holonomic: "theta1"}]
bounds:
  - {name: free, clearance: [arm_1, pillar], at_least: 0.02}
law: {correction: {baumgarte: {alpha: 5, beta: 5}}}
run: {duration: 0.1, period: 0.01}
"""
"""A config whose only bound is a clearance."""
