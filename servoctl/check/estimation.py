"""The disturbance observer and the estimator of a run: gains, limits of stability, and what noise costs in torque.

For the estimator a row is one axis: phi'' = (1 + E) u + d, with the gains of its correction. The loop is that of
`laws.hold`, with the estimator itself as a linear controller.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from servoctl.assembly import Run
from servoctl.assembly.uncertainty import ModelError, rate_refusals, rows_judged, stable_rates
from servoctl.check.sections import Section, shortened
from servoctl.check.uncertainty import observed, observer_lag
from servoctl.errors import Finding, TaskError
from servoctl.estimation.attached import AttachedEstimator, PlantFunctions
from servoctl.laws.constraint_following import AttachedConstraintFollowing
from servoctl.laws.hold import Closed, EstimateFilter, RowFeedback, close, decays, hold, linear_controller, stable_range
from servoctl.laws.observer import LARGEST, largest_rate, of_one_row
from servoctl.laws.robust import decay_rates
from servoctl.mechanics.constraint import Rows
from servoctl.mechanics.timing import Timing
from servoctl.types import Array, State

MEMORY = 1000  # [100 periods] longest time in which one reading counts
MOST = 10.0  # largest factor on the action of the inputs that is looked at


class UnitMass(PlantFunctions):
    """A free unit mass."""

    def acceleration(self, state: State, u: Array) -> Array:
        return u

    def passive(self, state: State) -> Rows:
        nothing = np.zeros(0)
        return Rows(np.zeros((0, 1)), nothing, nothing, nothing)


def of_one_axis(estimator: AttachedEstimator, i: int) -> AttachedEstimator:
    """The estimator of one coordinate with one actuator, the slowest; limits and passive rows do not count."""
    e = estimator
    # no reading of the linear loop is an outlier
    return replace(
        e, timing=e.timing.of_one, coordinates=(e.coordinates[i],), holonomic=(), rigid=(),
        start_q=(0.0,), start_v=(0.0,), gain_q=(e.gain_q[i],), gain_v=(e.gain_v[i],), gain_d=(e.gain_d[i],),
        sigma=(e.sigma[i],), weight=(1.0,), innovation=(np.inf,), ends=np.inf,
    )  # fmt: skip


def controller(one: AttachedEstimator, feedback: RowFeedback) -> EstimateFilter:
    """The command from (q, v) by the estimate of them; f: the memory of the estimator, then that of the commands.

    Args:
        one: See `of_one_axis`.
        feedback: Of position and speed.
    """
    size, commands, plant = len(one.memory), one.commands, UnitMass()

    def step(f: Array, x: Array) -> tuple[Array, Array]:
        # the last value of the commands, that the loop runs, stays 1 and is no part of the motion
        acted, now = commands.acted(np.append(f[size:], 1.0))
        found = one.update(State(0.0, x[:1], x[1:]), np.ones(1), acted, now, f[:size], one.timing.h, plant)
        u = -feedback.stiffness * found.state.q - feedback.damping * found.state.v - found.disturbance
        return np.concatenate([found.memory, commands.after(now, u)[:-1]]), u

    return linear_controller(step, size + len(commands.names) - 1, 2)


def _loop(law: EstimateFilter, acts: Timing, factor: float = 1.0) -> Closed:
    """The loop of an axis whose inputs act by a factor, and when `acts` says."""
    return close(hold(np.eye(2, k=1), np.array([[0.0], [factor]]), acts), np.eye(1), law)


def input_noise(one: AttachedEstimator, feedback: RowFeedback) -> float:
    """Standard deviation of a row's command for a standard deviation of 1 of its measured position."""
    law = controller(one, feedback)
    loop, at_once = _loop(law, one.timing), float(law.D[0, 0])
    A, x, square = loop.A, loop.B[:, 0] * at_once, at_once**2
    x[len(x) - len(law.F) :] += law.G[:, 0]
    for _ in range(MEMORY):  # what one reading adds to the commands after it; a sum in blocks of 100
        before = square
        for _ in range(100):
            square += float(loop.fed[0] @ x) ** 2
            x = A @ x
        if square - before < 1e-6 * square:
            break
    return float(np.sqrt(square))


