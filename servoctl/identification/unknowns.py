"""What is estimated: parameters of the plant, inertias of whole links, friction at the actuators; why the rest is not.

Design: the equations of motion must be linear in the unknowns, or nearly so. Single parameters are taken as they are.
A link of a robot whose mass, centre and inertia are all unknown is described by ten numbers in which every mechanism is
linear: m, the first moments m c, and the inertia about the origin of the link's axes.

Design: without `--parameters`, those are taken in which the equations of motion are linear together. Of two parameters
that multiply each other, such as a mass and gravity, the one in the mass matrix is taken. Geometry enters nonlinearly
and through the passive constraints; it is measured with a ruler, not with torques. Parameters that are named are
estimated even if they enter nonlinearly, by iteration; only those of passive constraints are refused.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from servoctl.engine.kernel import inputs, jacobian
from servoctl.engine.parameters import field_of, parameter_fields, parameter_names, parameter_values, with_parameters
from servoctl.engine.symbol import to_sx
from servoctl.engine.trace import trace
from servoctl.errors import ConfigError, PlantError, ServoctlError, remedy
from servoctl.mechanics.actuator_parameters import FIELD, armature_of, with_armature
from servoctl.mechanics.constraint_rows import symbolic_plant
from servoctl.mechanics.friction import Friction, friction_of, without_friction
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.spatial.plant import Robot
from servoctl.mechanics.terms import Matrices
from servoctl.types import Array, State

FRICTION_SPEED = 0.01  # [speed of the actuator] speed at which Coulomb friction reaches 76 % (tanh 1)

MOMENTS = ("m", "mx", "my", "mz", "Ixx", "Iyy", "Izz", "Ixy", "Ixz", "Iyz")
"""The ten numbers of a link: mass [kg], first moments [kg m], inertia about the origin of its axes [kg m^2]."""

KINDS = ("coulomb", "viscous")


@dataclass(frozen=True)
class Unknowns:
    """The numbers to estimate, in this order: single parameters, links, Coulomb friction, viscous friction."""

    plant: Plant  # the plant with its values before the estimation
    single: tuple[int, ...] = ()  # indices in `parameter_values(plant)`
    links: tuple[str, ...] = ()  # names of the links whose inertia is unknown
    rubbing: tuple[tuple[str, int], ...] = ()  # kind of each unknown friction, of `KINDS`, and index of its actuator
    known: Friction | None = None  # friction that the plant has; what is not estimated keeps it

    @property
    def speed(self) -> Array:
        """Speed at which Coulomb friction reaches 76 % of its size, shape (m,)."""
        return np.full(len(self.plant.actuators), FRICTION_SPEED) if self.known is None else np.array(self.known.speed)

    def _known(self, kind: str) -> Array:
        """Friction of a kind before the estimation, shape (m,)."""
        return np.zeros(len(self.plant.actuators)) if self.known is None else np.array(getattr(self.known, kind))

    @cached_property
    def names(self) -> list[str]:
        """Name of each unknown: `m1`, `m[0]`, `tool_mx`, `friction.coulomb.u1`."""
        known, actuators = parameter_names(self.plant), list(self.plant.actuators)
        return [
            *(known[i] for i in self.single),
            *(f"{link}_{moment}" for link in self.links for moment in MOMENTS),
            *(f"friction.{kind}.{actuators[j]}" for kind, j in self.rubbing),
        ]

    @cached_property
    def units(self) -> list[str]:
        """Unit of each unknown; `as in class` where only the plant's class can say it."""
        motors, names = list(self.plant.actuators.values()), parameter_names(self.plant)
        viscous = {unit: f"{unit} per speed" for unit in motors} | {"N m": "N m s/rad", "N": "N s/m"}
        return [
            *(_unit(self.plant, names[i]) for i in self.single),
            *("kg" if one == "m" else "kg m^2" if one[0] == "I" else "kg m" for _ in self.links for one in MOMENTS),
            *(motors[j] if kind == "coulomb" else viscous[motors[j]] for kind, j in self.rubbing),
        ]

    @cached_property
    def moments(self) -> dict[str, slice]:
        """Link -> where its ten numbers are among the unknowns."""
        first, ten = len(self.single), len(MOMENTS)
        return {link: slice(first + ten * i, first + ten * (i + 1)) for i, link in enumerate(self.links)}

    @property
    def bodies(self) -> int:
        """Number of the unknowns of bodies; those of friction follow."""
        return len(self.single) + len(MOMENTS) * len(self.links)

    @cached_property
    def rotors(self) -> list[int]:
        """Indices of the inertias of rotors among the unknowns."""
        names = parameter_names(self.plant)
        return [k for k, i in enumerate(self.single) if field_of(names[i]) == FIELD]

    @cached_property
    def turning(self) -> list[int]:
        """Indices of the actuators of these rotors."""
        names = parameter_names(self.plant)
        of_actuator = {f"{FIELD}.{actuator}": j for j, actuator in enumerate(self.plant.actuators)}
        return [of_actuator[names[self.single[k]]] for k in self.rotors]

    @cached_property
    def before(self) -> Array:
        """The values that the plant has, shape (unknowns,)."""
        values = parameter_values(self.plant)
        moments = [moments_of(*link_values(self.plant, link)) for link in self.links]
        friction = [self._known(kind)[j] for kind, j in self.rubbing]
        return np.concatenate([values[list(self.single)], *moments, friction])

    def parameters(self, p: Array, x: Array) -> Array:
        """All parameters of the plant, with the unknowns in place.

        Args:
            p: The known parameters, in the order of `parameter_values`; numbers or symbols.
            x: The unknowns, in the order of `names`.
        """
        values = np.array(list(p), dtype=object)
        for i, value in zip(self.single, x, strict=False):
            values[i] = value
        names = parameter_names(self.plant)
        for link, at in self.moments.items():
            m, com, inertia = link_of(x[at])
            first = names.index(f"{link}_m")
            values[first : first + len(MOMENTS)] = [m, *com, *inertia]
        return values

    def numbers(self, x: Array) -> dict[str, float | list[float]]:
        """The plant's parameters that the unknowns change, as a config has them: field -> number or list."""
        names = parameter_names(self.plant)
        changed = {field_of(names[i]) for i in self.single}
        for link, ten in self.moments.items():
            if not np.array_equal(x[ten], self.before[ten]):  # a link that never moves stays as it is written
                changed |= {f"{link}_{part}" for part in ("m", "com", "I")}
        other = with_parameters(self.plant, self.parameters(parameter_values(self.plant), x))
        found = {name: np.asarray(getattr(other, name), dtype=float) for name in parameter_fields(other)}
        return {name: value.tolist() for name, value in found.items() if name in changed}

    def friction(self, x: Array) -> dict[str, Array]:
        """`coulomb` and `viscous` of every actuator, shape (m,) each, with the unknowns in place."""
        values = {kind: self._known(kind).astype(x.dtype) for kind in KINDS}
        for (kind, j), value in zip(self.rubbing, x[self.bodies :], strict=True):
            values[kind][j] = value
        return values

    def without(self, index: int) -> "Unknowns":
        """The same without the friction of this index, which is 0 then."""
        out = self.rubbing[index - self.bodies]
        zeroed = {kind: self._known(kind) for kind in KINDS}
        zeroed[out[0]][out[1]] = 0.0
        known = Friction(tuple(zeroed["coulomb"]), tuple(zeroed["viscous"]), tuple(self.speed))
        return replace(self, rubbing=tuple(one for one in self.rubbing if one != out), known=known)


