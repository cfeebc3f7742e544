"""From what a person asks for to a run that may begin: what counts as real, and what that takes."""

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hil.assembly.emulation import in_lockstep
from hil.assembly.environment import Environment
from hil.assembly.prepare import RigSetup, load
from hil.bus import Bus, BusError, close_all
from hil.bus.identity import answers_as_emulator, beginning
from hil.bus.open import is_loopback, open_bus
from hil.loop import WallClock
from hil.loop.realtime import bare_lateness, prepare
from hil.loop.stop_signals import StopSignals
from hil.recorder import Recorder
from hil.recorder.columns import STAGES
from hil.safety import Event
from hil.safety.plan import Stage
from hil.session.accuracy import explained_errors
from hil.session.notes import faults_elsewhere, in_shadow
from hil.session.run import HilRun, Result
from hil.view import LivePage
from servoctl.compiled import AS_PYTHON
from servoctl.config.overrides import Override
from servoctl.errors import ConfigError, RigError
from servoctl.run_folder.trajectory import Trajectory
from servoctl.types import Status
from servoctl.version import VERSION

IDENTITY_TIME = 0.5
"""Time that an emulator has to answer [s]."""


BARE_TIME = 1.0
"""How long is measured, before a run on the wall clock, how punctual a loop is here that does nothing [s]."""


@dataclass(frozen=True)
class Request:
    """What a person asks for.

    Attributes:
        config: A path, or the bare name of a shipped config.
        overrides: `PATH=VALUE`.
        stage: The last stage; None: full on emulated drives, shadow on real ones.
        duration: Time in it [s]; None: that of the config.
        armed: Whether real drives may make torque.
        require_rt: Whether to refuse without real-time rights.
        cpu: That the loop is bound to on the wall clock; None binds it to none.
        engine: `auto`, `c`, `vm` or `numpy`.
    """

    config: str | Path
    overrides: tuple[Override, ...] = ()
    stage: str | None = None
    duration: float | None = None
    armed: bool = False
    require_rt: bool = False
    engine: str = "auto"
    cpu: int | None = None


class ReadyRun:
    """A run that may begin.

    Attributes:
        name: Of the config.
        notes: What a person should know before.
        prepared: The config, ready.
        stage: The last stage.
    """

    def __init__(
        self, request: Request, prepared: RigSetup, place: Environment, stage: Stage, notes: list[str]
    ) -> None:
        self.name, self.prepared, self.stage, self.notes = prepared.run.name, prepared, stage, notes
        self._request, self._place = request, place

    @property
    def lockstep(self) -> bool:
        """Whether time is virtual."""
        return self._place.lockstep

    def run(
        self,
        out: Path | None,
        say: Callable[[Event], None],
        progress: Callable[[float], None] | None = None,
        show: Callable[[str], None] | None = None,
    ) -> Result:
        """Runs to the end.

        Args:
            out: The run folder; None: in memory only, which is for lock-step.
            say: Takes every event as it happens; on the wall clock it must not wait.
            progress: Called now and then with the fraction that is done, 0 to 1; as `say`.
            show: Takes the address of a live page, which it then has; in lock-step the run keeps to the wall clock.

        Raises:
            RigError: The page cannot be served; nothing was sent.
            RealtimeError: Real-time rights were asked for and not granted; nothing was sent.
            RunFolderError: The folder cannot be made; nothing was sent.
        """
        request, place = self._request, self._place
        said: dict[str, Any] = {
            "config": self.name, "servoctl": VERSION, "engine": self.prepared.loop.engine,
            "compiled_loop": not AS_PYTHON,
            "torque_limits": {drive.name: drive.torque_limit for drive in self.prepared.settings.drives},
            "tasks": self.prepared.tasks, "stages": STAGES, "warnings": self.notes,
            "emulated": place.emulated, "lockstep": place.lockstep,
        }  # fmt: skip
        with ExitStack() as stack:
            stack.callback(self.close)
            signals = stack.enter_context(StopSignals(suspend=not place.lockstep))
            run = HilRun(self.prepared, place, self.stage, request.duration, out, said, signals)
            stack.push(lambda kind, error, trace: run.abandon(error))
            if show is not None:
                view = stack.enter_context(self._view(run))
                run.show(view)
                show(view.address)
            if not place.lockstep:
                granted = stack.enter_context(prepare(cpu=request.cpu))
                if request.require_rt:
                    granted.insist()
                run.not_granted(granted.missing)
                run.said["realtime"] = [grant.sentence for grant in granted.grants]
                period = self.prepared.settings.values.period
                run.said["timing"] = {"bare": bare_lateness(period, BARE_TIME).as_dict()}
            return run.run(say, progress)

    def _view(self, run: HilRun) -> LivePage:
        """The page of a run; started before real-time rights are taken, which it shall not have.

        Raises:
            RigError: It cannot be served.
        """
        settings, said = self.prepared.settings, run.said
        about: dict[str, Any] = {
            name: said[name] for name in ("config", "torque_limits", "tasks", "stages", "lockstep")
        }
        about |= {
            "emulated": said["emulated"], "units": dict(run.columns), "period": settings.values.period,
            "ramp": settings.values.live_ramp, "stage": self.stage.name.lower(), "stale": settings.values.safety.stale,
            "max_bus_load": settings.values.max_bus_load, "engage_tolerance": settings.values.safety.engage_tolerance,
            "statuses": {status.code: status.value for status in Status},
        }  # fmt: skip
        bitrates = {name: float(bus["bitrate"]) for name, bus in settings.buses.items()}
        gains = {gain.path: (gain.lower, gain.upper) for gain in self.prepared.live.gains}
        if not isinstance(run.recorder, Recorder):
            raise RigError("--view: a run in memory leaves nothing to look at (give it a folder)")
        plant = self.prepared.loop.system.model.plant
        return LivePage(run.recorder, list(run.columns), bitrates, gains, about, plant)

    def close(self) -> None:
        """Closes the buses of a run that shall not begin."""
        close_all(self._place.buses.values())

    def accuracy(self, trajectory: Trajectory) -> dict[str, float]:
        """Task row -> the largest error that quantisation, sampling and delay explain, by the model."""
        return explained_errors(self.prepared, trajectory)

    def loads(self, trajectory: Trajectory) -> dict[str, tuple[float, float]]:
        """Bus -> share of it that was used, on average and in the busiest window, stuff bits left out."""
        counted, buses = trajectory.metadata.get("bus_bits", {}), self.prepared.settings.buses
        found = {}
        for (name, keys), bits in zip(buses.items(), counted.get("bits", []), strict=False):
            used = np.trim_zeros(np.asarray(bits, dtype=float)) / (counted["window"] * keys["bitrate"])
            if len(used):
                found[name] = float(used.mean()), float(used.max())
        return found


