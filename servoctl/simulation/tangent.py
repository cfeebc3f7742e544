"""A closed loop together with its derivatives by some numbers: forward sensitivities.

    S = dx/dg        S' = f_x S + f_u du + f_p dp        du = c_x S + c_p dp

Design: x is followed by the columns of S, and u by those of du, so whatever steps a loop steps its derivatives too. A
Runge-Kutta step of both is the derivative of the Runge-Kutta step: what comes is exact for the numbers of the run, not
for the motion that they approximate. Noise is added to the state and leaves S as it is.
All of it runs on CasADi's virtual machine: generated C takes matrices apart by steps of its own, whose factors are not
those that CasADi differentiates.
"""

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np

from servoctl.engine.kernel import Kernel, directional, inputs
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.layout import Layout
from servoctl.simulation.traced import CompiledLoop
from servoctl.types import Array

Given = tuple[Array, Array]
"""Parameters of the compiled functions, shape (p,), and their derivatives, shape (p, count)."""


class TangentLayout(Layout):
    """A row of which `u`, `memory_rate` and `violation` are followed by their derivatives, column by column."""

    def __init__(self, own: Layout, count: int) -> None:
        command = {name: size * (1 + count * (name in WIDENED)) for name, size in own.command.items()}
        self._place(command, {"violation": own.log["violation"] * (1 + count)})


WIDENED = ("u", "memory_rate")


