"""`simulate`: a simulation from Python, without a config."""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from servoctl.assembly import start as starts
from servoctl.assembly.estimation import errors_of, measured_by, with_estimator
from servoctl.assembly.make import PASSIVE_CORRECTION, check_settings, make_system
from servoctl.assembly.realism import build_realism, realistic
from servoctl.assembly.run import ENGINES, Run
from servoctl.assembly.values import build_equations, one_per_name
from servoctl.config.problems import validate_realism
from servoctl.config.realism import RealismConfig
from servoctl.config.schema import GONE, default_step, divides
from servoctl.errors import ConfigError, TaskError
from servoctl.estimation.estimator import Estimator
from servoctl.expression import Expression
from servoctl.laws.bounds import Bound, Bounds, ReactionBound
from servoctl.laws.configured import ConstraintFollowing
from servoctl.laws.corrections import Correction
from servoctl.laws.law import Law
from servoctl.laws.term import TermTimings
from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.initial import nearest
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.timing import Timing
from servoctl.run_folder.trajectory import Trajectory
from servoctl.simulation.engine_choice import make_loop
from servoctl.simulation.realism import Realism
from servoctl.simulation.rows import METHODS, Integrator, Settings
from servoctl.simulation.system import System
from servoctl.types import Array, State


class ArgumentCheck:
    """Checks arguments and collects what is wrong with them.

    Args:
        law: The law, or None.

    Raises:
        ConfigError: `plant` is not a plant, so that nothing else can be checked.
    """

    def __init__(self, plant: Any, task: Any, law: Any, engine: str) -> None:
        self._problems: list[str] = []
        if not isinstance(plant, Plant):
            hint = f"make one: {plant.__name__}(...)" if isinstance(plant, type) else "an instance of a servoctl.Plant"
            raise ConfigError(f"simulate: plant: expected a plant, got {plant!r} ({hint})")
        for field, units in (("coordinates", plant.coordinates), ("actuators", plant.actuators)):
            if not isinstance(units, Mapping):
                raise ConfigError(
                    f"{type(plant).__name__}.{field}: expected a mapping of names to units, got {units!r}"
                )
        self._plant = plant
        if not isinstance(task, Mapping):
            self.add(f"expected a mapping of names to constraints, got {task!r}", "task")
        if law is not None and not isinstance(law, Law):
            self.add(f"expected a law such as ConstraintFollowing(...), or None, got {law!r}", "law")
        if engine not in ENGINES:
            self.add(f"expected one of {', '.join(ENGINES)}, got {engine!r}", "engine")

    def add(self, what: object, *path: str | int) -> None:
        """Notes what is wrong with an argument, named as itself or by its field in a config, as `run.period`."""
        field = ".".join(map(str, path)).removeprefix("run.").removeprefix("integrator.")
        self._problems.append(f"simulate: {field}: {what}")

    def check(self) -> None:
        """Raises ConfigError with all problems, if there are any."""
        if self._problems:
            raise ConfigError(self._problems)

    def vector(self, given: Any, field: str) -> Array:
        """q or v, shape (n,); a mapping must have every coordinate of q."""
        default = None if field == "q" else 0.0
        return one_per_name(given, self._plant.coordinates, "coordinate", self, field, default=default)

    @property
    def found(self) -> list[str]:
        """One sentence per problem so far."""
        return self._problems

    def realism(self, given: Any, period: Any) -> RealismConfig | None:
        """The effects of a real machine; None without them, or if they are wrong."""
        if given is None:
            return None
        if period is None:
            self.add("needs a period (give period=)", "realism")
            return None
        values, problems = validate_realism(given, self.time(period, "period"))
        for problem in problems:
            self.add(problem.what, *problem.path)
        return values

    def effects(self, values: RealismConfig, settings: Settings) -> Realism:
        """Measurement, delay and actuators of a real machine."""
        assert settings.period is not None
        return build_realism(values, self._plant, settings.period, self)

    def time(self, given: Any, field: str) -> float:
        """A positive, finite number."""
        if isinstance(given, bool) or not isinstance(given, (int, float, np.number)) or not 0 < given < math.inf:
            self.add(f"expected a positive number, got {given!r}", field)
            return 1.0
        return float(given)

    def equations(self, given: Mapping[str, str] | None, law: Any) -> dict[str, Expression]:
        """Actuator -> equation of an open loop."""
        if given and law is not None:
            self.add("cannot be used with a law, which computes the inputs (law=None is an open loop)", "inputs")
            return {}
        return build_equations(given, self._plant, self, "inputs")

    def settings(
        self,
        duration: float,
        method: str,
        step: float | None,
        rtol: float,
        atol: float,
        period: float | None,
        output_step: float | None,
    ) -> Settings:
        """How to run; parameters as of `simulate`."""
        duration, rtol, atol = self.time(duration, "duration"), self.time(rtol, "rtol"), self.time(atol, "atol")
        period = None if period is None else self.time(period, "period")
        output_step = None if output_step is None else self.time(output_step, "output_step")
        if method in GONE:
            self.add(GONE[method], "method")
        elif method not in METHODS:
            self.add(f"expected one of {', '.join(METHODS)}, got {method!r}", "method")
        step = self.time(default_step(period) if step is None else step, "step")
        if period is not None and method == "rk4" and not divides(step, period):
            self.add(f"{step:.12g} does not divide the period {period:.12g} (leave it out)", "step")
        return Settings(duration, Integrator(method, step, rtol, atol), period, output_step)


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
    period: float | None = None,
    bounds: Mapping[str, Constraint | ReactionBound | Bound] = MappingProxyType({}),
    estimation: Estimator | None = None,
    realism: Mapping[str, Any] | None = None,
    passive_correction: Correction | Literal["auto"] | None = "auto",
    passive_rank_tolerance: float = 1e-6,
    projection: bool | Literal["auto"] = "auto",
    # numbers and files
    method: str = "rk4",
    step: float | None = None,
    rtol: float = 1e-10,
    atol: float = 1e-12,
    output_step: float | None = None,
    engine: str = "auto",
    out: Path | None = None,
    name: str = "simulation",
) -> Trajectory:
    """Simulates a plant under a law, without a config.

    The arguments after the law are in three groups: the motion (`q` to `inputs`), the loop and its machine (`period` to
    `projection`), numbers and files (`method` to `name`).

    Args:
        plant: The plant.
        task: Name -> constraint.
        law: The law; None for an open loop.
        q: Initial coordinates: shape (n,), one number for all, or a mapping by name.
        v: Initial velocities, in the same forms; a mapping may leave names out, which are zero.
        t: Time at the start [s].
        project: Whether to start from the nearest state that satisfies all constraints.
        duration: Time to simulate [s].
        inputs: Actuator -> equation, for an open loop; zero where left out.
        period: Period of a sampled law [s]; None: the law acts continuously.
        bounds: Name -> bound h >= 0 that the law keeps before every task: a constraint whose violation is h, such as
            `Holonomic("x - 0.1")`, `CoordinateRange`, `CoordinateSpeed`, `DistanceBound`, a `ReactionBound`, or a
            `Bound` of one of them with its own rate.
        estimation: Estimates state and disturbance from positions, for the law; needs a period. None: the law gets the
            true state, or what `realism` measures. It knows the delay, lag and limits of `realism`, and its noise
            unless another is given.
        realism: Effects of a real machine, with the keys of a config's `realism`, such as
            `{"noise": {"q": 1e-5}, "delay": 0.001, "parameter_error": {"m": 0.3}}`; files are relative to the working
            folder. Needs a period.
        passive_correction: Stabilises the plant's own constraints; `auto`: alpha = beta = 10 1/s unless they are
            projected.
        passive_rank_tolerance: A mechanism direction counts if its pivot exceeds this times |Ahat L^-T|_F.
        projection: Whether each step ends with a projection onto the mechanism constraints; `auto`: if their rows are
            dependent and no `passive_correction` is given.
        method: `rk4`, `dop853` or `radau`.
        step: Step of rk4 [s]; None: 0.001, or the next shorter step that divides the period.
        rtol: Relative tolerance of the adaptive methods.
        atol: Absolute tolerance of the adaptive methods.
        output_step: Spacing of the rows of a continuous run [s]; None: every step.
        engine: `auto`, `c`, `vm` or `numpy`; without a C compiler, `c` falls back to `vm` with a note.
        out: Run folder to write; None: in memory only.
        name: For titles.

    Raises:
        ConfigError: Wrong arguments; lists all of them.
        PlantError, TaskError, TraceError: The parts do not fit, or the start is impossible.
    """
    arguments = ArgumentCheck(plant, task, law, engine)
    start = State(t, arguments.vector(q, "q"), arguments.vector(v, "v"))
    equations = arguments.equations(inputs, law)
    settings = arguments.settings(duration, method, step, rtol, atol, period, output_step)
    effects = arguments.realism(realism, period)
    arguments.check()
    if effects is not None:
        estimation = _knowing(estimation, effects, settings, law, arguments)
        arguments.check()
    timing = Timing.of(period, plant.actuators)
    timing = timing if effects is None else arguments.effects(effects, settings).timing
    law = _bounded(law, bounds, plant, estimation, timing)
    if isinstance(law, ConstraintFollowing):
        seen = timing if estimation is None else timing.at_action
        law = dataclasses.replace(law, timings=TermTimings(seen, timing, seen))
    if passive_correction != "auto":
        projection = False if projection == "auto" else projection
    else:
        passive_correction = None if projection is True else PASSIVE_CORRECTION
    system = make_system(plant, task, law, equations, start, passive_correction, passive_rank_tolerance, projection)
    if project:
        start, _ = nearest(system.model, start)
    system = realistic(system, effects, settings, Path(), start, arguments)
    arguments.check()
    if estimation is not None:
        system = _estimating(system, estimation, start, timing)
    loop = make_loop(system, engine)
    task_map = None if law is None else starts.look_at_reach(system, start)
    problems = starts.check_start(system.model, start, np.inf, loop)
    problems += starts.unreachable(task_map, system.law) if task_map is not None else []
    check_settings(loop, settings, arguments, on_drives=False)
    if problems := problems + arguments.found:
        raise TaskError("\n".join(problems))
    return Run(name, loop, start, settings, task_map, engine=engine).simulate(out)


