"""How long a law needs to bring a bound back inside from a start outside."""

from math import isfinite

from servoctl.laws import barrier
from servoctl.laws.held_bounds import Kind

LEFT = 0.01  # share of the distance that may remain: the last of it takes for ever
LONGEST = 100.0  # [s] times beyond this are not looked for
FINE = 0.01  # step of a law without a period, times its rate


def return_time(kind: Kind, h: float, rate: float, p: float, braking: float, period: float | None) -> float | None:
    """Time until `LEFT` of h remains while the law holds the bound and the inputs suffice [s].

    Args:
        kind: Of the row.
        h: At the start, below 0.
        rate: h'.
        p: Rate of the bound [1/s].
        braking: A, for `stopping` rows.
        period: Of the law [s]; None: it acts continuously.

    Returns:
        The time; None if it is beyond `LONGEST`.
    """
    step, t, goal = period or FINE / p, 0.0, LEFT * h
    while h < goal:
        if kind in ("barrier", "stopping"):
            least = barrier.barrier(h, rate, p, period)
            if kind == "stopping":
                least = barrier.stopping(h, rate, braking, p, period)
            h, rate = h + step * rate + step * step / 2.0 * least, rate + step * least
        else:
            h += step * (barrier.decay if kind == "decay" else barrier.speed)(h, p, period)
        t += step
        if t > LONGEST or not isfinite(h):
            return None
    return t
