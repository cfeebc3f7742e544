"""Plant and law as one function of time, state, memory and parameters, with one meaning and two executors.

    control   (t, x)      -> command
    motion    (t, x, u)   -> x', what the run logs
    rates     (t, x)      -> both in one, for a law that acts continuously

Design: the stages below are written once and run on numbers or on symbols. `CompiledLoop` traces them into CasADi
functions; `OpaqueLoop` does so with a plant that stays in NumPy; `NumpyLoop` is the oracle, and serves tasks too large
to unroll. A row is one vector, laid out by `Layout`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from servoctl.engine.kernel import Kernel, inputs
from servoctl.engine.parameters import parameter_values, with_parameters
from servoctl.engine.symbol import is_finite, largest, where
from servoctl.engine.trace import trace
from servoctl.errors import TraceError
from servoctl.expression import Expression
from servoctl.laws.law import BoundLaw
from servoctl.mechanics.constraint import Rows, equation_value
from servoctl.mechanics.model import Model
from servoctl.mechanics.terms import Matrices, Terms, assemble
from servoctl.types import Array, Command, State, Status

UNROLLED_ROWS = 15
"""Above this many rows or coordinates, symbols are not unrolled: 15x18 took 64,000 instructions (measured)."""


@dataclass(frozen=True)
class PassiveStabilisation:
    """Baumgarte terms on the plant's own constraints, in simulation only.

    Attributes:
        damping: Per passive row [1/s].
        stiffness: Per passive row [1/s^2], or [1/s] for nonholonomic rows.
        rank_tolerance: A passive direction counts when its pivot exceeds this times |Ahat L^-T|_F.
    """

    damping: tuple[float, ...]
    stiffness: tuple[float, ...]
    rank_tolerance: float

    def gains(self, row: int) -> tuple[float, float, tuple[float, ...]]:
        """Damping, stiffness and no higher gains of a passive row."""
        return self.damping[row], self.stiffness[row], ()

    def correction(self, matrices: Matrices, model: Model) -> Array:
        """What is added to bhat, shape of bhat."""
        passive = matrices.passive
        terms = [
            -self.stiffness[i] * passive.violation[i]
            - (self.damping[i] * passive.violation_rate[i] if row.has_rate else 0.0)
            for i, row in enumerate(model.passive_rows)
        ]
        return np.array(terms)


@dataclass(frozen=True)
class System:
    """What a closed loop is made of.

    Attributes:
        model: Plant and constraints.
        law: The law; None: an open loop, with the inputs below.
        inputs: Actuator -> equation, for an open loop; zero where left out.
        passive: Stabilisation of the passive constraints.
    """

    model: Model
    law: BoundLaw | None
    inputs: Mapping[str, Expression]
    passive: PassiveStabilisation

    def terms(self, state: State, matrices: Matrices) -> Terms:
        """The algebra that law and plant share."""
        return assemble(state, matrices, self.passive.rank_tolerance)

    def command(self, terms: Terms, memory: Array) -> Command:
        """The law's command, or the open loop's inputs."""
        if self.law is not None:
            return self.law.command(terms, memory)
        plant = terms.matrices.plant
        values = [
            equation_value(self.inputs[a], plant, terms.state) if a in self.inputs else 0.0 for a in plant.actuators
        ]
        u, nothing = np.array(values), np.zeros(0)
        status = where(is_finite(u), Status.OK.code, Status.NON_FINITE.code)
        status = where(terms.positive, status, Status.NOT_POSITIVE.code)
        status = where(terms.finite, status, Status.NON_FINITE.code)
        return Command(where(status >= Status.NOT_POSITIVE.code, np.nan, u), 0.0, nothing, 0.0, status)

    def motion(self, terms: Terms, u: Array) -> dict[str, Array]:
        """Acceleration under u, and what a run logs of it."""
        m = terms.matrices
        if terms.finite is False or terms.positive is False:
            bad = np.full(self.model.n, np.nan)
            acceleration, passive_force = bad, bad
        else:
            sound = where(terms.finite, terms.positive, 0.0)
            acceleration = where(sound, terms.acceleration(u, self.passive.correction(m, self.model)), np.nan)
            passive_force = terms.passive_force(acceleration, u)
        return {
            "acceleration": acceleration,
            "violation": m.task.violation,
            "violation_rate": m.task.violation_rate,
            "passive": m.passive.violation,
            "passive_force": passive_force,
            "servo_force": m.B @ u,
        }


class Layout:
    """Where what stands in a row: name -> slice. The command part comes first."""

    def __init__(self, model: Model, memory: int) -> None:
        n, m, r, p = model.n, model.m, len(model.task_rows), len(model.passive_rows)
        self.command = {"u": m, "rank": 1, "residual": 1, "pivot_min": 1, "status": 1, "memory_rate": memory}
        self.log = {"violation": r, "violation_rate": r, "passive": p, "passive_force": n, "servo_force": n}
        self.slices: dict[str, slice] = {}
        position = 0
        for name, size in {**self.command, **self.log}.items():
            self.slices[name] = slice(position, position + size)
            position += size
        self.size = position
        self.command_size = sum(self.command.values())


class Loop(ABC):
    """A closed loop that can be evaluated; x is q, v and memory in one vector.

    Attributes:
        system: What it is made of.
        layout: Where what stands in a row.
        engine: `vm` or `numpy`.
        note: What a person should know about the choice of engine; None where there is nothing to say.
        evaluations: Number of evaluations so far.
    """

    engine: str

    def __init__(self, system: System) -> None:
        self.system = system
        memory = {} if system.law is None else system.law.memory
        self.memory_names, self.memory_start = list(memory), np.array(list(memory.values()), dtype=float)
        self.layout = Layout(system.model, len(memory))
        self.size = 2 * system.model.n + len(memory)
        self.note: str | None = None
        self.evaluations = 0

    @abstractmethod
    def control(self, t: float, x: Array) -> Array:
        """The command part of a row."""

    @abstractmethod
    def motion(self, t: float, x: Array, command: Array) -> tuple[Array, Array]:
        """x' and the log part of a row, under a command that is held."""

    @abstractmethod
    def rates(self, t: float, x: Array) -> tuple[Array, Array]:
        """x' and the whole row, under a law that acts continuously."""

    def split(self, t: Any, x: Array) -> tuple[State, Array]:
        """State and memory of a vector x."""
        n = self.system.model.n
        return State(t, x[:n], x[n : 2 * n]), x[2 * n :]

    def _control(self, terms: Terms, memory: Array, system: System) -> Array:
        command = system.command(terms, memory)
        rate = np.zeros(0) if system.law is None else system.law.memory_rate(terms, memory)
        residual = [where(command.status >= Status.NOT_POSITIVE.code, np.nan, largest(command.residual))]
        parts = [command.u, [command.rank], residual, [command.pivot_min], [command.status], rate]
        return np.concatenate([np.atleast_1d(np.asarray(part, dtype=object)) for part in parts])

    def _motion(self, terms: Terms, command: Array, system: System) -> tuple[Array, Array]:
        u, rate = command[self.layout.slices["u"]], command[self.layout.slices["memory_rate"]]
        log = system.motion(terms, u)
        rates = np.concatenate([terms.state.v, log.pop("acceleration"), rate])
        return rates, np.concatenate([np.zeros(0), *log.values()])


