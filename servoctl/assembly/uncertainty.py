"""How far a law's model may be wrong: the error of its task map, and the disturbance that this makes, at their worst.

    on the true plant   beta' = v + E v + d,   E = T Tn^+ - I,   d = T u_n - (b - A a_c)
    rho_E               smallest eigenvalue of (E + E^T) / 2 over all machines and states; feedback needs > -1

T is the task map of the true plant, Tn^+ the law's right inverse, u_n its input without violations. A, b and beta are
those that the law knows: where a parameter that is wrong stands in the task itself, the law does not see what that
changes. Rows of priority 1 count, or all where none has it, each divided by its scale.

Design: no matching condition is needed. A wrong mass of a coordinate without actuator is a part of d too. The condition
on rho_E is that of Chen's papers, W >= -1, in the law's own variables.

Source: derived here; the condition is that of Chen, Zhang 2010.

The machines are corners of the box of `law.uncertainty` and random ones inside.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from servoctl.assembly.classes import changed_parameters
from servoctl.assembly.realism import retuned_model
from servoctl.assembly.values import Problems
from servoctl.config.load import LoadedConfig
from servoctl.config.schema import LawConfig
from servoctl.errors import PlantError, ServoctlError
from servoctl.laws.constraint_following import AttachedConstraintFollowing
from servoctl.laws.observer import largest_rate, of_one_row
from servoctl.mechanics.model import Model
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.terms import Terms, assemble
from servoctl.simulation.system import System
from servoctl.types import Array, State


@dataclass(frozen=True)
class ModelError:
    """The worst error of a model over some machines and states."""

    rho: float  # [-] rho_E
    at: tuple[float, int]  # state and machine at which rho is: time [s], index of the machine
    upper: float  # [-] largest eigenvalue of (E + E^T) / 2
    decay: float  # mu: smallest eigenvalue of ((I + E) K + K (I + E)^T) / 2 [1/s], K the decay rates of the rows
    disturbance: float  # [acceleration of the rows, scaled] largest |d|
    rows: Array  # largest |d| of each row judged, not scaled
    reached: bool  # whether the task map has full rank everywhere
    unseen: Array  # largest task error of each row judged, and its rate, that the law takes for 0, shape (rows, 2)
    rate: float | None = None  # largest |d'| [acceleration of the rows per s, scaled]; None: not known
    command_rate: float | None = None  # the same of T_n u_n: what a late command misses per second of its delay


def rows_judged(law: AttachedConstraintFollowing) -> list[int]:
    """Indices of the rows that count."""
    return law.required or list(range(len(law.rows)))


def model_error(
    law: AttachedConstraintFollowing,
    model: Model,
    machines: Sequence[Model],
    states: Sequence[State],
    later: Sequence[State] = (),
) -> ModelError:
    """The worst error of a law's model.

    Args:
        model: The model that it knows.
        machines: The same with other parameters.
        states: States of the task, without violations.
        later: Of each state the one that the motion reaches a short time later, for d'; empty: d' stays unknown.

    Raises:
        PlantError: A machine has no motion at a state.
    """
    members = rows_judged(law)
    scale, K = np.ones(len(members)), np.eye(len(members))
    if law.robust is not None:
        scale = np.array(law.robust.scale)[members]
        K = np.diag([law.correction.decay(i, law.robust.sliding[i]) for i in members])
    reached, errors, d, rates, unseen = True, [], [], [], []
    for i, state in enumerate(states):
        (known, *true), moved = _terms(law, model, machines, state)
        unseen.append(moved[:, members])
        u, inverse = law.right_inverse(known)
        reached &= bool(np.allclose(known.task_map[members] @ inverse[:, members], np.eye(len(members)), atol=1e-6))
        errors.append([task_map_error(terms.task_map, inverse, members, scale) for terms in true])
        d.append(_disturbances(true, u, members))
        if later:
            (after, *true), _ = _terms(law, model, machines, later[i])
            u_after = law.right_inverse(after)[0]
            change = [(known.task_map @ (u_after - u))[members], *(_disturbances(true, u_after, members) - d[i])]
            rates.append(np.linalg.norm(np.array(change) / (later[i].t - state.t) / scale, axis=1))
    E: Array = np.array(errors)  # of each state and machine
    loop = (np.eye(len(members)) + E) @ K
    eigenvalues, decay = (np.linalg.eigvalsh((x + x.swapaxes(-1, -2)) / 2.0) for x in (E, loop))
    state_of_worst, machine = np.unravel_index(np.argmin(eigenvalues[..., 0]), E.shape[:2])
    return ModelError(
        rho=float(eigenvalues[..., 0].min()),
        at=(states[int(state_of_worst)].t, int(machine)),
        upper=float(eigenvalues[..., -1].max()),
        decay=float(decay[..., 0].min()),
        disturbance=float(np.linalg.norm(np.array(d) / scale, axis=-1).max()),
        rows=np.abs(d).max(axis=(0, 1)),
        reached=reached,
        unseen=np.array(unseen).max(axis=(0, 1)),
        rate=max((float(each[1:].max()) for each in rates), default=None),
        command_rate=max((float(each[0]) for each in rates), default=None),
    )


def _terms(
    law: AttachedConstraintFollowing, model: Model, machines: Sequence[Model], state: State
) -> tuple[list[Terms], Array]:
    """The terms of the model and of each machine, all with the task rows that the law knows.

    Also what each machine changes of the violations and their rates, shape (machines, rows, 2).
    """
    known, *true = (machine.matrices(state) for machine in (model, *machines))
    tolerance = law.passive_rank_tolerance
    found = [assemble(state, replace(matrices, task=known.task), tolerance) for matrices in (known, *true)]
    if not all(terms.sound for terms in found):
        raise PlantError(f"the machine has no motion at t = {state.t:.4g} s (its mass matrix, or a number)")
    rows, *others = (np.stack([m.task.violation, m.task.violation_rate], axis=1) for m in (known, *true))
    return found, np.nan_to_num(np.abs(np.array(others) - rows))


def _disturbances(machines: Sequence[Terms], u: Array, members: Sequence[int]) -> Array:
    """d of some rows for each machine, shape (machines, rows)."""
    return np.array([(terms.task_map @ u - terms.rhs)[list(members)] for terms in machines])


def task_map_error(task_map: Array, inverse: Array, members: Sequence[int], scale: Array) -> Array:
    """E of some rows, divided by their scales, shape (rows, rows).

    Args:
        task_map: T of the true plant, shape (r, m).
        inverse: Tn^+, shape (m, r).
        members: Indices of the rows.
        scale: Of these rows.
    """
    chosen = list(members)
    E: Array = (task_map[chosen] @ inverse[:, chosen]) * scale / scale[:, None] - np.eye(len(chosen))
    return E


def stable_rates(law: AttachedConstraintFollowing, error: ModelError | None) -> list[float]:
    """Largest stable rate of the observer of each row [1/s], for every machine of the box and every delay.

    Args:
        law: The law, with an observer.
        error: Of the model over a box; None: no box.
    """
    assert law.observer is not None
    errors = (0.0,) if error is None else (error.rho, 0.0, error.upper)
    return [
        min(largest_rate(of_one_row(law.observer, i), law.correction.feedback(i), E, law.observer.rate) for E in errors)
        for i in range(len(law.observed))
    ]


def rate_refusals(law: AttachedConstraintFollowing, error: ModelError | None) -> list[str]:
    """Why the rate of the observer is refused, per row; empty if it is stable, or without an observer."""
    if law.observer is None:
        return []
    worst = "" if error is None else " for the worst machine of law.uncertainty"
    return [
        f"{name}: unstable at {law.observer.rate:.4g} 1/s{worst} (use a rate below {limit:.4g})"
        for name, limit in zip(law.observed, stable_rates(law, error), strict=True)
        if law.observer.rate > limit
    ]


CORNERS = 64  # largest number of corners of the box; of a box with more, random ones are taken
INSIDE = 8  # number of random machines inside the box; the corners are tried too


@dataclass(frozen=True)
class Machines:
    """Machines of the box."""

    box: Mapping[str, tuple[float, float]]  # parameter -> (lower, upper) relative error
    errors: tuple[Mapping[str, float], ...]  # of each machine: parameter -> relative error
    models: tuple[Model, ...]  # the law's model with these parameters
    corners: bool  # whether every corner of the box is among them

    def named(self, index: int) -> str:
        """A machine in words: `m +30 %, I -10 %`."""
        return in_words(self.errors[index])


def in_words(errors: Mapping[str, float]) -> str:
    """Relative errors of a machine: `m +30 %, I -10 %`."""
    return ", ".join(f"{name} {100 * error:+.3g} %" for name, error in errors.items()) or "the law's model"


def uncertainty_box(loaded: LoadedConfig) -> dict[str, tuple[float, float]]:
    """Parameter -> (lower, upper) relative error; empty without `law.uncertainty`."""
    law = loaded.config.law
    if not isinstance(law, LawConfig):
        return {}
    given = law.uncertainty or {}
    return {name: (e[0], e[1]) if isinstance(e, tuple) else (-e, e) for name, e in given.items()}


def check_uncertainty(loaded: LoadedConfig, plant: Plant, problems: Problems) -> None:
    """Notes parameters of `law.uncertainty` that the plant does not have."""
    if box := uncertainty_box(loaded):
        changed_parameters(plant, dict.fromkeys(box, 0.0), problems, "law", "uncertainty")


def machines(loaded: LoadedConfig, model: Model, start: State, problems: Problems) -> Machines | None:
    """Corners of the box and random machines inside; None without a box, or with problems, which are noted."""
    box = uncertainty_box(loaded)
    if not box:
        return None
    errors, corners = machine_errors(box)
    before, found = len(problems), []
    for error in errors:
        changed = changed_parameters(model.plant, error, problems, "law", "uncertainty")
        if len(problems) == before:
            found.append(retuned_model(model, changed, start, problems, "law", "uncertainty"))
        if len(problems) > before:
            return None
    known = [machine for machine in found if machine is not None]
    return Machines(box, tuple(errors), tuple(known), corners)


def machine_errors(box: Mapping[str, tuple[float, float]]) -> tuple[list[Mapping[str, float]], bool]:
    """Parameter -> relative error, of each machine that stands for a box; whether every corner is among them."""
    random, count = np.random.default_rng(0), len(box)
    lower, upper = np.array(list(box.values())).T
    every = 2**count <= CORNERS
    chosen = list(itertools.product(*box.values())) if every else random.random((CORNERS, count)) < 0.5
    corners = np.array(chosen) if every else np.where(chosen, lower, upper)
    errors = np.vstack([corners, lower + (upper - lower) * random.random((INSIDE, count))])
    return [dict(zip(box, each, strict=True)) for each in errors.tolist()], every


def rests_on_model(law: AttachedConstraintFollowing) -> str | None:
    """The field of the law whose guarantee needs rho_E > -1; None: there is none."""
    if law.robust is not None:
        return "law.adaptive" if law.robust.adaptive else "law.robust"
    return None if law.observer is None else "law.observer"


def refusal(law: AttachedConstraintFollowing, error: ModelError, worst: str) -> str | None:
    """Why a law must not run on its box; None if it may."""
    field = rests_on_model(law)
    if field is None or error.rho > -1.0:
        return None
    return (
        f"rho_E = {error.rho:.3g} for {worst}: the inputs may act on the task against what the model says, so {field} "
        "would drive the task error away (expected above -1: make the box smaller, or identify these parameters)"
    )


def check_start_error(loaded: LoadedConfig, system: System, start: State, problems: Problems) -> None:
    """Notes a box for which the law's feedback has the wrong sign at the start, or its observer is too fast there."""
    law, model = system.following, system.model
    if law is None or rests_on_model(law) is None:
        return
    found = machines(loaded, model, start, problems)
    if found is None:
        return
    try:
        error = model_error(law, model, found.models, [start])
    except ServoctlError as wrong:
        problems.add(wrong, "law", "uncertainty")
        return
    sentence = refusal(law, error, found.named(error.at[1]))
    if sentence is not None:
        problems.add(sentence, "law", "uncertainty")
        return
    for sentence in rate_refusals(law, error):
        problems.add(sentence, "law", "observer")
