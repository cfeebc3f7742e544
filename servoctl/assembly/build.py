"""A config's values -> plant, task and law. Every problem is collected, with its line, before any is raised."""

import dataclasses
import keyword
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from servoctl.assembly.classes import load_class
from servoctl.assembly.problems import Problems
from servoctl.config.corrections import CorrectionConfig as CorrectionValues
from servoctl.config.load import LoadedConfig
from servoctl.config.schema import LawConfig as LawValues
from servoctl.config.schema import Task as TaskValues
from servoctl.engine.parameters import parameter_fields
from servoctl.errors import ConfigError, ExpressionError, ServoctlError, in_one_line
from servoctl.expression import RESERVED, Expression, check_names, constant, parse
from servoctl.expression.suggest import remedy
from servoctl.laws.constraint_following import ConstraintFollowing
from servoctl.laws.corrections import Baumgarte, Correction, PFeedback, Poles, SecondOrderCorrection
from servoctl.laws.input_output import InputOutput
from servoctl.laws.secondary import Secondary
from servoctl.mechanics.constraint import Constraint, Holonomic, Nonholonomic
from servoctl.mechanics.plant import Plant
from servoctl.types import Array


def build_plant(loaded: LoadedConfig, problems: Problems) -> Plant | None:
    """The plant with its parameters, without those that are wrong; None, and problems noted, where there is none."""
    values = loaded.config.plant
    try:
        kind = load_class(values.class_, loaded.folder, Plant)
    except ConfigError as error:
        problems.add(error, "plant", "class")
        return None
    plant = instantiate(kind, values.parameters, problems, "plant")
    if problems.touch("plant.parameters"):
        plant = _with_the_right_parameters(kind, loaded, problems)
    before = len(problems.found)
    if plant is not None:
        _check_words(plant, problems)
    return plant if isinstance(plant, Plant) and len(problems.found) == before else None


def _with_the_right_parameters(kind: type[Plant], loaded: LoadedConfig, problems: Problems) -> Plant | None:
    """A plant to hold names against; None where names, or lengths of lists, may depend on what is wrong."""
    given = loaded.config.plant.parameters
    wrong = [name for name, many in _float_fields(kind).items() if many and problems.touch(f"plant.parameters.{name}")]
    if wrong or not all(isinstance(getattr(kind, names, None), Mapping) for names in ("coordinates", "actuators")):
        return None
    right = {name: value for name, value in given.items() if not problems.touch(f"plant.parameters.{name}")}
    plant = instantiate(kind, right, Problems(loaded), "plant")
    return plant if isinstance(plant, Plant) else None


