"""The poses that a run can reach, and whether the machine falls from them without torque.

Design: a machine that hangs, or rests on springs, leaves its rest with the task. Without torque it swings back, slowly
or not: it counts as falling where a joint without a brake gets fast by its speed limit, or crosses much of its range.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from hil.assembly.setup import POSES, RigSetup, within_limits
from hil.sensing.gravity import AT_REST
from servoctl.errors import ConfigError
from servoctl.types import Array, State

WORST = 4  # poses among them from which the machine is let go: those where joints without a brake accelerate most
STEP, LONGEST = 0.005, 1.0  # [s] step and length of the motion without torque

NEWTON_STEPS, DIFFERENCE = 4, 1e-4
"""Steps to the rest of what hangs on held motors, and difference by which its stiffness is found [unit, s]."""

FAST = 0.5
"""A machine falls where a joint is faster than this share of its speed limit, or moves by this share of its range."""


class Fall(NamedTuple):
    """How a machine falls."""

    start: State  # pose that it falls from
    drive: int  # number of the drive whose joint falls
    after: float  # [s] time after which this joint is fast, or far
    speed: float  # [joint unit/s] its speed then
    travel: float  # [joint unit] its way until then


def states_within_limits(setup: RigSetup) -> list[State]:
    """Poses at rest within the position limits of the drives, as far as the machine can reach them from its start."""
    random, found = np.random.default_rng(0), [setup.start]
    lower, upper = np.array([drive.position_limits for drive in setup.settings.drives]).T
    channels, plant, m = setup.sensing.displacements, setup.run.system.model.plant, len(lower)
    t, rest, nothing = setup.start.t, setup.start.v, [0.0] * len(channels.channels)
    for _ in range(POSES):
        q, goal = setup.start.q, random.uniform(lower, upper)
        begin = channels(plant, q)
        for share in np.linspace(0.1, 1.0, 10):
            y = channels(plant, q)  # encoders on the machine do not choose the pose
            y[:m] = begin[:m] + share * (goal - begin[:m])
            q = setup.sensing.coordinates(t, 0.0, q, rest, y.tolist(), nothing, nothing).q
        q = _settled(setup, t, q) if setup.sensors else q
        if within_limits(setup, State(t, q, rest)):
            found.append(State(t, q, rest))
    return found


def _settled(setup: RigSetup, t: float, q: Array) -> Array:
    """The pose in which what hangs on the motors by springs, or freely, rests while the motors are held."""
    rest, H = np.zeros(len(q)), setup.sensing.displacements.jacobian(setup.run.system.model.plant, q, t)
    held = np.linalg.svd(H[: len(setup.settings.drives)])
    free = held[2][int((held[1] > DIFFERENCE * held[1].max()).sum()) :].T

    def acceleration(q: Array) -> Array:
        _, v = setup.prediction(t, DIFFERENCE, q, rest, _let_go(setup, t, q, rest, ())[0])
        return v / DIFFERENCE

    for _ in range(NEWTON_STEPS if free.shape[1] else 0):
        now = acceleration(q)
        slopes = np.array([(acceleration(q + DIFFERENCE * way) - now) / DIFFERENCE for way in free.T]).T
        q = q - free @ np.linalg.lstsq(slopes, now, rcond=None)[0]
    return q


def fall(setup: RigSetup, states: Iterable[State]) -> Fall | None:
    """How the machine falls from one of these poses with its brakes closed; None: it does not."""
    drives = setup.settings.drives
    free = [i for i, drive in enumerate(drives) if not drive.brake]
    if not free:
        return None  # whether anything moves with every joint held is judged at the start pose
    speeds = np.array([drives[i].speed_limit for i in free])

    def urge(state: State) -> float:
        return float((np.abs(_let_go(setup, state.t, state.q, np.zeros(len(state.q)), free)[1]) / speeds).max())

    urges = [(urge(state), state) for state in states]
    for _, state in sorted((each for each in urges if each[0] > AT_REST), key=lambda each: -each[0])[:WORST]:
        found = _fall_from(setup, state, free)
        if found is not None:
            return found
    return None


def _fall_from(setup: RigSetup, start: State, free: Sequence[int]) -> Fall | None:
    drives, plant, displacements = setup.settings.drives, setup.run.system.model.plant, setup.sensing.displacements
    braked, t, q, v = len(free) < len(drives), start.t, start.q, np.zeros(len(start.q))
    torques, begin = np.zeros(len(drives)), displacements(plant, q)
    for k in range(round(LONGEST / STEP)):
        if braked:
            torques = _let_go(setup, t, q, v, free)[0]
        q, v = setup.prediction(t, STEP, q, v, torques)
        if not (np.isfinite(q).all() and np.isfinite(v).all()):
            return None
        travels, speeds = displacements(plant, q) - begin, displacements.speeds(plant, q, v, t)
        for i in free:
            lower, upper = drives[i].position_limits
            if abs(speeds[i]) > FAST * drives[i].speed_limit or abs(travels[i]) > FAST * (upper - lower):
                return Fall(start, i, (k + 1) * STEP, abs(speeds[i]), abs(float(travels[i])))
    return None


def _let_go(setup: RigSetup, t: float, q: Array, v: Array, free: Sequence[int]) -> tuple[Array, Array]:
    """Torques of the closed brakes, and the accelerations of the joints without a brake."""
    hold = setup.gravity_compensation(t, q, v)
    reach = np.linalg.pinv(hold.inertia)
    accelerations = -reach @ hold.u
    braked = [i for i in range(len(hold.u)) if i not in free]
    torques = np.zeros(len(hold.u))
    if braked:
        torques[braked] = -np.linalg.lstsq(reach[np.ix_(braked, braked)], accelerations[braked], rcond=None)[0]
    return torques, (accelerations + reach @ torques)[list(free)]


def refuse_fall(setup: RigSetup, states: Iterable[State], when: str) -> None:
    """Refuses a machine that falls from one of these poses.

    Args:
        states: Poses that it can reach.
        when: How it reaches them.

    Raises:
        ConfigError: It falls; the sentence names the drive and the pose.
    """
    found = fall(setup, states)
    if found is None:
        return
    drive = setup.settings.drives[found.drive]
    unit = setup.sensing.displacements.units[found.drive]
    free = ", ".join(each.name for each in setup.settings.drives if not each.brake)
    where = "hil.drives" if setup.run.loaded is None else setup.run.loaded.where("hil", "drives")
    raise ConfigError(
        f"{where}: {drive.name}: without torque it falls from {in_words(setup, found.start)}, where {when}: after "
        f"{found.after:.2g} s it has moved by {found.travel:.3g} {unit} and has {found.speed:.3g} {unit}/s; without a "
        f"brake: {free} (set brake: true where the motor has one, or keep the machine to poses that hold by themselves)"
    )


def in_words(setup: RigSetup, state: State) -> str:
    """The pose of a state."""
    coordinates = setup.run.system.model.plant.coordinates
    values = zip(coordinates, state.q.tolist(), coordinates.values(), strict=True)
    return ", ".join(f"{name} = {value:.4g} {unit or '1'}" for name, value, unit in values)