class TangentLoop(Loop):
    """A compiled loop with the derivatives of its state by `count` numbers.

    Attributes:
        count: Of the numbers.
    """

    engine = "vm"

    def __init__(self, loop: CompiledLoop, count: int) -> None:
        """Traces it.

        Args:
            loop: Without projection; realism must neither quantise nor saturate.
            count: Of the numbers.
        """
        self.count, self._own = count, loop.layout
        self._body, self._inputs = loop.size, loop.system.model.m
        self.layout, self.size = TangentLayout(loop.layout, count), loop.size * (1 + count)
        self.note, self.evaluations = None, 0
        nothing = loop.parameters, np.zeros((len(loop.parameters), count))
        self._law, self._plant = nothing, nothing
        self._take(loop)
        number = len(loop.parameters)
        sizes = {"t": 1, "x": self.size, "p": number, "dp": number * count, "command": self.layout.command_size}
        given = inputs({name: (size,) for name, size in sizes.items()})
        self._control_kernel = self._controlled(loop, given)
        self._motion_kernel = self._moved(loop, given)
        self._slopes = self._motion_kernel.only("tangent_slopes", "rates")

    def along(self, loop: CompiledLoop, law: Given, plant: Given) -> Self:
        """The loop of another run.

        Args:
            loop: Of the run; shares its functions with the one that was traced.
            law: The run's parameters as the law knows them.
            plant: As the simulated plant has them.
        """
        other = copy.copy(self)
        other.evaluations, other._law, other._plant = 0, law, plant
        other._take(loop)
        return other

    def start(self, x: Array, derivatives: Array) -> Array:
        """x of a run: q, v and memory, shape (size,), and their derivatives, shape (size, count)."""
        return np.concatenate([x, derivatives.T.ravel(), np.zeros(self.carried)])

    def parted(self, values: Array) -> tuple[Array, Array]:
        """What is followed by its derivatives, shape (rows, n (1 + count)) -> (rows, n) and (rows, n, count)."""
        rows, size = len(values), values.shape[1] // (1 + self.count)
        return values[:, :size], values[:, size:].reshape(rows, self.count, size).transpose(0, 2, 1)

    def simulated(self) -> Self:
        other = copy.copy(self)
        other._law = self._plant
        return other

    def control(self, t: float, x: Array) -> Array:
        p, dp = self._law
        return self._control_kernel(t, x, p, dp.T.ravel())[0]

    def motion(self, t: float, x: Array, command: Array) -> tuple[Array, Array]:
        self.evaluations += 1
        p, dp = self._law
        rates, log = self._motion_kernel(t, x, p, dp.T.ravel(), command)
        return rates, log

    def held_derivative(self, t: float, x: Array, command: Array) -> Array:
        self.evaluations += 1
        p, dp = self._law
        return self._slopes(t, x, p, dp.T.ravel(), command)[0]

    def rates(self, t: float, x: Array) -> tuple[Array, Array]:
        command = self.control(t, x)
        rates, log = self.motion(t, x, command)
        return rates, np.concatenate([command, log])

    def closing(self, t: float, x: Array) -> tuple[Array, Array]:
        raise NotImplementedError("a loop with derivatives is not projected")

    def _take(self, loop: CompiledLoop) -> None:
        """Takes over what a loop is made of, with an actuator more for every derivative."""
        own, more = loop.system.realism, self.count * loop.system.model.m
        if own is not None:
            open_ = (np.inf,) * more
            own = replace(own, lag=own.lag * (1 + self.count), lower=own.lower + tuple(-x for x in open_),
                          upper=own.upper + open_)  # fmt: skip
        self.system = replace(loop.system, realism=own, simulated=None)
        self.memory_names, self.memory_start = loop.memory_names, loop.memory_start

    def _columns(self, x: Array, size: int) -> tuple[Array, list[Array]]:
        """What stands first, and its derivatives."""
        return x[:size], [x[size * (1 + j) : size * (2 + j)] for j in range(self.count)]

    def _controlled(self, loop: CompiledLoop, given: Mapping[str, Array]) -> Kernel:
        """(t, x, p, dp) -> command."""
        x, S = self._columns(given["x"], self._body)
        p, dp = given["p"], [given["dp"][len(given["p"]) * j :][: len(given["p"])] for j in range(self.count)]
        command = np.atleast_1d(loop.control_kernel(given["t"], x, p)[0])
        known = np.concatenate([x, p])
        moved = [directional(command, known, np.concatenate(pair)) for pair in zip(S, dp, strict=True)]
        parts = [
            np.concatenate([part[own] for part in (command, *(moved if name in WIDENED else ()))])
            for name, own in self._command_slices()
        ]
        kept = {name: array for name, array in given.items() if name != "command"}
        return Kernel.compile("tangent_control", kept, {"command": np.concatenate(parts)})

    def _moved(self, loop: CompiledLoop, given: Mapping[str, Array]) -> Kernel:
        """(t, x, p, dp, command) -> rates, log."""
        x, S = self._columns(given["x"], self._body)
        p, dp = given["p"], [given["dp"][len(given["p"]) * j :][: len(given["p"])] for j in range(self.count)]
        command, changes = self._narrow(given["command"])
        rates, log = loop.motion_kernel(given["t"], x, p, command)
        first = self._own.command_size
        place = self._own.slices["violation"]
        violation = log[place.start - first : place.stop - first]
        both, known = np.concatenate([rates, violation]), np.concatenate([x, p, command])
        moved = [directional(both, known, np.concatenate(three)) for three in zip(S, dp, changes, strict=True)]
        n = len(rates)
        outputs = {
            "rates": np.concatenate([rates, *(part[:n] for part in moved)]),
            "log": np.concatenate([violation, *(part[n:] for part in moved)]),
        }
        return Kernel.compile("tangent_motion", given, outputs)

    def _command_slices(self) -> list[tuple[str, slice]]:
        return [(name, self._own.slices[name]) for name in self._own.command]

    def _narrow(self, command: Array) -> tuple[Array, list[Array]]:
        """A command as the loop itself has it, and its derivatives, zero where it has none."""
        plain: list[Any] = []
        changes: list[list[Any]] = [[] for _ in range(self.count)]
        for name, own in self._command_slices():
            first, more = self._columns(command[self.layout.slices[name]], own.stop - own.start)
            plain.append(first)
            for change, column in zip(changes, more, strict=True):
                change.append(column if name in WIDENED else np.zeros(len(first)))
        return np.concatenate(plain), [np.concatenate(change) for change in changes]