def _unit(plant: Plant, name: str) -> str:
    field = field_of(name)
    if field == FIELD:
        return {"N m": "kg m^2", "N": "kg"}.get(plant.actuators[name.removeprefix(f"{FIELD}.")], "of inertia")
    ending = field.rpartition("_")[2] if isinstance(plant, Robot) else ""
    return {"m": "kg", "com": "m", "I": "kg m^2", "gravity": "m/s^2"}.get(ending, "as in class")


def link_values(plant: Plant, link: str) -> tuple[Any, Any, Any]:
    """Mass, centre of mass and inertia about it of a robot's link."""
    return getattr(plant, f"{link}_m"), getattr(plant, f"{link}_com"), getattr(plant, f"{link}_I")


def moments_of(m: float, com: Sequence[float], inertia: Sequence[float]) -> Array:
    """The ten numbers of a link from its parameters.

    Args:
        m: Mass [kg].
        com: Centre of mass [m].
        inertia: About the centre of mass, (ixx, iyy, izz, ixy, ixz, iyz) [kg m^2].
    """
    return np.array([m, *(m * np.asarray(com)), *(np.asarray(inertia) + m * _steiner(*com))], dtype=float)


def link_of(x: Array) -> tuple[Any, list[Any], list[Any]]:
    """Mass, centre of mass and inertia about it, from the ten numbers of a link; on numbers or symbols."""
    m, com = x[0], [moment / x[0] for moment in x[1:4]]
    return m, com, [about - m * far for about, far in zip(x[4:], _steiner(*com), strict=True)]


def _steiner(x: Any, y: Any, z: Any) -> Any:
    """Inertia of a unit mass at a point, (ixx, iyy, izz, ixy, ixz, iyz) [m^2]."""
    return np.array([y * y + z * z, x * x + z * z, x * x + y * y, -x * y, -x * z, -y * z])


