"""Reference pages, written from the config's models, the commands' help and the docstrings."""

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import python_reference
from config_types import kind_of
from pydantic import BaseModel
from pydantic_core import PydanticUndefined
from typer.main import get_command

from servoctl.tree.rules import fields_of

EXAMPLES = Path(__file__).with_name("config_examples.md")
"""A part of a config for each section, laid over a shipped config by a test."""

STEPS = {
    "ramp": "its own ramp",
    "brake": "the brake",
    "off": "off",
    "silence": "nothing comes any more",
}
"""Step from torque to off, an attribute of `StopSteps` -> in words."""


def written() -> dict[str, str]:
    """Page of the reference -> its Markdown."""
    return {"config": _config(), "commands": _commands(), "python": python_reference.written()}


def stops() -> str:
    """The table of what the drives of each protocol do on each step from torque to off, as their drivers say it."""
    from hil.protocols.registry import BUILT_IN

    classes = {name: protocol.drive_class() for name, protocol in BUILT_IN.items()}
    header = "| | " + " | ".join(classes) + " |\n" + "|---" * (len(classes) + 1) + "|"
    rows = [
        f"| {words} | " + " | ".join(getattr(drive.stop_steps, step) for drive in classes.values()) + " |"
        for step, words in STEPS.items()
    ]
    return "\n".join([header, *rows])


def gauges() -> str:
    """The table of the temperatures, voltages and loads that the drives of each protocol show, as their drivers say."""
    from hil.drives.settings import GAUGES
    from hil.protocols.registry import BUILT_IN

    rows = ["| protocol | " + " | ".join(f"`{gauge.name}.<drive>`" for gauge in GAUGES) + " |"]
    rows.append("|---" * (len(GAUGES) + 1) + "|")
    for name, protocol in BUILT_IN.items():
        shown = protocol.drive_class().gauge_needs
        rows.append(f"| {name} | " + " | ".join(shown.get(gauge.quantity, "no") for gauge in GAUGES) + " |")
    return "\n".join(rows)


def metrics() -> str:
    """Table of the metrics of a search and a sweep, for the page about tuning."""
    from servoctl.run_folder.metrics import METRICS

    rows = ["| metric | unit | meaning | use |", "|---|---|---|---|"]
    for metric in METRICS:
        unit = {"task": "of the task", "actuator": "of the actuator", "bound": "of the bound"}.get(
            metric.unit, metric.unit
        )
        rows.append(f"| `{metric.form}` | {unit} | {_cell(metric.meaning)} | {metric.use} |")
    return "\n".join(rows)


def _config() -> str:
    from servoctl.config import Config

    head = [
        "# Configuration",
        "A config is YAML. An unknown key, a wrong unit word or a value of the wrong kind is an error with its line; "
        "all errors of a stage are reported at once: grammar and values; names, files and classes; physics at the "
        "start. Numbers may be constant expressions with unit words `deg rad ms us rpm mm`: "
        "`60*deg`, `2*pi`, `5*ms`. `servoctl schema` prints the same as JSON Schema, for editors. These tables are "
        "made from that schema.",
    ]
    return "\n\n".join([*head, *_sections("", Config), *_protocols(), *_faults()]) + "\n"


def _sections(path: str, model: type[Any]) -> Iterator[str]:
    """A table of the fields of a section, then the same for the sections that its fields hold."""
    rows, below = [], []
    for key, (_, field) in fields_of(model).items():
        inner = list(_models(field.annotation))
        kind = _cell(kind_of(field.annotation, tuple(field.metadata)))
        rows.append(f"| `{key}` | {kind} | {_default(field)} | {_cell(_meaning(field))} |")
        below += [(f"{path}.{key}".lstrip("."), each) for each in inner]
    if path:
        yield f"## `{path}`"
        yield _cell(inspect.cleandoc(model.__doc__ or "").partition("\n\n")[0])
    if path in (parts := examples()):
        yield parts[path]
    yield "\n".join(["| key | type | default | meaning |", "|---|---|---|---|", *rows])
    for place, each in below:
        if each.__name__ == "Correction" and place != "law.correction":
            continue  # of the same form everywhere: shown once
        yield from _sections(place, each)


def examples() -> dict[str, str]:
    """Section -> its example as Markdown."""
    sections = re.split(r"^## (.+)\n", EXAMPLES.read_text(), flags=re.MULTILINE)[1:]
    return {
        path: re.sub(r"<!-- .* -->\n", "", text).strip()
        for path, text in zip(sections[::2], sections[1::2], strict=True)
    }


def _meaning(field: Any) -> str:
    """The description of a field, and its allowed words where the description does not name them."""
    words = [word for word in _words(field.annotation) if word not in (field.description or "")]
    known = ", ".join(f"`{word}`" for word in _words(field.annotation))
    return f"{field.description or ''}; one of {known}" if words else field.description or ""


def _words(annotation: Any) -> list[str]:
    if get_origin(annotation) is Literal:
        return [word for word in get_args(annotation) if isinstance(word, str)]
    return [word for each in get_args(annotation) for word in _words(each)]


def _protocols() -> Iterator[str]:
    """The keys of drives and encoder nodes that depend on the protocol."""
    from hil.protocols.registry import BUILT_IN

    yield "## Keys of drives by protocol"
    yield (
        "A drive or an encoder node has the keys of [`hil.drives`](#hildrives) or [`hil.sensors`](#hilsensors), and "
        "the keys of its protocol below."
    )
    for name, protocol in BUILT_IN.items():
        for kind, what in ((protocol.drive_class(), "drive"), (protocol.sensor_class(), "encoder node")):
            if kind is not None:
                yield f"### `{name}`: {what}"
                yield _options(kind.Options)


