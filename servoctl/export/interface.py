"""The interface of an exported law: its parameters, and the names and units of its inputs and outputs."""

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

import numpy as np

from servoctl.engine.parameters import parameter_fields, parameter_names, parameter_values, parts, path_in
from servoctl.expression import per_second
from servoctl.laws.corrections import PER_ROW, OfRows
from servoctl.laws.law import AttachedLaw
from servoctl.mechanics.motors import displacement_unit
from servoctl.mechanics.plant import Plant
from servoctl.simulation.closed_loop import Loop
from servoctl.tree.rules import fields_of
from servoctl.types import Array

_WORDS = (
    "auto break case char const continue default do double else enum extern float for goto if inline int long register "
    "restrict return short signed sizeof static struct switch typedef union unsigned void volatile while "
    "class new delete this template typename namespace bool true false "
    "asm catch explicit export friend mutable nullptr operator private protected public throw try typeid using virtual "
    "and bitand bitor compl not or xor constexpr decltype noexcept concept requires wchar_t"
)
KEYWORDS = frozenset(_WORDS.split())
_MACROS = re.compile(r"linux|unix|std(in|out|err)|errno|EOF|NULL|NAN|INFINITY|HUGE_VAL[FL]?|(M|FP|MATH|SEEK)_\w+")


@dataclass(frozen=True)
class Member:
    """One parameter of the law."""

    group: str  # its struct in C: `plant`, `law`, or `task_<name>`
    name: str  # its name in C
    length: int | None  # length of an array; None for a number
    start: int  # index of its first entry among the loop's parameters
    remark: str  # unit and meaning

    @property
    def places(self) -> range:
        """Indices of its entries among the loop's parameters."""
        return range(self.start, self.start + (1 if self.length is None else self.length))

    def in_c(self, place: int) -> str:
        """The C expression of an entry."""
        return f"p->{self.group}.{self.name}" + ("" if self.length is None else f"[{place - self.start}]")


@dataclass(frozen=True)
class Interface:
    """The interface of a law in C."""

    name: str  # prefix of every name in C
    coordinates: Mapping[str, str]  # name -> unit
    actuators: Mapping[str, str]  # name -> unit
    memory: tuple[str, ...]  # names of the entries of the law's state, which it integrates
    members: tuple[Member, ...]  # parameters that the law depends on
    fixed: tuple[str, ...]  # names of parameters that it does not depend on
    values: Array  # all parameters of the loop, as exported
    sources: tuple[str | None, ...]  # C expression of each of these; None for one that stays at its value
    # period of a law with an estimator [s], which takes measured positions alone; None: it has none
    period: float | None = None

    @property
    def takes(self) -> dict[str, str]:
        """Name in C of each array of the state that the law takes -> its entries; with an estimator no speeds."""
        found = {"q": named(self.coordinates)}
        if self.period is None:
            found["v"] = named({f"{name}'": per_second(unit or "-") for name, unit in self.coordinates.items()})
        return found | ({"memory": comment(", ".join(self.memory))} if self.memory else {})

    @property
    def groups(self) -> dict[str, list[Member]]:
        """Struct -> its members."""
        groups: dict[str, list[Member]] = {}
        for member in self.members:
            groups.setdefault(member.group, []).append(member)
        return groups


def interface(loop: Loop, name: str) -> Interface:
    """The interface of a loop's law.

    Args:
        loop: The compiled loop.
        name: Prefix of every name in C.
    """
    model, system, values = loop.system.model, loop.system, loop.parameters.copy()
    every = list(_members(loop))
    matters = _influence(loop)
    law_start = len(model.parameters)
    passive_start = law_start + len(parameter_values(system.law))
    # Simulation and law have a tolerance each for the passive constraints; exported, they are one parameter.
    shared = {m.name: m.start for m in every if m.group == "law"}["passive_rank_tolerance"]
    twin = passive_start + parameter_names(system.passive).index("rank_tolerance")
    values[shared] = values[twin]
    matters[shared] = matters[shared] or matters[twin]
    kept = tuple(member for member in every if any(matters[place] for place in member.places))
    fixed = tuple(f"{member.group}.{member.name}" for member in every if member not in kept)
    sources: list[str | None] = [None] * len(values)
    for member in kept:
        for place in member.places:
            sources[place] = member.in_c(place)
    sources[twin] = sources[shared]
    plant = model.plant
    memory = tuple(loop.memory_names)
    period = None if system.estimator is None else system.estimator.timing.h
    return Interface(name, plant.coordinates, plant.actuators, memory, kept, fixed, values, tuple(sources), period)


