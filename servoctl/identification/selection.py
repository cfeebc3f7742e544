"""Which parameters are estimated, and why the others are not.

Design: without `--parameters`, those are taken in which the equations of motion are linear together. Of two parameters
that multiply each other, such as a mass and gravity, the one in the mass matrix is taken. Geometry enters nonlinearly
and through the passive constraints; it is measured with a ruler, not with torques. Parameters that are named are
estimated even if they enter nonlinearly, by iteration; only those of passive constraints are refused.
"""

from collections.abc import Sequence

import casadi as ca
import numpy as np

from servoctl.engine.kernel import inputs, jacobian
from servoctl.engine.parameters import field_of, parameter_fields, parameter_names, parameter_values, with_parameters
from servoctl.engine.symbol import to_sx
from servoctl.engine.trace import trace
from servoctl.errors import ConfigError
from servoctl.identification.equations import differentiable
from servoctl.identification.unknowns import KINDS, Unknowns, chosen_indices, whole_links
from servoctl.mechanics.actuator_parameters import FIELD, armature_of, with_armature
from servoctl.mechanics.friction import Friction, friction_of, without_friction
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.spatial.plant import Robot
from servoctl.types import Array, State


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
    """Which parameters the equations of motion contain, and how.

    Attributes:
        in_constraints: Indices of the parameters in the passive constraints.
        in_mass: Indices of those in the mass matrix.
        acting: Indices of those in any term.
        together: Whether the second derivative in two parameters is not zero, shape (parameters, parameters).
    """

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
        self.in_mass, self.in_constraints, self.acting = (
            {int(i) for i in np.flatnonzero(largest[name] > 0.0)} for name in ("mass", "constraints", "Y")
        )
        bends = largest["second"].reshape(len(values), len(values))
        size = np.maximum(np.abs(values), 1e-3)
        # a second derivative that rounding leaves is not one
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
