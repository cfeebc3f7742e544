"""Forward sensitivities: a closed loop together with the derivatives of its state by some numbers g.

    S = dx/dg        S' = f_x S + f_u du + f_p dp        du = c_x S + c_p dp

Design: x is followed by the columns of S, and u by those of du, so any integration of a loop also integrates its
derivatives. A Runge-Kutta step of both is the derivative of the Runge-Kutta step: the result is exact for the computed
run, not for the motion that it approximates. Noise is added to the state and does not change S.
It runs on CasADi's virtual machine alone: generated C factors matrices by its own algorithm, and CasADi
differentiates another one.
"""

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np

from servoctl.engine.kernel import Kernel, directional, inputs
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.compiled import CompiledLoop
from servoctl.simulation.layout import Layout
from servoctl.types import Array

Parameters = tuple[Array, Array]
"""Parameters of the compiled functions, shape (p,), and their derivatives, shape (p, count)."""


class TangentLayout(Layout):
    """A row in which the derivatives follow `u`, `memory_rate` and `violation`, column by column."""

    def __init__(self, layout: Layout, count: int) -> None:
        command = {name: size * (1 + count * (name in WIDENED)) for name, size in layout.command.items()}
        self._place(command, {"violation": layout.log["violation"] * (1 + count)})


WIDENED = ("u", "memory_rate")


class TangentLoop(Loop):
    """A compiled loop with the derivatives of its state by `count` numbers.

    Attributes:
        count: Number of derivatives.
    """

    engine = "vm"

    def __init__(self, loop: CompiledLoop, count: int) -> None:
        """Traces the derivatives.

        Args:
            loop: Without projection; realism must neither quantise nor saturate.
            count: Number of derivatives.
        """
        self.count, self._layout = count, loop.layout
        self._body, self._inputs = loop.size, loop.system.model.m
        self.layout, self.size = TangentLayout(loop.layout, count), loop.size * (1 + count)
        self.note, self.evaluations = None, 0
        nothing = loop.parameters, np.zeros((len(loop.parameters), count))
        self._law, self._plant = nothing, nothing
        self._take(loop)
        number = len(loop.parameters)
        sizes = {"t": 1, "x": self.size, "p": number, "dp": number * count, "command": self.layout.command_size}
        symbols = inputs({name: (size,) for name, size in sizes.items()})
        self._control_kernel = self._controlled(loop, symbols)
        self._motion_kernel = self._moved(loop, symbols)
        self._slopes = self._motion_kernel.only("tangent_slopes", "rates")

    def along(self, loop: CompiledLoop, law: Parameters, plant: Parameters) -> Self:
        """This loop for another run.

        Args:
            loop: Loop of that run, which shares its functions with the traced one.
            law: Parameters that the law knows, with derivatives.
            plant: Parameters of the simulated plant, with derivatives.
        """
        other = copy.copy(self)
        other.evaluations, other._law, other._plant = 0, law, plant
        other._take(loop)
        return other

    def start(self, x: Array, derivatives: Array) -> Array:
        """Start vector of a run, from q, v and memory, shape (size,), and their derivatives, shape (size, count)."""
        return np.concatenate([x, derivatives.T.ravel(), np.zeros(self.carried)])

    def parted(self, values: Array) -> tuple[Array, Array]:
        """Splits values and derivatives, shape (rows, n (1 + count)), into (rows, n) and (rows, n, count)."""
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
        """Copies the system of a loop; every derivative of an input counts as a further actuator without limits."""
        realism, more = loop.system.realism, self.count * loop.system.model.m
        if realism is not None:
            lag, lower, upper = realism.lag * (1 + self.count), (-np.inf,) * more, (np.inf,) * more
            realism = replace(realism, lag=lag, lower=realism.lower + lower, upper=realism.upper + upper)
        self.system = replace(loop.system, realism=realism, simulated=None)
        self.memory_names, self.memory_start = loop.memory_names, loop.memory_start

    def _columns(self, x: Array, size: int) -> tuple[Array, list[Array]]:
        """Splits a vector into the value and its derivatives."""
        return x[:size], [x[size * (1 + j) : size * (2 + j)] for j in range(self.count)]

    def _controlled(self, loop: CompiledLoop, symbols: Mapping[str, Array]) -> Kernel:
        """(t, x, p, dp) -> command."""
        x, S = self._columns(symbols["x"], self._body)
        p, dp = symbols["p"], [symbols["dp"][len(symbols["p"]) * j :][: len(symbols["p"])] for j in range(self.count)]
        command = np.atleast_1d(loop.control_kernel(symbols["t"], x, p)[0])
        known = np.concatenate([x, p])
        moved = [directional(command, known, np.concatenate(pair)) for pair in zip(S, dp, strict=True)]
        parts = [
            np.concatenate([part[entries] for part in (command, *(moved if name in WIDENED else ()))])
            for name, entries in self._command_slices()
        ]
        kept = {name: array for name, array in symbols.items() if name != "command"}
        return Kernel.compile("tangent_control", kept, {"command": np.concatenate(parts)})

    def _moved(self, loop: CompiledLoop, symbols: Mapping[str, Array]) -> Kernel:
        """(t, x, p, dp, command) -> rates, log."""
        x, S = self._columns(symbols["x"], self._body)
        p, dp = symbols["p"], [symbols["dp"][len(symbols["p"]) * j :][: len(symbols["p"])] for j in range(self.count)]
        command, changes = self._narrow(symbols["command"])
        rates, log = loop.motion_kernel(symbols["t"], x, p, command)
        first = self._layout.command_size
        entries = self._layout.slices["violation"]
        violation = log[entries.start - first : entries.stop - first]
        both, known = np.concatenate([rates, violation]), np.concatenate([x, p, command])
        moved = [directional(both, known, np.concatenate(three)) for three in zip(S, dp, changes, strict=True)]
        n = len(rates)
        outputs = {
            "rates": np.concatenate([rates, *(part[:n] for part in moved)]),
            "log": np.concatenate([violation, *(part[n:] for part in moved)]),
        }
        return Kernel.compile("tangent_motion", symbols, outputs)

    def _command_slices(self) -> list[tuple[str, slice]]:
        return [(name, self._layout.slices[name]) for name in self._layout.command]

    def _narrow(self, command: Array) -> tuple[Array, list[Array]]:
        """Splits a command into that of the loop, and its derivatives; parts without derivatives have zeros."""
        plain: list[Any] = []
        changes: list[list[Any]] = [[] for _ in range(self.count)]
        for name, entries in self._command_slices():
            first, more = self._columns(command[self.layout.slices[name]], entries.stop - entries.start)
            plain.append(first)
            for change, column in zip(changes, more, strict=True):
                change.append(column if name in WIDENED else np.zeros(len(first)))
        return np.concatenate(plain), [np.concatenate(change) for change in changes]