class NumpyLoop(Loop):
    """Evaluates in NumPy and LAPACK: the plant as it is written, or its compiled twin where that pays."""

    engine = "numpy"

    def __init__(self, system: System, compiled_plant: bool = False) -> None:
        super().__init__(system)
        self._matrices = system.model.compiled_matrices if compiled_plant else system.model.matrices

    def _terms(self, state: State) -> Terms:
        self.evaluations += 1
        with np.errstate(all="ignore"):
            return self.system.terms(state, self._matrices(state))

    def control(self, t: float, x: Array) -> Array:
        state, memory = self.split(t, x)
        return self._control(self._terms(state), memory, self.system).astype(float)

    def motion(self, t: float, x: Array, command: Array) -> tuple[Array, Array]:
        state, _ = self.split(t, x)
        rates, log = self._motion(self._terms(state), command, self.system)
        return rates.astype(float), log.astype(float)

    def rates(self, t: float, x: Array) -> tuple[Array, Array]:
        state, memory = self.split(t, x)
        terms = self._terms(state)
        command = self._control(terms, memory, self.system).astype(float)
        rates, log = self._motion(terms, command, self.system)
        return rates.astype(float), np.concatenate([command, log]).astype(float)


class TracedLoop(Loop):
    """Evaluates CasADi functions traced from the same stages.

    Parameters of plant, constraints, law and stabilisation are one vector, an input of every function.

    Attributes:
        parameters: That vector.
    """

    engine = "vm"

    def __init__(self, system: System) -> None:
        super().__init__(system)
        model, law = system.model, system.law
        self.parameters = np.concatenate([model.parameters, parameter_values(law), parameter_values(system.passive)])
        sizes = {"t": 1, "x": self.size, "p": len(self.parameters), "command": self.layout.command_size}
        self._given = inputs({name: (size,) for name, size in sizes.items()})
        n, count, law_count = model.n, len(model.parameters), len(parameter_values(law))
        t, x, p = self._given["t"], self._given["x"], self._given["p"]
        self._symbolic = System(
            model,
            with_parameters(law, p[count : count + law_count]),
            system.inputs,
            with_parameters(system.passive, p[count + law_count :]),
        )
        matrices = self._traced_matrices({"t": t, "q": x[:n], "v": x[n : 2 * n], "p": p[:count]})
        self._terms = trace(self._symbolic.terms, State(t[0], x[:n], x[n : 2 * n]), matrices)
        self._command = trace(self._control, self._terms, x[2 * n :], self._symbolic)

    @abstractmethod
    def _traced_matrices(self, symbols: Mapping[str, Array]) -> Matrices:
        """The matrices of motion as expressions of the inputs."""

    def _numbers(self, t: float, x: Array) -> list[Array]:
        """What the functions take beside time, state and parameters."""
        return []

    def inputs(self, *names: str) -> dict[str, Array]:
        """The symbols of some inputs."""
        return {name: self._given[name] for name in names}

    def _compile(self, name: str, leave_out: tuple[str, ...], outputs: dict[str, Array]) -> Kernel:
        return Kernel.compile(name, {key: x for key, x in self._given.items() if key not in leave_out}, outputs)

    @cached_property
    def control_kernel(self) -> Kernel:
        """(t, x, p) -> command."""
        return self._compile("control", ("command",), {"command": self._command})

    @cached_property
    def motion_kernel(self) -> Kernel:
        """(t, x, p, command) -> rates, log."""
        rates, log = trace(self._motion, self._terms, self._given["command"], self._symbolic)
        return self._compile("motion", (), {"rates": rates, "log": log})

    @cached_property
    def rates_kernel(self) -> Kernel:
        """(t, x, p) -> rates, row."""
        rates, log = trace(self._motion, self._terms, self._command, self._symbolic)
        row = np.concatenate([self._command, log])
        return self._compile("rates", ("command",), {"rates": rates, "row": row})

    def control(self, t: float, x: Array) -> Array:
        self.evaluations += 1
        return self.control_kernel(t, x, self.parameters, *self._numbers(t, x))[0]

    def motion(self, t: float, x: Array, command: Array) -> tuple[Array, Array]:
        self.evaluations += 1
        rates, log = self.motion_kernel(t, x, self.parameters, command, *self._numbers(t, x))
        return rates, log

    def rates(self, t: float, x: Array) -> tuple[Array, Array]:
        self.evaluations += 1
        rates, row = self.rates_kernel(t, x, self.parameters, *self._numbers(t, x))
        return rates, row


