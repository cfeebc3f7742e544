"""Rows that keep a bound h >= 0: the least h'' or h' that a law asks for, on numbers or symbols.

    barrier    h'' >= -[(1 - e^(-2 p D)) (h' + p h) + p D h'] / (D (1 + p D / 2))      D: period
    decay      h'  >= -(1 - e^(-p D)) h / D
    speed      h'  >= -h / D
    stopping   h'' >= max(gentle, -min(pos, via)), after which braking by A still ends before the limit

`barrier` and `decay` ask that the next sample satisfies the same condition again; with D -> 0 they are
h'' >= -3 p h' - 2 p^2 h and h' >= -p h. Samples stay at h >= 0 if p D < 2. `stopping` is for a limit of a coordinate.

The margin of a bound against what an estimator does not know yet:

    per coordinate      e = (q, v, d) - estimate,    e+ = (I - K C) (A e + B w) - K n,   |w| <= s, n of deviation r
    the row             h'' = -(k1 h' + k0 h) + (k0, k1, 1) e~,    e~: e, predicted to the moment at which u acts
    margin              sum |A_j| s_j sum |h(w)|  +  3 sqrt(sum A_j^2 r_j^2 sum h(n)^2),   over coordinates and time

h(w) and h(n) are the responses of h to one w or n of size 1; K is the estimator's gain, s how fast the disturbance
changes, A the row's gradient. The first sum is the largest h that any such w can cause, the second three standard
deviations.

Source: the exactly sampled form is ours; the continuous one is the exponential barrier of Nguyen, Sreenath 2016. `pos`
and `via`: Del Prete 2018, with the position bound of his published code; `gentle` is ours. The margin is ours; the
bound on a response is the l1 norm of its weights.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np

from servoctl.engine.symbol import maximum, minimum, where
from servoctl.laws.hold import close, hold, response, settling
from servoctl.mechanics.timing import Timing
from servoctl.types import Array

RATE = 15.0  # [1/s] default of p, at most `SHARE` / period
SHARE = 0.5  # largest default of p times the period
LARGEST = 2.0  # with p times the period from here on, samples leave a bound that they touch


def default_rate(period: float | None) -> float:
    """p [1/s] of a law with this period [s]; None: it acts continuously."""
    return RATE if period is None else min(RATE, SHARE / period)


def too_fast(rate: float, period: float | None, of: str) -> str | None:
    """Why a law with this period cannot keep a bound with the rate p [1/s]; None if it can.

    Args:
        of: What has the period.
    """
    if period is None or rate * period < LARGEST:
        return None
    return (
        f"{rate:g} 1/s times {of} of {period:g} s is {rate * period:g}, beyond which samples leave the bound (stay "
        f"below {LARGEST / period:g} 1/s)"
    )


def barrier(h: Any, rate: Any, p: Any, period: float | None) -> Any:
    """Least h''.

    Args:
        h: The bound, >= 0 inside.
        rate: h'.
        p: Rate of the approach [1/s].
        period: D [s]; None: the law acts continuously.
    """
    if period is None:
        return -3.0 * p * rate - 2.0 * p * p * h
    left = 1.0 - np.exp(-2.0 * p * period)
    return -(left * (rate + p * h) + p * period * rate) / (period * (1.0 + 0.5 * p * period))


def decay(h: Any, p: Any, period: float | None) -> Any:
    """Least h' of a bound on velocities; the arguments of `barrier`."""
    return -p * h if period is None else -(1.0 - np.exp(-p * period)) * h / period


def speed(h: Any, p: Any, period: float | None) -> Any:
    """Least h' of a limit of a velocity, which the next sample may reach; the arguments of `barrier`."""
    return -p * h if period is None else -h / period


def stopping(h: Any, rate: Any, braking: Any, p: Any, period: float | None) -> Any:
    """Least h'' of a limit of a coordinate, before which it can stop.

    Outside the limit the coordinate returns at most with the acceleration `braking`.

    Args:
        h: Distance to the limit.
        rate: h'.
        braking: A, the acceleration away from the limit that is always there.
        p: Rate of the approach close to the limit [1/s].
    """
    if period is None:
        return minimum(_gently(h, rate, braking, p, None), where(h > 0.0, np.inf, braking))
    # outside, what a held input adds within a period is taken back within a few periods
    back = _gently(h, rate, braking, where(h > 0.0, p, maximum(p, SHARE / period)), period)
    gently = minimum(where(h > 0.0, back, maximum(back, -rate / period)), braking)  # it moves no further away
    return where(h > 0.0, maximum(gently, -_most_towards(maximum(h, 0.0), -rate, braking, period)), gently)


def _gently(h: Any, rate: Any, A: Any, p: Any, D: float | None) -> Any:
    """Least h'' for `h' >= -alpha(h)`, alpha = A/p (sqrt(1 + 2 p^2 h / A) - 1), which brakes by less than A.

    alpha is p h near the limit and sqrt(2 A h) far from it. Without it a sampled law would brake by A and let go in
    turns at the limit.
    """
    root = np.sqrt(1.0 + 2.0 * p * p * abs(h) / A)
    alpha, slope = where(h > 0.0, 1.0, -1.0) * A / p * (root - 1.0), p / root
    if D is None:
        return -slope * rate - 2.0 * p * (rate + alpha)
    left = 1.0 - np.exp(-2.0 * p * D)
    return -(left * (rate + alpha) + slope * D * rate) / (D * (1.0 + 0.5 * slope * D))