def _members(loop: Loop) -> Iterator[Member]:
    """All parameters of plant, task, bounds and law, in the loop's order."""
    model, law = loop.system.model, loop.system.law
    assert law is not None
    things: list[tuple[str, Any, Mapping[str, str]]] = [("plant", model.plant, _plant_remarks(model.plant))]
    things += [(f"task_{name}", constraint, _remarks(type(constraint))) for name, constraint in model.task.items()]
    things += [(f"bound_{name}", constraint, _remarks(type(constraint))) for name, constraint in model.bounds.items()]
    things.append(("law", law, _law_remarks(loop, law)))
    position, groups = 0, set[str]()
    for title, thing, remarks in things:
        group, names = identifier(title, groups), set[str]()
        for name, length in parameter_fields(thing).items():
            if length != 0:
                yield Member(group, identifier(name, names), length, position, remarks.get(name, ""))
            position += 1 if length is None else length


def _plant_remarks(plant: Plant) -> dict[str, str]:
    """Those of the class, and of what a config adds at the actuators."""
    units = {name: displacement_unit(plant, name) for name in plant.actuators}
    meanings = {
        "friction_coulomb": ("dry friction", "{effort}"),
        "friction_viscous": ("friction per speed", "{effort} s/{unit}"),
        "friction_speed": ("speed at which dry friction reaches 76 %", "{unit}/s"),
        "armature": ("inertia of the rotor at the actuator's coordinate", "{effort} s^2/{unit}"),
    }
    return _remarks(type(plant)) | {
        field: f"{what}; in order: "
        + ", ".join(f"{name} [{form.format(effort=plant.actuators[name], unit=unit)}]" for name, unit in units.items())
        for field, (what, form) in meanings.items()
    }


def _law_remarks(loop: Loop, law: AttachedLaw) -> dict[str, str]:
    inputs = ", ".join(f"{name} [{unit}]" for name, unit in loop.system.model.plant.actuators.items())
    remarks = _remarks(type(law))
    orders = {"gains": ", ".join(getattr(law, "gain_names", ()))}
    for part in parts(law):
        orders[path_in(part, "gains")] = ", ".join(getattr(part, "gain_names", ()))
        remarks |= {path_in(part, name): remark for name, remark in _remarks(type(part)).items()}
        for inner in parts(part):
            if isinstance(inner, OfRows):
                of, order = inner.correction, ", ".join(loop.system.model.task_rows[i].name for i in inner.members)
                found = {path_in(inner, path_in(of, name)): remark for name, remark in _remarks(type(of)).items()}
                remarks |= found
                orders |= dict.fromkeys(found, order)
            else:
                own = _remarks(type(inner)).items()
                remarks |= {path_in(part, path_in(inner, name)): remark for name, remark in own}
    orders |= {"secondary.aim": inputs}
    orders |= dict.fromkeys(("allocation.weights", "allocation.lower", "allocation.upper"), inputs)
    return remarks | {name: f"{remarks[name]}; in order: {order}" for name, order in orders.items() if name in remarks}


def _remarks(kind: type) -> dict[str, str]:
    """Field -> its description, or the comment on its line in the source of a class."""
    remarks: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        try:
            source = inspect.getsource(base)
        except (OSError, TypeError):
            continue
        for name, comment in re.findall(r"^\s+(\w+)\s*:[^#\n]*#\s*(.*)$", source, re.MULTILINE):
            remarks[name] = re.sub(r"\s*#\s*noqa.*", "", comment).strip()
    for name, field in fields_of(kind).values():
        if field.description:
            remarks[name] = re.sub(r"^(.*?) (\[.*?\])", r"\2 \1", field.description.removesuffix(PER_ROW))
    return remarks


def _influence(loop: Loop) -> list[bool]:
    """For each parameter of the loop, whether the law depends on it."""
    function = loop.control_kernel.function
    pattern = function.jac_sparsity(0, list(loop.control_kernel.inputs).index("p"))
    columns = set(np.asarray(pattern.get_triplet()[1], dtype=int).tolist())
    return [place in columns for place in range(len(loop.parameters))]


def identifier(text: str, taken: set[str] | None = None) -> str:
    """A C identifier made of a text; it differs from those in `taken` and is added to them."""
    word = re.sub(r"\W", "_", text, flags=re.ASCII)
    word = f"law_{word}" if not word[:1].isalpha() else word
    word = f"{word}_" if word in KEYWORDS or _MACROS.fullmatch(word) else word
    if taken is not None:
        numbered = (f"{word}_{number}" for number in count(2))
        word = next(each for each in chain([word], numbered) if each not in taken)
        taken.add(word)
    return word


def named(units: Mapping[str, str]) -> str:
    """Names with their units, for a comment."""
    return comment(", ".join(f"{name} [{unit}]" for name, unit in units.items()))


def comment(text: str) -> str:
    """A text made safe for a C comment."""
    plain = text.encode("ascii", "replace").decode().replace("??", "?")
    return " ".join(plain.split()).replace("*/", "* /").replace("/*", "/ *")
