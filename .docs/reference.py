"""Reference pages, written from the config's models, the commands' help and the docstrings."""

import inspect
import re
from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import PydanticUndefined
from typer.main import get_command


def written() -> dict[str, str]:
    """Page of the reference -> its Markdown."""
    return {"config": _config(), "commands": _commands(), "python": _python()}


def _config() -> str:
    from servoctl.config import Config

    head = [
        "# Configuration",
        "A config is YAML, read strictly: an unknown key, a wrong unit word or a value of the wrong kind is an error "
        "with its line, and all errors come at once. Numbers may be constant expressions with the unit words "
        "`deg rad ms us rpm mm`: `60*deg`, `2*pi`, `5*ms`. `servoctl schema` prints the same as JSON Schema, for "
        "editors.",
    ]
    return "\n\n".join([*head, *_sections("", Config)]) + "\n"


def _sections(path: str, model: type[BaseModel]) -> Iterator[str]:
    """A model as a table of its fields, then the models of its fields."""
    rows, below = [], []
    for name, field in model.model_fields.items():
        key = field.alias or name
        inner = list(_models(field.annotation))
        rows.append(f"| `{key}` | {_default(field)} | {_cell(field.description or '')} |")
        below += [(f"{path}.{key}".lstrip("."), each) for each in inner]
    if path:
        yield f"## `{path}`"
        yield _cell(inspect.cleandoc(model.__doc__ or "").partition("\n\n")[0])
    yield "\n".join(["| key | default | meaning |", "|---|---|---|", *rows])
    for place, each in below:
        if each.__name__ == "Correction" and place != "law.correction":
            continue  # of the same form everywhere: shown once
        yield from _sections(place, each)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for each in get_args(annotation):
        yield from _models(each)


def _default(field: Any) -> str:
    if field.is_required():
        return "required"
    value = field.default if field.default is not PydanticUndefined else field.default_factory()
    if isinstance(value, BaseModel):
        value = value.model_dump(exclude_none=True, exclude_defaults=True, by_alias=True)
    if value is None or value in ({}, ()):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _commands() -> str:
    from servoctl.cli.app import app

    group: Any = get_command(app)
    parts = [
        "# Commands",
        "Results go to stdout, everything about them to stderr. Exit codes: 0 done, 2 the input is wrong, 3 the rig or "
        "the bus failed, 4 the run ended in a bad status, 130 interrupted; what is written by then stays.",
    ]
    for name, command in group.commands.items():
        context = command.context_class(command, info_name=f"servoctl {name}", terminal_width=100)
        parts += [f"## servoctl {name}", f"```text\n{command.get_help(context)}\n```"]
    return "\n\n".join(parts) + "\n"


def _python() -> str:
    import servoctl as sc

    parts = [
        "# Python",
        "`import servoctl as sc`; names are imported when they are first used. Examples: [from Python](../python.md).",
    ]
    for name in sorted(set(sc.__all__) - {"__version__"}, key=str.lower):
        thing = getattr(sc, name)
        parts += [f"## `sc.{name}`", _signature(name, thing), _docstring(thing)]
        if isinstance(thing, type) and name in ("Run", "Trajectory"):
            parts += [
                f"- `{method}`: {_first(getattr(thing, method))}"
                for method in sorted(vars(thing))
                if not method.startswith("_") and callable(getattr(thing, method))
            ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _signature(name: str, thing: Any) -> str:
    """Names and defaults; types are in the source, and meanings below."""
    if isinstance(thing, type) and "__init__" not in vars(thing):
        return ""
    parameters = [
        each.replace(annotation=inspect.Parameter.empty, default=each.default)
        for each in inspect.signature(thing).parameters.values()
    ]
    shown = str(inspect.Signature([each for each in parameters if "factory" not in str(each.default)]))
    return f"```text\n{name}{shown}\n```"


def _docstring(thing: Any) -> str:
    """A docstring of Google's form as Markdown: prose, and a list below each heading."""
    lines = []
    for line in (inspect.getdoc(thing) or "").splitlines():
        if re.fullmatch(r"(Args|Attributes|Returns|Raises|Source):", line):
            lines += ["", f"*{line}*", ""]
        elif item := re.match(r"    (\w[\w, ]*): (.*)", line):
            lines.append(f"- `{item[1]}`: {item[2]}")
        elif line.startswith("    - {"):
            lines += ["```text", line, "```"]
        else:
            lines.append(line.strip())
    return "\n".join(lines)


def _first(thing: Any) -> str:
    """The first sentence of a docstring, in one line."""
    return " ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split())