class OpaqueLoop(TracedLoop):
    """The plant in NumPy, the law compiled: it takes the plant's matrices as numbers."""

    def _traced_matrices(self, symbols: Mapping[str, Array]) -> Matrices:
        model = self.system.model
        plant = with_parameters(model.plant, symbols["p"][: len(parameter_values(model.plant))])
        n, m, p, r = model.n, model.m, len(model.passive_rows), len(model.task_rows)
        shapes: dict[str, tuple[int, ...]] = {"M": (n, n), "Q": (n,), "B": (n, m), "c": (n,)}
        for group, count in (("passive", p), ("task", r)):
            shapes |= {f"{group}_A": (count, n)} | {f"{group}_{name}": (count,) for name in ("b", "violation", "rate")}
        fresh = inputs(shapes)
        self._given |= fresh
        M, Q, B, c, *rows = fresh.values()
        return Matrices(plant, M, Q, B, c, Rows(*rows[:4]), Rows(*rows[4:]))

    def _numbers(self, t: float, x: Array) -> list[Array]:
        m = self.system.model.matrices(self.split(t, x)[0])
        numbers = [m.M, m.Q, m.B, m.c]
        for rows in (m.passive, m.task):
            numbers += [rows.A, rows.b, rows.violation, rows.violation_rate]
        return numbers


