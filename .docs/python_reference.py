"""The Python reference: names in groups, each with a signature, its types, its docstring and an example."""

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from servoctl.tree.rules import fields_of

EXAMPLES = Path(__file__).with_name("python_examples.md")
"""One part for each group: what it is for, and examples of its names; a test runs them."""

SERIAL = ("PlanarChain",)
"""Names of `servoctl.mechanics.serial` in the reference."""

GROUPS = {
    "Plants": (
        "Plant", "LagrangianPlant", "PlanarLinkage", "PlanarChain", "Robot", "RobotBuilder", "Model", "Diagonal",
        "clip", "where", "pinv", "fundamental_acceleration",
    ),
    "Tasks and bounds": (
        "Holonomic", "Nonholonomic", "SecondOrder", "PointFollows", "Pose", "Position", "Orientation", "Axis",
        "Distance", "CentreOfMass", "Posture", "Bound", "CoordinateRange", "CoordinateSpeed", "DistanceBound",
        "Clearance", "SweptSphere", "ReactionBound",
    ),
    "Laws": (
        "ConstraintFollowing", "InputOutput", "Term", "Baumgarte", "SecondOrderCorrection", "PFeedback", "Poles",
        "Funnel", "Secondary", "Estimator", "Feedback", "law", "Law",
    ),
    "Running": (
        "simulate", "Realism", "PerCoordinate", "Friction", "load", "Run", "evaluate", "batch", "linearize",
        "to_control", "identify", "Identification",
    ),
    "Results": ("Trajectory", "save", "load_run", "plot", "State", "Command", "Status"),
}  # fmt: skip
"""Group -> its names, in the order of the page."""

WRITTEN = (
    "Feedback", "Holonomic", "LagrangianPlant", "Nonholonomic", "PlanarChain", "Plant", "Robot", "RobotBuilder",
    "SecondOrder",
)  # fmt: skip
"""Classes that a user derives from or calls; the reference lists their methods with arguments."""

METHODS = (*WRITTEN, "Run", "Trajectory")
"""Classes whose methods the reference lists."""

WIDTH = 96
"""Longest line of a signature; longer ones have one argument a line."""


def written() -> str:
    """The page."""
    parts = [
        "# Python",
        "`import servoctl as sc` imports each name at its first use. More examples: [From Python](../python.md).",
        "In the types, an `Array` is a NumPy array of floats. A `Gain` is a number, one number for each row, or a "
        "mapping by row. A `Target` is a number or an equation of time; `TargetValues` are one for each row.",
    ]
    for group, names in GROUPS.items():
        parts += [f"## {group}", examples()[group]]
        for name in names:
            parts += _entry(name)
    return "\n\n".join(part for part in parts if part) + "\n"


def examples() -> dict[str, str]:
    """Group or name -> the Markdown of its example, which for a group follows an introduction."""
    sections = re.split(r"^###? (.+)\n", EXAMPLES.read_text(), flags=re.MULTILINE)[1:]
    return {title: text.strip() for title, text in zip(sections[::2], sections[1::2], strict=True)}


def _entry(name: str) -> Iterator[str]:
    import servoctl as sc
    from servoctl.mechanics import serial

    thing = getattr(serial if name in SERIAL else sc, name)
    yield f"### `{'servoctl.mechanics.serial' if name in SERIAL else 'sc'}.{name}`"
    yield signature(name, thing)
    yield _docstring(thing)
    yield _described(thing)
    yield examples().get(name, "")
    if name in METHODS:
        methods = vars(thing) if name in WRITTEN else sorted(vars(thing))
        for method in methods:
            if not method.startswith("_") and callable(getattr(thing, method)):
                arguments = _arguments(getattr(thing, method)) if name in WRITTEN else ""
                yield f"- `{method}{arguments}`: {_first(getattr(thing, method))}"


def _arguments(method: Any) -> str:
    """The arguments of a method by name, as in a call."""
    return f"({', '.join(name for name in inspect.signature(method).parameters if name != 'self')})"


def signature(name: str, thing: Any) -> str:
    """Names, types and defaults of the arguments; the types as the source writes them."""
    if isinstance(thing, type) and "__init__" not in vars(thing) and not hasattr(thing, "_fields"):
        return ""
    types = _types(thing)
    parameters = []
    for each in inspect.signature(thing).parameters.values():
        if "factory" not in str(each.default):
            shown = f"{each.name}: {types[each.name]}" if each.name in types else each.name
            shown = f"**{shown}" if each.kind is each.VAR_KEYWORD else shown
            if each.default is not each.empty:
                shown += f" = {_default(each.default)}" if each.name in types else f"={_default(each.default)}"
            keyword = each.kind is each.KEYWORD_ONLY and "*" not in parameters
            parameters += ["*", shown] if keyword else [shown]
    line = f"{name}({', '.join(parameters)})"
    if len(line) > WIDTH:
        line = "\n".join([f"{name}(", *(f"    {each}," for each in parameters), ")"])
    return f"```python\n{line}\n```"


def _default(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str) else "{}" if value == {} else repr(value)


def _types(thing: Any) -> dict[str, str]:
    """Argument -> its annotation in the source, of a function, or of a class and its bases."""
    types: dict[str, str] = {}
    for each in reversed(inspect.getmro(thing)) if isinstance(thing, type) else [thing]:
        try:
            [node] = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        except (OSError, TypeError):  # built in
            continue
        if isinstance(node, ast.ClassDef):
            parts = [
                part for part in node.body if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
            ]
            types |= {part.target.id: _type(part.annotation) for part in parts}
            node = next((part for part in node.body if getattr(part, "name", "") == "__init__"), None)
        if isinstance(node, ast.FunctionDef):
            arguments = [*node.args.args, *node.args.kwonlyargs]
            types |= {part.arg: ast.unparse(part.annotation) for part in arguments if part.annotation is not None}
    return types


def _type(annotation: ast.expr) -> str:
    """An annotation as the source writes it, without what a config reads of it."""
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Annotated":
        annotation = annotation.slice.elts[0]  # type: ignore[attr-defined]
    return ast.unparse(annotation)


def _docstring(thing: Any) -> str:
    """A Google-style docstring as Markdown: prose, and a list below each heading."""
    lines: list[str] = []
    example = False  # a part of a config, indented
    for line in (inspect.getdoc(thing) or "").splitlines():
        if example != (starts := line.startswith("    - {") or (example and line.startswith("     "))):
            lines.append("```text" if starts else "```")
            example = starts
        if re.fullmatch(r"(Args|Attributes|Returns|Raises|Source):", line):
            lines += ["", f"*{line}*", ""]
        elif not example and (item := re.match(r"    (\w[\w, ]*): (.*)", line)):
            lines.append(f"- `{item[1]}`: {item[2]}")
        elif example:
            lines.append(line.removeprefix("    "))
        else:
            lines.append(line.strip())
    return "\n".join(lines)


def _described(thing: Any) -> str:
    """The fields of a class that have descriptions, as a list."""
    own = fields_of(thing).values() if isinstance(thing, type) else ()
    lines = [f"- `{name}`: {field.description}" for name, field in own if field.description]
    return "\n".join(["*Attributes:*", "", *lines]) if lines else ""


def _first(thing: Any) -> str:
    """The first sentence of a docstring, in one line."""
    return " ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split())
