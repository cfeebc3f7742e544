"""The environment of a run; the emulated drives of a config and the simulated plant behind them.

They are in virtual time in the process of a run, or are served on buses that a loop in another process can open.

For a calibration a hand moves the machine without torque: each axis in turn, first in its positive direction. An axis
with stops is pushed against them; if only one is known, twice.

Design: this motion is kinematic. A spline in the axis' own displacement runs through poses that meet the passive
constraints to 1e-12; between them it errs by less than the finest encoder step.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from hil.assembly.prepare import load
from hil.assembly.settings import true_settings
from hil.assembly.setup import RigSetup
from hil.bus import Bus, close_all
from hil.bus.load import BusRates
from hil.core.controller import Controller
from hil.drives.base import Node
from hil.emulator.emulator import EmulatedRig, Emulator, HostFaults
from hil.emulator.plant import Motion, SimulatedPlant
from hil.emulator.process import EmulatorServer, open_for_emulation
from hil.loop import Clock, WallClock, nanoseconds
from hil.loop.realtime import PRIORITY, StopSignals, prepare
from hil.protocols.registry import emulations, node_class
from hil.sensing.channels import Displacements
from hil.sensing.coordinates import pose_at
from servoctl.config.hil import Emulation
from servoctl.config.overrides import Override
from servoctl.errors import ConfigError
from servoctl.mechanics.model import Model
from servoctl.simulation.closed_loop import Loop
from servoctl.types import Array, State

REACH = 0.25  # [share of its range] farthest that an axis is moved to each side
MARGIN = 0.1  # part of the way to a position limit that is left
POSES = 60  # poses from the start to the end of a side
CLOSED = 1e-9  # largest error of a pose on the way: where it grows, the machine can move no farther

LEAP = 20.0
"""Largest change of a coordinate from pose to pose, in steps of the axis: beyond, the machine would jump to another
branch."""

MOVING = 0.95  # part of the way from corner to corner in which an axis moves; then it rests there [share of the time]
STILL = 0.06  # [share of the whole] time at the start in which the machine stands still


def hand_of(setup: RigSetup, duration: float) -> Motion:
    """The motion of a hand that moves every axis of the machine in a time [s], and ends at the start pose."""
    from scipy.interpolate import CubicSpline

    model, displacements, start = setup.model.plain, setup.sensing.displacements, setup.start
    drives, sweeps = setup.settings.drives, []
    limits, stops = [drive.position_limits for drive in drives], [drive.stops for drive in drives]
    pairs = zip(stops, limits, strict=True)
    room = [  # the stops; where there is none, the limit
        (low if isfinite(low) else lower, high if isfinite(high) else upper) for (low, high), (lower, upper) in pairs
    ]
    for axis, (lower, upper) in enumerate(limits):
        here = float(setup.positions(start.q)[axis])
        reach = REACH * (upper - lower)
        low, high = stops[axis]
        ends = [
            high - here if isfinite(high) else min(reach, (1 - MARGIN) * (upper - here)),
            low - here if isfinite(low) else -min(reach, (1 - MARGIN) * (here - lower)),
        ]
        (out, ahead), (back, behind) = (_side(model, displacements, start, axis, end, room) for end in ends)
        x, q = np.concatenate([back[:0:-1], out]), np.concatenate([behind[:0:-1], ahead])
        if len(x) > 3:
            highest, lowest = float(x[-1]), float(x[0])
            corners = [highest, lowest]
            if isfinite(high) != isfinite(low):  # one stop tells only what is touched twice
                corners = [highest, lowest, highest] if isfinite(high) else [highest, lowest, 0.0, lowest]
            path = [0.0, *corners, 0.0]
            sweeps.append((CubicSpline(x, q), [b for a, b in pairwise([np.inf, *path]) if a != b]))
    share, first = (1.0 - 2 * STILL) * duration / max(1, len(sweeps)), STILL * duration

    def motion(time: float) -> tuple[Array, Array]:
        number, within = divmod(time - first, share)
        if not 0 <= number < len(sweeps):
            return start.q, np.zeros_like(start.q)
        spline, corners = sweeps[int(number)]
        x, rate = _to_and_fro(within / share, corners)
        q, slope = spline(x), spline(x, 1)
        return q, slope * rate / share

    return motion


def _to_and_fro(phase: float, corners: Sequence[float]) -> tuple[float, float]:
    """From corner to corner with rest at each, and its derivative; the phase goes from 0 to 1."""
    times = np.cumsum([0.0, *(abs(b - a) for a, b in pairwise(corners))])
    times = times / times[-1]
    i = min(len(corners) - 2, int(np.searchsorted(times[1:], phase, side="right")))
    span = MOVING * (times[i + 1] - times[i])
    s = min(1.0, (phase - times[i]) / span)
    change = corners[i + 1] - corners[i]
    return corners[i] + change * (1 - np.cos(np.pi * s)) / 2, change * np.pi * np.sin(np.pi * s) / 2 / span


def _side(
    model: Model,
    displacements: Displacements,
    start: State,
    axis: int,
    end: float,
    limits: Sequence[tuple[float, float]],
) -> tuple[list[float], list[Array]]:
    """Displacements of the axis from 0 to its end, as far as the machine goes there, and the poses."""
    lower, upper = np.array(limits).T
    count = len(limits)
    rest = displacements(model.plant, start.q)[:count]
    moved = np.arange(count) == axis
    channels, xs, poses, q = list(range(count)), [0.0], [start.q], start.q
    for x in np.linspace(0.0, end, POSES + 1)[1:]:
        following, error = pose_at(model, displacements, start.t, q, channels, (rest + x * moved)[channels])
        if not error < CLOSED and len(poses) == 1:  # a closed chain: the other drives must move too
            channels = [axis]
            following, error = pose_at(model, displacements, start.t, q, channels, (rest + x * moved)[channels])
        joints = displacements(model.plant, following)[:count]
        leaps = np.abs(following - q).max() > LEAP * abs(end) / POSES
        outside = (joints < lower - CLOSED).any() or (joints > upper + CLOSED).any()
        if not error < CLOSED or leaps or outside:
            break
        q = following
        xs.append(float(x))
        poses.append(q)
    return xs, poses


class TamperedController(Controller):
    """A controller whose commands are changed by scripted faults."""

    def __init__(self, loop: Loop, faults: HostFaults) -> None:
        super().__init__(loop)
        self._faults = faults

    @property
    def direct(self) -> bool:
        return not self._faults.tampers

    def command(self, task_time: float, q: Array, v: Array) -> Array:
        self.tick.u[:] = self._faults.tamper(super().command(task_time, q, v))
        return self.tick.u.copy()


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


POWER_UP = 0.1  # [s] time for which the drives have been powered when the loop starts


def make_emulator(setup: RigSetup, engine: str, plant: SimulatedPlant | None = None) -> Emulator:
    """The emulated drives of a config on buses of their own, with the scripted faults scheduled.

    `engine`: engine of the simulated plant. `plant`: the machine of an earlier run of the same config, which begins
    again; None: a new one is compiled.
    """
    rates = {name: BusRates.of(bus) for name, bus in setup.settings.buses.items()}
    return Emulator.build(emulated_rig(setup, engine), rates, plant)


def environment_of(setup: RigSetup, emulator: Emulator) -> Environment:
    """The environment of a run on these emulated drives in virtual time; lets them power up first."""
    emulator.clock.sleep_until(nanoseconds(POWER_UP))

    def facts() -> dict[str, Any]:
        loads = {name: wire.load() for name, wire in emulator.wires.items()}
        return {"emulator": {"seed": setup.seed, "bus_load": loads, "diverged": emulator.plant.diverged}}

    def guided(duration: float) -> None:
        emulator.plant.guide(hand_of(setup, duration), emulator.clock.now())

    return Environment(
        emulator.buses, emulator.clock, emulated=True, lockstep=True, truth=emulator.truth,
        settled=emulator.settled, facts=facts, engaged=emulator.engaged, faults=emulator.host_faults, guided=guided,
    )  # fmt: skip


def emulated_rig(setup: RigSetup, engine: str) -> EmulatedRig:
    """The machine, the drives and the scripted faults of a config.

    Raises ConfigError if the plant refuses the parameters of `hil.emulation`.
    """
    settings, values = setup.settings, setup.settings.values.emulation
    drives = [true_settings(drive, settings.values) for drive in settings.drives]
    sensors = [true_settings(sensor, settings.values) for sensor in settings.sensors]
    nodes = [node_class(node)(node, settings.values.period) for node in (*drives, *sensors)]
    return EmulatedRig(
        setup.simulated,
        setup.start,
        settings.values.period,
        drives,
        emulations((*drives, *sensors)),
        sensors,
        values,
        {node.settings.name: _resolution(values, node) for node in nodes},
        faults=settings.faults,
        seed=setup.seed,
        engine=engine,
    )


def _resolution(values: Emulation, node: Node) -> float:
    """Smallest step of the encoder of a node, at the motor [rad]."""
    given = values.encoder_resolution
    return abs(node.quantum()[0] * node.settings.gear if given is None else given)


def serve(
    config: str | Path,  # a path, or the bare name of a shipped config
    overrides: Sequence[Override],  # `PATH=VALUE`
    engine: str,  # engine of the simulated plant: `auto`, `c`, `vm` or `numpy`
    vcan: bool,  # whether virtual SocketCAN interfaces may be used too
    begun: Callable[[Sequence[str]], None],  # called with a line per bus once its drives are powered on
    # called with each real-time right that is not granted, and when a drive starts or stops making torque, or brakes;
    # it must not block
    say: Callable[[str], None],
) -> None:
    """Serves the emulated drives of a config until a signal ends it, with real-time priority where granted.

    Raises ConfigError if the config is wrong, or a bus may be a physical one, or reaches no other process. BusError if
    a bus cannot be opened, or is down.
    """
    setup, clock = load(config, overrides, engine), WallClock()
    settings = setup.settings
    inside = [
        f"hil.buses.{name}: virtual reaches no other process (use udp_multicast with hop_limit: 0)"
        for name, keys in settings.buses.items()
        if keys["interface"] == "virtual"
    ]
    if inside:
        raise ConfigError(inside)
    buses = open_for_emulation(settings.buses, clock, vcan)
    try:
        rig = emulated_rig(setup, engine)
        if settings.real_buses and any(fault.since == "engaged" for fault in rig.faults):
            raise ConfigError(
                "hil.faults: on vcan the emulator does not learn when the loop engages (set since: power_on)"
            )
        server = EmulatorServer(rig, buses, clock, say, partial(hand_of, setup))
        begun([_line(setup, name) for name in buses])
        # below the priority of a loop
        with StopSignals(suspend=False) as signals, prepare(PRIORITY - 10) as grants:
            for grant in grants:
                if not grant.granted:
                    say(f"note: {grant.sentence}")
            server.serve(lambda: bool(signals.first))
    finally:
        close_all(buses.values())


def _line(setup: RigSetup, bus: str) -> str:
    settings = setup.settings
    keys = settings.buses[bus]
    nodes = [
        f"{each.name} ({each.protocol} {each.node})"
        for each in (*settings.drives, *settings.sensors)
        if each.bus == bus
    ]
    return f"{bus}: {keys['interface']} {keys['channel']}: {', '.join(nodes)}"