def _noise_of_inputs(run: Run, one: AttachedEstimator) -> dict[str, float]:
    """Actuator -> standard deviation of its command at the start, by the noise of the positions [its unit]."""
    estimator, law, model = run.system.estimator, run.system.following, run.system.model
    assert estimator is not None and law is not None
    matrices = model.matrices(run.start)
    task_map = run.system.terms(run.start, matrices).task_map
    rows = [i for i, row in enumerate(law.rows) if row.degree == 2]
    A = np.asarray(matrices.task.A, dtype=float)[rows]
    noise = np.array(estimator.innovation) * np.sqrt(1.0 - np.array(estimator.gain_q))
    loops = np.asarray(matrices.passive.A, dtype=float)[list(estimator.rigid)]
    free = np.eye(model.n) - np.linalg.pinv(loops, rcond=1e-9) @ loops  # readings are moved onto the constraints
    gains = np.array([input_noise(one, law.correction.feedback(i)) for i in rows])
    inputs = np.linalg.pinv(np.asarray(task_map, dtype=float)[rows], rcond=1e-9) @ (gains[:, None] * (A @ free * noise))
    sigma = np.linalg.norm(inputs, axis=1)
    return dict(zip(model.plant.actuators, sigma.tolist(), strict=True))


def estimation_section(run: Run) -> Iterator[Section]:
    """Gains of the estimator, and what they cost."""
    estimator, law = run.system.estimator, run.system.following
    if estimator is None:
        return
    delay = estimator.timing.mean_delay
    lines = [f"kind {estimator.kind}, delay {delay:g} s met by prediction"]
    values: dict[str, Any] = {"kind": estimator.kind, "delay": delay}
    h, units = estimator.timing.h, list(run.system.model.plant.coordinates.values())
    for i, name in enumerate(estimator.coordinates):
        gains = [getattr(estimator, field)[i] for field in ("gain_q", "gain_v", "gain_d")]
        one = of_one_axis(estimator, i)
        slowest = _slowest(controller(one, RowFeedback(0.0, 0.0)).F[: len(one.memory), : len(one.memory)], h)
        values[name] = {"gain_q": gains[0], "gain_v": gains[1], "gain_d": gains[2], "bandwidth": slowest}
        line = f"{name}: gains {gains[0]:.4g}, {gains[1]:.4g} 1/s"
        line += f", {gains[2]:.4g} 1/s^2" if estimator.has_model else ""
        line += f"; slowest pole {slowest:.4g} 1/s"
        if estimator.has_model:
            values[name]["sigma"] = estimator.sigma[i]
            line += f"; disturbance to {estimator.sigma[i]:.2g} {units[i] or '1'}/s^2 (1 sigma)"
        lines.append(line)
    errors = _of_rows(run, law, lines, values) if law is not None else []
    yield Section("estimation", "estimation", shortened(lines), values, errors)


def _of_rows(run: Run, law: AttachedConstraintFollowing, lines: list[str], values: dict[str, Any]) -> list[Finding]:
    """Adds what each row bears with the estimator of the fastest coordinate; returns why the run is refused."""
    estimator, errors = run.system.estimator, list[Finding]()
    assert estimator is not None
    one = of_one_axis(estimator, int(np.argmax(estimator.gain_v)))
    for i, row in enumerate(law.rows):
        if row.degree != 2:
            continue
        limit = _largest_gain(one, law.correction.feedback(i))
        values.setdefault(row.name, {})["largest_gain"] = limit  # a task may have the name of a coordinate
        if limit < 1.0:
            unstable = f"{row.name}: unstable with this estimator (lower estimation.disturbance, or the gains)"
            errors.append(Finding("estimation", unstable, "error"))
            continue
        known = f"{limit:.3g}" if np.isfinite(limit) else f"more than {MOST:g}"
        lines.append(f"{row.name}: stable if inputs act up to {known} times as much as the model says")
    if not errors and any(row.degree == 2 for row in law.rows):
        noise = _noise_of_inputs(run, one)
        values["input_noise"] = noise
        units = list(run.system.model.plant.actuators.values())
        shown = ", ".join(
            f"{name} {x:.2g} {unit}".rstrip() for (name, x), unit in zip(noise.items(), units, strict=True)
        )
        lines.append(f"noise of the positions moves the inputs by (1 sigma): {shown}")
    return errors


def _largest_gain(one: AttachedEstimator, feedback: RowFeedback) -> float:
    """Largest factor 1 + E at which a row is stable after the shortest and after the longest delay.

    0 if it is unstable at 1, infinite above `MOST`.
    """

    law = controller(one, feedback)

    def stable(factor: float) -> bool:
        return decays(_loop(law, acts, factor).A for acts in one.timing.extremes)

    if not stable(1.0):
        return 0.0
    last, beyond = stable_range(stable, np.geomspace(1.0, MOST, 12).tolist(), 12)
    return beyond if beyond == float("inf") else last