class CompiledLoop(TracedLoop):
    """Plant and law compiled, so that whole steps are; the plant must not be opaque."""

    def _traced_matrices(self, symbols: Mapping[str, Array]) -> Matrices:
        return self.system.model.symbolic_matrices(symbols)

    def stepper(self, substeps: int | None) -> Kernel:
        """(x, t, h, p) -> x after h, row at the start, by the classical Runge-Kutta method.

        Args:
            substeps: None: the law acts continuously and h is one step; else h is one hold of so many steps.
        """
        mx = ca.MX.sym
        x, t, h, p = mx("x", self.size), mx("t"), mx("h"), mx("p", len(self.parameters))
        if substeps is None:
            rates, row = self.rates_kernel.function(t, x, p)
            following = rk4(lambda s, y: self.rates_kernel.function(s, y, p)[0], t, x, h, first=rates)
        else:
            command = self.control_kernel.function(t, x, p)
            row = ca.vertcat(command, self.motion_kernel.function(t, x, p, command)[1])
            following, part = x, h / substeps
            for i in range(substeps):
                following = rk4(
                    lambda s, y: self.motion_kernel.function(s, y, p, command)[0], t + i * part, following, part
                )
        function = ca.Function("step", [x, t, h, p], [following, ca.densify(row)])
        shapes = {"x": (self.size,), "t": (1,), "h": (1,), "p": (len(self.parameters),)}
        return Kernel(function, shapes, {"x": (self.size,), "row": (self.layout.size,)})


def rk4(rates: Any, t: Any, x: Any, h: Any, first: Any = None) -> Any:
    """One step of the classical Runge-Kutta method, on numbers or on symbols.

    Args:
        rates: (t, x) -> x'.
        t: Time at the start [s].
        x: State there.
        h: Step [s].
        first: rates(t, x), where it is known already.
    """
    k1 = rates(t, x) if first is None else first
    k2 = rates(t + h / 2, x + h / 2 * k1)
    k3 = rates(t + h / 2, x + h / 2 * k2)
    k4 = rates(t + h, x + h * k3)
    return x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def make_loop(system: System, engine: str = "auto") -> Loop:
    """The loop on the engine asked for, or on the fastest that serves.

    Args:
        system: Plant, law and constraints.
        engine: `auto`, `vm` or `numpy`.

    Raises:
        TraceError: `vm` is asked for and the law cannot be traced.
    """
    model = system.model
    if engine == "numpy":
        return NumpyLoop(system)
    size = max(model.n, len(model.task_rows), len(model.passive_rows))
    if engine == "auto" and size > UNROLLED_ROWS:
        loop: Loop = NumpyLoop(system, compiled_plant=model.opaque is None)
        loop.note = f"{size} rows or coordinates: linear algebra by LAPACK"
        if model.opaque is not None:
            loop.note += f", the plant in NumPy: {model.opaque}"
        return loop
    try:
        loop = CompiledLoop(system) if model.opaque is None else OpaqueLoop(system)
    except TraceError as error:
        if engine == "vm":
            raise
        loop = NumpyLoop(system, compiled_plant=model.opaque is None)
        loop.note = f"the law runs in NumPy, it cannot be compiled: {error}"
        return loop
    if model.opaque is not None:
        loop.note = f"the plant runs in NumPy, only the law is compiled: {model.opaque}"
    return loop
