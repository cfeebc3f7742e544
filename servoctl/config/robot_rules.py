"""Rules of robots from files: which fields belong together, and which need a robot."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field, StrictBool

from servoctl.config.document import FieldPath, Problem, given, has_robot, mapping
from servoctl.config.fields import PerName, Positive, Real, ScalarOr, Section
from servoctl.config.robot import LOOP_KINDS
from servoctl.config.vectors import Rpy, Xyz
from servoctl.expression.suggest import remedy


class Fixed(Section):
    """Coordinates that a projection does not change."""

    fix: tuple[str, ...] = Field(description="names of the coordinates that keep their value")


class PoseConfig(Section):
    """Where a frame is at the start, in the world; a part that is left out is free."""

    xyz: Xyz | None = Field(default=None, description="position of its origin [m]")
    rpy: Rpy | None = Field(default=None, description="roll, pitch, yaw of its axes [rad]")


class Initial(Section):
    """Initial state of a run."""

    q: PerName[Real] = Field(
        default={},
        description="coordinates [units of the plant]: mapping by name, list in the plant's order, or one for all; a "
        "class needs every coordinate; those of a robot may be left out: 0 inside the joint's limits, and qw = 1",
    )
    v: PerName[Real] = Field(default=0.0, description="velocities [units of the plant per s], written as q is")
    project: ScalarOr[StrictBool, Fixed] = Field(
        default=False,
        description="whether to move to the nearest state that satisfies the constraints; or {fix: names}",
    )
    max_violation: Positive = Field(
        default=1.0, description="a start with a larger holonomic task error is refused [units of the row]"
    )
    solve: dict[str, PoseConfig] | None = Field(
        default=None,
        description="robots: frame -> pose; q becomes the nearest solution that closes the loops and keeps the joints "
        "inside their limits",
    )


PLANT_KINDS = ("class", "robot", "robots")
PARTS = ("bodies", "frames", "loops")
NEEDS_ROBOT = "needs plant.robot or plant.robots"


def robot_problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Problems of `plant`, and of the fields elsewhere that need a robot."""
    plant = values.get("plant")
    if isinstance(plant, Mapping):
        yield from _kind_of_plant(plant)
        yield from _names(plant)
        yield from _files(plant)
        yield from _bodies(plant)
        yield from _loops(plant)
    yield from _start(values)
    yield from _law(values)


def _kind_of_plant(plant: Mapping[str, Any]) -> Iterator[Problem]:
    kinds = given(plant, PLANT_KINDS)
    for other in kinds[1:]:
        what = f"cannot be used with {kinds[0]} (a plant has exactly one of {', '.join(PLANT_KINDS)})"
        yield Problem(("plant", other), what)
    if not kinds and "class" not in plant:
        what = "package.module:ClassName, or file.py:ClassName relative to the config's folder; or robot, or robots"
        yield Problem(("plant", "class"), f"missing ({what})")
    elif not kinds:
        yield Problem(("plant", "class"), "expected text, got nothing")
    is_robot = has_robot({"plant": plant})
    for word in [] if is_robot else given(plant, (*PARTS, "gravity")):
        yield Problem(("plant", word), f"{NEEDS_ROBOT} (a class has its own parts and parameters)")
    if is_robot and plant.get("gravity") is not None and "gravity" in mapping(plant, "parameters"):
        yield Problem(("plant", "parameters", "gravity"), "cannot be used with plant.gravity (give one of them)")


def _names(plant: Mapping[str, Any]) -> Iterator[Problem]:
    first: dict[str, str] = {"world": "frames"}
    for part in ("robots", *PARTS):
        for name in mapping(plant, part):
            if not name.isidentifier():
                yield Problem(("plant", part, name), f"expected a name of letters, digits and _, got {name!r}")
            elif part in ("bodies", "frames") and first.setdefault(name, part) != part:
                yield Problem(("plant", part, name), f"{name!r} is a name in {first[name]} already (rename one)")
            elif part == "frames" and name == "world":
                yield Problem(("plant", part, name), "'world' is a frame already (rename it)")
    if plant.get("robots") is not None and not mapping(plant, "robots") and isinstance(plant["robots"], Mapping):
        yield Problem(("plant", "robots"), "no robot (give name: {urdf: FILE})")