def _slowest(matrix: Array, h: float) -> float:
    """Decay rate of the slowest pole of an estimate that gets no readings of its own [1/s]."""
    sizes = np.abs(np.linalg.eigvals(matrix))
    return float(-np.log(max(sizes[sizes > 1e-9].max(initial=1e-9), 1e-9)) / h)


OFF = 1.0  # relative error of the model's task map at which the limit is given too


def observer_section(run: Run, error: ModelError | None) -> Iterator[Section]:
    """The rate of the observer of each row against its limit.

    Args:
        error: Of the model, over the box of `law.uncertainty`; None: no box, and without an estimator the limit for
            inputs that act twice as much as the model says is given too.
    """
    law = run.system.following
    if law is None or law.observer is None:
        return
    rate, lines, limits = law.observer.rate, [], stable_rates(law, error)
    errors = [Finding("law.observer", sentence, "error") for sentence in rate_refusals(law, error)]
    values: dict[str, Any] = {}
    inside = "" if error is None else " for every machine of the box"
    estimated = run.system.estimator is not None
    inside += " if the state is known (the estimator is left out)" * estimated
    for i, name in enumerate(law.observed):
        row = of_one_row(law.observer, i)
        limit, period = limits[i], row.timing.h
        values[name] = {"rate": rate, "limit": limit, "share": rate / limit if limit else None}
        line = f"{name}: rate {rate:.4g} 1/s, stable up to {_limit(limit, period)}{inside}"
        if error is None and not estimated:
            off = values[name]["limit_if_off"] = largest_rate(row, law.correction.feedback(i), OFF)
            line += f" (up to {_limit(off, period)} if inputs act {1 + OFF:g} times as much as the model says)"
        if error is not None:
            line += f" ({100 * rate / limit:.3g} % of it)" if 0.0 < limit < np.inf else ""
        lines.append(line)
    if error is not None and not errors:
        lines += _bound(law, error, values)
    yield Section("disturbance observer", "observer", shortened(lines), values, errors)


def _bound(law: AttachedConstraintFollowing, error: ModelError, values: dict[str, Any]) -> list[str]:
    """Lines on what the observer leaves of the violations; adds the figures to `values`."""
    assert law.observer is not None
    values["bound"] = None
    if error.rate is None or error.command_rate is None:
        return ["no bound on what it leaves: the ideal run fails, so the rate of the disturbance is not known"]
    if not error.reached:
        return ["no bound on what it leaves: the inputs do not reach every row at some pose"]
    decays = {}
    try:
        for i in rows_judged(law):
            decays[i] = decay_rates(law.rows[i], law.correction.feedback(i), "law.observer")
    except TaskError as wrong:
        return [f"no bound on what it leaves: {str(wrong).removeprefix('law.observer: ')}"]
    late, h = law.observer.timing.folded.longest_delay, law.observer.timing.h
    lag, missed = observer_lag(law.observer.rate, h, late), error.command_rate * (late + h)
    kappa = min(decay for _, decay in decays.values())
    beta = observed(error.rate, lag, kappa, error.rho, missed)
    values["bound"] = {"disturbance_rate": error.rate, "lag": lag, "kappa": kappa, "missed": missed, "beta": beta}
    lines = [
        f"premise: the disturbance changes by at most sup|d'| = {error.rate:.4g} per s, as on the path; the observer "
        f"follows it {1e3 * lag:.4g} ms late (1/L, hold and delay)",
        f"commands that act {1e3 * (late + h):.4g} ms late miss at most {missed:.3g} of what the model asks",
        f"|beta| settles below sup|d'| / ((1 + rho_E) kappa L) + {missed:.3g} / kappa = {beta:.3g}, with "
        f"L = {1.0 / lag:.4g} 1/s for that lag and kappa = {kappa:.4g} 1/s",
    ]
    for (i, (sliding, _)), (unseen, _) in zip(decays.items(), error.unseen.tolist(), strict=True):
        size = beta * (1.0 if law.robust is None else law.robust.scale[i])
        violation = size / sliding + unseen if sliding else None
        lines += [] if violation is None else [f"{law.rows[i].name}: error below {violation:.3g}"]
        values[law.rows[i].name]["violation"] = violation
    if error.rate * lag >= error.disturbance > 0.0:
        lines.append(
            f"the observer does not help on this path: the disturbance, {error.disturbance:.3g}, changes within the "
            "lag (raise law.observer.rate, or shorten the period)"
        )
    return lines


def _limit(rate: float, period: float) -> str:
    return f"more than {LARGEST / period:.4g} 1/s" if np.isinf(rate) else f"{rate:.4g} 1/s"
