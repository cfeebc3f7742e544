"""`Run`: everything that a config says, checked and ready."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from servoctl.assembly import realism
from servoctl.assembly import start as starts
from servoctl.assembly.ending import EndOfRun
from servoctl.assembly.gains import all_gains
from servoctl.config import dump
from servoctl.config.load import LoadedConfig
from servoctl.mechanics.passive_levels import PassiveLevel
from servoctl.mechanics.reach import Reach
from servoctl.run_folder.trajectory import Trajectory
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.engine_choice import engine_note, take_engine
from servoctl.simulation.internal_dynamics import InternalDynamics, internal_dynamics
from servoctl.simulation.simulate import Settings, simulate_loop
from servoctl.simulation.system import System
from servoctl.types import State
from servoctl.version import VERSION


@dataclass(frozen=True)
class Run:
    """A closed loop, a start and how to run.

    Attributes:
        name: For titles and folders.
        loop: The closed loop, on its engine.
        start: Initial state, projected where that was asked for.
        settings: How to run.
        reach: What the actuators can do for the task; None for an open loop.
        loaded: The config it came from; None for a run made in Python.
        problems: Why it should not run; empty unless `load` was told to let them through.
        levels: The plant's own constraints level by level, for `check`; none: there is no hierarchy.
        engine: What was asked for: `auto`, `c`, `vm` or `numpy`; `loop.engine` is what it got.
    """

    name: str
    loop: Loop
    start: State
    settings: Settings
    reach: Reach | None = None
    loaded: LoadedConfig | None = None
    problems: tuple[str, ...] = ()
    levels: tuple[PassiveLevel, ...] = ()
    engine: str = "auto"

    @property
    def system(self) -> System:
        """Plant, law and constraints."""
        return self.loop.system

    @cached_property
    @np.errstate(all="ignore")
    def warnings(self) -> list[str]:
        """What a person should know before running, one sentence each."""
        engine = [] if self.engine_warning is None else [self.engine_warning]
        own = realism.warnings(self.system, self.start, self.settings)
        return (
            starts.warnings(self.loop, self.start, self.reach) + self.system.model.doubts + self._gains() + own + engine
        )

    @property
    def engine_warning(self) -> str | None:
        """Why the run is slower than was asked for, or than a plant could be that is traced; None where it is not."""
        return self.loop.note if self.system.model.opaque is not None else engine_note(self.loop)

    def _gains(self) -> list[str]:
        """Corrections that are fast for the period or the step; what `problems` says already is left out."""
        gains = all_gains(self.system, self.settings)
        said = [gain.warning or (None if self.loaded else gain.problem) for gain in gains]
        return [sentence for sentence in said if sentence is not None]

    @cached_property
    @np.errstate(all="ignore")
    def internal(self) -> InternalDynamics | None:
        """What the constraints leave free, linearised at the start; None where there is nothing to differentiate."""
        return internal_dynamics(self.loop, self.start)

    @np.errstate(all="ignore")
    def prepare(self) -> None:
        """Takes the engine that the run is worth, which may compile; `simulate` does so where nobody has."""
        if self.loop.choice is None:
            take_engine(self.loop, self.start, self.settings, self.engine)

    @np.errstate(all="ignore")  # a term that is not finite stops the run, which says so
    def simulate(self, out: Path | None = None, progress: Callable[[float], None] | None = None) -> Trajectory:
        """Runs.

        Args:
            out: Run folder to write; None: in memory only.
            progress: Called now and then with the fraction that is done, 0 to 1.

        Raises:
            KeyboardInterrupt: After the files are written.
            RunFolderError: The folder cannot be written.
        """
        self.prepare()
        text = dump(self.loaded.config) if self.loaded is not None else ""
        said: dict[str, Any] = {"config": self.name, "servoctl": VERSION, "warnings": self.warnings}
        if self.loop.choice is not None:
            said["engine_choice"] = self.loop.choice
        if self.loaded is not None and self.loaded.config.realism is not None:
            said["realism"] = realism.facts(self.system, self.loaded.config.realism)
        return simulate_loop(self.loop, self.start, self.settings, said, out, text, progress, ending=self.ending)

    @np.errstate(all="ignore")
    def ending(self, trajectory: Trajectory, facts: dict[str, Any], last: State | None) -> dict[str, Any]:
        """Facts that the end of a simulation adds to its summary, as `EndOfRun.facts`."""
        return EndOfRun(self.loop, self.start, self.settings, self.reach, trajectory).facts(facts, last)
