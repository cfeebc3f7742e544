"""How fast a disturbance observer may be: the largest rate at which the loop of one row stays stable.

    phi'' = (1 + E) u_acted,   u = -damping phi' - stiffness phi - d

E is the relative error of the model's task map T. The row is exact for constant T; the loop is that of a run: held
commands, whole and fractional delays, and lag.

Design: the loop is linear, so its matrix is its step applied to unit vectors. The step calls the observer itself.

Source: ours.
"""

import numpy as np

from servoctl.laws.observer import RowObserver
from servoctl.mechanics.rows import Rows
from servoctl.mechanics.timing import Timing
from servoctl.types import Array

LARGEST = 8.0  # largest rate times period that is looked at


def of_one_row(observer: RowObserver, row: int) -> RowObserver:
    """The observer of one row with one actuator, the slowest; limits do not count."""
    return RowObserver((observer.rows[row],), (observer.by_rate[row],), observer.timing.of_one)


def loop_matrix(
    observer: RowObserver, rate: float, damping: float, stiffness: float, error: float = 0.0, acts: Timing | None = None
) -> Array:
    """The matrix of one period on (phi, phi', torque, older commands, memory), shape (size, size).

    Args:
        observer: Of one row; see `of_one_row`.
        rate: L [1/s].
        damping: Gain on the rate of the error; 0 for a nonholonomic row.
        stiffness: Gain on the violation.
        error: E [-].
        acts: When commands act in truth; None: as the observer knows.
    """
    acts = acts or observer.timing
    size = 3 + max(acts.late - observer.timing.late, 0) + len(observer.memory)
    columns = [_step(np.eye(size)[i], observer, acts, rate, damping, stiffness, error) for i in range(size - 1)]
    # the last state, that the observer runs, stays 1 and is no part of the motion
    return np.array(columns).T[:-1]


def largest_rate(
    observer: RowObserver, damping: float, stiffness: float, error: float = 0.0, chosen: float = 0.0
) -> float:
    """Largest L [1/s] that is stable after the shortest and after the longest delay.

    0 if the loop is unstable without an observer, infinite above `LARGEST` per period.

    Where inputs act much less than the model says, a slow observer can be unstable and a faster one stable.

    Args:
        observer: Of one row; see `of_one_row`.
        damping: Gain on the rate of the error; 0 for a nonholonomic row.
        stiffness: Gain on the violation.
        error: E [-].
        chosen: If this rate [1/s] is stable, the end of the stable range that holds it is returned.
    """

    def stable(rate: float) -> bool:
        loops = (loop_matrix(observer, rate, damping, stiffness, error, acts) for acts in observer.timing.extremes)
        return all(float(np.abs(np.linalg.eigvals(loop)).max()) < 1.0 + 1e-9 for loop in loops)

    grid = np.geomspace(1e-3, LARGEST, 60) / observer.timing.h
    low = chosen if chosen > 0.0 and stable(chosen) else 0.0
    high = float("inf") if low == chosen else chosen
    for rate in grid[(grid > low) & (grid < high)].tolist():
        if not stable(rate):
            high = rate
            break
        low = rate
    if high == float("inf"):
        return high
    for _ in range(40):
        middle = (low + high) / 2.0
        low, high = (middle, high) if stable(middle) else (low, middle)
    return low


def _step(
    x: Array, observer: RowObserver, acts: Timing, rate: float, damping: float, stiffness: float, error: float
) -> Array:
    """The state after one period; `acts`: when commands act in truth."""
    known = observer.timing.late
    older = max(acts.late - known, 0)
    phi, speed, torque, memory = x[0], x[1], x[2], np.append(x[3 + older : -1], 1.0)
    second_order = observer.by_rate[0]
    task = Rows(np.zeros((1, 1)), np.zeros(1), np.array([phi]), np.array([speed]))
    d = observer.disturbance(task, memory, rate)
    u = np.array([-stiffness * phi - (damping * speed if second_order else 0.0) - d[0]])
    after = observer.after(task, np.zeros(1), u, np.eye(1), memory, d)
    sent = np.concatenate([observer.timing.commanded(observer.under_way(memory), u).sent, x[3 : 3 + older, None]])
    for share, command in acts.acting(sent):
        phi, speed, torque = _moved(phi, speed, torque, command[0], share * acts.h, acts.slowest, error, second_order)
    return np.concatenate([[phi, speed, torque], sent[known : known + older, 0], after])


def _moved(
    phi: float, speed: float, torque: float, u: float, h: float, lag: float, error: float, second_order: bool
) -> tuple[float, float, float]:
    """phi, phi' and the torque after a time h [s] under a command."""
    gain = 1.0 + error
    # (phi, phi', torque, u); a row of first order has phi' = gain torque
    A = np.zeros((4, 4))
    A[0, 1 if second_order else 2] = 1.0 if second_order else gain
    A[1, 2] = gain if second_order else 0.0
    if lag:
        A[2, 2], A[2, 3] = -1.0 / lag, 1.0 / lag
    else:
        torque = u
    from scipy.linalg import expm  # a fifth of a second

    moved = expm(A * h) @ np.array([phi, speed, torque, u])
    return float(moved[0]), float(moved[1]), float(moved[2])