def _knowing(
    estimation: Estimator | None,
    effects: RealismConfig,
    settings: Settings,
    law: Law | None,
    arguments: ArgumentCheck,
) -> Estimator | None:
    """The estimator that measurements of a real machine need, with what it knows of noise and actuators."""
    if estimation is None and effects.measured == "q":
        estimation = Estimator(kind="difference")
    if estimation is None or law is None:
        return None
    noise = measured_by(arguments.effects(effects, settings))
    if noise is None or not np.array_equal(estimation.noise, Estimator().noise):
        return estimation
    return dataclasses.replace(estimation, noise=tuple(noise.tolist()))


def _bounded(
    law: Law | None,
    bounds: Mapping[str, Constraint | ReactionBound | Bound],
    plant: Plant,
    estimation: Estimator | None,
    timing: Timing,
) -> Law | None:
    """The law with bounds, which know the timing.

    Raises:
        TaskError: It keeps none.
    """
    if not bounds:
        return law
    if not isinstance(law, ConstraintFollowing):
        raise TaskError("simulate: bounds: need a law that keeps them (use ConstraintFollowing or InputOutput)")
    entries = {name: bound if isinstance(bound, Bound) else Bound(bound) for name, bound in bounds.items()}
    if estimation is None or timing.period is None:
        return dataclasses.replace(law, bounds=Bounds(entries, timing))
    return dataclasses.replace(law, bounds=Bounds(entries, timing.at_action, errors_of(estimation, plant, timing)))


def _estimating(system: System, estimation: Estimator, start: State, timing: Timing) -> System:
    """The system with an estimator.

    Raises:
        TaskError: It does not fit.
    """
    if timing.period is None or system.law is None:
        missing = "a period (give period=)" if timing.period is None else "a law"
        raise TaskError(f"simulate: estimation: needs {missing}")
    if estimation.kind == "model" and system.law.observed:
        raise TaskError("simulate: estimation: the law's observer would cancel the same disturbance (leave one out)")
    return with_estimator(system, estimation, start, timing)
