"""How the machine stops by its model: the law of a controlled stop, sampled and limited, from the task's fastest states
and from the speed limits.

Also the poses that a run can reach, and whether the machine falls from them without torque.

Design: a machine that hangs, or rests on springs, leaves its rest with the task. Without torque it swings back, slowly
or not: it counts as falling where a joint without a brake gets fast by its speed limit, or crosses much of its range.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from hil.assembly.setup import POSES, RigSetup
from hil.core.constants import Torques
from hil.loop import Reading, nanoseconds
from hil.safety.ladder import LEFT, NOISE, STILL
from hil.safety.torques import PoseHold, Source, TorqueSource
from hil.sensing.motion import AT_REST
from servoctl.assembly.gains import drives_spacing
from servoctl.errors import ConfigError
from servoctl.laws.hold import RowFeedback
from servoctl.types import Array, State

WORST = 4  # poses among them from which the machine is let go: those where joints without a brake accelerate most
STEP, FALL_TIME = 0.005, 1.0  # [s] step and length of the motion without torque

NEWTON_STEPS, DIFFERENCE = 4, 1e-4
"""Steps to the rest of what hangs on held motors, and difference by which its stiffness is found [unit, s]."""

FAST = 0.5
"""A machine falls where a joint is faster than this share of its speed limit, or moves by this share of its range."""


def states_within_limits(setup: RigSetup) -> list[State]:
    """Poses at rest within the position limits of the drives, as far as the machine can reach them from its start."""
    random, found = np.random.default_rng(0), [setup.start]
    lower, upper = np.array([drive.position_limits for drive in setup.settings.drives]).T
    channels, m, t, rest = setup.sensing.displacements, len(lower), setup.start.t, setup.start.v
    nothing = [0.0] * len(channels.channels)
    for _ in range(POSES):
        q, goal = setup.start.q, random.uniform(lower, upper)
        begin = setup.positions(q)
        for share in np.linspace(0.1, 1.0, 10):
            y = channels(setup.plant, q)  # encoders on the machine do not choose the pose
            y[:m] = begin + share * (goal - begin)
            q = setup.sensing.coordinates(t, 0.0, q, rest, y.tolist(), nothing, nothing).q
        q = _settled(setup, t, q) if setup.sensors else q
        if not setup.beyond_limits(State(t, q, rest)):
            found.append(State(t, q, rest))
    return found


def _settled(setup: RigSetup, t: float, q: Array) -> Array:
    """The pose in which what hangs on the motors by springs, or freely, rests while the motors are held."""
    rest, H = np.zeros(len(q)), setup.sensing.displacements.jacobian(setup.plant, q, t)
    held = np.linalg.svd(H[: len(setup.settings.drives)])
    free = held[2][int((held[1] > DIFFERENCE * held[1].max()).sum()) :].T

    def acceleration(q: Array) -> Array:
        _, v = setup.prediction(t, DIFFERENCE, q, rest, setup.gravity_compensation(t, q, rest).let_go(())[0])
        return v / DIFFERENCE

    for _ in range(NEWTON_STEPS if free.shape[1] else 0):
        now = acceleration(q)
        slopes = np.array([(acceleration(q + DIFFERENCE * way) - now) / DIFFERENCE for way in free.T]).T
        q = q - free @ np.linalg.lstsq(slopes, now, rcond=None)[0]
    return q


def refuse_fall(setup: RigSetup, states: Iterable[State], when: str) -> None:
    """Refuses a machine that falls from one of these poses while its brakes are closed.

    `states`: poses that it can reach; `when`: how it reaches them.

    Raises ConfigError if it falls; the sentence names the drive and the pose.
    """
    drives = setup.settings.drives
    free = [i for i, drive in enumerate(drives) if not drive.brake]
    if not free:
        return  # whether anything moves with every joint held is judged at the start pose
    speeds = setup.speed_limits[free]

    def urge(state: State) -> float:
        return float((np.abs(setup.gravity_compensation(state.t, state.q).let_go(free)[1]) / speeds).max())

    urges = [(urge(state), state) for state in states]
    for _, state in sorted((each for each in urges if each[0] > AT_REST), key=lambda each: -each[0])[:WORST]:
        if fall := _fall_from(setup, state, free):
            number, motion = fall
            names = ", ".join(drives[i].name for i in free)
            what = (
                f"{drives[number].name}: without torque it falls from {in_words(setup, state)}, where {when}: {motion}"
                f"; without a brake: {names} (set brake: true where the motor has one, or keep the machine to poses "
                "that hold by themselves)"
            )
            raise ConfigError([setup.loaded.finding(what, "hil", "drives")])


def _fall_from(setup: RigSetup, start: State, free: Sequence[int]) -> tuple[int, str] | None:
    """Number of a drive whose joint falls from a pose, and how; None: none does."""
    drives, begin = setup.settings.drives, setup.positions(start.q)
    braked, t, q, v = len(free) < len(drives), start.t, start.q, np.zeros(len(start.q))
    torques = np.zeros(len(drives))
    for k in range(round(FALL_TIME / STEP)):
        if braked:
            torques = setup.gravity_compensation(t, q, v).let_go(free)[0]
        q, v = setup.prediction(t, STEP, q, v, torques)
        if not (np.isfinite(q).all() and np.isfinite(v).all()):
            return None
        travels, speeds = np.abs(setup.positions(q) - begin), np.abs(setup.speeds(State(t, q, v)))
        for i in free:
            lower, upper = drives[i].position_limits
            if speeds[i] > FAST * drives[i].speed_limit or travels[i] > FAST * (upper - lower):
                unit = setup.units[i]
                return i, (
                    f"after {(k + 1) * STEP:.2g} s it has moved by {travels[i]:.3g} {unit} and has "
                    f"{speeds[i]:.3g} {unit}/s"
                )
    return None


def _falls(setup: RigSetup) -> str:
    balance = setup.balance
    unit = setup.plant.coordinates[balance.coordinate] or "1"
    fall = f"({balance.coordinate}: {balance.acceleration:.3g} {unit}/s^2)"
    return f"without torque the machine falls from its start pose {fall}"


def what_holds(setup: RigSetup) -> Iterator[str]:
    """A note on what holds a machine that falls without torque."""
    if setup.balance.falls:
        torques, units = setup.hold.u, list(setup.plant.actuators.values())
        strongest = int(np.abs(torques).argmax())
        most = f"{abs(torques[strongest]):.3g} {units[strongest]}"
        yield f"{_falls(setup)}: its brakes hold it, then its motors with at most {most}"


def refuse_start(setup: RigSetup) -> None:
    """Refuses a machine that falls from its start pose, and that brakes, or then motors, do not hold; ConfigError."""
    drives, hold = setup.settings.drives, setup.hold
    if not setup.balance.falls:
        return

    def refused(why: str) -> ConfigError:
        return ConfigError([setup.loaded.finding(_falls(setup) + why, "hil", "drives")])

    braked = [i for i, drive in enumerate(drives) if drive.brake]
    with_brakes = setup.balance_with(braked)
    if with_brakes.falls:
        free = ", ".join(drive.name for drive in drives if not drive.brake)
        still = f"; with its brakes closed {with_brakes.coordinate} still falls" if braked else ""
        remedy = f"; without a brake: {free} (set brake: true where the motor has one)"
        raise refused(still + (remedy if free else " (no brake can hold it: choose a start pose that holds by itself)"))
    if not hold.holds:
        raise refused(", and its motors cannot hold it there (choose another start pose)")
    units = list(setup.plant.actuators.values())
    weak = [
        f"{drive.name} ({torque:.4g} {unit}, torque_limit is {drive.torque_limit:g})"
        for drive, torque, unit in zip(drives, hold.u.tolist(), units, strict=True)
        if not abs(torque) <= drive.torque_limit
    ]
    if weak:
        raise refused(
            f", and holding it there takes more than the limit of {', '.join(weak)} (raise it, or choose another start "
            "pose)"
        )


def refuse_shaking(setup: RigSetup) -> None:
    """Refuses a machine that the damping of stage float would shake in the hand.

    The damping slows the speed of every motor at the same rate. The spring slips before it can shake the machine.

    Raises ConfigError: the damping is unstable at the period of the loop.
    """
    loaded, damping = setup.loaded, setup.settings.values.safety.float_damping
    spacing = drives_spacing(setup.settings.values, setup.plant)
    if spacing is None or spacing.h is None:
        return
    longest = spacing.longest(RowFeedback(0.0, damping, has_rate=False))
    if longest > spacing.h:
        return
    most = 0.99 * damping * longest / spacing.h
    what = (
        f"{damping:g} 1/s would shake the machine in the hand at a {spacing} (at most {most:.3g} 1/s, or a "
        "shorter period)"
    )
    raise ConfigError([loaded.finding(what, "hil", "safety", "float_damping")])


def in_words(setup: RigSetup, state: State) -> str:
    """The pose of a state, without its rounding."""
    coordinates = setup.plant.coordinates
    values = zip(coordinates, (np.round(state.q, 12) + 0.0).tolist(), coordinates.values(), strict=True)
    return ", ".join(f"{name} = {value:.4g} {unit or '1'}" for name, value, unit in values)


FASTEST = 3  # states of the task that are stopped from: those in which a joint is fastest by its speed limit
LONGEST = 4.0  # [stop_time] longest stop that is looked at
FAR = {"m": 0.02}  # way after a bus is cut from which on it is a note, by unit
FAR_TURN = 0.1  # [rad] the same of a joint that turns
PASSED = 1e-3  # [unit of h] way past a bound from which on it is a note
SLOWER = "a larger stop_time, torque_limit or torque_rate_limit, or a lower speed"  # what lets a machine stop in time


class Stop(NamedTuple):
    start: State  # state that it begins in
    speeds: Array  # [joint unit/s] speed of each joint there, shape (m,)
    times: Array  # time until each joint stands still, shape (m,) [s]; infinite: longer than `LONGEST`
    travels: Array  # [joint unit] way of each joint until then, shape (m,)
    largest: Array  # [joint unit/s] largest speed of each joint on the way, shape (m,)


def describe_stops(setup: RigSetup) -> list[str]:
    """A sentence per drive: from which speed its joint comes to rest, where, how soon, and how far on."""
    lines, late = [], {"in the task": list[str](), "at its speed limits": list[str]()}
    stop_time, task = setup.settings.values.safety.stop_time, stops_of_task(setup)
    poses = [*setup.task_states, *states_within_limits(setup)]
    for i, (drive, unit) in enumerate(zip(setup.settings.drives, setup.units, strict=False)):
        hardest = stop_from(setup, _hardest(setup, poses, i))
        in_task = max(task, key=lambda stop: abs(stop.speeds[i]))
        lines.append(
            f"stop of {drive.name}: {_sentence(hardest, i, unit)} at {in_words(setup, hardest.start)}; "
            f"in the task {_sentence(in_task, i, unit)}"
        )
        for names, stop in zip(late.values(), (in_task, hardest), strict=True):
            if stop.times.max() > stop_time:
                names.append(drive.name)
    return lines + [
        f"note: {', '.join(names)}: a controlled stop {where} can take longer than stop_time, {stop_time:g} s: "
        f"what still moves then is left to the drives and brakes ({SLOWER})"
        for where, names in late.items()
        if names
    ]


def describe_bounds(setup: RigSetup) -> list[str]:
    """A note per bound of the law that a controlled stop from the task passes: a stop does not know bounds.

    By the model h' decays with all speeds, at the rate s of the stop: h + h' / s is left at its end. This is ours.
    """
    rows, units, passed = setup.model.bound_rows, setup.model.row_units[2], dict[str, float]()
    for state in setup.task_states if rows else ():
        at = setup.model.matrices(state).bounds
        assert at is not None
        beyond = np.minimum(at.violation, 0.0) - (at.violation + at.violation_rate / setup.stop_rate)
        for row, way in zip(rows, beyond.tolist(), strict=True):
            if way > PASSED:  # NaN: the row has no rate
                passed[row.group] = max(way, passed.get(row.group, 0.0))
    return [
        f"note: bound {name}: a stop does not keep it, and a controlled stop from the task passes it by up to "
        f"{way:.2g} {units.get(name, 'units of h')} (a lower rate, a larger margin, or a slower task)"
        for name, way in passed.items()
    ]


def describe_drops(setup: RigSetup) -> list[str]:
    """A sentence per drive whose torque ends before its brake is closed: how far its axis falls at most in the task."""
    lines, poses = [], setup.task_states
    free = [i for i, drive in enumerate(setup.drives) if drive.settings.brake and not drive.holds_while_braking]
    falls = [np.abs(setup.gravity_compensation(pose.t, pose.q).let_go(free)[1]).tolist() for pose in poses if free]
    for k, i in enumerate(free):
        drive, unit = setup.drives[i], setup.units[i]
        time = drive.settings.brake_time
        acceleration, pose = max(zip([fall[k] for fall in falls], poses, strict=True), key=lambda each: each[0])
        if acceleration <= AT_REST:
            continue
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
    lines, far = [], []
    for i, (drive, unit) in enumerate(zip(setup.drives, setup.units, strict=False)):
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
    rates, silence, closing = np.array([setup.speeds(state)[i] for state in states]), settings.watchdog, 0.0
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
    silent = [j for j, other in enumerate(setup.drives) if other.settings.bus == settings.bus and other.watchdog]
    free = [j for j in silent if not setup.drives[j].ramps_alone]
    holds = [setup.gravity_compensation(state.t, state.q) for state in states]
    falls = np.array([hold.let_go(free)[1][free.index(i)] for hold in holds])
    times = np.linspace(0.0, closing, 20)[:, None, None]
    return float(np.abs(ways + later * times + falls * times**2 / 2).max()), then


def stops_of_task(setup: RigSetup) -> list[Stop]:
    """Stops from the states of the task in which a joint is fastest by its speed limit."""

    def share(state: State) -> float:
        return float((np.abs(setup.speeds(state)) / setup.speed_limits).max())

    return [stop_from(setup, state) for state in sorted(setup.task_states, key=share, reverse=True)[:FASTEST]]


def _sentence(stop: Stop, i: int, unit: str) -> str:
    rest = f"at rest after {stop.times[i]:.2g} s" if np.isfinite(stop.times[i]) else "not at rest in that time"
    return f"from {abs(stop.speeds[i]):.3g} {unit}/s {rest} and {stop.travels[i]:.2g} {unit}"


def _hardest(setup: RigSetup, poses: Sequence[State], i: int) -> State:
    """The pose in which a drive brakes worst; its joint falls at its speed limit, or as fast as the others let."""
    drives = setup.settings.drives
    held = [(setup.gravity_compensation(pose.t, pose.q), pose) for pose in poses]

    def braking(hold: Array, inertia: float) -> float:
        return (drives[i].torque_limit - abs(float(hold[i]))) / max(inertia, 1e-12)

    hold, pose = min(held, key=lambda each: braking(each[0].u, float(each[0].inertia[i, i])))
    away = -1.0 if hold.u[i] > 0.0 else 1.0
    v = away * setup.sensing.coordinates.inverse(pose.t, pose.q)[:, i]
    shares = np.abs(setup.speeds(State(pose.t, pose.q, v))) / setup.speed_limits
    return State(pose.t, pose.q, v / max(float(shares.max()), 1e-12))


def stop_from(setup: RigSetup, start: State) -> Stop:
    """The controlled stop from a state, by the model."""
    values, drives, hold = setup.settings.values, setup.settings.drives, setup.gravity_compensation
    pose, period = PoseHold(hold, drives, values.period, setup.stop_rate, t=start.t), nanoseconds(values.period)
    sound, driven, t, m = [True] * len(setup.units), [True] * len(drives), start.t, len(drives)
    braking, stop, law = TorqueSource(pose, drives, values.period), Source(Torques.STOP), np.zeros(m)
    speed_limits, most, q, v = setup.speed_limits, setup.torque_limits, start.q, start.v
    braking.begin(np.clip(pose.gravity(q).u, -most, most))
    begin, first = setup.positions(q), setup.speeds(start)
    times, travels, largest, fastest = np.full(m, np.inf), np.zeros(m), np.abs(first), float(np.abs(first).max())
    still = np.maximum(NOISE * speed_limits, np.minimum(STILL * speed_limits, LEFT * fastest))
    for k in range(round(LONGEST * values.safety.stop_time / values.period)):
        y, rates = setup.positions(q), setup.speeds(State(t, q, v))
        travels, largest = np.maximum(travels, np.abs(y - begin)), np.maximum(largest, np.abs(rates))
        slow = np.abs(rates) < still
        times = np.where(slow, np.minimum(times, k * values.period), np.inf)
        if slow.all() or not np.isfinite(rates).all():
            break
        reading = Reading(q, v, np.zeros(len(sound)), True, 0.0, y.tolist(), rates.tolist())
        pose.take(reading, sound, driven)
        braking.find(stop, law, values.period)
        q, v = setup.prediction(t, values.period, q, v, braking.limit((k + 1) * period))
    return Stop(start, first, times, travels, largest)
