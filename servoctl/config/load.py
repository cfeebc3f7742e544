"""Reads and checks a config, from a file or by the name of a shipped config; pydantic's errors -> our messages."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from servoctl.config.document import CORE, PREFIX, Document, Problem, read_document, shown
from servoctl.config.overrides import Override, apply_overrides, setting
from servoctl.config.schema import Config
from servoctl.errors import ConfigError, Finding, Severity, remedy, suggestion
from servoctl.tree.fields import FAULT, LIST, MAPPING, SCALAR, PathMark, in_words, numbers_of
from servoctl.tree.rules import (
    FieldPath,
    Section,
    alternatives,
    annotation_of,
    at_path,
    below,
    fields_of,
    is_marked,
    rough_section,
    sections_in,
    with_fields,
)

SUFFIXES = (".yaml", ".yml")


def shipped_configs() -> dict[str, Path]:
    """Name -> file of every shipped config, in alphabetical order.

    In an installation they are inside the package, in a checkout next to it.
    """
    package = Path(str(resources.files("servoctl.config"))).parent
    for folder in (package / "configs", package.parent / "configs"):
        if folder.is_dir():
            return {file.stem: file for file in sorted(folder.glob("*.yaml"))}
    return {}


def first_line(path: Path) -> str:
    """Description of a config: the comment in its first line, without the name of the file.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open(encoding="utf-8", errors="replace") as file:
        line = file.readline().strip()
    if not line.startswith("#"):
        return ""
    before, colon, after = line.lstrip("# ").partition(":")
    return after.strip() if colon and before.endswith(path.name) else line.lstrip("# ")


def find_config(source: str | Path) -> Path:
    """The file of a path, or of the bare name of a shipped config.

    Raises:
        ConfigError: There is no such file and no such shipped config.
    """
    text, shipped = str(source), shipped_configs()
    path = Path(source)
    if isinstance(source, str) and source in shipped:
        return shipped[source]
    if os.path.lexists(path):
        return path
    bare = isinstance(source, str) and path.name == source and path.suffix not in SUFFIXES
    if bare:
        raise ConfigError(f"{text!r}: no config has this name ({remedy(text, shipped)}; or give a path)")
    siblings = [file.name for file in path.parent.glob("*.y*ml")] if os.path.isdir(path.parent) else []
    hint = suggestion(path.name, siblings) or suggestion(path.stem, shipped) or "check the path"
    raise ConfigError(f"{text}: no such file ({hint})")


def paths_by_field(config: Config) -> dict[str, str]:
    """Field, as after `--set` -> the class path or file that it names."""
    found: dict[str, str] = {}
    _with_paths(config, found.setdefault)
    return found


def named_files(config: Config) -> list[str]:
    """Python files of classes, and files of robots and references, each once, as the config names them."""
    found: dict[str, str] = {}
    _with_files(config, lambda file: found.setdefault(file, file))
    return list(found)


def moved(config: Config, home: Path, folder: Path) -> Config:
    """A config in folder `home` as a config in another folder: all paths lead to the same files."""

    def relative(file: str) -> str:
        if Path(file).is_absolute():
            return file
        return os.path.relpath((home / file).resolve(), folder.resolve())

    return _with_files(config, relative)


