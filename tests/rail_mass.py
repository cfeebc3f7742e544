"""A mass on a rail for tests of what the law does not know: the config of a run, or its machine, changes m and push."""

from pathlib import Path

RAIL_MASS = '''
from dataclasses import dataclass
import numpy as np
import servoctl as sc

@dataclass(frozen=True)
class Mass(sc.Plant):
    """One mass on a rail; a run may give it another m, and a force by `push` and `pulse`, which the law takes as 1."""
    m: float = 1.0
    push: float = 1.0
    pulse: float = 1.0
    coordinates = {"x": "m"}
    actuators = {"F": "N"}

    def mass_matrix(self, q, t):
        return np.array([[self.m]])

    def force(self, q, v, t):
        early = sc.where(t < 1.0, 3.5, 1.0)
        return np.array([self.push - 1.0 + (self.pulse - 1.0) * early])

    def actuation(self, q, t):
        return np.array([[1.0]])
'''


def written(folder: Path, config: str) -> Path:
    """This config for the mass, beside the mass's own file."""
    (folder / "mass.py").write_text(RAIL_MASS)
    path = folder / "c.yaml"
    path.write_text(config)
    return path