def sizes(unknowns: Unknowns, known: Array, regressor: Array) -> Array:
    """Size of each unknown, for the prior: its value before, and for zeros the value that would explain all torque.

    Args:
        unknowns: What is unknown.
        known, regressor: Rows as of `FitRows`.
    """
    before = np.abs(unknowns.before)
    column = np.sqrt(np.mean(regressor**2, axis=(0, 1)))
    model = regressor @ unknowns.before
    force = np.sqrt(np.mean((known + model) ** 2)) + np.sqrt(np.mean(model**2))
    explains = np.where(column > 0.0, force / np.where(column > 0.0, column, 1.0), 1.0)
    found = np.where(before > 0.0, before, explains)
    for at in unknowns.moments.values():
        m, about = before[at][0], before[at][4:7].max()
        length = np.sqrt(about / m) if m > 0.0 else 0.0
        ten = found[at]  # a view
        ten[:] = np.maximum(ten, [m, *3 * [m * length], *6 * [about]])
        ten[1:] = np.minimum(ten[1:], [*3 * [m * length + 1e-300], *6 * [about + 1e-300]])
    return found


def whole_links(plant: Plant, chosen: Iterable[str]) -> list[str]:
    """The links of a robot whose mass, centre and inertia are all among the chosen fields."""
    if not isinstance(plant, Robot):
        return []
    fields = set(chosen)
    return [
        link.name
        for link in plant.tree.links
        if link.gyration is None and fields.issuperset(link.parameters) and plant.masses[link.name] > 0.0
    ]


def chosen_indices(plant: Plant, given: Sequence[str]) -> tuple[list[int], list[str], list[tuple[str, int]]]:
    """What names of `--parameters` mean.

    Args:
        plant: The plant.
        given: `m1`, a whole list `m`, one of its entries `m[0]`, `armature`, `armature.u1`, `friction`, or
            `friction.viscous.u1`.

    Returns:
        Indices of single parameters, names of whole fields, and friction as of `Unknowns.rubbing`.

    Raises:
        ConfigError: There is no such parameter; names all that are wrong.
    """
    names, fields = parameter_names(plant), parameter_fields(plant)
    friction = {f"friction.{kind}.{name}": (kind, j) for kind in KINDS for j, name in enumerate(plant.actuators)}
    problems, indices, whole, chosen = [], [], [], []
    for name in given:
        if name == "friction" or name.startswith("friction."):
            found = [each for each in friction if f"{each}.".startswith(f"{name}.")]
            chosen += found
            wrong = not found
        else:
            found = [each for each in names if each == name or each.startswith((f"{name}[", f"{name}."))]
            indices += [names.index(each) for each in found]
            whole += [name] if name in fields else []
            wrong = not found
        if wrong:
            known = [*fields, *friction, "friction"]
            problems.append(
                f"--parameters {name}: {type(plant).__name__} has no such parameter ({remedy(name, known)})"
            )
    if problems:
        raise ConfigError(problems)
    return list(dict.fromkeys(indices)), whole, [at for name, at in friction.items() if name in chosen]


def differentiable(plant: Plant, state: State) -> Matrices:
    """A plant's matrices as expressions of its parameters.

    Raises:
        PlantError: The plant's code cannot be traced.
    """
    try:
        return symbolic_plant(plant, state)
    except ServoctlError as error:
        raise PlantError(f"{type(plant).__name__}: cannot be differentiated in its parameters: {error}") from error


def select(machine: Plant, given: Sequence[str] | None) -> tuple[Unknowns, dict[str, str]]:
    """The unknowns, and name -> reason for each parameter that is left out.

    Args:
        machine: The plant, with the friction that its model knows.
        given: Names as of `--parameters`; None: all that the equations are linear in, and friction.

    Raises:
        ConfigError: A name is wrong, or a parameter cannot be estimated from torques.
        PlantError: The plant's code cannot be traced.
    """
    plant, known = without_friction(machine), friction_of(machine)
    everything = tuple((kind, j) for kind in KINDS for j in range(len(plant.actuators)))
    if given is not None:
        if any(field_of(name) == FIELD for name in given) and armature_of(plant) is None and plant.actuators:
            plant = with_armature(plant, [0.0] * len(plant.actuators))
        return _named(plant, given, known), {}
    if isinstance(plant, Robot):
        links = whole_links(plant, parameter_fields(plant))
        sizes = [link.name for link in plant.tree.links if link.gyration is not None]
        names = parameter_names(plant)
        single = tuple(names.index(f"{name}_m") for name in sizes)
        single += tuple(i for i, name in enumerate(names) if field_of(name) == FIELD)
        left = {f"{name}_com": "the body's size gives its inertia, so its centre is taken as known" for name in sizes}
        left |= {"gravity": "it multiplies every mass"}
        return Unknowns(plant, single, tuple(links), everything, known), left
    single, left = _linear_together(plant)
    return Unknowns(plant, single, (), everything, known), left