def start(request: Request) -> ReadyRun:
    """Makes everything ready; nothing is sent but, on a loopback bus, the question whether an emulator is there.

    Raises:
        ConfigError: The config or the duration is wrong, or real drives would have to be armed.
        BusError: A bus cannot be opened.
    """
    if request.duration is not None and not 0.0 < request.duration < math.inf:
        raise ConfigError(f"--duration: expected a positive time [s], got {request.duration:g}")
    prepared = load(request.config, request.overrides, request.engine)
    notes = list(prepared.notes)
    for name, used in prepared.settings.loads.items():
        notes.append(f"bus {name}: {100 * used.load:.0f} % used at worst, {used.frames:.0f} frames/s")
    if prepared.settings.lockstep and (request.require_rt or request.cpu is not None):
        notes.append("time is virtual: --require-rt and --cpu ask for nothing")
    place = in_lockstep(prepared, request.engine) if prepared.settings.lockstep else _on_buses(prepared)
    try:
        stage = _stage(request, prepared, place, notes)
    except ConfigError:
        close_all(place.buses.values())
        raise
    return ReadyRun(request, prepared, place, stage, notes)


def _stage(request: Request, prepared: RigSetup, place: Environment, notes: list[str]) -> Stage:
    """The last stage.

    Raises:
        ConfigError: It takes `--armed`, or faults are scripted for real drives.
    """
    default = Stage.FULL if place.emulated else Stage.SHADOW
    stage = default if request.stage is None else Stage[request.stage.upper()]
    if place.emulated:
        if not place.lockstep:
            notes += faults_elsewhere(prepared)
        return stage
    buses = ", ".join(place.buses)
    if prepared.settings.values.faults:
        raise ConfigError(f"hil.faults: scripted faults are for emulated drives, and {buses} is real (remove them)")
    if stage > Stage.SHADOW and not request.armed:
        raise ConfigError(
            f"--stage {stage.name.lower()}: {buses} counts as real: drives would make torque "
            "(add --armed when nobody is in reach and the emergency stop is at hand)"
        )
    untold = [drive.settings.name for drive in prepared.drives if not drive.watchdog_known]
    if stage > Stage.SHADOW and untold:
        raise ConfigError(
            f"hil.drives: {', '.join(untold)}: drive_watchdog is missing: when the loop dies, the last torque of "
            "a drive without one stays (say drive_watchdog: false where something else takes the power away then, or "
            "true where the drive's status proves it)"
        )
    if stage is Stage.SHADOW:
        notes += in_shadow(prepared)
    else:
        notes.append(f"ARMED: drives on {buses} will make torque")
    return stage


def _on_buses(prepared: RigSetup) -> Environment:
    """Buses of python-can, open; real unless an emulator answers on every one of them.

    They let everything in: the record has every frame on the bus, and what babbles there must be seen.
    """
    clock = WallClock()
    buses: dict[str, Bus] = {}
    try:
        for name, keys in prepared.settings.buses.items():
            buses[name] = open_bus(name, keys, clock)
        emulated = all(
            is_loopback(keys) and answers_as_emulator(buses[name], clock, IDENTITY_TIME)
            for name, keys in prepared.settings.buses.items()
        )
    except BusError:
        close_all(buses.values())
        raise
    first = next(iter(buses.values()))
    told = partial(first.send, beginning()) if emulated else lambda: None
    return Environment(buses, clock, emulated, lockstep=False, engaged=told)
