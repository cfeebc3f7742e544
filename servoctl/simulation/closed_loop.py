"""The executor that evaluates plant, law and whole steps by compiled functions, in C where that pays.

Design: every function starts on CasADi's virtual machine. `program` is the C of what a run evaluates, `run_on` takes a
library of it; a compilation in the background is taken between two steps, while the run goes on.
"""

import copy
from functools import partial
from math import isfinite
from typing import Any, Self

import casadi as ca

from servoctl.engine.background import Compilation
from servoctl.engine.ccode import STEP, BatchProgram, Library, Program
from servoctl.engine.kernel import BufferedCall, Kernel
from servoctl.engine.step import DelayLayout, StepFunctions, rk4
from servoctl.simulation.control_tick import ControlTick
from servoctl.simulation.system import System
from servoctl.simulation.traced_loop import TracedLoop

ROUNDING = "until then by vm; two runs may differ by rounding (--engine c and --engine vm repeat to the bit)"
"""What a summary says about a change of the engine."""

AFTERWARDS = "the run ended on engine vm before the compiler was done; it finishes alone, and the next run starts on c"
"""What a summary says about a run that was shorter than its compilation."""


class Loop(TracedLoop):
    """Evaluates plant, law and whole steps compiled."""

    def __init__(self, system: System, in_numpy: bool = False) -> None:
        super().__init__(system, in_numpy)
        self._steppers: dict[int | None, Kernel] = {}
        self._libraries: dict[tuple[int | None, DelayLayout | None], Library | None] = {}
        self.compilation: Compilation | None = None  # makes the library while a run goes on; None: nothing does
        self.switched: float | None = None  # time of the run at which it went over to C [s]; None: it did not

    @property
    def facts(self) -> dict[str, Any]:
        """What the metadata of a run says about its loop: engine, rows of tasks, limits, funnels."""
        tasks: dict[str, list[str]] = {}
        for row in self.system.model.task_rows:
            tasks.setdefault(row.group, []).append(row.name)
        law = self.system.acting
        facts: dict[str, Any] = {"engine": self.engine, "tasks": tasks}
        if law.limits:
            pairs = zip(self.system.model.plant.actuators, law.limits, strict=True)
            facts["law_limits"] = {name: pair for name, pair in pairs if all(map(isfinite, pair))}
        if law.funnel is not None:
            facts["funnels"] = law.funnel.facts
        return facts

    @property
    def engine(self) -> str:
        """`c` once a loop that shares these functions and steps runs on C, else `vm`; `numpy` if that was asked for."""
        if self._in_numpy:
            return "numpy"
        return "c" if any(form == self.form for _, form in self._libraries) else "vm"

    def program(self, substeps: int | None) -> Program:
        """C source of the functions that a run evaluates.

        Args:
            substeps: Steps of rk4 in one hold, 0 for an adaptive method; None: the law acts continuously.
        """
        kernels = self._kernels(substeps)
        names = [kernel.name for kernel in kernels]
        content = None if self._key is None else repr((self._key, names, substeps, self.form, self.projects))
        return Program(kernels, None if substeps == 0 else self.step(substeps), content)

    @property
    def is_stored(self) -> bool:
        """Whether the key of `program` is known without its source."""
        return self._key is not None

    def batch_program(self, substeps: int | None) -> BatchProgram:
        """C source of whole runs side by side; `substeps` as of `program`, but not 0."""
        content = None if self._key is None else repr((self._key, substeps, self.form, self.projects))
        return BatchProgram(self.step(substeps), content=content)

    def shares_functions(self, other: "Loop") -> bool:
        """Whether two loops are the same up to parameters: one was made from the other by `of`."""
        return self._steppers is other._steppers

    def step(self, substeps: int | None) -> StepFunctions:
        """The functions of `stepper(substeps)`."""
        closing = self.closing_kernel if self.projects else None
        if substeps is None:
            return StepFunctions(None, self.slopes_kernel, self.rates_kernel, closing=closing)
        rates, logged, control = self.held_slopes_kernel, self.motion_kernel, self.control_kernel
        return StepFunctions(substeps, rates, logged, control, self.form, closing)

    @property
    def form(self) -> DelayLayout | None:
        """Sizes of realism, by which steps of loops with the same functions differ; None without realism."""
        realism = self.system.realism
        return None if realism is None else realism.layout

    def _kernels(self, substeps: int | None) -> list[Kernel]:
        """The kernels that a run calls from Python."""
        if substeps is None:
            kernels = [self.rates_kernel, self.slopes_kernel]
        else:
            kernels = [self.control_kernel, self.motion_kernel]
        return [*kernels, self.closing_kernel] if self.projects else kernels

    def run_on(self, library: Library, substeps: int | None) -> None:
        """Evaluates a run in C from now on; `library` is of `program(substeps)`."""
        for kernel in self._kernels(substeps):
            kernel.run_on(library)
        if substeps != 0 and self.system.realism is None:
            self.stepper(substeps).run_on(library)
        self._libraries[substeps, self.form] = None if substeps == 0 else library

    def control_tick(self) -> ControlTick:
        """The law for a loop in real time, on the engine of this loop."""
        tick = ControlTick(self.layout, self.memory_start, BufferedCall(self.control_kernel))
        tick.parameters[:] = self.parameters
        return tick

    def goes_over(self, t: float, substeps: int | None) -> bool:
        """Takes the library that `compilation` has made, between two steps; returns whether it did so now."""
        library = None if self.compilation is None else self.compilation.library
        if library is None:
            return False
        self.run_on(library, substeps)
        self.compilation, self.switched = None, t
        return True

    def of(self, system: System) -> Self:
        other = super().of(system)
        other.compilation = other.switched = None
        return other

    def apart(self) -> Self:
        """This loop, traced once, with compiled functions of its own: its engine is chosen apart."""
        other = copy.copy(self)
        other.derived, other._steppers, other._libraries = {}, {}, {}
        return other

    def end_compilation(self, finish: bool) -> dict[str, Any]:
        """Facts about the change of the engine during a run, which ends now; empty without one.

        Args:
            finish: Whether a compilation for this loop that still goes on may finish alone, for the next run.
        """
        facts: dict[str, Any] = {}
        if self.switched is not None:
            facts = {"t": self.switched, "to": "c", "note": ROUNDING}
        compilation, self.compilation = self.compilation, None
        if compilation is not None:
            if compilation.problem:
                facts = {"note": f"the run stayed on engine vm: {compilation.problem}"}
            elif finish and compilation.leave():
                facts = {"note": AFTERWARDS}
            compilation.end()
        return {"engine_switch": facts} if facts else {}

    def c_library(self, substeps: int | None) -> Library | None:
        """The library that repeats `stepper(substeps)` in C; None if it is not compiled, or a machine moves."""
        return None if self.system.machine else self._libraries.get((substeps, self.form))

    def stepper(self, substeps: int | None) -> Kernel:
        """(x, t, h, p) -> x after h, row at the start, by the classical Runge-Kutta method.

        Args:
            substeps: None: the law acts continuously and h is one step; else h is one hold of so many steps.
        """
        if substeps not in self._steppers:
            sizes, outputs = self._step_sizes(), {"x": (self.size,), "row": (self.layout.size,)}
            inputs = {name: (size,) for name, size in sizes.items()}
            self._steppers[substeps] = Kernel(partial(self._step, substeps), inputs, outputs, STEP)
        return self._steppers[substeps]

    def _step(self, substeps: int | None) -> Any:
        """CasADi function of `stepper(substeps)`."""
        x, t, h, p = (ca.MX.sym(name, size) for name, size in self._step_sizes().items())
        if substeps is None:
            slopes = self.slopes_kernel.function
            rates, row = self.rates_kernel.function(t, x, p)
            following = rk4(lambda s, y: slopes(s, y, p), t, x, h, first=rates)
        else:
            command = self.control_kernel.function(t, x, p)
            rates, log = self.motion_kernel.function(t, x, p, command)
            row, part = ca.vertcat(command, log), h / substeps
            slopes = self.held_slopes_kernel.function
            following = rk4(lambda s, y: slopes(s, y, p, command), t, x, part, first=rates)
            if substeps > 1:
                times = t + part * ca.DM(range(1, substeps)).T
                held = (ca.repmat(value, 1, substeps - 1) for value in (part, p, command))
                following = self.held_stepper().function.fold(substeps - 1)(following, times, *held)
        return ca.Function(STEP, [x, t, h, p], [following, ca.densify(row)])

    def _step_sizes(self) -> dict[str, int]:
        return {"x": self.size, "t": 1, "h": 1, "p": len(self.parameters)}

    def held_stepper(self) -> Kernel:
        """(x, t, h, p, command) -> x after one step under a held command; it can become C."""
        sizes = {**self._step_sizes(), "command": self.layout.command_size}
        x, t, h, p, command = symbols = [ca.SX.sym(name, size) for name, size in sizes.items()]
        slopes = self.held_slopes_kernel.called()
        following = ca.densify(rk4(lambda s, y: slopes(s, y, p, command), t, x, h))
        inputs = {name: (size,) for name, size in sizes.items()}
        return Kernel(ca.Function("held_step", symbols, [following]), inputs, {"x": (self.size,)})
