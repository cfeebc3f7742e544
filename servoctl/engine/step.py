"""The classical Runge-Kutta method on numbers or symbols, the functions of a fixed step, and the step in C.

The step in C is `c/steps.h`, or `c/realism.h` for a realistic run.

Source: Hairer, Norsett, Wanner 1993, II.1 (the method), II.6 (cubic Hermite interpolation).
"""

from dataclasses import dataclass
from typing import Any

from servoctl.engine.ops import template


def rk4(rates: Any, t: Any, x: Any, h: Any, first: Any = None) -> Any:
    """x after one step.

    Args:
        h: Step [s].
        first: rates(t, x), if the caller has it already.
    """
    k1 = rates(t, x) if first is None else first
    k2 = rates(t + h / 2, x + h / 2 * k1)
    k3 = rates(t + h / 2, x + h / 2 * k2)
    k4 = rates(t + h, x + h * k3)
    return x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def rk4_steps(rates: Any, t: Any, x: Any, h: Any, substeps: int) -> Any:
    """x after a time h [s], in so many equal steps; the other arguments as of `rk4`."""
    for i in range(substeps):
        x = rk4(rates, t + i * h / substeps, x, h / substeps)
    return x


def hermite(x0: Any, v0: Any, x1: Any, v1: Any, h: float, z: float) -> Any:
    """Value of the cubic that has given values and rates at both ends.

    Args:
        x0: Value at the start.
        v0: Rate there [1/s].
        x1: Value at the end.
        v1: Rate there.
        h: Time from start to end [s].
        z: Time since the start, as a fraction of h.
    """
    return (1 + 2 * z) * (1 - z) ** 2 * x0 + z**2 * (3 - 2 * z) * x1 + h * z * (1 - z) * ((1 - z) * v0 - z * v1)


MANY = 2000  # statements from which x' alone is no function of its own


@dataclass(frozen=True)
class DelayLayout:
    """Sizes of the delays, lags and noise between law and plant in a realistic run, for `c/realism.h`."""

    coordinates: int  # number of coordinates of the plant
    inputs: int  # number of inputs of the plant
    earliest: int  # least delay of a command, in whole periods
    latest: int  # greatest delay of a command, in whole periods, rounded up
    lagged: bool  # whether torques follow commands with a lag
    width: int  # random numbers per tick

    @property
    def carried(self) -> int:
        """Length of the state that is not integrated: lagging torques, and commands on their way."""
        return self.inputs * self.lagged + self.latest * (self.inputs + 1)

    @property
    def parameters(self) -> int:
        """Number of parameters of the realism, in the order of the enum in `c/realism.h`."""
        return 4 * self.coordinates + 3 * self.inputs + 3


@dataclass(frozen=True)
class StepFunctions:
    """The kernels of a step of the classical Runge-Kutta method.

    A law is evaluated continuously, or its command is held for a period, which takes one step or several.
    """

    substeps: int | None  # steps per held command; None: continuous
    rates: Any  # (t, x, p) -> x'; held: (t, x, p, command) -> x'
    logged: Any  # (t, x, p) -> x', row; held: (t, x, p, command) -> x', log
    control: Any = None  # (t, x, p) -> command, the first part of the row; None: continuous
    delays: DelayLayout | None = None  # sizes of delays, lags and noise; None: the machine is ideal
    # (t, x, p) -> changes of q and of v that close the passive constraints; None: they are not projected
    closing: Any = None

    @property
    def kernels(self) -> list[Any]:
        """All that are not None."""
        return [self.rates, self.logged, *(one for one in (self.control, self.closing) if one is not None)]

    @property
    def leading(self) -> dict[str, Any]:
        """`rates` as the first output of `logged`, where both are long: see `emit`.

        They differ by few statements, 6,900 of 7,000 for two arms with a box, so one of them takes half the time to
        compile.
        """
        return {self.rates.name: self.logged.function} if self.rates.length > MANY else {}

    @property
    def _state(self) -> int:
        """Length of the part of x that is integrated."""
        return int(self.rates.sizes()[1][0])

    @property
    def size(self) -> int:
        """Length of x."""
        return self._state + (0 if self.delays is None else self.delays.carried)

    @property
    def width(self) -> int:
        """Length of a row."""
        return int(self.logged.sizes()[1][1]) + self.command

    @property
    def command(self) -> int:
        """Length of a held command; 0: continuous."""
        return 0 if self.control is None else int(self.control.sizes()[1][0])

    def source(self) -> str:
        """The C code of the step."""
        count = self.rates.sizes()[0][2]
        defined = {
            "STATE": self._state,
            "SIZE": self.size,
            "PARAMETERS": count,
            "COMMAND": self.command,
            "WIDTH": self.width,
            "PARTS": self.substeps or 0,
            "RATES": f"f_{self.rates.name}",
            "LOGGED": f"f_{self.logged.name}",
            "CONTROL": f"f_{(self.control or self.logged).name}",
            "REALISTIC": int(self.delays is not None),
            "RANDOM": 0,
            "PROJECTED": int(self.closing is not None),
        }
        if self.closing is not None:
            defined |= {"CLOSING": f"f_{self.closing.name}", "POSE": self.closing.sizes()[1][0]}
        files, delays = ["steps.h", "stretches.h"], self.delays
        if delays is not None:
            files.insert(1, "realism.h")
            defined |= {"PARAMETERS": 2 * count + delays.parameters, "LAW_PARAMETERS": count, "RANDOM": delays.width}
            defined |= {"COORDINATES": delays.coordinates, "INPUTS": delays.inputs, "LAGGED": int(delays.lagged)}
            defined |= {"EARLIEST": delays.earliest, "LATEST": delays.latest}
        lines = "".join(f"#define {name} {value}\n" for name, value in defined.items())
        return lines + "".join(map(template, files))
