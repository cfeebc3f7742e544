"""A config as written: YAML text -> plain values, with file and line of each.

Design: PyYAML reads YAML 1.1, in which `on`, `10:30` and `2020-01-01` are not text, but `1e-3` is. So only its scanner
and parser are used; scalars follow YAML 1.2, and keys are text. Everything that could be misread without notice is an
error: duplicate keys, aliases, unknown tags, several documents. An unquoted equation that flow style splits at a comma
is joined again and reported, so that it does not hide other problems.

Unquoted words are null, true, false, a number or text by the core schema of YAML 1.2, with one exception: `010` is
text, because it is 8 in YAML 1.1 and 10 in YAML 1.2. Integers of more than 300 digits are text too, because no float
can hold them.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, NamedTuple, cast

import yaml

from servoctl.errors import ConfigError, Finding
from servoctl.tree.fields import in_words
from servoctl.tree.rules import FieldPath

NAMED_LISTS: tuple[FieldPath, ...] = (("task",), ("bounds",))  # lists whose entries are addressed by `name`


class Problem(NamedTuple):
    """One problem of a config."""

    path: FieldPath  # the wrong field; () is the whole config
    what: str  # what is wrong, with the value; in parentheses what is expected or what to do


@dataclass(frozen=True)
class Document:
    """Unchecked values of a config, and where each is written."""

    file: str  # path of the file, as messages show it
    values: Any  # the top-level mapping; of the text of a single value, that value
    # path -> line in the file, from 1; of an overridden value `--set PATH=VALUE`, or file and line of a `--set-file`
    sources: Mapping[FieldPath, int | str]
    problems: tuple[Problem, ...] = ()  # problems found while reading the YAML

    def field(self, path: FieldPath) -> str:
        """Dotted name of a field, with the name of an entry of `NAMED_LISTS` instead of its index."""
        dotted = ""
        for index, part in enumerate(path):
            names = self._names(path[0]) if path[:index] in NAMED_LISTS else []
            name = names[part] if isinstance(part, int) and part < len(names) else ""
            word = name if name.isidentifier() else part
            dotted += f"[{word}]" if isinstance(word, int) else f".{word}"
        return dotted.removeprefix(".")

    def report(self, problems: Iterable[Problem]) -> list[Finding]:
        """One finding per problem, in order of lines; problems of overrides come last."""
        ordered = sorted(dict.fromkeys(problems), key=lambda problem: self._source(problem.path)[1])
        return [Finding(self.field(path), what, "error", self._source(path)[0]) for path, what in ordered]

    def indexed(self, path: FieldPath) -> FieldPath:
        """The path with the index of an entry of `NAMED_LISTS` instead of its name."""
        names = self._names(path[0]) if path[:1] in NAMED_LISTS else []
        return (path[0], names.index(str(path[1])), *path[2:]) if len(path) > 1 and path[1] in names else path

    def _source(self, path: FieldPath) -> tuple[str, float]:
        """Source of the field, or of the nearest section around it; and its position in a report."""
        around = [path[:length] for length in range(len(path), 0, -1)]
        source = next((self.sources[each] for each in around if each in self.sources), 0)
        if isinstance(source, str):
            return source, float("inf")
        return f"{self.file}:{source}" if source else self.file, source

    def _names(self, field: str | int) -> list[str]:
        """Name of each entry of a list; empty where it has none."""
        entries = self.values.get(str(field))
        if not isinstance(entries, list):
            return []
        names = [entry.get("name") if isinstance(entry, dict) else None for entry in entries]
        return [name if isinstance(name, str) else "" for name in names]


PREFIX = "tag:yaml.org,2002:"


@dataclass(frozen=True)
class Scalar:
    """One kind of scalar."""

    tag: str  # YAML tag
    pattern: re.Pattern[str]  # matches the texts of this kind
    read: Callable[[str], Any]  # text -> value


_FLOAT = r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
_NOT_FINITE = r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
_INTEGER = r"[-+]?(?:0|[1-9][0-9]{0,299})|0o[0-7]{1,300}|0x[0-9a-fA-F]{1,300}"


def _float(text: str) -> float:
    return float(text.replace(".", "") if text[-1] in "fFnN" else text)


def _scalar(word: str, pattern: str, read: Callable[[str], Any]) -> Scalar:
    return Scalar(PREFIX + word, re.compile(rf"(?:{pattern})\Z"), read)


CORE = (
    _scalar("null", "null|Null|NULL|~|", lambda text: None),
    _scalar("bool", "true|True|TRUE|false|False|FALSE", lambda text: text.lower() == "true"),
    _scalar("int", _INTEGER, lambda text: int(text, 0)),
    _scalar("float", f"{_FLOAT}|{_NOT_FINITE}", _float),
    _scalar("str", r"(?s:.)*", str),
)
"""Kinds of scalars, in the order in which they are tried."""

NUMBERS = CORE[2:4]


MAX_DEPTH = 40
MAX_PARTS = 20  # most parts that an unquoted equation can be split into and still be recognised


class _Loader(yaml.SafeLoader):
    """Composes nodes with scalars of YAML 1.2; refuses anchors, aliases and deep nesting."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012
    depth = 0
    peek_event: Callable[[], Any]
    get_event: Callable[[], Any]

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        if anchor := getattr(event, "anchor", None):
            sign = "*" if isinstance(event, yaml.AliasEvent) else "&"
            raise _refusal(f"alias or anchor '{sign}{anchor}' (write the value out; quote text that starts so)", event)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _refusal(f"nested deeper than {MAX_DEPTH} levels (no config needs that)", event)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def single(self) -> Any:
        """Root node of the document; None if there is no document."""
        node = self.get_node() if self.check_node() else None
        if self.check_node():
            raise _refusal("a second document starts (a config is one document: remove '---')", self.get_event())
        return node