def _named(plant: Plant, given: Sequence[str], known: Friction | None) -> Unknowns:
    indices, whole, friction = chosen_indices(plant, given)
    links, names = whole_links(plant, whole), parameter_names(plant)
    inside = {f"{link}_{part}" for link in links for part in ("m", "com", "I")}
    single = tuple(i for i in indices if names[i].partition("[")[0] not in inside)
    _refuse_constrained(plant, single)
    return Unknowns(plant, single, tuple(links), tuple(friction), known)


def _refuse_constrained(plant: Plant, single: Sequence[int]) -> None:
    """Raises ConfigError for parameters of the plant's own constraints: their torques are not known."""
    constrained, names = _Structure(plant).in_constraints, parameter_names(plant)
    wrong = [names[i] for i in single if i in constrained]
    if wrong:
        raise ConfigError([
            f"--parameters {name}: enters the plant's own constraints, whose forces are not measured (measure it, and "
            "set it under plant.parameters)" for name in wrong
        ])  # fmt: skip


class _Structure:
    """Which parameters the equations of motion contain, and how."""

    def __init__(self, plant: Plant) -> None:
        n, m = len(plant.coordinates), len(plant.actuators)
        values = parameter_values(plant)
        sizes = {"t": (1,), "q": (n,), "v": (n,), "a": (n,), "u": (m,), "p": (len(values),)}
        symbols = inputs(sizes)
        t, q, v, a, u, p = symbols.values()
        bound = with_parameters(plant, p)
        found = differentiable(bound, State(t[0], q, v))
        phi = trace(bound.passive_constraints, q, t[0])
        rows = np.asarray(found.M @ a - found.Q - found.c - found.B @ u, dtype=object)
        Y = jacobian(rows, p)
        second = jacobian(np.asarray(Y, dtype=object).ravel(), p).reshape(n, len(values), len(values))
        constraints = [np.ravel(x) for x in phi.values() if not hasattr(x, "rows")]
        flat = {
            "mass": jacobian(np.asarray(found.M, dtype=object).ravel(), p),
            "constraints": jacobian(np.concatenate([found.passive.A.ravel(), *constraints]).astype(object), p),
        }
        outputs = {"Y": Y, "second": second.reshape(n, -1), **flat}
        function = ca.Function("structure", [to_sx(x) for x in symbols.values()], [to_sx(x) for x in outputs.values()])
        largest = {name: np.zeros(np.shape(x)[1:]) for name, x in outputs.items()}
        random = np.random.default_rng(0)
        for _ in range(5):
            at = [random.standard_normal(size) for size in sizes.values()][:-1]
            at.append(values * (1.0 + 0.3 * random.uniform(-1.0, 1.0, len(values))) + 0.01)
            for (name, now), value in zip(largest.items(), function(*at), strict=True):
                array = np.abs(np.nan_to_num(np.asarray(value.full(), dtype=float)))
                largest[name] = np.maximum(now, array.max(axis=0, initial=0.0))
        # indices of the parameters in the mass matrix, in the passive constraints, and in any term
        self.in_mass, self.in_constraints, self.acting = (
            {int(i) for i in np.flatnonzero(largest[name] > 0.0)} for name in ("mass", "constraints", "Y")
        )
        bends = largest["second"].reshape(len(values), len(values))
        size = np.maximum(np.abs(values), 1e-3)
        # whether the second derivative in two parameters is more than rounding leaves, shape (parameters, parameters)
        self.together: Array = bends * size[:, None] > 1e-9 * np.maximum(largest["Y"], 1e-300)[None]


def _linear_together(plant: Plant) -> tuple[tuple[int, ...], dict[str, str]]:
    """Indices of the parameters in which the equations are linear together, and why the others are left out."""
    structure, names = _Structure(plant), parameter_names(plant)
    left: dict[str, str] = {}
    chosen: list[int] = []
    for i, name in enumerate(names):
        if i in structure.in_constraints:
            left[name] = "enters the plant's own constraints, whose forces are not measured"
        elif i not in structure.acting:
            left[name] = "acts on no equation of motion"
        elif structure.together[i, i]:
            left[name] = "enters nonlinearly"
        else:
            chosen.append(i)
    while True:
        degree = {i: sum(structure.together[i, j] or structure.together[j, i] for j in chosen) for i in chosen}
        if not any(degree.values()):
            return tuple(chosen), left
        # the parameter outside the mass matrix goes first, then the one that multiplies most others, then the last
        out = max(chosen, key=lambda i: (degree[i] > 0, i not in structure.in_mass, degree[i], i))
        other = next(j for j in chosen if structure.together[out, j] or structure.together[j, out])
        left[names[out]] = f"multiplies {names[other]}"
        chosen.remove(out)