def _options(kind: type[BaseModel]) -> str:
    from hil.drives.options import expected_of

    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for name, field in kind.model_fields.items():
        default = "required" if field.is_required() else "" if field.default is None else f"`{_yaml(field.default)}`"
        rows.append(f"| `{name}` | {_cell(expected_of(field) or '')} | {default} | {_meaning_of(kind, name)} |")
    return "\n".join(rows)


def _attribute(kind: type, name: str) -> str:
    """The comment beside a field of a class or of its base classes: `# [unit] meaning`."""
    for each in kind.__mro__:
        source = "" if each.__module__ in ("builtins", "pydantic.main") else inspect.getsource(each)
        field = re.search(rf"((?:^    # .*\n)*)^    {name}: .*?(?:  # (.*))?$", source, re.MULTILINE)
        if field and (said := field[2] or " ".join(re.findall("# (.*)", field[1]))):
            unit, text = re.fullmatch(r"(?:\[(.*?)\] )?(.*)", said).groups()
            return f"{text[0].upper()}{text[1:]}{f' [{unit}]' if unit else ''}."
    raise LookupError(f"{kind.__name__}.{name}: no comment beside it says what it is")


def _faults() -> Iterator[str]:
    """The fields of a fault, and the kinds of fault."""
    from hil.emulator.fault_script import TIMES
    from hil.emulator.faults import BRAKE, KINDS, PROTOCOL, TARGETS
    from hil.protocols.registry import BUILT_IN

    yield "## Faults"
    yield (
        "Each entry of `hil.faults` has the fields of the first table and the fields of its kind. Example: "
        "`{kind: lost, at: 0.3, for: 0.2, p: 0.2}` loses every fifth frame for 0.2 s."
    )
    rows = [
        "| field | default | meaning |",
        "|---|---|---|",
        "| `kind` | required | what goes wrong, one of the kinds below |",
    ]
    for name, option in TIMES.items():
        shown = "" if option.default is None else f"`{option.default}`"
        rows.append(f"| `{name}` | {shown} | {_cell(option.meaning)} |")
    rows.append("| `drive` | | actuator of the drive, or coordinate of the encoder node, that it concerns |")
    yield "\n".join([*rows, "| `bus` | | bus that it concerns; left out: all |"])
    rows = ["| kind | effect | applies to | fields (default) |", "|---|---|---|---|"]
    twins = {name: protocol.emulated_drive_class() for name, protocol in BUILT_IN.items()}
    for name, kind in KINDS.items():
        able = [protocol for protocol, twin in twins.items() if name in twin.special_faults]
        only = {PROTOCOL: f", only {' and '.join(able)}", BRAKE: ", only with a brake"}.get(kind.needs, "")
        fields = [
            f"`{key}`{_default_of(key, option.default)}: {option.meaning}" for key, option in kind.options.items()
        ]
        rows.append(f"| `{name}` | {_cell(kind.text)} | {TARGETS[kind.target]}{only} | {_cell('; '.join(fields))} |")
    yield "\n".join(rows)


def _default_of(field: str, value: Any) -> str:
    """The default of a field of a fault; ids and codes in hexadecimal, as in data sheets."""
    if value is None or value == "":
        return ""
    return f" (0x{value:X})" if field in ("id", "mask", "code", "index") and value else f" ({_yaml(value)})"


def _models(annotation: Any) -> Iterator[type[Any]]:
    if isinstance(annotation, type) and (issubclass(annotation, BaseModel) or is_dataclass(annotation)):
        yield annotation
    for each in get_args(annotation):
        yield from _models(each)


def _default(field: Any) -> str:
    if field.is_required():
        return "required"
    value = field.default if field.default is not PydanticUndefined else field.default_factory()
    if isinstance(value, BaseModel):
        value = value.model_dump(exclude_none=True, exclude_defaults=True, by_alias=True)
    if is_dataclass(value):
        values = {each: getattr(value, each.name) for each in fields(value)}
        value = {each.name: given for each, given in values.items() if given != each.default}
    if value is None or value in ({}, ()):
        return ""
    return f"`{_yaml(value)}`"


def _yaml(value: Any) -> str:
    """A value as YAML in one line."""
    if isinstance(value, float):
        return re.sub(r"e([+-])0", r"e\1", f"{value:g}")
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_yaml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_yaml, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _meaning_of(kind: type, name: str) -> str:
    """The text of an attribute for a reader of YAML, who leaves a key out where Python has None."""
    return _cell(re.sub(r"\bNone\b", "left out", _attribute(kind, name)))


def _cell(text: str) -> str:
    return _placeholders(text.replace("|", "\\|").replace("\n", " "))


def _placeholders(text: str) -> str:
    """Sets words such as `<name>_<column>` as code outside code: Markdown would take them for HTML tags."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"[\w.]*<\w+>[\w.<>]*", r"`\g<0>`", part) for part in parts[::2]]
    return "`".join(parts)


def _commands() -> str:
    from servoctl.cli.app import app

    group: Any = get_command(app)
    parts = [
        "# Commands",
        "Results go to stdout, messages to stderr. Exit codes: 0 done, 2 the input is wrong, 3 the rig or the bus "
        "failed, 4 the run ended in a bad status, 130 interrupted. Files that were written by then remain.",
    ]
    for name, command in group.commands.items():
        context = command.context_class(command, info_name=f"servoctl {name}", terminal_width=100)
        parts += [f"## servoctl {name}", f"```text\n{command.get_help(context)}\n```"]
    return "\n\n".join(parts) + "\n"