def instantiate(kind: type[Any], parameters: Mapping[str, Any], problems: Problems, *path: str | int) -> Any:
    """An instance of a dataclass with these fields; None, and problems noted, where it cannot be made."""
    before = len(problems.found)
    if not dataclasses.is_dataclass(kind):
        if parameters:
            problems.add(
                f"{kind.__name__} has no parameters (decorate it with @dataclass(frozen=True))", *path, "parameters"
            )
            return None
        fields: dict[str, dataclasses.Field[Any]] = {}
    else:
        fields = {field.name: field for field in dataclasses.fields(kind) if field.init}
    floats = _float_fields(kind)
    given: dict[str, Any] = {}
    for name, value in parameters.items():
        if name not in fields:
            problems.add(f"{kind.__name__} has no such parameter ({remedy(name, fields)})", *path, "parameters", name)
            continue
        try:
            given[name] = _parameter(value, floats.get(name), fields[name].type)
        except ServoctlError as error:
            problems.add(error, *path, "parameters", name)
    needed = [
        name
        for name, field in fields.items()
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    missing = [name for name in needed if name not in parameters]
    for name in missing:
        problems.add(f"{kind.__name__} needs the parameter '{name}' (it has no default)", *path, "parameters")
    if len(problems.found) > before:
        return None
    try:
        thing = kind(**given)
    except ServoctlError as error:
        problems.add(error, *path, "parameters")
        return None
    except TypeError as error:
        problems.add(f"{kind.__name__} cannot be made: {error}", *path, "class")
        return None
    except (Exception, SystemExit) as error:  # what the class itself says of its parameters
        problems.add(f"{kind.__name__} refuses its parameters: {in_one_line(error)}", *path, "parameters")
        return None
    for name in parameter_fields(thing):
        if not _finite(getattr(thing, name)):
            problems.add(f"expected finite numbers, got {getattr(thing, name)!r}", *path, "parameters", name)
    return thing


def _finite(value: Any) -> bool:
    """Whether a class left finite numbers in a field."""
    try:
        return bool(np.isfinite(np.asarray(value, dtype=float)).all())
    except (TypeError, ValueError, OverflowError):
        return False


def _float_fields(kind: type[Any]) -> dict[str, bool]:
    """Parameter fields of a class -> whether the field is a tuple."""
    from servoctl.engine.parameters import annotated

    return annotated(kind) if dataclasses.is_dataclass(kind) else {}


def _parameter(value: Any, many: bool | None, annotation: Any) -> Any:
    """A config's value as the field's type."""
    if many is False:
        return constant(value)
    if many is True:
        if not isinstance(value, (list, tuple)):
            raise ConfigError(f"expected a list of numbers, got {value!r}")
        return tuple(constant(item) for item in value)
    wanted = {"int": int, "str": str, "bool": bool}.get(getattr(annotation, "__name__", str(annotation)))
    if wanted is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if wanted is not None and (not isinstance(value, wanted) or (wanted is int and isinstance(value, bool))):
        word = {"int": "an integer", "str": "text", "bool": "true or false"}[wanted.__name__]
        raise ConfigError(f"expected {word}, got {value!r}")
    return tuple(value) if isinstance(value, list) else value


def _check_words(plant: Plant, problems: Problems) -> None:
    """Coordinates, actuators and parameters must be pairwise distinct identifiers, and no reserved words."""
    name = type(plant).__name__
    try:
        named = {"coordinates": plant.coordinates, "actuators": plant.actuators}
    except (Exception, SystemExit) as error:
        problems.add(f"{name}: coordinates or actuators: {in_one_line(error)}", "plant", "class")
        return
    before = len(problems.found)
    for field, units in named.items():
        if not isinstance(units, Mapping):
            problems.add(f"{name}.{field}: expected a mapping of names to units, got {units!r}", "plant", "class")
    if len(problems.found) > before:
        return
    groups = {"coordinate": list(plant.coordinates), "actuator": list(plant.actuators)}
    if not groups["coordinate"]:
        problems.add(f"{name}.coordinates: there are none (give name -> unit)", "plant", "class")
    groups["parameter"] = list(parameter_fields(plant))
    seen: dict[str, str] = {}
    for kind, words in groups.items():
        for word in words:
            if not isinstance(word, str) or not word.isidentifier() or keyword.iskeyword(word):
                problems.add(f"{name}: {kind} {word!r} is not an identifier (rename it)", "plant", "class")
            elif word in RESERVED:
                problems.add(f"{name}: {kind} '{word}' is a word of the equations (rename it)", "plant", "class")
            elif word in seen:
                problems.add(f"{name}: '{word}' is both {seen[word]} and {kind} (rename one)", "plant", "class")
            seen.setdefault(word, kind)


def build_vector(given: Any, plant: Plant, problems: Problems, field: str) -> Array:
    """q or v from a scalar, a list in the plant's order, or a mapping by name."""
    names = list(plant.coordinates)
    if isinstance(given, Mapping):
        for wrong in [name for name in given if name not in names]:
            problems.add(f"there is no coordinate '{wrong}' ({remedy(wrong, names)})", "initial", field, wrong)
        missing = [name for name in names if name not in given]
        if missing and field == "q":
            problems.add(f"no value for {', '.join(missing)} (give every coordinate)", "initial", field)
        return np.array([float(given.get(name, 0.0)) for name in names])
    if isinstance(given, Sequence):
        if len(given) != len(names):
            problems.add(f"expected {len(names)} values ({', '.join(names)}), got {len(given)}", "initial", field)
            return np.zeros(len(names))
        return np.array([float(value) for value in given])
    return np.full(len(names), float(given))


def build_task(loaded: LoadedConfig, plant: Plant, problems: Problems) -> dict[str, Constraint]:
    """Name -> constraint, in order."""
    task: dict[str, Constraint] = {}
    for index, entry in enumerate(loaded.config.task):
        if entry.class_ is None and entry.holonomic is None and entry.nonholonomic is None:
            continue  # of a config that was mended
        constraint = _constraint(loaded, plant, entry, index, problems)
        if constraint is not None:
            task[entry.name] = constraint
    return task


def _constraint(
    loaded: LoadedConfig, plant: Plant, entry: TaskValues, index: int, problems: Problems
) -> Constraint | None:
    if entry.class_ is not None:
        try:
            kind = load_class(entry.class_, loaded.folder, Constraint)
        except ConfigError as error:
            problems.add(error, "task", index, "class")
            return None
        constraint = instantiate(kind, entry.parameters or {}, problems, "task", index)
        return constraint if isinstance(constraint, Constraint) else None
    field = "holonomic" if entry.holonomic is not None else "nonholonomic"
    equation = _equation(entry.holonomic or entry.nonholonomic or "", plant, problems, "task", index, field)
    if equation is None:
        return None
    return Holonomic(equation) if field == "holonomic" else Nonholonomic(equation)


def _equation(text: str, plant: Plant, problems: Problems, *path: str | int) -> Expression | None:
    try:
        expression = parse(text)
    except ExpressionError as error:
        problems.add(error, *path)
        return None
    wrong = check_names(expression, plant.coordinates, parameter_fields(plant))
    for sentence in wrong:
        problems.add(sentence, *path)
    return None if wrong else expression


def build_equations(
    given: Mapping[str, str] | None, plant: Plant, problems: Problems, *path: str
) -> dict[str, Expression]:
    """Actuator -> equation."""
    equations: dict[str, Expression] = {}
    for name, text in (given or {}).items():
        if name not in plant.actuators:
            problems.add(f"there is no actuator '{name}' ({remedy(name, plant.actuators)})", *path, name)
            continue
        expression = _equation(str(text), plant, problems, *path, name)
        if expression is not None:
            equations[name] = expression
    return equations


def build_correction(values: CorrectionValues | None) -> Correction | None:
    """The correction that a config names."""
    if values is None:
        return None
    if values.baumgarte is not None:
        return Baumgarte(values.baumgarte.alpha, values.baumgarte.beta)
    if values.second_order is not None:
        return SecondOrderCorrection(values.second_order.damping, values.second_order.stiffness)
    if values.poles is not None:
        return Poles(values.poles)
    assert values.p_feedback is not None
    return PFeedback(values.p_feedback.P, values.p_feedback.rate)


def build_law(loaded: LoadedConfig, plant: Plant, problems: Problems) -> ConstraintFollowing | None:
    """The law as a person stated it; None for an open loop."""
    values = loaded.config.law
    if not isinstance(values, LawValues):
        return None
    own = {entry.name: build_correction(entry.correction) for entry in loaded.config.task}
    weights = None if isinstance(values.allocation, str) else dict(values.allocation.weighted)
    limits = {name: _limit(limit) for name, limit in (values.limits or {}).items()}
    kind = InputOutput if values.kind == "input_output" else ConstraintFollowing
    return kind(
        correction=build_correction(values.correction),
        corrections={name: correction for name, correction in own.items() if correction is not None},
        priorities={entry.name: entry.priority for entry in loaded.config.task},
        optional=tuple(entry.name for entry in loaded.config.task if entry.required is False),
        allocation=values.allocation if isinstance(values.allocation, str) else "weighted",
        weights=weights,
        feedback_allocation=values.feedback_allocation,
        null_space=build_equations(values.null_space, plant, problems, "law", "null_space") or None,
        secondary=None if values.secondary is None else Secondary(**values.secondary.model_dump()),
        limits=limits or None,
        rank_tolerance=values.rank_tolerance,
        passive_rank_tolerance=loaded.config.plant.passive.rank_tolerance,
        residual_tolerance=values.residual_tolerance,
        on_infeasible=values.on_infeasible,
        input_damping=values.damping,
    )


def check_actuators(law: LawValues, plant: Plant, problems: Problems) -> None:
    """Notes actuators that a law names and the plant has not; those of its equations apart."""
    named = {
        "limits": law.limits,
        "allocation.weighted": None if isinstance(law.allocation, str) else law.allocation.weighted,
        "secondary.preload": None if law.secondary is None else law.secondary.preload,
    }
    known = ", ".join(plant.actuators) or "none"
    for field, mapping in named.items():
        for wrong in [name for name in mapping or {} if name not in plant.actuators]:
            problems.add(f"there is no actuator '{wrong}' (actuators: {known})", "law", *field.split("."))


def _limit(limit: Any) -> tuple[float, float]:
    if isinstance(limit, (int, float)):
        return -float(limit), float(limit)
    lower, upper = limit
    return float(lower), float(upper) if math.isfinite(upper) else math.inf
