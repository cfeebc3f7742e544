"""The functions of a loop, traced from the stages of `System`."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, wraps
from typing import Any, Self

import numpy as np

from servoctl.engine import stored
from servoctl.engine.kernel import Kernel, inputs
from servoctl.engine.linalg import solve_upper
from servoctl.engine.numpy_call import numpy_calls
from servoctl.engine.parameters import parameter_values, with_parameters
from servoctl.engine.trace import trace
from servoctl.estimation.attached import AttachedEstimator
from servoctl.laws.law import AttachedLaw
from servoctl.mechanics.terms import Matrices, Terms
from servoctl.simulation import estimated
from servoctl.simulation.control_tick import LogCall
from servoctl.simulation.estimated import TracedLaw, TracedPlant
from servoctl.simulation.loop_stages import LoopStages
from servoctl.simulation.mean_bounds import predicting, with_mean_bounds
from servoctl.simulation.system import System
from servoctl.types import Array, State


def _parameters(system: System) -> Array:
    """All parameters of a system, in the order of the input p of the compiled functions."""
    parts = (system.law, system.passive, system.friction, system.estimator)
    return np.concatenate([system.model.parameters, *map(parameter_values, parts)])


def once_per_loop(make: Callable[[Any], Kernel]) -> Callable[[Any], Kernel]:
    """Caches `make(loop)` for all loops that share its functions."""

    @wraps(make)
    def kept(loop: Any) -> Kernel:
        known: Kernel | None = loop.derived.get(make.__name__)
        if known is None:
            known = loop.derived[make.__name__] = make(loop)
        return known

    return kept


class TracedLoop(LoopStages):
    """Evaluates CasADi functions that are traced from the stages of `System`."""

    engine = "vm"

    def __init__(self, system: System, in_numpy: bool) -> None:
        super().__init__(system)
        opaque = system.model.opaque, None if system.law is None else system.law.opaque
        self._in_numpy = in_numpy
        self.traced = not in_numpy and opaque == (None, None)  # whether all of it is traced, so that it has C
        model, law = system.model, system.law
        # parameters of plant, constraints, law and stabilisation in one vector, an input of every function
        self.parameters = _parameters(system)
        # name -> kernel; loops that differ in parameters alone share them
        self.derived: dict[str, Any] = {}
        sizes = {"t": 1, "x": self.size, "p": len(self.parameters), "command": self.layout.command_size}
        self._given = inputs({name: (size,) for name, size in sizes.items()})
        count, p = len(model.parameters), self._given["p"]
        parts = (law, system.passive, system.friction)
        ends = np.cumsum([count, *(len(parameter_values(part)) for part in parts)])
        self._symbolic = System(
            model,
            with_parameters(law, p[count : ends[1]]),
            system.inputs,
            with_parameters(system.passive, p[ends[1] : ends[2]]),
            with_parameters(system.friction, p[ends[2] : ends[3]]),
            estimator=with_parameters(system.estimator, p[ends[3] :]),
        )
        self._key = self._stored_under()
        if not self._in_numpy and not any(stored.has_kernel(self._key, name) for name in ("control", "rates")):
            _ = self._command  # whether the law can be traced is known from the start

    @cached_property
    def differentiable(self) -> bool:
        """Whether it has derivatives: all is traced, and no decomposition runs in NumPy for its size."""
        return self.traced and (stored.has_kernel(self._key, "rates") or not numpy_calls(self.rates_kernel.function))

    @abstractmethod
    def _stored_under(self) -> str | None:
        """The key of the loop's functions in the cache; None: they are not kept there."""

    @cached_property
    def _terms(self) -> Terms:
        n = self.system.model.n
        t, x, p = self._given["t"], self._given["x"], self._given["p"]
        matrices = self._matrices_at({"t": t, "q": x[:n], "v": x[n : 2 * n], "p": p})
        terms: Terms = trace(self._symbolic.terms, State(t[0], x[:n], x[n : 2 * n]), matrices)
        return terms

    @cached_property
    def _command(self) -> Array:
        if self.system.estimator is not None:
            return self._estimated(self._given["t"], self._given["x"], self._given["p"])
        system, terms, memory = self._symbolic, self._terms, self._given["x"][2 * self.system.model.n :]
        commands, of_commands = system.commands, 0 if system.commands is None else len(system.commands.names)
        memory, past = np.split(memory, [len(memory) - of_commands])
        if commands is not None:
            terms = replace(terms, under_way=trace(commands.now, past))
        if predicting(system):
            terms = with_mean_bounds(terms, system, self._given["p"], self._matrices_at)
        command: Array = trace(self._control, terms, memory, system)
        if commands is None:
            return command
        return np.concatenate([command, trace(commands.rate, past, terms.under_way, command[: system.model.m])])

    def _estimated(self, t: Array, x: Array, p: Array) -> Array:
        """The command part of a row with an estimator."""
        system = self._symbolic
        plant = TracedPlant(system, p, self._matrices_at)

        def row(terms: Terms, memory: Array, d: Array) -> Array:
            """The command at the estimated state, with the bounds as they are when it acts."""
            if predicting(system):
                terms = with_mean_bounds(terms, system, p, self._matrices_at, d)
            traced: Array = trace(self._control, terms, memory, system)
            return traced

        law = TracedLaw(system, p, self._matrices_at, row)
        command: Array = trace(lambda t, x: estimated.control(t, x, system, plant, law), t[0], x)
        return command

    def _matrices_at(self, given: Mapping[str, Array]) -> Matrices:
        """The matrices at t, q and v from these symbols, with all parameters in p."""
        p = given["p"][: len(self.system.model.parameters)]
        return self.system.model.symbolic_matrices({**given, "p": p}, self._in_numpy)

    def of(self, system: System) -> Self:
        other = super().of(system)
        other.parameters = _parameters(system)
        return other

    @property
    def step_parameters(self) -> Array:
        """Parameters of whole steps in C: `parameters`; with realism also its own and those of the simulated plant."""
        realism, plant = self.system.realism, self.simulated()
        if realism is None:
            return self.parameters
        return np.concatenate([self.parameters, plant.parameters, realism.parameters])

    def take_law(self, law: AttachedLaw) -> None:
        super().take_law(law)
        values, first = parameter_values(law), len(self.system.model.parameters)
        self.parameters[first : first + len(values)] = values

    def take_estimator(self, estimator: AttachedEstimator) -> None:
        super().take_estimator(estimator)
        values = parameter_values(estimator)
        self.parameters[len(self.parameters) - len(values) :] = values

    def inputs(self, *names: str) -> dict[str, Array]:
        """Symbols of some inputs: name -> array."""
        return {name: self._given[name] for name in names}

    def _compile(self, name: str, leave_out: tuple[str, ...], outputs: Callable[[], dict[str, Array]]) -> Kernel:
        """A kernel of this name, from the cache or traced now."""
        given = {key: x for key, x in self._given.items() if key not in leave_out}
        return stored.kept_kernel(self._key, name, lambda: Kernel.compile(name, given, outputs()))

    @property
    @once_per_loop
    def control_kernel(self) -> Kernel:
        """(t, x, p) -> command."""
        return self._compile("control", ("command",), lambda: {"command": self._command})

    @property
    @once_per_loop
    def terms_kernel(self) -> Kernel:
        """(t, x, p) -> the terms of `evaluate` before the command."""

        def terms() -> dict[str, Array]:
            at = self._terms
            m = at.matrices
            known = {
                "M": m.M, "Q": m.Q, "B": m.B, "c": m.c, "passive_A": m.passive.A, "passive_b": m.passive.b,
                "passive_violation": m.passive.violation, "passive_violation_rate": m.passive.violation_rate,
                "A": m.task.A, "b": m.task.b, "violation": m.task.violation, "violation_rate": m.task.violation_rate,
            }  # fmt: skip
            return known | {"a_c": solve_upper(at.L, at.free_acceleration), "T": at.task_map, "rhs": at.rhs}

        return self._compile("terms", ("command",), lambda: trace(terms))

    @property
    @once_per_loop
    def motion_kernel(self) -> Kernel:
        """(t, x, p, command) -> rates, log."""

        def outputs() -> dict[str, Array]:
            rates, log = trace(self._motion, self._terms, self._given["command"], self._symbolic)
            return {"rates": rates, "log": log}

        return self._compile("motion", (), outputs)

    @property
    @once_per_loop
    def rates_kernel(self) -> Kernel:
        """(t, x, p) -> rates, row."""

        def outputs() -> dict[str, Array]:
            rates, log = trace(self._motion, self._terms, self._command, self._symbolic)
            return {"rates": rates, "row": np.concatenate([self._command, log])}

        return self._compile("rates", ("command",), outputs)

    @property
    @once_per_loop
    def slopes_kernel(self) -> Kernel:
        """(t, x, p) -> rates, for a stage of a step."""
        return stored.kept_kernel(self._key, "slopes", lambda: self.rates_kernel.only("slopes", "rates"))

    @property
    @once_per_loop
    def held_slopes_kernel(self) -> Kernel:
        """(t, x, p, command) -> rates, for a stage of a held step."""
        return stored.kept_kernel(self._key, "held_slopes", lambda: self.motion_kernel.only("held_slopes", "rates"))

    @property
    @once_per_loop
    def closing_kernel(self) -> Kernel:
        """(t, x, p) -> changes of q and of v that close the passive constraints."""

        def outputs() -> dict[str, Array]:
            dq, dv = trace(self._closing, self._terms, self._symbolic)
            return {"q": dq, "v": dv}

        return self._compile("closing", ("command",), outputs)

    def derivative(self, t: float, x: Array) -> Array:
        self.evaluations += 1
        return self.slopes_kernel(t, x, self.parameters)[0]

    def held_derivative(self, t: float, x: Array, command: Array) -> Array:
        self.evaluations += 1
        return self.held_slopes_kernel(t, x, self.parameters, command)[0]

    def closing(self, t: float, x: Array) -> tuple[Array, Array]:
        dq, dv = self.closing_kernel(t, x, self.parameters)
        return dq, dv

    def control(self, t: float, x: Array) -> Array:
        self.evaluations += 1
        return self.control_kernel(t, x, self.parameters)[0]

    def motion(self, t: float, x: Array, command: Array) -> tuple[Array, Array]:
        self.evaluations += 1
        rates, log = self.motion_kernel(t, x, self.parameters, command)
        return rates, log

    def log_call(self, x: Array, command: Array, log: Array) -> LogCall:
        kernel, time, parameters = self.motion_kernel, np.zeros(1), self.parameters.copy()
        rates = np.zeros(kernel.outputs["rates"])
        call = kernel.bound([time, x, parameters, command], [rates, log])

        def evaluate(t: float, kept: Array = rates) -> None:
            self.evaluations += 1
            time[0], parameters[:] = t, self.parameters
            call.evaluate()

        return LogCall(evaluate, call, len(parameters))

    def rates(self, t: float, x: Array) -> tuple[Array, Array]:
        self.evaluations += 1
        rates, row = self.rates_kernel(t, x, self.parameters)
        return rates, row
