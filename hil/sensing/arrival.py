"""Whether the torque of each motor arrives at the machine: it did before, and then none of it does.

    d / p = -u  in all windows since then, and in two in a row its drive reports no torque either,
                or, while it moves,  d y' > 0  or  |d| / p > 2 friction

d is the disturbance of `hil.sensing.tracking`, u the mean torque sent, p the share of it that the motion shows, and y'
the speed of the joint at the end of a window.

Design: friction, a load or an error of the model may be as large as the torque of a joint that the model does not load:
there d = -u always. So a motor is named only if its torque arrived before, at most `LONGEST` ago, and friction does not
explain it: the motion gains the energy of what is missing, twice as much is missing as friction and loads may take
(`hil.safety.tracking`), or the drive itself reports that it makes none of it. This is judged over `QUICK` ticks, which
shows a joint that falls before it is fast. A torque that friction and loads may take is judged over the windows of
`hil.sensing.tracking`, where lost samples count little, and d must follow u from one to the next: a small load that
stays does not. Without a report, a small torque that drives the motion looks like friction when it is lost, and one
below the errors of the samples shows nothing. This rule is ours.

A motor that stage zero could not prove, because of friction, may have the wrong polarity: once its torque exceeds the
friction, the axis runs away. Friction takes energy, and this motion gains what the torque should have taken. So the
first two windows in which the motion goes against its torque name it, whatever came before; a load that drives the axis
looks the same. The first window in which it moves with most of its torque proves it.
"""

from collections.abc import Sequence

from hil.core.constants import AGAINST, ARRIVES, BETWEEN, LOST, NOT_FRICTION, OTHER, UNPROVED

QUICK = 2  # length of a short window, in periods
LONGEST = 0.3  # [s] longest time without torque before friction does not explain it any more

NONE_LEFT, HALF = 0.25, 0.5
"""None of a torque arrives if less than the first share of it is left; it arrives if less than the second lacks."""

VISIBLE = 0.001  # [share of torque_limit] smallest mean torque that is judged
SHOWN = 0.1  # smallest share of a torque, among redundant motors, that is judged
CHANGE = 0.1  # [share of the torque] change of a torque that a disturbance must have followed
BEYOND = 2.0  # what friction and loads do not take, as a share of what they may take
SINGLE = 0.99  # a motor acts alone if the motion shows more than this share of its torque
ALONE = 0.8  # share of the squares of a disturbance that one of redundant motors must explain alone


def arrivals(
    states: Sequence[int],
    d: Sequence[float],
    u: Sequence[float],
    shares: Sequence[float],
    speeds: Sequence[float],
    visible: Sequence[float],
    least: Sequence[float],
    largest: Sequence[float],
    slow: Sequence[float],
    friction: Sequence[float],
    most: int,
    before: tuple[Sequence[float], Sequence[float]] | None = None,
    reported: Sequence[bool] | None = None,
) -> tuple[list[int], int | None]:
    """States of the motors after a window, and the index of one that has lost its torque, or moves against it.

    Args:
        states: States before it.
        d: Disturbance torques [actuator units].
        u: Mean torques sent [actuator units].
        shares: Share of each torque that the motion shows.
        speeds: Speeds of the joints at its end [joint unit/s].
        visible: Smallest torques that the window shows [actuator units].
        least: Smallest torques that it judges of motors that are proved [actuator units].
        largest: Largest torques that it judges; larger ones show in shorter windows [actuator units].
        slow: Speeds below which a joint counts as standing [joint unit/s].
        friction: Torques that friction and loads do not take [actuator units].
        most: Number of windows within `LONGEST`.
        before: u and d of the window before, which d must have followed u from; None: it need not.
        reported: Whether each drive reports that it makes none of it; None: not known.
    """
    square, lost = 0.0, None
    for each in d:
        square += each * each
    after = list(states)
    for i, state in enumerate(states):
        p, size = shares[i], abs(u[i])
        if p <= SHOWN or size > largest[i]:
            continue
        missing, left = abs(d[i]) / p, abs(d[i] / p + u[i])
        none = reported is not None and reported[i]
        unproved = state in (UNPROVED, AGAINST)
        if max(size, missing) <= (visible if unproved else least)[i]:
            continue
        alone = p > SINGLE or d[i] * d[i] / p > ALONE * square
        if unproved:
            moves = abs(speeds[i]) > slow[i]
            against = alone and d[i] * u[i] < 0.0 < d[i] * speeds[i] and missing >= (1.0 - NONE_LEFT) * size
            after[i] = (ARRIVES if missing <= HALF * size else AGAINST if against else UNPROVED) if moves else UNPROVED
            lost = i if after[i] == state == AGAINST else lost
        elif missing <= HALF * size:
            after[i] = ARRIVES
        elif left > NONE_LEFT * size or not alone:
            after[i] = BETWEEN if state == ARRIVES else OTHER
        elif state == OTHER:
            continue
        elif none or (abs(speeds[i]) > slow[i] and (d[i] * speeds[i] > 0.0 or missing > friction[i])):
            after[i] = NOT_FRICTION
            if state == NOT_FRICTION and (
                none or before is None or _follows(u[i] - before[0][i], (d[i] - before[1][i]) / p, size)
            ):
                lost = i
        else:
            after[i] = OTHER if state == NOT_FRICTION or state > most else max(LOST, state + 1)
    return after, lost


def _follows(du: float, dd: float, size: float) -> bool:
    """Whether a disturbance has changed with the torque, visibly: a small constant load has not."""
    return abs(du) > CHANGE * size and abs(dd + du) <= NONE_LEFT * abs(du)
