"""What `simulate` is given in Python, checked as a config's values are: every problem at once."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from servoctl.engine.parameters import parameter_fields
from servoctl.errors import ConfigError, ExpressionError
from servoctl.expression import Expression, check_names, parse
from servoctl.expression.suggest import remedy
from servoctl.laws.law import Law
from servoctl.mechanics.plant import Plant
from servoctl.simulation.rows import METHODS, Integrator
from servoctl.simulation.simulate import Settings
from servoctl.types import Array

ENGINES = ("auto", "c", "vm", "numpy")


class Arguments:
    """What is wrong with the arguments so far.

    Attributes:
        found: One sentence each.
    """

    def __init__(self, plant: Any, task: Any, law: Any, engine: str) -> None:
        """Looks at what has no value to give back.

        Raises:
            ConfigError: The plant is none, so that nothing else can be judged.
        """
        self.found: list[str] = []
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
            self.add("task", f"expected a mapping of names to constraints, got {task!r}")
        if law is not None and not isinstance(law, Law):
            self.add("law", f"expected a law such as ConstraintFollowing(...), or None, got {law!r}")
        if engine not in ENGINES:
            self.add("engine", f"expected one of {', '.join(ENGINES)}, got {engine!r}")

    def add(self, field: str, what: str) -> None:
        """Notes what is wrong with an argument."""
        self.found.append(f"simulate: {field}: {what}")

    def check(self) -> None:
        """Raises ConfigError with all problems, if there are any."""
        if self.found:
            raise ConfigError(self.found)

    def vector(self, given: Any, field: str) -> Array:
        """q or v from one number for all, a sequence in the plant's order, or a mapping by name."""
        names = list(self._plant.coordinates)
        if isinstance(given, Mapping):
            for wrong in [name for name in given if name not in names]:
                self.add(f"{field}.{wrong}", f"there is no such coordinate ({remedy(wrong, names)})")
            missing = [name for name in names if name not in given]
            if missing and field == "q":
                self.add(field, f"no value for {', '.join(missing)} (give every coordinate)")
            given = [given.get(name, 0.0) for name in names]
        try:
            values = np.asarray(given, dtype=float)
        except (TypeError, ValueError):
            self.add(field, f"expected numbers, got {given!r}")
            return np.zeros(len(names))
        if values.shape not in ((), (len(names),)):
            self.add(field, f"expected {len(names)} values ({', '.join(names)}), got shape {values.shape}")
            return np.zeros(len(names))
        if not np.isfinite(values).all():
            self.add(field, f"expected finite numbers, got {values.tolist()}")
        return np.broadcast_to(values, len(names)).copy()

    def time(self, given: Any, field: str) -> float:
        """A positive, finite number."""
        if isinstance(given, bool) or not isinstance(given, (int, float, np.number)) or not 0 < given < math.inf:
            self.add(field, f"expected a positive number, got {given!r}")
            return 1.0
        return float(given)

    def equations(self, given: Mapping[str, str] | None, law: Any) -> dict[str, Expression]:
        """Actuator -> equation of an open loop."""
        equations: dict[str, Expression] = {}
        if given and law is not None:
            self.add("inputs", "given beside a law, which computes them (law=None is an open loop)")
            return equations
        for name, text in (given or {}).items():
            if name not in self._plant.actuators:
                self.add(f"inputs.{name}", f"there is no such actuator ({remedy(name, self._plant.actuators)})")
                continue
            try:
                equations[name] = parse(str(text))
            except ExpressionError as error:
                self.add(f"inputs.{name}", str(error))
                continue
            for sentence in check_names(equations[name], self._plant.coordinates, parameter_fields(self._plant)):
                self.add(f"inputs.{name}", sentence)
        return equations

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
        """How to run; the step of rk4 is 0.001 s, or the largest part of the period that is not longer."""
        duration, rtol, atol = self.time(duration, "duration"), self.time(rtol, "rtol"), self.time(atol, "atol")
        period = None if period is None else self.time(period, "period")
        output_step = None if output_step is None else self.time(output_step, "output_step")
        if method not in METHODS:
            self.add("method", f"expected one of {', '.join(METHODS)}, got {method!r}")
        if step is None:
            step = 0.001 if period is None else period / math.ceil(period / 0.001 * (1 - 1e-9))
        step = self.time(step, "step")
        if period is not None and method == "rk4" and abs(max(1, round(period / step)) * step - period) > 1e-9 * period:
            self.add("step", f"{step:.12g} does not divide the period {period:.12g} (leave it out)")
        return Settings(duration, Integrator(method, step, rtol, atol), period, output_step)
