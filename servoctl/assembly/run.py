"""`Run`: a closed loop with its start and settings, checked and ready to simulate.

Design: the smallest inputs that meet a task accelerate the free motions without end, because nothing asks where they
go. Two arms with seven joints each, whose box follows a pose, have two such motions: after 6 s they turn at 449 rad/s.
A task of priority 2 holds them at the same inputs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from servoctl.assembly import realism
from servoctl.assembly.diagnosis import EndOfRun
from servoctl.assembly.entries import unreached, unused_parts
from servoctl.assembly.gains import all_gains
from servoctl.assembly.start import robot_warnings, start_warnings, unit_word_warnings
from servoctl.assembly.values import Results
from servoctl.config.hil import Hil
from servoctl.config.load import LoadedConfig
from servoctl.errors import Finding
from servoctl.laws.secondary import SecondaryTerm
from servoctl.mechanics.hierarchy import PassiveLevel
from servoctl.mechanics.spatial.plant import Robot
from servoctl.mechanics.task_map import TaskMap, free_inputs
from servoctl.reference.curve import Signal
from servoctl.run_folder.missed import sparse_rows
from servoctl.run_folder.trajectory import Trajectory
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.engine_choice import take_engine
from servoctl.simulation.internal_dynamics import InternalDynamics, internal_dynamics
from servoctl.simulation.settings import Settings
from servoctl.simulation.simulate import simulate_loop
from servoctl.simulation.system import System
from servoctl.types import State
from servoctl.version import VERSION

ENGINES = ("auto", "c", "vm", "numpy")

SMALLEST = ("minimum_norm", "weighted")  # allocations that ask nothing of the free motions


@dataclass(frozen=True)
class FreeMotions:
    """How many motions a machine has, and what becomes of them."""

    total: int  # motions without any constraint; a free base has six
    held: int  # those that the passive constraints and the task determine
    free: int  # those that the inputs can move and the task leaves free
    damped: bool  # whether the law damps the free ones

    @property
    def line(self) -> str:
        """One line of a report."""
        held = f"{self.held} of {self.total} motions are determined"
        if not self.free:
            return held
        return f"{held}; {self.free} {'is' if self.free == 1 else 'are'} free" + (", and damped" if self.damped else "")


def free_motions(system: System, start: State, task_map: TaskMap | None) -> FreeMotions | None:
    """The motions at the start; None without constraint following, or if a term is not finite there."""
    law, model = system.following, system.model
    if law is None or task_map is None:
        return None
    at = model.terms(start, system.passive.rank_tolerance)
    if not at.sound:
        return None
    bases = len(model.plant.tree.free_bases) if isinstance(model.plant, Robot) else 0
    secondary = law.term(SecondaryTerm)
    damped = secondary is not None and (secondary.damping > 0.0 or secondary.null_space is not None)
    damped = damped or law.allocation.kind not in SMALLEST
    held = at.passive.rank + task_map.rank - bases
    return FreeMotions(model.n - bases, held, free_inputs(at, law.allocation.rank_tolerance), damped)


@dataclass(frozen=True)
class Run:
    """A closed loop, a start and how to run.

    Attributes:
        name: For titles and folders.
        loop: The closed loop, on its engine.
        start: Initial state, projected if the config asks for it.
        settings: How to run.
        reach: Gives `task_map`.
        loaded: Its config; None for a run made in Python.
        refused: Why it should not run; empty unless loaded with `strict=False`.
        levels: Levels of the plant's own constraints, for `check`; empty if there is no hierarchy.
        engine: Requested engine: `auto`, `c`, `vm` or `numpy`; `loop.engine` is the one in use.
        signals: Columns of the config's references, by their names in equations.
        results: Results that runs of the config with other values share, such as compiled functions.
    """

    name: str
    loop: Loop
    start: State
    settings: Settings
    reach: Callable[[], TaskMap | None] = lambda: None
    loaded: LoadedConfig | None = None
    refused: tuple[Finding, ...] = ()
    levels: tuple[PassiveLevel, ...] = ()
    engine: str = "auto"
    signals: Mapping[str, Signal] = field(default_factory=dict)
    results: Results = field(default_factory=Results, repr=False, compare=False)

    def __repr__(self) -> str:
        plant, settings = self.system.model.plant, self.settings
        size = f"{len(plant.coordinates)} coordinates, {len(plant.actuators)} inputs"
        tasks = ", ".join(self.system.model.task) or "no task"
        return (
            f"<Run {self.name}: {type(plant).__name__} ({size}), {tasks}; "
            f"{settings.duration:g} s by {settings.integrator.method}, engine {self.loop.engine}>"
        )

    @property
    def system(self) -> System:
        """Plant, law and constraints."""
        return self.loop.system

    @property
    def hil(self) -> Hil | None:
        """The section `hil` of its config."""
        return None if self.loaded is None else self.loaded.config.hil

    @property
    def task_map(self) -> TaskMap | None:
        """What the actuators can do for the task; None for an open loop."""
        return self.reach()

    @property
    def problems(self) -> list[str]:
        """Why it should not run, one sentence each."""
        return [str(finding) for finding in self.refused]

    @property
    def warnings(self) -> list[str]:
        """What a person should know before it runs, one sentence each."""
        return [str(finding) for finding in self.findings if finding.severity == "warning"]

    @cached_property
    @np.errstate(all="ignore")
    def findings(self) -> list[Finding]:
        """Why it should not run, and what a person should know before it runs."""
        return [
            *self.refused,
            *start_warnings(self.loop, self.start, self.task_map),
            *self._motion_warnings(),
            *robot_warnings(self.loop, self.start),
            *(Finding("", doubt) for doubt in self.system.model.doubts),
            *unreached(self.signals.values(), self.start.t, self.start.t + self.settings.duration),
            # near their limit of stability; beyond it they are a problem
            *filter(None, (gain.warning for gain in all_gains(self.system, self.settings))),
            *realism.warnings(self.system, self.start, self.settings),
            *([] if self.loaded is None else unused_parts(self.loaded, self.system.model)),
            *([] if self.loaded is None else unit_word_warnings(self.loaded, self.system.model.plant)),
            *([] if self.engine_warning is None else [Finding("", self.engine_warning)]),
        ]

    @property
    def engine_warning(self) -> str | None:
        """Why the run is slower than requested, or than it would be with a traced plant; None if it is not."""
        return self.loop.note

    @cached_property
    @np.errstate(all="ignore")
    def motions(self) -> FreeMotions | None:
        """How many motions the task holds at the start; None if the law has no such notion."""
        return free_motions(self.system, self.start, self.task_map)

    def _motion_warnings(self) -> list[Finding]:
        """A warning if nothing damps the free motions, and they do not decay by themselves."""
        motions = self.motions
        if self.refused or motions is None or not motions.free or motions.damped:
            return []
        if self.internal is not None and self.internal.stable:
            return []
        them = "it" if motions.free == 1 else "them"
        is_robot = isinstance(self.system.model.plant, Robot)
        task = "a task `posture: initial` with priority: 2" if is_robot else "a task with priority: 2"
        sentence = (
            f"{motions.line} and the smallest torques do not damp {them} (add {task}, or law.secondary.damping, or "
            "law.allocation: constraint_force with law.secondary.damping)"
        )
        return [Finding("", sentence)]

    @cached_property
    @np.errstate(all="ignore")
    def internal(self) -> InternalDynamics | None:
        """Internal dynamics, linearised at the start; None if it cannot be differentiated, or no law follows."""
        return None if self.system.following is None else internal_dynamics(self.loop, self.start)

    @np.errstate(all="ignore")
    def prepare(self, wait: bool = True) -> None:
        """Selects the engine, which may compile C code; `simulate` calls this if needed.

        Args:
            wait: As of `take_engine`.
        """
        if not self.loop.chosen:
            take_engine(self.loop, self.start, self.settings, self.engine, wait)
            self.loop.chosen = True

    @np.errstate(all="ignore")  # a term that is not finite stops the run with a message
    def simulate(self, out: Path | None = None, progress: Callable[[float], None] | None = None) -> Trajectory:
        """Simulates the run.

        Args:
            out: Run folder to write; None: in memory only.
            progress: Called from time to time with the finished fraction, 0 to 1.

        Raises:
            KeyboardInterrupt: After the files are written.
            RunFolderError: The folder cannot be written.
        """
        self.prepare()
        text = self.loaded.text if self.loaded is not None else ""
        facts: dict[str, Any] = {"config": self.name, "servoctl": VERSION, "warnings": self.warnings}
        if self.loop.choice is not None:
            facts["engine_choice"] = self.loop.choice
        if self.loaded is not None and self.loaded.config.realism is not None:
            facts["realism"] = realism.facts(self.system, self.loaded.config.realism)
        return simulate_loop(self.loop, self.start, self.settings, facts, out, text, progress, ending=self.ending)

    @np.errstate(all="ignore")
    def ending(self, trajectory: Trajectory, facts: dict[str, Any], last: State | None) -> dict[str, Any]:
        """Facts that the end of a simulation adds to its summary, as `EndOfRun.facts`."""
        ended = EndOfRun(self.loop, self.start, self.settings, self.reach, trajectory).facts(facts, last)
        spacing = self.settings.output_step if self.settings.period is None else None
        told = None if spacing is None else sparse_rows(trajectory, spacing)
        return ended if told is None else ended | {"sparse_rows": told}