for _kind in CORE[:-1]:
    _Loader.add_implicit_resolver(_kind.tag, _kind.pattern, None)


def _refusal(problem: str, event: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)


class NotYamlError(Exception):
    """A text is not YAML; the caller adds the name of its file."""

    def __init__(self, line: int, what: str) -> None:
        self.line = line
        self.what = what
        super().__init__(f"line {line}: {what}")


class _Builder:
    """Turns nodes into values, and records lines and problems by path."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines: dict[FieldPath, int] = {}
        self.problems: list[Problem] = []

    def report(self, path: FieldPath, what: str) -> None:
        self.problems.append(Problem(path, what))

    def value(self, node: yaml.Node, path: FieldPath) -> Any:
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node, path)
        collection = cast(yaml.CollectionNode, node)
        is_mapping = isinstance(node, yaml.MappingNode)
        if node.tag != PREFIX + ("map" if is_mapping else "seq"):
            self.refuse_tag(node, path)
        return self.mapping(collection, path) if is_mapping else self.sequence(collection, path)

    def refuse_tag(self, node: yaml.Node, path: FieldPath) -> None:
        self.report(path, f"tag '{node.tag.replace(PREFIX, '!!')}' (a config has no tags: remove it)")

    def scalar(self, node: yaml.Node, path: FieldPath) -> Any:
        kind = next((kind for kind in CORE if kind.tag == node.tag), None)
        if kind is None or not kind.pattern.match(node.value):
            self.refuse_tag(node, path)
            return node.value
        if not _is_unicode(node.value):
            self.report(path, "half of a surrogate pair (write the character itself)")
            return ""
        return kind.read(node.value)

    def sequence(self, node: yaml.CollectionNode, path: FieldPath) -> list[Any]:
        values: list[Any] = []
        items = deque(node.value)
        while items:
            item = items.popleft()
            field = (*path, len(values))
            self.lines[field] = _line(item)
            rest = self.rest(item, items) if node.flow_style else []
            for _ in rest:
                items.popleft()
            values.append(self.joined(item, rest[-1], field) if rest else self.value(item, field))
        return values

    def mapping(self, node: yaml.CollectionNode, path: FieldPath) -> dict[str, Any]:
        values: dict[str, Any] = {}
        pairs = deque(node.value)
        while pairs:
            key_node, item = pairs.popleft()
            if not isinstance(key_node, yaml.ScalarNode) or not _is_unicode(key_node.value):
                self.lines.setdefault(path, _line(key_node))
                self.report(path, f"the key on line {_line(key_node)} is not text (a key is a word)")
                continue
            key = key_node.value
            field = (*path, key)
            if node.flow_style and not key_node.style and ":" in key and _is_absent(item):
                key, text = key.split(":", 1)
                field = (*path, key)
                self.report(field, f'YAML needs a space behind this colon (write "{key}: {text}")')
                item = yaml.ScalarNode(PREFIX + "str", text, item.start_mark, item.end_mark)
            if key in values:
                lines = f"{self.lines[field]} and {_line(key_node)}"
                self.report(field, f"duplicate key on lines {lines} (keep one of them)")
                continue
            self.lines[field] = _line(key_node)
            # an equation split at commas leaves keys without values behind it
            bare_keys = (following for following, _ in takewhile(lambda pair: _is_absent(pair[1]), pairs))
            rest = self.rest(item, bare_keys) if node.flow_style else []
            for _ in rest:
                pairs.popleft()
            values[key] = self.joined(item, rest[-1], field) if rest else self.value(item, field)
        return values

    def rest(self, node: yaml.Node, following: Iterable[yaml.Node]) -> list[yaml.Node]:
        """The following nodes up to the one that closes the parentheses of this unquoted text."""
        parts: list[yaml.Node] = []
        if isinstance(node, yaml.ScalarNode) and not node.style and _balance(node.value) > 0:
            for part in islice(following, MAX_PARTS):
                parts.append(part)
                if _balance(self.text[node.start_mark.index : part.end_mark.index]) <= 0:
                    return parts
        return []

    def joined(self, node: yaml.Node, last: yaml.Node, path: FieldPath) -> str:
        text = " ".join(self.text[node.start_mark.index : last.end_mark.index].split())
        self.report(path, f'YAML has split this equation at a comma (quote it: "{text}")')
        return text


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _is_absent(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.start_mark.index == node.end_mark.index


def _balance(text: str) -> int:
    return text.count("(") - text.count(")")


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def read_value(text: str, file: str = "") -> Document:
    """Reads a YAML text, of a config or of a single value; the value of an empty text is None.

    Raises:
        NotYamlError: The text is not one YAML document, or uses anchors or aliases.
    """
    if (number := next((kind for kind in NUMBERS if kind.pattern.match(text)), None)) is not None:
        return Document(file, number.read(text), {})  # as the values of a sweep, which do not wait for the parser
    builder = _Builder(text)
    try:
        node = _Loader(text).single()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        code = error.character if isinstance(error.character, int) else ord(error.character)
        raise NotYamlError(line, f"character U+{code:04X} is not printable (remove it)") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise NotYamlError(mark.line + 1 if mark else 1, _what(error)) from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # the last two: chr() and int() in PyYAML's scanner
        raise NotYamlError(1, f"not YAML: {error} (check escapes and directives)") from error
    value = None if node is None else builder.value(node, ())
    return Document(file, value, builder.lines, tuple(builder.problems))


def _what(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or "not YAML"
    if type(error) is yaml.MarkedYAMLError:
        return problem
    if "'\\t'" in problem:
        return "not YAML: a tab where a value starts (indent with spaces)"
    return f"not YAML: {problem} (check colons, indentation and brackets here; quote equations)"


def shown(path: Path) -> str:
    """A path relative to the current folder, if it is below it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)


