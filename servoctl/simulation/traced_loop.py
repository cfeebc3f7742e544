"""A closed loop: its state, and its functions, traced from the stages of `System`."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, partial, wraps
from typing import Any, Self, TypeVar

import numpy as np

from servoctl.engine import stored
from servoctl.engine.fingerprint import fingerprint, key_of, structure_fingerprint
from servoctl.engine.kernel import Kernel, inputs
from servoctl.engine.linalg import largest, solve_upper
from servoctl.engine.numpy_call import numpy_calls
from servoctl.engine.parameters import parameter_fields, parameter_values, structure, with_parameters
from servoctl.engine.step import rk4_steps
from servoctl.engine.symbol import where
from servoctl.engine.trace import trace
from servoctl.estimation.attached import AttachedEstimator
from servoctl.expression import parse
from servoctl.laws.law import AttachedLaw
from servoctl.laws.secondary import SecondaryTerm
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.terms import Matrices, Terms
from servoctl.simulation.control_tick import Layout, LogCall
from servoctl.simulation.estimated import TracedPlant, control, loop_memory, shown_parts, traced_law
from servoctl.simulation.mean_bounds import predicting, with_mean_bounds
from servoctl.simulation.system import System
from servoctl.types import Array, State, Status


def _parts(system: System) -> tuple[Any, ...]:
    """What a loop's functions depend on besides the model and equations; parameters are in this order too."""
    return system.law, system.passive, system.friction, system.estimator


def functions_key(system: System) -> tuple[Any, ...]:
    """Everything that the functions of a loop depend on, except the values of parameters."""
    return system.model.rows_kernel, system.model.singular, dict(system.inputs), *map(structure, _parts(system))


def _parameters(system: System) -> Array:
    """All parameters of a system, in the order of the input p of the compiled functions."""
    return np.concatenate([system.model.parameters, *map(parameter_values, _parts(system))])


Made = TypeVar("Made")


def once_per_loop(make: Callable[[Any], Made]) -> Callable[[Any], Made]:
    """Caches `make(loop)` for all loops that share its functions."""

    @wraps(make)
    def kept(loop: Any) -> Made:
        if make.__name__ not in loop.derived:
            loop.derived[make.__name__] = make(loop)
        known: Made = loop.derived[make.__name__]
        return known

    return kept