def _most_towards(h: Any, v: Any, A: Any, D: float) -> Any:
    """Largest acceleration towards a limit at the distance h and the speed v towards it."""
    stop = -v / D  # the next sample is at rest
    touch = 2.0 * (h - D * v) / D**2  # the next sample is at the limit
    brake = -v * v / (2.0 * where(h > 0.0, h, 1.0))  # rests at the limit
    reaches = (v > 0.0) * (touch <= stop)
    # at the limit itself rounding would make the braking infinite
    position = where(reaches, minimum(maximum(brake, -A - abs(v) / D), stop), touch)
    # the speed of the next sample from which braking by A still ends at the limit
    b, c = 2.0 * v * D + A * D * D, v * v - 2.0 * A * (h - D * v)
    square = b * b - 4.0 * D * D * c
    root = (-b + np.sqrt(maximum(square, 0.0))) / (2.0 * D * D)
    viable = where(square >= 0.0, maximum(root, stop), stop)
    return minimum(position, viable)


Kind = Literal["barrier", "decay", "stopping", "speed"]


class Condition(NamedTuple):
    """The row of one kind of bound: the least value of a derivative of h."""

    degree: int  # 2: of h'', 1: of h'
    least: Callable[[Any, Any, Any, Any, float | None], Any]  # (h, h', A, p, D) -> its least value


CONDITIONS: dict[Kind, Condition] = {
    "barrier": Condition(2, lambda h, rate, braking, p, period: barrier(h, rate, p, period)),
    "decay": Condition(1, lambda h, rate, braking, p, period: decay(h, p, period)),
    "stopping": Condition(2, stopping),
    "speed": Condition(1, lambda h, rate, braking, p, period: speed(h, p, period)),
}


SIGMAS = 3.0  # standard deviations of the noise that the margin holds

DECAYED = 21.0  # length of a response in slowest time constants: 1e-9 of it is left


@dataclass(frozen=True)
class EstimateErrors:
    """What is known of the errors of an estimator with a model; per coordinate."""

    period: float  # [s] period
    late: int  # whole periods by which it predicts
    gains: Sequence[tuple[float, float, float]]  # K: on q [-], v [1/s] and d [1/s^2]
    change: Sequence[float]  # [unit/s^2 per s] s: how fast the disturbance changes
    noise: Sequence[float]  # [unit] r: standard deviation of the positions

    def margin(self, kind: Kind, rate: float, gradients: Array) -> float:
        """The largest margin of a row over some states [unit of h].

        Args:
            rate: p [1/s].
            gradients: A at each state, shape (states, n).
        """
        responses = [_response(kind, rate, self.period, self.late, gains) for gains in self.gains]
        most, squares = np.array(responses).T
        changes, noise = np.abs(gradients) @ (self.change * most), gradients**2 @ (np.square(self.noise) * squares)
        return float(np.max(changes + SIGMAS * np.sqrt(noise)))


@lru_cache(256)
def _response(kind: Kind, p: float, h: float, late: int, gains: tuple[float, float, float]) -> tuple[float, float]:
    """The sum of |h| after a change w of 1, and the sum of h^2 after a reading that is off by 1."""
    timing, K = Timing.of(h, ("u",)), np.array(gains)
    errors = hold(np.eye(3, k=1), np.eye(3)[:, -1:], timing)  # of (q, v, d), under a change of d
    A, B = errors.after, errors.new[:, 0]
    kept = np.eye(3) - np.outer(K, [1.0, 0.0, 0.0])
    condition = CONDITIONS[kind]
    if condition.degree == 1:  # h' = -k0 h + (k0, 1) (v, d)
        k = np.array([-float(condition.least(1.0, 0.0, 0.0, p, h))])
    else:  # near its limit a coordinate is held like any bound
        k = np.array([-float(barrier(*x, p, h)) for x in ((1.0, 0.0), (0.0, 1.0))])
    degree = len(k)
    chain = hold(np.eye(degree, k=1), np.eye(degree)[:, -1:], timing)
    loop, push, into = close(chain, -k[None]).A, chain.new[:, 0], np.array([*[0.0] * (2 - degree), *k, 1.0])
    # (h, h') or h alone, then the error that the law gets to know
    seen = np.outer(push, into @ np.linalg.matrix_power(A, late))
    both = np.block([[loop, seen], [np.zeros((3, degree)), kept @ A]])
    samples, x, first = DECAYED * (settling(both) or np.inf), B[2 - degree : 2], list[float]()
    for i in range(late):  # a change is seen `late` periods later; until then the prediction misses all of it
        first.append(float(x[0]))
        x = loop @ x + push * float(into @ np.linalg.matrix_power(A, i) @ B)
    of_change = np.append(first, response(both, np.concatenate([x, kept @ B]), samples))
    of_reading = response(both, np.concatenate([np.zeros(degree), -K]), samples)
    return float(np.abs(of_change).sum()), float(np.square(of_reading).sum())
