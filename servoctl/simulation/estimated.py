"""The estimator in the loop: the law gets its state and disturbance instead of the measured state.

The memory of the loop has four parts: law, estimator, commands under way, and the time since the last tick.

Design: the plant at an estimated state is a function that is called, so that generated C holds it once.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from servoctl.engine.kernel import Kernel, inputs
from servoctl.engine.symbol import where
from servoctl.engine.trace import trace
from servoctl.estimation.attached import AttachedEstimator, PlantFunctions
from servoctl.expression import per_second
from servoctl.mechanics.constraint import Rows
from servoctl.mechanics.terms import Matrices, Terms
from servoctl.mechanics.timing import UnderWay
from servoctl.simulation.system import System
from servoctl.types import Array, State

LawAt = Callable[[State, Array, Array, UnderWay], Array]
"""(state, disturbance, memory of the law, commands under way) -> the command, and the rate of the law's memory."""

COMMANDS, ELAPSED = "commands", "estimation.elapsed"
"""Names in the loop's memory. An executor may replace `commands.sent1.<actuator>` by what the drives got at the last
tick, and `estimation.elapsed` by the time since then."""


def loop_memory(system: System) -> dict[str, float]:
    """Name -> initial value of everything that a loop keeps between evaluations."""
    estimator, commands = system.estimator, system.commands
    memory = dict(system.acting.memory)
    if estimator is not None:
        memory |= {f"estimation.{name}": value for name, value in estimator.memory.items()}
    if commands is not None:
        memory |= {f"{COMMANDS}.{name}": 0.0 for name in commands.names}
    return memory if estimator is None else memory | {ELAPSED: estimator.timing.h}


def shown_parts(estimator: AttachedEstimator | None) -> list[str]:
    """Parts of a row, in order; each has a number per coordinate."""
    return [] if estimator is None else [f"estimate.{name}" for name in estimator.shown]


def estimate_unit(part: str, unit: str) -> str:
    """Unit of a coordinate's column of such a part."""
    name = part.removeprefix("estimate.")
    order = {"q": 0, "v": 1, "disturbance": 2, "sigma": 2}.get(name)
    if order is None:
        return "1"  # in standard deviations
    rate = per_second(unit or "-")
    return (unit, rate, per_second(rate))[order]


def disturbed(terms: Terms, d: Array) -> Terms:
    """The terms with the acceleration d added to that of the plant; d fits the passive constraints."""
    return dataclasses.replace(terms, free_acceleration=terms.free_acceleration + terms.L.T @ d)


class TracedPlant(PlantFunctions):
    """The plant at any state, with the symbols of a loop.

    Args:
        system: With symbols as parameters.
        p: Those symbols.
        matrices: The matrices at t, q and v from such symbols.
    """

    def __init__(self, system: System, p: Array, matrices: Callable[[Mapping[str, Array]], Matrices]) -> None:
        self.system, self.p, self.matrices = system, p, matrices
        given, terms = self.at(u=system.model.m)
        moved = trace(lambda u: where(terms.positive, terms.acceleration(u), np.nan), given["u"])
        rows = terms.matrices.passive
        constraints = {"A": rows.A, "violation": rows.violation, "violation_rate": rows.violation_rate}
        self._acceleration = called_kernel("acceleration", given, {"acceleration": moved})
        self._rows = called_kernel("passive", {key: given[key] for key in ("t", "q", "v", "p")}, constraints)

    def at(self, **sizes: int) -> tuple[dict[str, Array], Terms]:
        """Symbols t, q, v, further ones by name and length, and p; and the terms of motion there."""
        n = self.system.model.n
        given = inputs({name: (size,) for name, size in {"t": 1, "q": n, "v": n, **sizes}.items()}) | {"p": self.p}
        state = State(given["t"][0], given["q"], given["v"])
        return given, trace(self.system.terms, state, self.matrices(given))

    def acceleration(self, state: State, u: Array) -> Array:
        return self._acceleration(np.array([state.t]), state.q, state.v, u, self.p)[0]

    def passive(self, state: State) -> Rows:
        A, violation, rate = self._rows(np.array([state.t]), state.q, state.v, self.p)
        return Rows(A, np.zeros(len(violation)), violation, rate)


def called_kernel(name: str, given: Mapping[str, Array], outputs: Mapping[str, Array]) -> Kernel:
    """A function of symbols that is called, so that generated C holds it once."""
    kernel = Kernel.compile(name, given, outputs)
    return Kernel(kernel.called(), kernel.inputs, kernel.outputs)


def traced_law(plant: TracedPlant, row: Callable[[Terms, Array, Array], Array]) -> LawAt:
    """The law at a state, as a function that is called.

    Args:
        row: (terms with the disturbance and the commands under way, memory of the law, disturbance) -> the law's part
            of a row.
    """
    system = plant.system
    assert system.law is not None
    commands = system.commands if system.law.commands else None  # a law that reads no commands has no input for them
    sizes = {"d": system.model.n, "memory": len(system.law.memory)}
    given, terms = plant.at(**sizes, **({"under_way": len(commands.names)} if commands else {}))
    terms = trace(disturbed, terms, given["d"])
    if commands:
        terms = dataclasses.replace(terms, under_way=commands.read(given["under_way"]))
    kernel = called_kernel("law", given, {"row": row(terms, given["memory"], given["d"])})

    def law(state: State, d: Array, memory: Array, under_way: UnderWay) -> Array:
        sent = [under_way.values] if commands else []
        return kernel(np.array([state.t]), state.q, state.v, d, memory, *sent, plant.p)[0]

    return law


def control(t: Any, x: Array, plant: TracedPlant, law: LawAt) -> Array:
    """The command part of a row.

    Args:
        x: Measured q, measured v, and the memory of the loop. A q that is not finite is no reading.
        plant: Of the system with law and estimator.
        law: The law at the estimated state.
    """
    system = plant.system
    estimator, commands, n = system.estimator, system.commands, system.model.n
    assert estimator is not None and commands is not None and system.law is not None
    count, h = len(system.law.memory), estimator.timing.h
    ends = np.cumsum([n, n, count, len(estimator.memory)])
    q, v, of_law, own, past, (elapsed,) = np.split(x, [*ends, len(x) - 1])
    valid = np.array([where(abs(value) < np.inf, 1.0, 0.0) for value in q])
    acted, now = commands.acted(past)
    found = estimator.update(State(t, q, v), valid, acted, now, own, elapsed, plant)
    row = law(found.state, found.disturbance, of_law, now._replace(torque=found.torque))
    rates = [(found.memory - own) / h, commands.rate(past, now, row[: system.model.m]), [(h - elapsed) / h]]
    end = len(row) - count
    return np.concatenate([row[:end], *(found.shown[name] for name in estimator.shown), row[end:], *rates])
