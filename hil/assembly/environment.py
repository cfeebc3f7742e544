"""What a loop runs on: buses, a clock, and on emulated drives the faults that a script does to the loop itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from hil.bus import Bus
from hil.loop import Clock, Controller
from servoctl.simulation.closed_loop import Loop
from servoctl.types import Array, State


class HostFaults(Protocol):
    """Scripted faults of the loop itself."""

    def stall(self) -> int:
        """How long the loop shall do nothing now [ns]."""

    def tamper(self, u: Array) -> Array:
        """What the law shall seem to have said."""


class TamperedController(Controller):
    """A law whose answers a script of faults changes."""

    def __init__(self, loop: Loop, faults: HostFaults) -> None:
        super().__init__(loop)
        self._faults = faults

    def command(self, task_time: float, q: Array, v: Array) -> Array:
        return self._faults.tamper(super().command(task_time, q, v))


@dataclass(frozen=True)
class Environment:
    """What the loop runs on.

    Attributes:
        buses: Name -> open bus.
        clock: The run's.
        emulated: Whether the drives are.
        lockstep: Whether time is virtual.
        truth: The simulated plant's state now; None where there is none to see.
        facts: What to say of it at the end.
        engaged: Called once, when the task begins.
        faults: What the loop must do to itself; None: nothing.
    """

    buses: Mapping[str, Bus]
    clock: Clock
    emulated: bool
    lockstep: bool
    truth: Callable[[], State] | None = None
    facts: Callable[[], dict[str, Any]] = dict
    engaged: Callable[[], None] = lambda: None
    faults: HostFaults | None = None
