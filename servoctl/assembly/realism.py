"""A config's `realism` -> real-world effects of a simulated run, checked against the plant."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
from pydantic import TypeAdapter

from servoctl.assembly.context import Context
from servoctl.assembly.values import Problems
from servoctl.engine.linalg import slopes
from servoctl.errors import ConfigError, Finding, PlantError, ServoctlError, in_one_line
from servoctl.laws.hold import RK4_LIMIT
from servoctl.mechanics.friction import friction_of
from servoctl.mechanics.model import Model, structure_of
from servoctl.simulation.mujoco_machine import MujocoMachine
from servoctl.simulation.realism import Realism
from servoctl.simulation.settings import Settings
from servoctl.simulation.system import System
from servoctl.types import Array, State

SLOW = 1e-6  # [unit/s] speeds at which forces of a plant's code may jump or be steep
MOST = 30  # largest number of coordinates of a plant of which this is looked at
OPEN = 1e-9  # [units of the row] largest violation of the simulated plant's own constraints without a warning


def effects_of(system: System, context: Context, folder: Path, start: State) -> dict[str, Any]:
    """Field of `System` -> effect of a real machine; empty without any, or if there are problems."""
    if context.values.realism is None:
        return {}
    count = len(context.problems)
    effects: dict[str, Any] = {"machine": machine_of(context, folder)}
    if context.channels is not None:  # else only drives run so
        effects |= {"realism": context.channels, "friction": context.friction}
        effects["simulated"] = _simulated(system.model, context, start)
    return {} if len(context.problems) > count else effects


def machine_of(context: Context, folder: Path) -> MujocoMachine | None:
    """The machine from a scene; None without one, or if it does not fit the plant."""
    realism = context.values.realism
    scene = None if realism is None else realism.machine
    if scene is None:
        return None
    try:
        step = context.values.run.integrator.fixed_step or math.inf
        return MujocoMachine(folder / scene.file, context.plant, step, scene.kind == "urdf")
    except ServoctlError as error:
        for problem in error.problems if isinstance(error, ConfigError) else [str(error)]:
            context.problems.add(problem, "realism", "machine", scene.kind)
        return None


def check_loop(context: Context) -> None:
    """Notes coordinates, actuators and parameters in `realism` and `estimation` that the plant does not have."""
    _ = context.channels, context.estimator, context.friction, context.simulated_parameters  # each notes its own


def _simulated(model: Model, context: Context, start: State) -> Model | None:
    """The model with the parameters of the simulated plant; None if they are those of the law's model."""
    changed = context.simulated_parameters
    if all(value == getattr(model.plant, name) for name, value in changed.items()):
        return None
    return retuned_model(model, changed, start, context.problems, "realism", "parameter_error")


def retuned_model(
    model: Model, changed: Mapping[str, Any], start: State, problems: Problems, *path: str
) -> Model | None:
    """The model with other parameters; None, and problems noted at a field, if the plant refuses them.

    Args:
        path: Field that gives the parameters.
    """
    plant, found = model.plant, None
    try:
        other = dataclasses.replace(cast(Any, plant), **changed)
        if structure_of(other, {}, {}) == structure_of(plant, {}, {}):
            found = model.plain.of(other, model.plain.task, start)
            found = found if model is model.plain else model.of_plain(found)
    except ServoctlError as error:
        problems.add(f"the simulated plant: {error}", *path)
        return None
    except (Exception, SystemExit) as error:  # raised by the class's own checks
        problems.add(f"{type(plant).__name__} refuses them: {in_one_line(error)}", *path)
        return None
    if found is None or found.singular != model.singular:
        problems.add("the simulated plant has another structure than the law's model (change only numbers)", *path)
        return None
    return found


def facts(system: System, values: Realism) -> dict[str, Any]:
    """Active effects as the config gives them, and the delay in periods, for `summary.json` and `check`."""
    assert system.realism is not None
    at = system.realism.timing.at(1.0)
    return _active(values) | {"delay_cycles": {"least": at.delay, "most": at.longest_delay}}


def in_words(system: System, values: Realism) -> list[str]:
    """The active effects in words, one line each."""
    realism, model = system.realism, system.simulated
    assert realism is not None
    lines = [f"{name}: {_shown(part)}" for name, part in _active(values).items() if name not in ("delay", "jitter")]
    timing = realism.timing
    if timing.longest_delay:
        at = timing.at(1.0)
        cycles = f"{at.delay:.4g}" if not at.jitter else f"{at.delay:.4g} to {at.longest_delay:.4g}"
        periods = "1 period" if cycles == "1" else f"{cycles} periods"
        lines.insert(0, f"delay: {periods} of {timing.h:g} s from a measurement to the torque")
    if model is not None:
        lines.append("the simulated plant has other parameters than the law's model")
    return lines or ["no effect is active: an ideal machine"]