MAX_BYTES = 1_000_000


def read_document(path: Path, shown: str) -> Document:
    """Read a config file.

    Args:
        shown: Its name in messages.

    Raises:
        ConfigError: The file cannot be read, or is not one YAML mapping.
    """
    try:
        document = read_value(_text(path, shown), shown)
    except NotYamlError as error:
        raise ConfigError(f"{shown}:{error.line}: {error.what}") from error
    if document.values is None and not document.problems:
        raise ConfigError(f"{shown}: empty (a config has plant, initial, task, law and run)")
    if not isinstance(document.values, dict):
        got = in_words(document.values)
        raise ConfigError(f"{shown}: expected a mapping with plant, initial, task, law and run, got {got}")
    return document


def _text(path: Path, shown: str) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except IsADirectoryError as error:
        raise ConfigError(f"{shown}: is a directory (name the config file in it)") from error
    except FileNotFoundError as error:
        raise ConfigError(f"{shown}: no such file (check the path)") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{shown}: cannot be read: {reason.lower()} (check the path and its permissions)") from error
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{shown}: larger than {MAX_BYTES} bytes (is this a config?)")
    if b"\0" in content:
        raise ConfigError(f"{shown}: binary, byte {content.index(0)} is zero (a config is UTF-8 text)")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{shown}: not UTF-8 at byte {error.start} (save the file as UTF-8)") from error
