"""How the machine stops by its model: the law of a controlled stop, sampled and limited, from the task's fastest states
and from the speed limits.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from hil.assembly.falling import in_words, states_within_limits
from hil.assembly.setup import RigSetup
from hil.loop import Reading
from hil.safety.ladder import LEFT, NOISE, STILL
from hil.safety.limits import Limits
from hil.safety.pose_hold import PoseHold
from servoctl.types import Array, State

FASTEST = 3  # states of the task that are stopped from: those in which a joint is fastest by its speed limit
LONGEST = 4.0  # [stop_time] longest stop that is looked at
FAR = {"m": 0.02}  # way after a bus is cut from which on it is a note, by unit
FAR_TURN = 0.1  # [rad] the same of a joint that turns
SLOWER = "a larger stop_time, torque_limit or torque_rate_limit, or a lower speed"  # what lets a machine stop in time


class Stop(NamedTuple):
    """A controlled stop."""

    start: State  # state that it begins in
    speeds: Array  # [joint unit/s] speed of each joint there, shape (m,)
    times: Array  # time until each joint stands still, shape (m,) [s]; infinite: longer than `LONGEST`
    travels: Array  # [joint unit] way of each joint until then, shape (m,)
    largest: Array  # [joint unit/s] largest speed of each joint on the way, shape (m,)


def describe_stops(setup: RigSetup) -> list[str]:
    """A sentence per drive: from which speed its joint comes to rest, where, how soon, and how far on."""
    lines, late = [], []
    displacements, stop_time = setup.sensing.displacements, setup.settings.values.safety.stop_time
    task = stops_of_task(setup)
    poses = [*setup.task_states, *states_within_limits(setup)]
    for i, (drive, unit) in enumerate(zip(setup.settings.drives, displacements.units, strict=False)):
        hardest = stop_from(setup, _hardest(setup, poses, i))
        in_task = max(task, key=lambda stop: abs(stop.speeds[i]))
        lines.append(
            f"stop of {drive.name}: {_sentence(hardest, i, unit)} at {in_words(setup, hardest.start)}; "
            f"in the task {_sentence(in_task, i, unit)}"
        )
        for stop, where in ((in_task, "in the task"), (hardest, "at its speed limits")):
            if stop.times.max() > stop_time:
                late.append((drive.name, where, float(stop.times.max())))
    for where in ("in the task", "at its speed limits"):
        names = [name for name, place, _ in late if place == where]
        if names:
            lines.append(
                f"note: {', '.join(names)}: a controlled stop {where} can take longer than stop_time, {stop_time:g} s: "
                f"what still moves then is left to the drives and brakes ({SLOWER})"
            )
    return lines


def describe_drops(setup: RigSetup) -> list[str]:
    """A sentence per drive whose torque ends before its brake is closed: how far its axis falls at most in the task."""
    lines, holds = [], [(setup.gravity_compensation(pose.t, pose.q), pose) for pose in setup.task_states]
    for i, (drive, unit) in enumerate(zip(setup.drives, setup.sensing.displacements.units, strict=False)):
        if not drive.settings.brake or drive.holds_while_braking:
            continue
        time = drive.settings.brake_time
        falls = [abs(float(hold.u[i])) / float(hold.inertia[i, i]) if hold.inertia[i, i] else 0.0 for hold, _ in holds]
        acceleration, pose = max(zip(falls, [pose for _, pose in holds], strict=True), key=lambda each: each[0])
        fall, speed = f"{acceleration * time**2 / 2:.2g} {unit}", f"{acceleration * time:.2g} {unit}/s"
        lines.append(
            f"{drive.settings.name}: at each end it falls by {fall} until its brake is closed (brake_time {time:g} s, "
            f"at {in_words(setup, pose)}); it then has {speed}, and goes on until the brake has stopped it"
        )
    return lines


def describe_silence(setup: RigSetup) -> list[str]:
    """A sentence per drive with a watchdog: how far its joint goes on in the task when its bus is cut, by the model.

    The last torque acts until the watchdog has run out. Then the drive brakes by its ramp, or lets the joint go.
    """
    lines, far, units = [], [], setup.sensing.displacements.units
    for i, (drive, unit) in enumerate(zip(setup.drives, units, strict=False)):
        if not drive.watchdog:
            continue
        settings, (way, then) = drive.settings, _without_bus(setup, i, unit)
        lines.append(
            f"{settings.name}: when its bus is cut in the task it goes on by at most {way:.2g} {unit}: for "
            f"{settings.watchdog:g} s (drive_watchdog) with its last torque; {then}"
        )
        if way > FAR.get(unit, FAR_TURN):
            far.append(settings.name)
    if far:
        lines.append(
            f"note: {', '.join(far)}: more than {FAR['m']:g} m or {FAR_TURN:g} rad after a cut bus (a lower "
            f"hil.safety.drive_watchdog, at least {3 * setup.settings.values.period:g} s, or a slower task)"
        )
    return lines


def _without_bus(setup: RigSetup, i: int, unit: str) -> tuple[float, str]:
    """Way of a joint after its bus is cut, from the worst state of the task, and what ends it."""
    drive, settings, states = setup.drives[i], setup.drives[i].settings, setup.task_states
    rates, silence, closing = np.array([_rates(setup, state)[i] for state in states]), settings.watchdog, 0.0
    changes = np.gradient(rates, [state.t for state in states]) if len(states) > 1 else np.zeros(1)
    later = rates + np.outer([0.0, 1.0], changes) * silence  # the last torque may be that of a slower acceleration
    ways = (rates + later) / 2 * silence
    if drive.ramps_alone:
        ramps = later**2 / (2 * settings.ramp)
        return float((np.abs(ways) + ramps).max()), f"it then brakes by its own ramp of {settings.ramp:.3g} {unit}/s^2"
    then = "it then coasts"
    if settings.brake:
        closing = settings.brake_time
        then = f"it then falls until its brake is closed (brake_time {closing:g} s) and has stopped it"
    holds = [setup.gravity_compensation(state.t, state.q) for state in states]
    falls = np.array([float(hold.u[i]) / max(float(hold.inertia[i, i]), 1e-12) for hold in holds])
    times = np.linspace(0.0, closing, 20)[:, None, None]
    return float(np.abs(ways + later * times - falls * times**2 / 2).max()), then


def stops_of_task(setup: RigSetup) -> list[Stop]:
    """Stops from the states of the task in which a joint is fastest by its speed limit."""
    limits = np.array([drive.speed_limit for drive in setup.settings.drives])

    def share(state: State) -> float:
        return float((np.abs(_rates(setup, state)) / limits).max())

    return [stop_from(setup, state) for state in sorted(setup.task_states, key=share, reverse=True)[:FASTEST]]


def _sentence(stop: Stop, i: int, unit: str) -> str:
    rest = f"at rest after {stop.times[i]:.2g} s" if np.isfinite(stop.times[i]) else "not at rest in that time"
    return f"from {abs(stop.speeds[i]):.3g} {unit}/s {rest} and {stop.travels[i]:.2g} {unit}"


def _rates(setup: RigSetup, state: State) -> Array:
    rates = setup.sensing.displacements.rates(setup.loop.system.model.plant, state.q, state.v, state.t)
    return rates[: len(setup.drives)]


def _hardest(setup: RigSetup, poses: Sequence[State], i: int) -> State:
    """The pose in which a drive brakes worst; its joint falls at its speed limit, or as fast as the others let."""
    drives = setup.settings.drives
    held = [(setup.gravity_compensation(pose.t, pose.q), pose) for pose in poses]

    def braking(hold: Array, inertia: float) -> float:
        return (drives[i].torque_limit - abs(float(hold[i]))) / max(inertia, 1e-12)

    hold, pose = min(held, key=lambda each: braking(each[0].u, float(each[0].inertia[i, i])))
    away = -1.0 if hold.u[i] > 0.0 else 1.0
    v = away * setup.sensing.coordinates.inverse(pose.t, pose.q)[:, i]
    limits = np.array([drive.speed_limit for drive in drives])
    shares = np.abs(_rates(setup, State(pose.t, pose.q, v))) / limits
    return State(pose.t, pose.q, v / max(float(shares.max()), 1e-12))


def stop_from(setup: RigSetup, start: State) -> Stop:
    """The controlled stop from a state, by the model."""
    values, drives, hold = setup.settings.values, setup.settings.drives, partial(setup.gravity_compensation, start.t)
    pose, limits = PoseHold(hold, drives, values.period, setup.stop_rate), Limits(drives, values.period)
    displacements, plant, m = setup.sensing.displacements, setup.loop.system.model.plant, len(drives)
    sound, driven, t = [True] * len(displacements.channels), [True] * m, start.t
    speed_limits, q, v = np.array([drive.speed_limit for drive in drives]), start.q, start.v
    most = np.array([drive.torque_limit for drive in drives])
    limits.previous = np.clip(pose.gravity(q).u, -most, most).tolist()
    begin, first = displacements(plant, q)[:m], _rates(setup, start)
    times, travels, largest, fastest = np.full(m, np.inf), np.zeros(m), np.abs(first), float(np.abs(first).max())
    still = np.maximum(NOISE * speed_limits, np.minimum(STILL * speed_limits, LEFT * fastest))
    for k in range(round(LONGEST * values.safety.stop_time / values.period)):
        y, rates = displacements(plant, q)[:m], _rates(setup, State(t, q, v))
        travels, largest = np.maximum(travels, np.abs(y - begin)), np.maximum(largest, np.abs(rates))
        slow = np.abs(rates) < still
        times = np.where(slow, np.minimum(times, k * values.period), np.inf)
        if slow.all() or not np.isfinite(rates).all():
            break
        reading = Reading(q, v, np.zeros(len(sound)), True, 0.0, y.tolist(), rates.tolist())
        held, wanted = pose.stop(reading, sound, driven, limits.previous, values.period, any(limits.clamped))
        q, v = setup.prediction(t, values.period, q, v, np.array(limits.apply(wanted, held)))
    return Stop(start, first, times, travels, largest)
