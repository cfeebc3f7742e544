"""The equations of motion as residuals, and the rows of the fit: these along filtered logs, thinned to the bandwidth.

    r(x) = M q'' - Q - c + B f - B u,      f = Fc tanh(s / s0) + Fv s,   s = B^T v
    Y    = dr/dx
    P r  = 0,   P = 1 - Ahat^+ Ahat        the passive constraints exert Ahat^T lambda, which P removes

Design: P is a projector on the coordinates and not a basis of the null space, because it is a smooth function of time,
so that rows can be filtered after it. The rows of a closed chain stay consistent however many motors it has.

Design: positions alone are differentiated, by central differences of eighth order, and filtered forwards and backwards,
so that nothing is delayed. The bandwidth comes from the motion in the log, not from the noise of its encoders.
Regressor and torques are then filtered by the same filter and thinned to its bandwidth, so that the rows of the fit are
nearly independent and the standard deviations hold.

Source: Gautier 1997 (parallel filtering and decimation); Gautier, Khalil 1992.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

import casadi as ca
import numpy as np
from scipy import signal
from scipy.ndimage import correlate1d, maximum_filter1d, median_filter

from servoctl.engine.kernel import Kernel, inputs, jacobian
from servoctl.engine.parameters import parameter_values, with_parameters
from servoctl.errors import ConfigError
from servoctl.identification.log import Log
from servoctl.identification.unknowns import FRICTION_SPEED, Unknowns, differentiable
from servoctl.mechanics.friction import friction_loss
from servoctl.types import Array, State

RANK_TOLERANCE = 1e-6  # smallest singular value of independent passive rows, relative to the largest
BLOCK = 2048  # rows evaluated in one call


@dataclass(frozen=True)
class Motion:
    """A motion."""

    t: Array  # times [s], shape (rows,)
    # q, v, a: coordinates and their derivatives, shape (rows, n)
    q: Array
    v: Array
    a: Array
    rubbing: Array  # velocities for the friction, shape (rows, n)

    def __len__(self) -> int:
        return len(self.t)

    def at(self, rows: slice | Array) -> "Motion":
        """The motion at some rows."""
        return Motion(*(getattr(self, field.name)[rows] for field in fields(self)))


@dataclass(frozen=True)
class Evaluated:
    """The equations along a motion."""

    residual: Array  # P r where no torque acts, shape (rows, n); torques u add -P B u
    regressor: Array  # P Y, shape (rows, n, unknowns)
    actuation: Array  # P B, shape (rows, n, m)


class Equations:
    """The equations of motion of a plant with unknown parameters."""

    def __init__(self, unknowns: Unknowns) -> None:
        """Traces and differentiates the plant.

        Raises:
            PlantError: The plant's code cannot be traced.
        """
        # unknowns: what is unknown
        self.unknowns, plant = unknowns, unknowns.plant
        self.n, self.m = len(plant.coordinates), len(plant.actuators)
        self._p, count = parameter_values(plant), len(unknowns.names)
        n = self.n
        symbols = inputs({"t": (1,), "q": (n,), "v": (n,), "a": (n,), "rubbing": (n,), "x": (count,)})
        t, q, v, a, rubbing, x = symbols.values()
        bound = with_parameters(plant, unknowns.parameters(self._p, x))
        found = differentiable(bound, State(t[0], q, v))
        friction, loss = unknowns.friction(x), np.zeros(self.m)
        if self.m:
            loss = friction_loss(found.B.T @ rubbing, friction["coulomb"], friction["viscous"], unknowns.speed)
        residual = np.asarray(found.M @ a - found.Q - found.c + found.B @ loss, dtype=object)
        outputs = {"r": residual, "Y": jacobian(residual, x), "B": found.B, "A": found.passive.A}
        self._kernel = Kernel.compile("equations", symbols, outputs)
        self._maps: dict[int, ca.Function] = {}  # number of rows -> the kernel for so many at once
        self.freedom = self.n  # degrees of freedom that the passive constraints leave at the first row evaluated

    def along(self, motion: Motion, x: Array) -> Evaluated:
        """Residual and regressor along a motion, at values of the unknowns."""
        parts = [self._block(motion, x, slice(i, i + BLOCK)) for i in range(0, len(motion), BLOCK)]
        return Evaluated(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))

    def _block(self, motion: Motion, x: Array, rows: slice) -> tuple[Array, Array, Array]:
        part = motion.at(rows)
        count = len(part)
        given: list[Any] = [np.ascontiguousarray(array, dtype=float) for array in vars(part).values()]
        given.append(np.tile(x, (count, 1)))
        # one after the other in column order, as CasADi has them: the last axis is the first of each matrix
        results = [np.zeros((count, *shape[::-1])) for shape in self._kernel.outputs.values()]
        buffer, evaluate = self._mapped(count).buffer()
        puts: list[Any] = [buffer.set_arg, buffer.set_res]
        for put, arrays in zip(puts, (given, results), strict=True):
            for index, array in enumerate(arrays):
                if array.size:
                    put(index, memoryview(array.ravel()))
        evaluate()
        r, Y, B, A = (array if array.ndim == 2 else array.transpose(0, 2, 1) for array in results)
        if A.shape[1] and np.isfinite(A).all():
            P = np.eye(self.n) - np.linalg.pinv(A, rcond=RANK_TOLERANCE) @ A
            self.freedom = round(float(np.trace(P[0])))
            return np.einsum("kij,kj->ki", P, r), P @ Y, P @ B
        return r, Y, B

    def _mapped(self, count: int) -> ca.Function:
        if count not in self._maps:
            self._maps[count] = self._kernel.function.map(count)
        return self._maps[count]


ORDER = 6  # order of the Butterworth filter; passing twice doubles it

_FIRST = np.array([1 / 280, -4 / 105, 1 / 5, -4 / 5, 0.0, 4 / 5, -1 / 5, 4 / 105, -1 / 280])
_SECOND = np.array([-1 / 560, 8 / 315, -1 / 5, 8 / 5, -205 / 72, 8 / 5, -1 / 5, 8 / 315, -1 / 560])
"""Central differences of eighth order of the first and of the second derivative."""

HALF = len(_FIRST) // 2

MOST = 0.95  # share of the power of the acceleration that lies below the bandwidth of the motion
LINE, NEARBY = 30.0, 25  # beyond the speed, what is so many times the median of so many bins is a hum
TIMES = 8.0  # the cut-off frequency is so many times the bandwidth of the motion
CLEAR = 1000.0  # the spectrum of the positions counts as motion where it is this many times its noise
SHARE = 0.4  # highest cut-off frequency, relative to half the sampling rate
CYCLES = 24.0  # shortest log [periods of the cut-off frequency]; the lowest cut-off frequency makes it this long


DENSE = 50.0  # rows per period of the cut-off frequency that are enough


def decimated(log: Log, cutoff: float) -> Log:
    """The log with every k-th row, free of what those cannot show, where it is denser than a fit needs.

    Args:
        log: The log.
        cutoff: Cut-off frequency of the positions [Hz].
    """
    every = int(1.0 / (DENSE * cutoff * log.h))
    if every < 2:
        return log
    q, u = (low_pass(x, SHARE / (every * log.h), log.h)[::every] for x in (log.q, log.u))
    return replace(log, h=every * log.h, t=log.t[::every], q=q, u=u)


def derivatives(q: Array, h: float) -> tuple[Array, Array]:
    """First and second derivative of samples, shape (rows - 8, n): four rows are lost at each end.

    Args:
        q: Samples, shape (rows, n).
        h: Spacing [s].
    """
    first, second = (correlate1d(q, weights, axis=0)[HALF : len(q) - HALF] for weights in (_FIRST, _SECOND))
    return first / h, second / h**2


def low_pass(x: Array, cutoff: float, h: float) -> Array:
    """Samples filtered forwards and backwards along the first axis.

    Args:
        x: Shape (rows, ...).
        cutoff: Cut-off frequency [Hz].
        h: Spacing [s].
    """
    sections = _sections(2.0 * h * cutoff)
    pad = min(len(x) - 1, round(2.0 / (cutoff * h)))
    # mirrored ends: an odd continuation would turn the noise of the last sample into an offset of all that follows
    filtered: Array = signal.sosfiltfilt(sections, x, axis=0, padtype="even", padlen=pad)
    return filtered


@lru_cache(maxsize=64)
def _sections(relative: float) -> Array:
    """Second-order sections of the filter, whose design takes longer than its use."""
    sections: Array = signal.butter(ORDER, relative, output="sos")
    return sections


def highest_of(h: float) -> float:
    """The highest cut-off frequency of a log [Hz], by the spacing of its rows [s]."""
    return SHARE * 0.5 / h


def bandwidth(q: Array, h: float) -> float:
    """The cut-off frequency of positions [Hz]: `TIMES` that below which lies most of the power of the acceleration.

    Only what stands clear of the noise of the positions counts, also of that noise in a single tone, as the steps of
    an encoder are at constant speed. Source: Gautier 1997: five times the bandwidth of the motion or more.

    Args:
        q: Samples, shape (rows, n).
        h: Spacing [s].
    """
    rows, longest = len(q), 0.0
    flat = q - q[0] - np.linspace(0.0, 1.0, rows)[:, None] * (q[-1] - q[0])
    power = np.abs(np.fft.rfft(flat * signal.windows.nuttall(rows)[:, None], axis=0)) ** 2
    frequency = np.fft.rfftfreq(rows, h)
    for one in power.T:
        noise = one[len(one) // 2 :]
        motion = np.where(one > max(CLEAR * np.median(noise), noise.sum()), one, 0.0)
        speed = np.cumsum(frequency**2 * motion)
        if speed[-1] > 0.0:
            fastest = frequency[np.searchsorted(speed, MOST * speed[-1])]
            hum = (one > LINE * median_filter(one, NEARBY)) & (frequency > 2.0 * fastest)
            acceleration = np.cumsum(frequency**4 * np.where(hum, 0.0, motion))
            longest = max(longest, TIMES * float(frequency[np.searchsorted(acceleration, MOST * acceleration[-1])]))
    lowest, highest = CYCLES / (rows * h), highest_of(h)
    return float(np.clip(longest, min(lowest, highest), highest))


VALIDATION = 0.25  # share of each log, its end, that is not used for the fit
SETTLED = 5.0  # the filter of the positions forgets the ends of a log in this many periods of its cut-off frequency

WIDER = 4.0
"""Bandwidth of the velocities for friction, relative to that of the positions.

