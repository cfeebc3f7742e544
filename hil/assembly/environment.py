"""The environment of a run: buses, a clock and, on emulated drives, the scripted faults of the loop itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hil.bus import Bus
from hil.emulator.host_faults import HostFaults
from hil.loop import Clock
from hil.loop.controller import Controller
from servoctl.simulation.closed_loop import Loop
from servoctl.types import Array


class TamperedController(Controller):
    """A controller whose commands are changed by scripted faults."""

    def __init__(self, loop: Loop, faults: HostFaults) -> None:
        super().__init__(loop)
        self._faults = faults

    @property
    def direct(self) -> bool:
        return not self._faults.tampers

    def command(self, task_time: float, q: Array, v: Array) -> Array:
        return self._faults.tamper(super().command(task_time, q, v))


@dataclass(frozen=True)
class Environment:
    """Buses and clock of a run."""

    buses: Mapping[str, Bus]  # name -> open bus
    clock: Clock  # clock of the run
    emulated: bool  # whether the drives are emulated
    lockstep: bool  # whether time is virtual
    truth: Callable[[], list[float]] | None = None  # returns the columns `true_*` now, in order; None: not known
    # returns whether the emulated drives are off, their brakes closed and the machine at rest
    settled: Callable[[], bool] = lambda: True
    facts: Callable[[], dict[str, Any]] = dict  # returns further entries of the summary; called at the end
    engaged: Callable[[], None] = lambda: None  # called once, when the task begins
    faults: HostFaults | None = None  # scripted faults of the loop itself; None: none
    # returns the largest lateness of an emulator in another process [s]; None: not known
    emulator_lateness: Callable[[], float | None] = lambda: None
    # called once, when a calibration begins, with its duration [s]: an emulated hand moves the machine
    guided: Callable[[float], None] = lambda duration: None