def _active(values: Realism) -> dict[str, Any]:
    active: dict[str, Any] = TypeAdapter(Realism).dump_python(values, mode="json", exclude_defaults=True)
    return active


def _shown(part: Any) -> str:
    return ", ".join(f"{k} {_shown(v)}" for k, v in part.items()) if isinstance(part, Mapping) else f"{part}"


def warnings(system: System, start: State, settings: Settings) -> list[Finding]:
    """Warnings about a realistic run."""
    friction = friction_warning(system, start, settings)
    gaps = open_loops(system.model, system.simulated, start)
    loops = [Finding("realism.parameter_error", gap) for gap in gaps]
    return [*loops, *_of_machine(system, start), *([] if friction is None else [friction])]


def _of_machine(system: System, start: State) -> Iterator[Finding]:
    """What a machine from a scene has that the plant does not, and its contacts at the start."""
    machine = system.machine
    if isinstance(machine, MujocoMachine):
        found = [*machine.notes, *machine.touching(start.t, np.concatenate([start.q, start.v]))]
        yield from (Finding("realism.machine", f"{machine.path.name}: {sentence}") for sentence in found)


def open_loops(model: Model, simulated: Model | None, start: State) -> Iterator[str]:
    """Sentences about passive constraints that the law's model satisfies at the start, but the simulated plant not."""
    if simulated is None:
        return
    gaps, known = (plant.matrices(start).passive.violation for plant in (simulated, model))
    for row, gap, more in zip(model.passive_rows, gaps, np.abs(gaps) - np.abs(known), strict=True):
        if more > OPEN:
            yield (
                f"the simulated plant violates its constraint {row.name} by {gap:.3g} at the start; "
                "plant.passive.correction closes it during the run"
            )


def friction_warning(system: System, start: State, settings: Settings) -> Finding | None:
    """A warning if friction at the start is too fast for the steps of rk4; None if it is not.

    A step h of rk4 is stable for rates up to 2.785 / h.
    """
    friction, h = system.friction or friction_of(system.model.plant), settings.integrator.spacing(settings.period)
    cancelled = settings.period is None and system.law is not None  # at once, so nothing fast is left
    if cancelled or h is None:
        return None
    if friction is None:
        return _steep_at_rest(system.simulated or system.model, start, system.passive.rank_tolerance, h)
    model, field = system.simulated or system.model, "plant" if system.friction is None else "realism"
    terms = system.terms(start, model.matrices(start))
    W = np.asarray(terms.project(terms.inputs), dtype=float) * np.sqrt(friction.steepness())
    rate = float(np.linalg.norm(W, 2)) ** 2 if W.size else 0.0
    if rate * h <= RK4_LIMIT:
        return None
    return Finding(
        f"{field}.friction",
        f"near rest its rate is {rate:.3g} 1/s, but rk4 with a step of {h:g} s is stable only up to "
        f"{RK4_LIMIT / h:.3g} 1/s (raise speed by a factor of {rate * h / RK4_LIMIT:.2g}, or use run.integrator.step "
        f"{RK4_LIMIT / rate:.2g})",
    )


def _steep_at_rest(model: Model, start: State, rank_tolerance: float, h: float) -> Finding | None:
    """A warning about a plant whose code has dry friction that rk4 cannot follow at rest; None if it has not."""
    if model.n > MOST:
        return None

    def acceleration(v: Array) -> Array:
        return model.terms(State(start.t, start.q, v), rank_tolerance).acceleration(np.zeros(model.m))

    try:
        J = slopes(acceleration, np.zeros(model.n), np.full(model.n, SLOW))
    except PlantError:  # a run that gets there says so
        return None
    rate = -float(np.linalg.eigvals(J).real.min()) if np.isfinite(J).all() else 0.0
    if rate * h <= RK4_LIMIT:
        return None
    return Finding(
        "plant",
        f"its forces jump or are steep at rest ({rate:.3g} 1/s at {SLOW:g} of a unit/s): what friction should hold "
        f"creeps or shakes in steps of {h:g} s of rk4, which is stable up to {RK4_LIMIT / h:.3g} 1/s (write dry "
        "friction as plant.friction, or as tanh(v/speed) with a higher speed)",
    )