class TracedLoop:
    """A closed loop; x is q, v and the law's memory in one vector.

    Its functions run on CasADi's virtual machine.

    Args:
        system: Plant and law.
        in_numpy: Whether the plant is evaluated by its own NumPy code; one that cannot be traced is anyway.
    """

    choice: str | None = None  # why `auto` took its engine; None: `auto` had no choice
    chosen = False  # whether the engine of the next run has been chosen

    def __init__(self, system: System, in_numpy: bool = False) -> None:
        self.system = system  # plant, law and realism
        memory = loop_memory(system)
        self.memory_names, self.memory_start = list(memory), np.array(list(memory.values()), dtype=float)
        # slices of a row
        self.layout = Layout(system.model, system.acting, shown_parts(system.estimator), list(memory))
        self.size = 2 * system.model.n + len(memory)
        self.note: str | None = None  # remark for the user about the choice of engine; None: nothing unusual
        self.evaluations = 0  # number of evaluations so far
        model = system.model
        self._in_numpy = in_numpy
        opaque = model.opaque, system.acting.opaque
        self.traced = not in_numpy and opaque == (None, None)  # whether all of it is traced, so that it has C
        # parameters of plant, constraints, law and stabilisation in one vector, an input of every function
        self.parameters = _parameters(system)
        # name -> kernel; loops that differ in parameters alone share them
        self.derived: dict[str, Any] = {}
        sizes = {"t": 1, "x": self.size, "p": len(self.parameters), "command": self.layout.command_size}
        self._given = inputs({name: (size,) for name, size in sizes.items()})
        counts = [len(model.parameters), *(len(parameter_values(part)) for part in _parts(system))]
        _, *parts = np.split(self._given["p"], np.cumsum(counts)[:-1])
        law, passive, friction, estimator = map(with_parameters, _parts(system), parts)
        self._symbolic = System(model, law, system.inputs, passive, friction, estimator=estimator)
        self._key = self._stored_under()
        if not self._in_numpy and not any(stored.has_kernel(self._key, name) for name in ("control", "rates")):
            _ = self._command  # whether the law can be traced is known from the start

    def _stored_under(self) -> str | None:
        """The key of the loop's functions in the cache; None: they are not kept there."""
        if not self.traced:
            return None
        system = self.system
        secondary = system.acting.term(SecondaryTerm)
        equations = [system.inputs, None if secondary is None else secondary.null_space]
        return key_of(
            lambda: system.model.fingerprint,
            *(partial(structure_fingerprint, part) for part in _parts(system)),
            *(partial(fingerprint, each, _named(system.model.plant, each)) for each in equations),
        )

    @cached_property
    def differentiable(self) -> bool:
        """Whether it has derivatives: all is traced, and no decomposition runs in NumPy for its size."""
        return self.traced and (stored.has_kernel(self._key, "rates") or not numpy_calls(self.rates_kernel.function))

    def of(self, system: System) -> Self:
        """This loop with another system, without tracing again: only values of parameters may differ."""
        other = copy.copy(self)
        other.system, other.evaluations, other.choice, other.chosen = system, 0, None, False
        other.memory_start = np.array(list(loop_memory(system).values()), dtype=float)
        other.parameters = _parameters(system)
        return other

    def simulated(self) -> Self:
        """The loop with the simulated plant's parameters; this one, if they are those that the law knows."""
        model = self.system.simulated
        return self if model is None else self.of(replace(self.system, model=model, simulated=None))

    def x_at(self, state: State) -> Array:
        """x at a state, with the memory as it starts."""
        return np.concatenate([state.q, state.v, self.memory_start])

    def vector(self, state: State) -> Array:
        """Start vector of a run; with realism it also holds zero torques and commands, then the machine's own state."""
        x, machine = self.x_at(state), self.system.machine
        rest = np.zeros(0) if machine is None else machine.start(state.t, x[: 2 * self.system.model.n])
        return np.concatenate([x, np.zeros(self.carried - len(rest)), rest])

    @property
    def projects(self) -> bool:
        """Whether each step of a run ends on the passive constraints."""
        system = self.system
        return system.passive.projection and bool(system.model.passive_rows) and system.machine is None

    @property
    def carried(self) -> int:
        """Size of the state of realism and of a machine, after q, v and memory."""
        realism, machine = self.system.realism, self.system.machine
        return (0 if realism is None else realism.carried) + (0 if machine is None else machine.size)

    def take_law(self, law: AttachedLaw) -> None:
        """Replaces the law by one that differs in parameters alone, without tracing again."""
        self.system = replace(self.system, law=law)
        values, first = parameter_values(law), len(self.system.model.parameters)
        self.parameters[first : first + len(values)] = values

    def take_estimator(self, estimator: AttachedEstimator) -> None:
        """Replaces the estimator by one that differs in parameters alone, without tracing again."""
        assert structure(estimator) == structure(self.system.estimator), "not the same estimator"
        self.system = replace(self.system, estimator=estimator)
        values = parameter_values(estimator)
        self.parameters[len(self.parameters) - len(values) :] = values

    def split(self, t: Any, x: Array) -> tuple[State, Array]:
        """State and memory in a vector x."""
        n = self.system.model.n
        return State(t, x[:n], x[n : 2 * n]), x[2 * n : self.size]

    @property
    def memory_period(self) -> float | None:
        """Period in which the memory changes once [s]: it changes by this times its rate; None: it is integrated."""
        estimator = self.system.estimator
        return self.system.acting.memory_period if estimator is None else estimator.timing.h

    @cached_property
    def _terms(self) -> Terms:
        t, x, p = self._given["t"], self._given["x"], self._given["p"]
        state, _ = self.split(t[0], x)
        matrices = self._matrices_at({"t": t, "q": state.q, "v": state.v, "p": p})
        terms: Terms = trace(self._symbolic.terms, state, matrices)
        return terms

    @cached_property
    def _command(self) -> Array:
        if self.system.estimator is not None:
            return self._estimated()
        system, terms, memory = self._symbolic, self._terms, self._given["x"][2 * self.system.model.n :]
        commands, of_commands = system.commands, 0 if system.commands is None else len(system.commands.names)
        memory, past = np.split(memory, [len(memory) - of_commands])
        if commands is not None:
            terms = replace(terms, under_way=trace(commands.now, past))
        command = self._in_time(terms, memory)
        if commands is None:
            return command
        return np.concatenate([command, trace(commands.rate, past, terms.under_way, command[: system.model.m])])

    def _estimated(self) -> Array:
        """The command part of a row with an estimator."""
        plant, law = self._plant, traced_law(self._plant, self._in_time)
        command: Array = trace(lambda t, x: control(t, x, plant, law), self._given["t"][0], self._given["x"])
        return command

    @cached_property
    def _plant(self) -> TracedPlant:
        return TracedPlant(self._symbolic, self._given["p"], self._matrices_at)

    def _in_time(self, terms: Terms, memory: Array, d: Array | None = None) -> Array:
        """The law's part of a row, with the bounds as they are when the command acts; d as of `with_mean_bounds`."""
        if predicting(self._symbolic):
            terms = with_mean_bounds(terms, self._plant, d)
        row: Array = trace(self._control, terms, memory)
        return row

    def _matrices_at(self, given: Mapping[str, Array]) -> Matrices:
        """The matrices at t, q and v from these symbols, with all parameters in p."""
        p = given["p"][: len(self.system.model.parameters)]
        return self.system.model.symbolic_matrices({**given, "p": p}, self._in_numpy)

    def _control(self, terms: Terms, memory: Array) -> Array:
        law = self._symbolic.acting
        command = law.command(terms, memory)
        rate, disturbance = law.memory_rate(terms, memory, command), law.disturbance(terms, memory)
        required = [x for i, x in enumerate(command.residual) if i not in law.low_priority_rows]
        residual = [where(command.status >= Status.NOT_POSITIVE.code, np.nan, largest(required))]
        given_up = [abs(command.residual[i]) for i in law.relaxed_rows]
        parts = [
            command.u,
            [command.rank],
            residual,
            [command.pivot_min],
            [command.status],
            given_up,
            command.binding,
            command.lack,
            [command.steps, where(command.proven, 0.0, 1.0)] if law.searches else [],
            disturbance,
            rate,
        ]
        return np.concatenate([np.atleast_1d(np.asarray(part, dtype=object)) for part in parts])

    def _motion(self, command: Array) -> tuple[Array, Array]:
        """x' and the log part of a row, as expressions."""
        terms, u = self._terms, command[self.layout.slices["u"]]
        log = self._symbolic.motion(terms, u)
        rates = np.concatenate([terms.state.v, log.pop("acceleration"), command[self.layout.slices["memory_rate"]]])
        return rates, np.concatenate([np.zeros(0), *log.values()])

    @property
    def step_parameters(self) -> Array:
        """Parameters of whole steps in C: `parameters`; with realism also its own and those of the simulated plant."""
        realism, plant = self.system.realism, self.simulated()
        if realism is None:
            return self.parameters
        return np.concatenate([self.parameters, plant.parameters, realism.parameters])

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
            rates, log = trace(self._motion, self._given["command"])
            return {"rates": rates, "log": log}

        return self._compile("motion", (), outputs)

    @property
    @once_per_loop
    def rates_kernel(self) -> Kernel:
        """(t, x, p) -> rates, row."""

        def outputs() -> dict[str, Array]:
            rates, log = trace(self._motion, self._command)
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
            close = partial(self._symbolic.passive.closing, self._terms)
            return {"q": trace(close, False), "v": trace(close, True)}

        return self._compile("closing", ("command",), outputs)

    def derivative(self, t: float, x: Array, *held: Array) -> Array:
        """x' alone, for stages of a step that log nothing; under a held command, if one is given."""
        self.evaluations += 1
        return (self.held_slopes_kernel if held else self.slopes_kernel)(t, x, self.parameters, *held)[0]

    def after_hold(self, t: float, x: Array, command: Array, h: float, substeps: int = 1) -> Array:
        """x after a command was held for h [s], by so many equal steps of rk4."""
        after: Array = rk4_steps(lambda s, y: self.derivative(s, y, command), t, x, h, substeps)
        return after

    def closing(self, t: float, x: Array) -> tuple[Array, Array]:
        """Changes of q and of v that close the passive constraints to first order."""
        dq, dv = self.closing_kernel(t, x, self.parameters)
        return dq, dv

    def projected(self, t: float, x: Array) -> Array:
        """x put back onto the passive constraints: two Newton steps in q, then one in v."""
        n = self.system.model.n
        x = x.copy()
        body = x[: self.size]
        for _ in range(2):
            body[:n] += self.closing(t, body)[0]
        body[n : 2 * n] += self.closing(t, body)[1]
        return x

    def control(self, t: float, x: Array) -> Array:
        """The command part of a row."""
        if "rates_kernel" in self.derived and "control_kernel" not in self.derived:
            # a continuous run has whole rows; the function of commands alone would be traced for its start only
            return self.rates(t, x)[1][: self.layout.command_size]
        self.evaluations += 1
        return self.control_kernel(t, x, self.parameters)[0]

    def motion(self, t: float, x: Array, command: Array) -> tuple[Array, Array]:
        """x' and the log part of a row, under a held command."""
        self.evaluations += 1
        rates, log = self.motion_kernel(t, x, self.parameters, command)
        return rates, log

    def rates(self, t: float, x: Array) -> tuple[Array, Array]:
        """x' and the whole row, under a law that acts continuously."""
        self.evaluations += 1
        rates, row = self.rates_kernel(t, x, self.parameters)
        return rates, row

    def log_call(self, x: Array, command: Array, log: Array) -> LogCall:
        kernel, time, parameters = self.motion_kernel, np.zeros(1), self.parameters.copy()
        rates = np.zeros(kernel.outputs["rates"])
        call = kernel.bound([time, x, parameters, command], [rates, log])

        def evaluate(t: float, kept: Array = rates) -> None:
            self.evaluations += 1
            time[0], parameters[:] = t, self.parameters
            call.evaluate()

        return LogCall(evaluate, call, len(parameters))

    def jacobian(self, t: float, x: Array, command: Array | None = None) -> Array | None:
        """Exact dx'/dx, shape (size, size); None if only differences give it.

        It stays on the virtual machine, because derivatives of decompositions have no C.
        """
        if not self.differentiable:
            return None
        if command is None:
            return self.slopes_kernel.derivative("x")(t, x, self.parameters)[0]
        return self.held_slopes_kernel.derivative("x")(t, x, self.parameters, command)[0]


def _named(plant: Plant, equations: Any) -> dict[str, Any]:
    """What equations read from a plant by name, parameters and coordinates apart: name -> value.

    Args:
        equations: Name -> equation; anything else reads nothing.
    """
    names: set[str] = set()
    for equation in equations.values() if isinstance(equations, Mapping) else ():
        names |= (parse(equation) if isinstance(equation, str) else equation).names
    known = {*plant.coordinates, *parameter_fields(plant)}
    return {name: getattr(plant, name) for name in sorted(names - known) if hasattr(plant, name)}