Where a joint turns back, friction changes its sign within a millisecond. The filter of the positions moves this
instant, which would bias inertias by 0.1 to 0.5 %.
"""

CREEP = 5.0
"""Below this many friction speeds a joint creeps: its speed stays smooth, or noise would reverse the friction."""

FEWEST = 8  # fewest rows in time that a fit needs after filtering


@dataclass(frozen=True)
class FitRows:
    """Rows of the fit at thinned times; one per coordinate and time."""

    t: Array  # times of the log [s], shape (times,)
    q: Array  # positions, shape (times, n)
    log: Array  # number of the log, shape (times,)
    known: Array  # P r where every unknown is 0, by the linearised equations, shape (times, n)
    regressor: Array  # P Y, shape (times, n, unknowns)
    late: Array  # derivative of P r by the delay of the torques, shape (times, n)
    to_torque: Array  # generalized force -> smallest torques that exert it, shape (times, m, n)
    torque: Array  # filtered torques, shape (times, m)
    fitted: Array  # whether a time is used for the fit, shape (times,); the others are for the validation
    freedom: int  # independent rows per time

    def residual(self, x: Array) -> Array:
        """P r at values of the unknowns, linearised, shape (times, n)."""
        residual: Array = self.known + self.regressor @ x
        return residual

    def torque_error(self, x: Array) -> Array:
        """Torques that the model does not explain at values of the unknowns, shape (times, m) [actuator units].

        The smallest torques that exert the missing force.
        """
        found: Array = np.einsum("kij,kj->ki", self.to_torque, self.residual(x))
        return found


def cutoff_of(logs: Sequence[Log]) -> float:
    """The cut-off frequency for logs [Hz]: the largest that one of them needs; a slower log has its own highest."""
    return max(bandwidth(log.q, log.h) for log in logs)


@dataclass(frozen=True)
class Raw:
    """The equations along a log at every row, before the filter that thins them."""

    log: Log
    motion: Motion
    known: Array  # as of `FitRows`, without the torques
    regressor: Array  # P Y, shape (rows, n, unknowns)
    actuation: Array  # P B, shape (rows, n, m)


def raw_rows(equations: Equations, logs: Sequence[Log], x: Array, cutoff: float) -> list[Raw]:
    """The equations along logs.

    Args:
        equations: The plant's equations.
        logs: The logs.
        x: Values of the unknowns at which they are linearised.
        cutoff: Cut-off frequency of the positions [Hz].
    """
    raw = []
    for log in logs:
        motion = filtered_motion(log, cutoff)
        found = equations.along(motion, x)
        raw.append(Raw(log, motion, found.residual - found.regressor @ x, found.regressor, found.actuation))
    return raw


def thinned(raw: Sequence[Raw], delays: Array, cutoff: float, freedom: int) -> FitRows:
    """The rows of logs, filtered and thinned to a bandwidth.

    Args:
        raw: The equations along each log.
        delays: Delay of the torques of each log [s].
        cutoff: Cut-off frequency of the rows [Hz].
        freedom: Independent rows per time.

    Raises:
        ConfigError: A log is too short for this frequency.
    """
    parts = [_thinned(i, one, float(delays[i]), cutoff) for i, one in enumerate(raw)]
    return FitRows(**{name: np.concatenate([part[name] for part in parts]) for name in parts[0]}, freedom=freedom)


def _thinned(number: int, raw: Raw, delay: float, cutoff: float) -> dict[str, Array]:
    # the filter is the same linear map of all columns, its ends included: what holds before it holds after it
    cutoff = min(cutoff, highest_of(raw.log.h))
    log, stride = raw.log, max(1, round(0.5 / (cutoff * raw.log.h)))
    at = np.arange(stride // 2, len(raw.motion), stride)
    if len(at) < FEWEST:
        raise too_short(log, cutoff, FEWEST * stride * log.h)
    end, delayed = (len(log.q) - len(raw.motion)) // 2, log.acting(delay)
    u, rate = (array[end : end + len(raw.motion)] for array in (delayed, np.gradient(delayed, log.h, axis=0)))
    columns = {
        "known": raw.known - np.einsum("kij,kj->ki", raw.actuation, u),
        "regressor": raw.regressor,
        "late": np.einsum("kij,kj->ki", raw.actuation, rate),
        "torque": u,
    }
    return {name: low_pass(array, cutoff, log.h)[at] for name, array in columns.items()} | {
        "t": raw.motion.t[at],
        "q": raw.motion.q[at],
        "log": np.full(len(at), number),
        "to_torque": np.linalg.pinv(raw.actuation[at], rcond=1e-9),
        "fitted": np.arange(len(at)) < round((1.0 - VALIDATION) * len(at)),
    }


def too_short(log: Log, cutoff: float, needed: float) -> ConfigError:
    """The error for a log that is too short for a bandwidth [Hz]; it needs so many seconds."""
    return ConfigError(
        f"{log.name}: too short: {len(log.t) * log.h:.3g} s at a bandwidth of {cutoff:.3g} Hz "
        f"(at least {needed:.3g} s are needed)"
    )


def filtered_motion(log: Log, cutoff: float) -> Motion:
    """The motion of a log without its ends.

    Raises:
        ConfigError: The log is too short for this frequency.
    """
    highest = highest_of(log.h)
    cutoff = min(cutoff, highest)
    q = low_pass(log.q, cutoff, log.h)
    v, a = derivatives(q, log.h)
    sharp, _ = derivatives(low_pass(log.q, min(WIDER * cutoff, highest), log.h), log.h)
    fastest = maximum_filter1d(np.abs(v), round(1.0 / (cutoff * log.h)), axis=0)
    rubbing = np.where(fastest > CREEP * FRICTION_SPEED, sharp, v)
    end = max(HALF, round(SETTLED / (cutoff * log.h)))
    if len(q) < 4 * end:
        raise too_short(log, cutoff, 4 * end * log.h)
    inner, cut = slice(end, len(q) - end), slice(end - HALF, len(v) - (end - HALF))
    return Motion(log.t[inner], q[inner], v[cut], a[cut], rubbing[cut])
