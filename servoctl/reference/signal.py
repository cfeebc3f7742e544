"""A signal: one column of a reference, a function of time that equations use by its name."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from servoctl.reference.curve import Curve


@dataclass(frozen=True)
class Signal:
    """One column of a curve; equal by content."""

    reference: str  # name of the reference
    column: str  # name of the column
    curve: Curve  # the curve with all columns of the reference
    index: int  # index of the column in the curve

    @property
    def name(self) -> str:
        """Its name in equations."""
        return f"{self.reference}_{self.column}"

    def __call__(self, t: Any) -> Any:
        """The value at t [s]: a number, an array or a symbol with exact derivatives."""
        return self.curve.value(t, self.index)

    def rate(self, t: Any, order: int = 1) -> Any:
        """The derivative of this order at t [s], of numbers, arrays or symbols."""
        return self.curve.value(t, self.index, order)

    def beyond(self, t: float) -> str | None:
        """Why there is no value at t [s], one sentence; None if there is one."""
        if self.curve.covers(t):
            return None
        limit = f"starts at t = {self.curve.start:g} s" if t < self.curve.start else f"ends at t = {self.curve.end:g} s"
        return f"reference '{self.reference}' {limit}; give extrapolate: hold, or shorten the run"


def end_of(groups: Iterable[Mapping[str, Any]]) -> float:
    """The time at which the first of some signals ends for good [s]; inf if none does."""
    signals = [signal for group in groups for signal in group.values() if isinstance(signal, Signal)]
    return float(min((x.curve.end for x in signals if x.curve.extrapolate == "error"), default=math.inf))
