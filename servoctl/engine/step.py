"""What a step of fixed length is made of, and its C: `c/steps.h`, or `c/realism.h` for a realistic run."""

from dataclasses import dataclass
from typing import Any

from servoctl.engine.emit import template


@dataclass(frozen=True)
class DelayLayout:
    """Sizes of what stands between law and plant in a realistic run, for `c/realism.h`.

    Attributes:
        coordinates: Of the plant.
        inputs: Likewise.
        earliest: Whole periods after which a command may begin to act.
        latest: Whole periods after which it surely acts.
        lagged: Whether torques lag.
        width: Random numbers per tick.
    """

    coordinates: int
    inputs: int
    earliest: int
    latest: int
    lagged: bool
    width: int

    @property
    def carried(self) -> int:
        """Numbers that a run carries beside what is integrated."""
        return self.inputs * self.lagged + self.latest * (self.inputs + 1)

    @property
    def parameters(self) -> int:
        """Parameters of its own."""
        return 4 * self.coordinates + 3 * self.inputs + 3


@dataclass(frozen=True)
class StepFunctions:
    """What a step of the classical Runge-Kutta method is made of: CasADi functions.

    Attributes:
        substeps: Steps of one hold; None: the law acts continuously.
        rates: (t, x, p) -> x'; of a hold (t, x, p, command) -> x'.
        logged: The same -> x', row; of a hold -> x', log.
        control: (t, x, p) -> command, the first part of the row; None: the law acts continuously.
        between: What stands between law and plant; None: nothing.
        closing: (t, x, p) -> changes of q and of v that close the passive constraints; None: steps end where they end.
    """

    substeps: int | None
    rates: Any
    logged: Any
    control: Any = None
    between: DelayLayout | None = None
    closing: Any = None

    @property
    def functions(self) -> list[Any]:
        """Those that there are."""
        return [self.rates, self.logged, *(one for one in (self.control, self.closing) if one is not None)]

    @property
    def size(self) -> int:
        """Length of x."""
        return int(self.rates.numel_out(0)) + (0 if self.between is None else self.between.carried)

    @property
    def width(self) -> int:
        """Length of a row."""
        return int(self.logged.numel_out(1)) + self.command

    @property
    def command(self) -> int:
        """Length of the command that a hold keeps."""
        return 0 if self.control is None else int(self.control.numel_out(0))

    def source(self) -> str:
        """C of a step."""
        state, count = int(self.rates.numel_out(0)), int(self.rates.numel_in(2))
        defined = {
            "STATE": state,
            "SIZE": self.size,
            "PARAMETERS": count,
            "COMMAND": self.command,
            "WIDTH": self.width,
            "PARTS": self.substeps or 0,
            "RATES": f"f_{self.rates.name()}",
            "LOGGED": f"f_{self.logged.name()}",
            "CONTROL": f"f_{self.logged.name() if self.control is None else self.control.name()}",
            "REALISTIC": int(self.between is not None),
            "RANDOM": 0,
            "PROJECTED": int(self.closing is not None),
        }
        if self.closing is not None:
            defined |= {"CLOSING": f"f_{self.closing.name()}", "POSE": int(self.closing.numel_out(0))}
        files, own = ["steps.h", "stretches.h"], self.between
        if own is not None:
            files.insert(1, "realism.h")
            defined |= {"PARAMETERS": 2 * count + own.parameters, "LAW_PARAMETERS": count, "RANDOM": own.width}
            defined |= {"COORDINATES": own.coordinates, "INPUTS": own.inputs, "LAGGED": int(own.lagged)}
            defined |= {"EARLIEST": own.earliest, "LATEST": own.latest}
        lines = "".join(f"#define {name} {value}\n" for name, value in defined.items())
        return lines + "".join(map(template, files))