def _with_files(config: Config, change: Callable[[str], str]) -> Config:
    """The config with other paths of its files, also of those among the choices of `tune`."""

    def changed(field: str, path: str) -> str:
        module, _, name = path.rpartition(":")
        if not field.endswith(".class"):
            return change(path)
        return f"{change(module)}:{name}" if module.endswith(".py") else path

    moved: Config = _with_paths(config, changed)
    tune, fields = config.tune, paths_by_field(config)
    if tune is None:
        return moved

    def chosen(path: str, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(chosen(path, each) for each in value)
        return changed(path, value) if path in fields and isinstance(value, str) else value

    def choices(at: Mapping[str, Any]) -> dict[str, Any]:
        return {path: chosen(path, value) for path, value in at.items()}

    new = {"search": choices(tune.search), "uncertainty": choices(tune.uncertainty)}
    new["sensitivity"] = {name: choices(at) for name, at in tune.sensitivity.items()}
    return moved.model_copy(update={"tune": tune.model_copy(update=new)})


def _with_paths(node: Any, change: Callable[[str, str], str], at: tuple[str, ...] = ()) -> Any:
    """A section with other class paths and files: `change(field, path)` of each; the field is as after `--set`."""
    if isinstance(node, dict):
        return {key: _with_paths(value, change, (*at, key)) for key, value in node.items()}
    if isinstance(node, tuple):
        return tuple(_with_paths(part, change, (*at, getattr(part, "name", str(i)))) for i, part in enumerate(node))
    new: dict[str, Any] = {}
    kind: Any = type(node)
    for key, (name, field) in fields_of(kind).items():
        value, path = getattr(node, name), (*at, key)
        named = value is not None and is_marked(annotation_of(field), PathMark)
        changed = change(".".join(path), value) if named else _with_paths(value, change, path)
        new |= {} if changed is value else {name: changed}
    return with_fields(node, new) if new else node


class _Dumper(yaml.SafeDumper):
    """Quotes text that YAML 1.1 or YAML 1.2 could read as something else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        style = '"' if _LINE_BREAKS.search(data) else None
        return self.represent_scalar(PREFIX + "str", data, style=style)


_LINE_BREAKS = re.compile("[\x85\u2028\u2029]")
"""Line breaks that PyYAML reads back differently, unless they are in double quotes."""

_Dumper.add_representer(str, _Dumper.represent_str)
for _kind in CORE[:-1]:
    _Dumper.add_implicit_resolver(_kind.tag, _kind.pattern, None)


def dump(config: Config) -> str:
    """YAML of the config as it ran: with all defaults, with evaluated numbers, without fields that are None."""
    values = config.model_dump(mode="json", by_alias=True, exclude_none=True)
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000)


@dataclass(frozen=True)
class LoadedConfig:
    """A config and its source."""

    path: Path  # the file
    config: Config  # checked values, with all defaults
    document: Document  # values as written, with their lines

    @property
    def name(self) -> str:
        """Name of the file, without its suffix."""
        return self.path.stem

    @property
    def folder(self) -> Path:
        """The folder that class paths in files are relative to."""
        return self.path.parent

    @property
    def text(self) -> str:
        """YAML of the config as it ran, for a run folder: all its files have absolute paths."""
        return dump(_with_files(self.config, lambda file: str((self.folder / file).absolute())))

    def overridden(self, overrides: Sequence[str]) -> "LoadedConfig":
        """The same config with further values replaced.

        Args:
            overrides: `PATH=VALUE`, as after `--set`.

        Raises:
            ConfigError: The changed config is wrong; lists all problems.
        """
        document, refused = apply_overrides(self.document, overrides)
        before = self.document.values
        same = [key for key, value in document.values.items() if key in before and value is before[key]]
        return _checked(self.path, document, refused, {key: getattr(self.config, key) for key in same})

    def of_folder(self, classes: Path | None) -> "LoadedConfig":
        """The config of a run folder, with the folder of its Python files.

        Args:
            classes: The folder, whatever the config says; None: as the config says, relative to the working folder.
        """
        moved = replace(self, path=(classes or Path()).absolute() / self.path.name)
        if classes is None:
            return moved
        files = {field: Path(name) for field, name in paths_by_field(self.config).items() if ".py:" in name}
        return moved.overridden([setting(field, f"{moved.folder / file.name}") for field, file in files.items()])

    def with_values(self, values: Mapping[str, Any]) -> "LoadedConfig":
        """The same config with other values.

        Args:
            values: Path as after `--set` -> value.

        Raises:
            ConfigError: The changed config is wrong; lists all problems.
        """
        return self.overridden([setting(path, value) for path, value in values.items()])

    def where(self, *path: str | int) -> str:
        """Start of a message about a field: `file.yaml:12: law.limits`, or `--set law.limits=...: law.limits`."""
        return str(self.finding("", *path))

    def finding(self, sentence: str, *path: str | int, severity: Severity = "error") -> Finding:
        """A finding about a field, with its file and line.

        Args:
            path: Keys and list indices from the top; a task entry by index or name.
        """
        (found,) = self.document.report([Problem(self.document.indexed(path), sentence)])
        return replace(found, severity=severity)


def load_config(source: str | Path, overrides: Sequence[Override] = ()) -> LoadedConfig:
    """Read and check a config.

    Args:
        source: A path, or the bare name of a shipped config.
        overrides: `PATH=VALUE`, as after `--set`, and paths of files, as after `--set-file`; the last one wins.

    Raises:
        ConfigError: The config is wrong; lists all problems in order of lines, those of overrides last.
    """
    path = find_config(source)
    return _checked(path, *apply_overrides(read_document(path, shown(path)), overrides))


def _checked(
    path: Path, document: Document, refused: Sequence[str], known: Mapping[str, Any] = MappingProxyType({})
) -> LoadedConfig:
    """The config of a document; sections that are `known` are not read again."""
    config, problems = validate(Config, document.values, known)
    found: list[Finding | str] = [*document.report([*document.problems, *problems]), *refused]
    if found or config is None:
        raise ConfigError(found)
    return LoadedConfig(path, config, document)


S = TypeVar("S", bound=Section)

_EXPECTED = {
    "model_type": "a mapping",
    "dataclass_type": "a mapping",
    "dict_type": "a mapping",
    "tuple_type": "a list",
    "string_type": "text",
    "bool_type": "true or false",
    "too_short": "a list with at least one value",
}


def json_schema() -> dict[str, Any]:
    """JSON Schema of a config, with description and unit of every field."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Config.model_json_schema(by_alias=True)}
    return schema | {"title": "servoctl config"}


def validate(
    kind: type[S], values: Mapping[str, Any], known: Mapping[str, Any] = MappingProxyType({})
) -> tuple[S | None, list[Problem]]:
    """The sections of a class from plain values, None if a field is wrong; and all problems.

    Args:
        known: Sections whose values are not checked again.
    """
    section: Any
    problems: list[Problem] = []
    try:
        section = sound = kind.model_validate({**values, **known})
    except ValidationError as wrong:
        section, sound = rough_section(kind, {**values, **known}), None
        # a list is not too short because its values are wrong
        told = (
            error for error in wrong.errors(include_url=False) if error["type"] != "too_short" or not error["input"]
        )
        problems = [_with_default(error) for error in told]
    sections = sorted(sections_in(section), key=lambda each: len(each[0]))
    broken = [below(at, each.broken()) for at, each in sections if not at or at[0] not in known]
    misfits = [each.misfits(section, at) for at, each in sections]
    return sound, problems + [Problem(*each) for each in chain(*broken, *misfits)]


_WITHOUT_KEY = {
    ("hil", "safety", "stop_damping"): "a stop brakes by the model's inertia, with no damping to set: leave it out; "
    "stop_time, torque_limit, torque_rate_limit and speed_limit decide how it stops: servoctl check",
}
"""What to do in place of keys that one may look for."""


def _with_default(error: Mapping[str, Any]) -> Problem:
    """The problem of an error; that of a key without a value says what to do if the key has a default."""
    problem = _problem(error)
    empty = error["input"] is None and problem.what.endswith("got nothing")
    if empty and any(field is not None and not field.is_required() for _, field in at_path(Config, problem.path)):
        return Problem(problem.path, f"{problem.what} (leave the key out for its default)")
    return problem


def _problem(error: Mapping[str, Any]) -> Problem:
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    or_else = " or a mapping" if error["loc"][-1:] == (SCALAR,) else ""
    path: FieldPath = tuple(part for part in error["loc"] if part not in (SCALAR, LIST, MAPPING, "[key]"))
    if kind == FAULT:
        return Problem((*path, *context["at"]), context["what"])
    if kind == "missing":
        fields = [field for _, field in at_path(Config, path) if field is not None]
        description = next((field.description for field in fields if field.description), "it has no default")
        return Problem(path, f"missing ({description})")
    if path in _WITHOUT_KEY:
        return Problem(path, f"unknown key ({_WITHOUT_KEY[path]})")
    if kind == "value_error":  # raised by the class of a section: `<field>: <what>`
        field, _, what = str(context["error"]).partition(": ")
        return Problem((*path, field), what)
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        kinds = [kind for annotation, _ in at_path(Config, path[:-1]) for kind in alternatives(annotation)]
        known = [key for kind in kinds if isinstance(kind, type) for key in fields_of(kind)]
        return Problem(path, f"unknown key ({remedy(str(path[-1]), known)})")
    if kind == "literal_error":
        known = [word.strip("'") for word in re.findall(r"'[^']*'|-?\d+", context["expected"])]
        hint = suggestion(value, known) if isinstance(value, str) else ""
        expected = known[0] if len(known) == 1 else f"one of {', '.join(known)}"
        return Problem(path, f"expected {expected}{or_else}, got {in_words(value)}" + (f" ({hint})" if hint else ""))
    if kind == "too_short" and isinstance(value, Mapping):
        return Problem(path, f"expected a mapping with at least one key, got {in_words(value)}")
    return Problem(path, f"expected {_EXPECTED.get(kind, error['msg'])}{or_else}, got {in_words(value)}")


def unit_of(path: str) -> str:
    """The unit in brackets at the end of a field's description; empty if there is none.

    Args:
        path: As after `--set`.
    """
    keys = path.split(".")
    if keys[-1].isdigit():
        keys.pop()  # the list says the unit of its entries
    for annotation, field in at_path(Config, tuple(keys)):
        words = [field.description or ""] if field is not None else []
        for text in [*words, *(number.expected for number in numbers_of(annotation))]:
            if found := re.search(r"\[(?!lower, upper)([^][]*)\][^][]*$", text):
                return found[1]
    return ""
