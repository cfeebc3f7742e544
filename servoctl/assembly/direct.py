"""From Python: `simulate`, a simulation without a config; every term of a loop at a state, by name.

The terms come from the functions that a run evaluates.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from servoctl.assembly import start as starts
from servoctl.assembly.build import build_coordinates
from servoctl.assembly.context import Call, Context
from servoctl.assembly.make import check_settings, make_system
from servoctl.assembly.realism import check_loop, effects_of
from servoctl.assembly.run import ENGINES, Run
from servoctl.assembly.values import Problems, build_equations
from servoctl.config.document import Document, Problem
from servoctl.config.load import validate
from servoctl.config.plant import PASSIVE_CORRECTION
from servoctl.engine.parameters import forget_derived
from servoctl.errors import ConfigError, Finding, TaskError
from servoctl.estimation.estimator import Estimator
from servoctl.laws.bounds import Bound, Bounds, ReactionBound
from servoctl.laws.configured import ConstraintFollowing
from servoctl.laws.corrections import Correction
from servoctl.laws.law import Law
from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.initial import nearest
from servoctl.mechanics.model import Model
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.task_map import TaskMap
from servoctl.run_folder.trajectory import Trajectory
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.engine_choice import make_loop
from servoctl.simulation.realism import Realism
from servoctl.simulation.settings import Integrator
from servoctl.tree.fields import one_per_name
from servoctl.tree.rules import FieldPath
from servoctl.types import Array, State

Keeps = Constraint | ReactionBound | Bound  # h >= 0


class Arguments(Document):
    """The arguments of `simulate`: leaves of `run` and of its integrator are arguments of their own."""

    def field(self, path: FieldPath) -> str:
        return super().field(path).removeprefix("run.").removeprefix("integrator.")

    def report(self, problems: Iterable[Problem]) -> list[Finding]:
        return super().report(Problem(path, what.replace("run.period", "period")) for path, what in problems)


def _check_types(plant: Any, mappings: Mapping[str, Any], law: Any, engine: str, problems: Problems) -> None:
    """Notes arguments of a wrong type.

    Args:
        mappings: Argument -> what should be a mapping.

    Raises:
        ConfigError: `plant` is not a plant, so that nothing else can be checked.
    """
    if not isinstance(plant, Plant):
        hint = f"make one: {plant.__name__}(...)" if isinstance(plant, type) else "an instance of a servoctl.Plant"
        raise ConfigError(f"simulate: plant: expected a plant, got {plant!r} ({hint})")
    for field, units in (("coordinates", plant.coordinates), ("actuators", plant.actuators)):
        if not isinstance(units, Mapping):
            raise ConfigError(f"{type(plant).__name__}.{field}: expected a mapping of names to units, got {units!r}")
    for argument, given in mappings.items():
        if not isinstance(given, Mapping):
            what = "equations" if argument == "inputs" else "constraints"
            problems.add(f"expected a mapping of names to {what}, got {given!r}", argument)
    if law is not None and not isinstance(law, Law):
        problems.add(f"expected a law such as ConstraintFollowing(...), or None, got {law!r}", "law")
    if engine not in ENGINES:
        problems.add(f"expected one of {', '.join(ENGINES)}, got {engine!r}", "engine")


@np.errstate(all="ignore")
def simulate(
    plant: Plant,
    task: Mapping[str, Constraint],
    law: Law | None,
    *,
    # the motion
    q: Any,
    v: Any = 0.0,
    t: float = 0.0,
    project: bool = False,
    duration: float,
    inputs: Mapping[str, str] | None = None,
    # the loop and its machine
    bounds: Mapping[str, Keeps] = MappingProxyType({}),
    estimation: Estimator | None = None,
    realism: Realism | Mapping[str, Any] | None = None,
    passive_correction: Correction | Literal["auto"] | None = "auto",
    passive_rank_tolerance: float | None = None,
    projection: bool | Literal["auto"] = "auto",
    # engine and files
    engine: str = "auto",
    out: Path | None = None,
    name: str = "simulation",
    **run: Any,
) -> Trajectory:
    """Simulates a plant under a law, without a config.

    Args:
        plant: The plant.
        task: Name -> constraint.
        law: The law; None for an open loop.
        q: Initial coordinates: shape (n,), one number for all, or a mapping by name; that of a robot from a file may
            leave names out, as in a config.
        v: Initial velocities, in the same forms; a mapping may leave names out, which are zero.
        t: Time at the start [s].
        project: Whether to start from the nearest state that satisfies all constraints.
        duration: Time to simulate [s].
        inputs: Actuator -> equation, for an open loop; zero where left out.
        bounds: Name -> bound h >= 0 that the law keeps before every task: a constraint whose violation is h, such as
            `Holonomic("x - 0.1")`, `CoordinateRange`, `CoordinateSpeed`, `DistanceBound`, a `ReactionBound`, or a
            `Bound` of one of them with its own rate.
        estimation: Estimates state and disturbance from positions, for the law; needs a period. None: the law gets the
            true state, or what `realism` measures. It knows the delay, lag and limits of `realism`, and its noise
            unless another is given.
        realism: Effects of a real machine, such as `Realism(delay=0.001, parameter_error={"m": 0.3})`, or a mapping
            with the keys of a config's `realism`; files are relative to the working folder. Needs a period.
        passive_correction: Stabilises the plant's own constraints; `auto`: alpha = beta = 10 1/s unless they are
            projected.
        passive_rank_tolerance: A mechanism direction counts if its pivot exceeds this times |Ahat L^-T|_F, for the
            plant and the law; None: that of the law.
        projection: Whether each step ends with a projection onto the mechanism constraints; `auto`: if their rows are
            dependent and no `passive_correction` is given.
        engine: `auto`, `c`, `vm` or `numpy`; without a C compiler, `c` falls back to `vm` with a note.
        out: Run folder to write; None: in memory only.
        name: For titles.
        run: The other leaves of the section `run` of a config: `period` [s], None where the law acts continuously;
            `output_step` [s], `settling_band`, `seed`; and of its integrator `method` (`rk4`, `dop853` or `radau`),
            `step` [s] of rk4, `rtol` and `atol` of the other methods.

    Raises:
        ConfigError: Wrong arguments; lists all of them.
        PlantError, TaskError, TraceError: The parts do not fit, or the start is impossible.
    """
    forget_derived()
    values = _written({
        "run": _section({"duration": duration, **run}), "realism": realism, "estimation": estimation,
        "passive_rank_tolerance": passive_rank_tolerance, "t": t, "projection": projection,
    })  # fmt: skip
    problems = Problems(Arguments("simulate", values, {}))
    _check_types(plant, {"task": task, "bounds": bounds, "inputs": inputs or {}}, law, engine, problems)
    if "integrator" in run:
        problems.add("unknown argument (give method, step, rtol or atol)", "integrator")
    q = build_coordinates(q, plant, problems, "q")
    v = one_per_name(v, plant.coordinates, "coordinate", problems, "v")
    if inputs and law is not None:
        problems.add("cannot be used with a law, which computes the inputs (law=None is an open loop)", "inputs")
    equations = build_equations(inputs if isinstance(inputs, Mapping) else {}, plant, problems, "inputs")
    sections, wrong = validate(Call, values, {"law": law})
    problems.extend(wrong)
    problems.check()
    assert sections is not None
    settings, start = sections.run, State(sections.t, q, v)
    context = Context(plant, sections, problems)
    check_loop(context)
    following = law if isinstance(law, ConstraintFollowing) else ConstraintFollowing
    tolerance = sections.passive_rank_tolerance or following.passive_rank_tolerance
    law = _for_loop(law, bounds, tolerance, context)
    problems.check()
    if passive_correction != "auto":
        projection = False if projection == "auto" else projection
    else:
        passive_correction = None if projection is True else PASSIVE_CORRECTION
    system = make_system(plant, task, law, equations, start, passive_correction, tolerance, projection)
    if project:
        start, _ = nearest(system.model, start)
    system = dataclasses.replace(system, **effects_of(system, context, Path(), start))
    problems.check()
    loop = make_loop(context.estimating(system, start), engine)
    task_map = None if law is None else starts.look_at_reach(loop.system, start)
    _check_start(loop, start, task_map, context)
    return Run(name, loop, start, settings, lambda: task_map, engine=engine).simulate(out)


def _check_start(loop: Loop, start: State, task_map: TaskMap | None, context: Context) -> None:
    """Raises TaskError for a start, a task or gains that are impossible; lists all that is wrong."""
    problems = context.problems
    wrong = starts.check_start(loop, start, np.inf)
    wrong += starts.unreachable(task_map, loop.system.acting) if task_map is not None else []
    check_settings(loop, context.values.run, problems, on_drives=False)
    if wrong or problems.found:
        raise TaskError("\n".join(map(str, [*wrong, *problems.found])))


def _section(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """The section `run` with these leaves, those of its integrator in their own section."""
    of_integrator = {field.name for field in dataclasses.fields(Integrator)}
    run = {name: value for name, value in leaves.items() if name not in of_integrator}
    return run | {"integrator": {name: value for name, value in leaves.items() if name in of_integrator}}


def _written(argument: Any) -> Any:
    """An argument as a config has it: sections as mappings, numbers and arrays of NumPy as those of Python."""
    if isinstance(argument, np.generic | np.ndarray):
        return argument.tolist()
    if isinstance(argument, list | tuple):
        return [_written(value) for value in argument]
    known = vars(argument) if dataclasses.is_dataclass(argument) else argument
    return {name: _written(value) for name, value in known.items()} if isinstance(known, Mapping) else argument


def _for_loop(law: Law | None, bounds: Mapping[str, Keeps], tolerance: float, context: Context) -> Law | None:
    """The law with bounds, the rank tolerance of the plant and the timing of the loop.

    Raises:
        TaskError: It keeps no bounds.
    """
    if not isinstance(law, ConstraintFollowing):
        if bounds:
            raise TaskError("simulate: bounds: need a law that keeps them (use ConstraintFollowing or InputOutput)")
        return law
    entries = {name: bound if isinstance(bound, Bound) else Bound(bound) for name, bound in bounds.items()}
    kept = Bounds(entries, context.seen, context.estimate_errors) if entries else law.bounds
    return dataclasses.replace(law, bounds=kept, timings=context.terms, passive_rank_tolerance=tolerance)


PARTS = ("u", "rank", "residual", "pivot_min", "status")  # of a command


def evaluate(run: Run, t: float, q: Array, v: Array, memory: Array | None = None) -> dict[str, Array]:
    """The terms of plant, task and law at a state.

    | name | shape | is |
    |---|---|---|
    | `M`, `Q`, `B`, `c` | (n, n), (n,), (n, m), (n,) | `M q'' = Q + B u + Qc`; c: nonideal part of the reaction Qc |
    | `passive_A`, `passive_b` | (p, n), (p,) | the plant's own constraints `Ahat q'' = bhat` |
    | `passive_violation`, `passive_violation_rate` | (p,) | what they miss; a rate is NaN where there is none |
    | `A`, `b`, `violation`, `violation_rate` | (r, n), (r,) | the same of the task |
    | `a_c` | (n,) | q'' at u = 0 |
    | `T`, `rhs` | (r, m), (r,) | the task is met where `T u = rhs`, `rhs = b - A a_c`; the law adds its feedback |
    | `u`, `rank`, `residual`, `pivot_min`, `status` | (m,), (1,) | the command; `Status.from_code` reads a status |
    | `acceleration` | (n,) | q'' under u, with friction and the correction of the mechanism constraints |

    Args:
        run: The run.
        t: Time [s].
        q: Coordinates, shape (n,).
        v: Velocities, shape (n,).
        memory: The law's own states; None: those at the start.

    Raises:
        ValueError: A shape is wrong.
    """
    loop, n = run.loop, run.system.model.n
    given = {"q": (q, n), "v": (v, n), "memory": (loop.memory_start if memory is None else memory, loop.size - 2 * n)}
    for name, (value, size) in given.items():
        if np.shape(value) != (size,):
            raise ValueError(f"evaluate: {name}: expected shape {(size,)}, got {np.shape(value)}")
    x = np.concatenate([value for value, _ in given.values()])
    kernel = loop.terms_kernel
    terms = dict(zip(kernel.outputs, kernel(t, x, loop.parameters), strict=True))
    command, slices = loop.control(t, x), loop.layout.slices
    parts = {name: command[slices[name]] for name in PARTS}
    return terms | parts | {"acceleration": loop.motion(t, x, command)[0][n : 2 * n]}


@dataclass(frozen=True)
class ConstrainedMotion:
    """An acceleration, with rank and residual."""

    acceleration: Array  # q'', shape (n,)
    constraint_force: Array  # qc, shape (n,)
    rank: int
    inconsistency: Array  # (I - A A^+) b in the mass-weighted norm, shape (r,): zero if the rows can all hold


def fundamental_acceleration(plant: Plant, state: State, rank_tolerance: float = 1e-6) -> ConstrainedMotion:
    """The acceleration of a plant under its own mechanism constraints, without inputs.

    Args:
        plant: The plant.
        state: Time, coordinates and velocities.
        rank_tolerance: A mechanism direction counts when its pivot exceeds this times |Ahat L^-T|_F.

    Raises:
        PlantError: A matrix of the plant has a wrong shape or value, or the motion is not unique.
    """
    forget_derived()
    model = Model(plant, {}, state)
    terms, u = model.terms(state, rank_tolerance), np.zeros(model.m)
    a = terms.acceleration(u)
    return ConstrainedMotion(a, terms.passive_force(a, u), terms.passive.rank, terms.consistency)
