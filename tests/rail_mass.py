"""A mass on a rail for tests of what the law does not know: the config of a run, or its machine, changes m and push."""

from pathlib import Path

from tests.config_texts import plant_text

RAIL_MASS = plant_text(
    "Mass", "m: float = 1.0; push: float = 1.0; pulse: float = 1.0", "x", "F", "np.array([[self.m]])",
    "np.array([self.push - 1.0 + (self.pulse - 1.0) * sc.where(t < 1.0, 3.5, 1.0)])",
)  # fmt: skip
"""A run may give it another m, and a force by `push` and `pulse`, which the law takes as 1."""


def written(folder: Path, config: str) -> Path:
    """This config for the mass, beside the mass's own file."""
    (folder / "mass.py").write_text(RAIL_MASS)
    path = folder / "c.yaml"
    path.write_text(config)
    return path
