"""Arguments of `simulate`, checked as the values of a config are: all problems at once."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from servoctl.assembly.realism import build_realism
from servoctl.assembly.values import build_equations, one_per_name
from servoctl.config.problems import validate_realism
from servoctl.config.realism import RealismConfig
from servoctl.config.schema import GONE, default_step, divides
from servoctl.errors import ConfigError
from servoctl.expression import Expression
from servoctl.laws.law import Law
from servoctl.mechanics.plant import Plant
from servoctl.simulation.realism import Realism
from servoctl.simulation.rows import METHODS, Integrator
from servoctl.simulation.settings import Settings
from servoctl.types import Array

ENGINES = ("auto", "c", "vm", "numpy")


class ArgumentCheck:
    """Checks arguments and collects what is wrong with them.

    Args:
        plant: The plant.
        task: Name -> constraint.
        law: The law, or None.
        engine: One of `ENGINES`.

    Raises:
        ConfigError: `plant` is not a plant, so that nothing else can be checked.
    """

    def __init__(self, plant: Any, task: Any, law: Any, engine: str) -> None:
        self._problems: list[str] = []
        if not isinstance(plant, Plant):
            hint = f"make one: {plant.__name__}(...)" if isinstance(plant, type) else "an instance of a servoctl.Plant"
            raise ConfigError(f"simulate: plant: expected a plant, got {plant!r} ({hint})")
        for field, units in (("coordinates", plant.coordinates), ("actuators", plant.actuators)):
            if not isinstance(units, Mapping):
                raise ConfigError(
                    f"{type(plant).__name__}.{field}: expected a mapping of names to units, got {units!r}"
                )
        self._plant = plant
        if not isinstance(task, Mapping):
            self.add(f"expected a mapping of names to constraints, got {task!r}", "task")
        if law is not None and not isinstance(law, Law):
            self.add(f"expected a law such as ConstraintFollowing(...), or None, got {law!r}", "law")
        if engine not in ENGINES:
            self.add(f"expected one of {', '.join(ENGINES)}, got {engine!r}", "engine")

    def add(self, what: object, *path: str | int) -> None:
        """Notes what is wrong with an argument."""
        self._problems.append(f"simulate: {'.'.join(map(str, path))}: {what}")

    def check(self) -> None:
        """Raises ConfigError with all problems, if there are any."""
        if self._problems:
            raise ConfigError(self._problems)

    def vector(self, given: Any, field: str) -> Array:
        """q or v, shape (n,); a mapping must have every coordinate of q."""
        default = None if field == "q" else 0.0
        return one_per_name(given, self._plant.coordinates, "coordinate", self, field, default=default)

    @property
    def found(self) -> list[str]:
        """One sentence per problem so far."""
        return self._problems

    def realism(self, given: Any, period: Any) -> RealismConfig | None:
        """The effects of a real machine; None without them, or if they are wrong."""
        if given is None:
            return None
        if period is None:
            self.add("needs a period (give period=)", "realism")
            return None
        values, problems = validate_realism(given, self.time(period, "period"))
        for problem in problems:
            self.add(problem.what, *problem.path)
        return values

    def effects(self, values: RealismConfig, settings: Settings) -> Realism:
        """Measurement, delay and actuators of a real machine."""
        assert settings.period is not None
        return build_realism(values, self._plant, settings.period, self)

    def time(self, given: Any, field: str) -> float:
        """A positive, finite number."""
        if isinstance(given, bool) or not isinstance(given, (int, float, np.number)) or not 0 < given < math.inf:
            self.add(f"expected a positive number, got {given!r}", field)
            return 1.0
        return float(given)

    def equations(self, given: Mapping[str, str] | None, law: Any) -> dict[str, Expression]:
        """Actuator -> equation of an open loop."""
        if given and law is not None:
            self.add("cannot be used with a law, which computes the inputs (law=None is an open loop)", "inputs")
            return {}
        return build_equations(given, self._plant, self, "inputs")

    def settings(
        self,
        duration: float,
        method: str,
        step: float | None,
        rtol: float,
        atol: float,
        period: float | None,
        output_step: float | None,
    ) -> Settings:
        """How to run; parameters as of `simulate`."""
        duration, rtol, atol = self.time(duration, "duration"), self.time(rtol, "rtol"), self.time(atol, "atol")
        period = None if period is None else self.time(period, "period")
        output_step = None if output_step is None else self.time(output_step, "output_step")
        if method in GONE:
            self.add(GONE[method], "method")
        elif method not in METHODS:
            self.add(f"expected one of {', '.join(METHODS)}, got {method!r}", "method")
        step = self.time(default_step(period) if step is None else step, "step")
        if period is not None and method == "rk4" and not divides(step, period):
            self.add(f"{step:.12g} does not divide the period {period:.12g} (leave it out)", "step")
        return Settings(duration, Integrator(method, step, rtol, atol), period, output_step)