def _files(plant: Mapping[str, Any]) -> Iterator[Problem]:
    robots: list[tuple[FieldPath, Any]] = [(("plant", "robot"), plant.get("robot"))]
    robots += [(("plant", "robots", name), robot) for name, robot in mapping(plant, "robots").items()]
    for path, robot in robots:
        if not isinstance(robot, Mapping):
            continue
        files = given(robot, ("urdf", "mjcf"))
        if len(files) > 1:
            yield Problem((*path, "mjcf"), "cannot be used with urdf (a robot has exactly one file)")
        elif not files:
            yield Problem(path, "no file (give urdf or mjcf)")


def _bodies(plant: Mapping[str, Any]) -> Iterator[Problem]:
    for name, body in mapping(plant, "bodies").items():
        for word in given(body, ("com", "inertia")) if given(mapping(body), ("size",)) else []:
            what = "cannot be used with size (a uniform box has its own centre and inertia)"
            yield Problem(("plant", "bodies", name, word), what)


def _loops(plant: Mapping[str, Any]) -> Iterator[Problem]:
    for name, loop in mapping(plant, "loops").items():
        if not isinstance(loop, Mapping):
            continue
        path, kinds = ("plant", "loops", name), given(loop, LOOP_KINDS)
        if len(kinds) > 1:
            yield Problem((*path, kinds[1]), f"cannot be used with {kinds[0]} (a loop has exactly one kind)")
        elif not kinds and loop.keys() <= LOOP_KINDS.keys():
            yield Problem(path, f"no kind (give exactly one of {', '.join(LOOP_KINDS)})")
        for kind in kinds:
            pair = loop[kind]
            if isinstance(pair, list) and len(pair) == 2 and pair[0] == pair[1]:
                yield Problem((*path, kind), f"has the frame {pair[0]!r} twice (give two frames)")


def _start(values: Mapping[str, Any]) -> Iterator[Problem]:
    initial = values.get("initial")
    if not isinstance(initial, Mapping):
        return
    if "q" not in initial and not has_robot(values):
        yield Problem(("initial", "q"), f"missing ({Initial.model_fields['q'].description})")
    if initial.get("solve") is not None and not has_robot(values):
        yield Problem(("initial", "solve"), f"{NEEDS_ROBOT} (for a class, give q and initial.project: true)")
    for frame, pose in mapping(initial, "solve").items():
        if isinstance(pose, Mapping) and pose.keys() <= PoseConfig.model_fields.keys() and not given(pose, pose):
            yield Problem(("initial", "solve", frame), "no pose (give xyz, rpy or both)")


def _law(values: Mapping[str, Any]) -> Iterator[Problem]:
    law = mapping(values, "law")
    if law.get("limits") == "robot" and not has_robot(values):
        yield Problem(("law", "limits"), f"{NEEDS_ROBOT} (for a class, give actuator -> limit)")
    if law.get("preload") is None:
        return
    if not has_robot(values):
        yield Problem(("law", "preload"), f"{NEEDS_ROBOT}, with plant.loops")
        return
    if law.get("kind") == "input_output":
        yield Problem(("law", "preload"), "does not fit law.kind input_output (use constraint_following)")
    loops = mapping(values, "plant", "loops")
    for name, wanted in mapping(law, "preload").items():
        path: FieldPath = ("law", "preload", name)
        if name not in loops:
            yield Problem(path, f"there is no loop {name!r} ({remedy(name, loops)})")
        elif isinstance(wanted, Mapping):
            yield from _components(path, wanted, mapping(loops, name))


def _components(path: FieldPath, wanted: Mapping[str, Any], loop: Mapping[str, Any]) -> Iterator[Problem]:
    """Problems of the components of a reaction that are prescribed."""
    kind = next(iter(given(loop, LOOP_KINDS)), None)
    if not wanted:
        yield Problem(path, "no component (give one of x, y, z [N], rx, ry, rz [N m])")
    for component in given(wanted, LOOP_KINDS["weld"]):
        if kind is not None and component not in LOOP_KINDS[kind]:
            known = ", ".join(LOOP_KINDS[kind])
            yield Problem((*path, component), f"a {kind} has no such reaction (known: {known})")
