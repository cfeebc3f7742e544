"""The simulated machine of a log, in terms of an identified plant: the law's model changes, the machine must not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.assembly import Run
from servoctl.mechanics.friction import Friction, friction_of
from servoctl.mechanics.plant import Plant
from servoctl.types import Array

GONE = 1e-12  # a relative error of -1 is not one: of what the machine does not have, this share is left


@dataclass(frozen=True)
class SimulatedMachine:
    """What moved in a simulated log."""

    plant: Plant  # with the parameters of the machine
    friction: Friction | None  # of the machine; None: `realism.friction` or `hil.emulation` states it already
    realism: bool  # whether the config has `realism`, whose errors are relative to the plant
    emulated: tuple[str, ...] | None  # parameters that `hil.emulation` states already; None: there are no drives

    def sections(self, identified: Mapping[str, float | Sequence[float]], rubs: bool) -> dict[str, Any]:
        """Sections of a config that keep this machine.

        Args:
            identified: Parameter -> value that the plant gets.
            rubs: Whether the plant gets friction too.
        """
        found: dict[str, Any] = {}
        if self.realism:
            errors = {name: self._error(name, value) for name, value in identified.items()}
            found["realism"] = {"parameter_error": errors} if errors else {}
            if rubs and self.friction is not None:
                kinds = ("coulomb", "viscous", "speed")
                found["realism"]["friction"] = {kind: list(getattr(self.friction, kind)) for kind in kinds}
        if self.emulated is not None:
            known = {name: getattr(self.plant, name, None) for name in identified if name not in self.emulated}
            parameters = {
                name: list(value) if isinstance(value, tuple) else value
                for name, value in known.items()
                if value is not None
            }
            found["hil"] = {"emulation": {"parameters": parameters}} if parameters else {}
        return {name: section for name, section in found.items() if section}

    def _error(self, name: str, identified: float | Sequence[float]) -> float | list[float]:
        """The relative error that gives the machine's value."""
        value: Array = np.asarray(identified, dtype=float)
        true = np.broadcast_to(np.asarray(getattr(self.plant, name, 0.0), dtype=float), value.shape)
        ratio = np.divide(true, value, out=np.ones(value.shape), where=value != 0.0)
        error: float | list[float] = (np.maximum(ratio, GONE) - 1.0).tolist()
        return error


def simulated_machine(run: Run) -> SimulatedMachine | None:
    """The machine of a run's config; None where the law's own plant moves, or another program moves it."""
    values = None if run.loaded is None else run.loaded.config
    if values is None or (values.realism is None and values.hil is None):
        return None
    if values.realism is not None and values.realism.machine is not None:
        return None
    plant = run.system.model.plant
    nothing = (0.0,) * len(plant.actuators)
    friction = friction_of(plant) or Friction(nothing, nothing, (0.01,) * len(nothing))
    stated = values.realism is not None and values.realism.friction is not None
    moved = plant if run.system.simulated is None else run.system.simulated.plant
    emulated = None if values.hil is None else tuple(values.hil.emulation.parameters)
    return SimulatedMachine(moved, None if stated else friction, values.realism is not None, emulated)
