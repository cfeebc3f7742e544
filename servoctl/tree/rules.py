"""Rules between the fields of a section, or between sections: methods of its class, checked on what was read.

Design: where a config has wrong values, its rules are checked on an object that has `WRONG` in their place. A wrong
value is given, but nothing else is known of it: a rule that needs more ends there. So all that is wrong is reported at
once, and nothing is reported that only follows from something else.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from functools import cache
from itertools import chain
from types import UnionType
from typing import Annotated, Any, ClassVar, NamedTuple, Union, cast, get_args, get_origin

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from servoctl.tree.fields import PerRow

FieldPath = tuple[str | int, ...]
"""Keys and list indices from a section, or from the top of a config, to a value, such as ("task", 0, "holonomic")."""

Broken = Iterator[tuple[FieldPath, str]]
"""Broken rules: path to the wrong field, and what is wrong."""


class UnknownError(Exception):
    """A rule needs a value that is wrong."""


class _Wrong:
    """A wrong value: whatever asks for more than whether it is there ends."""

    def _ask(self, *_: Any) -> Any:
        raise UnknownError

    __getattr__ = __getitem__ = __iter__ = __contains__ = __len__ = __bool__ = __hash__ = __str__ = __format__ = _ask
    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __float__ = __int__ = __index__ = __round__ = __abs__ = __neg__ = _ask
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _ask


WRONG: Any = _Wrong()
"""Stands for a wrong value."""


def right(values: Iterable[Any]) -> list[tuple[int, Any]]:
    """Index and value of those that are not wrong as a whole."""
    return [(index, value) for index, value in enumerate(values) if value is not WRONG]


def known(broken: Broken) -> Broken:
    """The broken rules up to the first wrong value that is asked for."""
    try:
        yield from broken
    except UnknownError:
        return


def below(at: FieldPath, broken: Broken) -> Broken:
    """Broken rules with paths from the section around, up to the first wrong value that is asked for."""
    for path, what in known(broken):
        yield (*at, *path), what


class OneOf(NamedTuple):
    """Keys of which a section has exactly one."""

    keys: Mapping[str, tuple[str, ...]]  # kind -> further keys, which do not fit all kinds
    rule: str  # the rule in words: `a loop has exactly one kind`
    noun: str  # what is missing without any of them: `kind`
    none: str = ""  # the sentence about that; empty: made of the noun
    at: FieldPath = ()  # where it is said


def rule(method: Callable[[Any], Broken]) -> Callable[[Any], Broken]:
    """Marks a method that yields broken rules between the fields of its section, with paths from there."""
    method.is_rule = True  # type: ignore[attr-defined]
    return method


def outer_rule(method: Callable[[Any, Any, FieldPath], Broken]) -> Callable[[Any, Any, FieldPath], Broken]:
    """Marks a method that yields what does not fit the rest of the config, with paths from its top.

    It takes the config and the path of the section in it.
    """
    method.is_outer_rule = True  # type: ignore[attr-defined]
    return method


class Rules:
    """What a section has whose fields fit each other: a dataclass, or a `Section`."""

    misspelt: ClassVar[bool] = False  # whether it was written with an unknown key, most likely a misspelt one

    def broken(self) -> Broken:
        """The broken rules between its fields."""
        kind: Any = type(self)
        for each in _marked(kind, "is_rule"):
            yield from known(each(self))

    def misfits(self, config: Any, at: FieldPath) -> Broken:
        """What does not fit the rest of a config, in which it stands at a path."""
        kind: Any = type(self)
        for each in _marked(kind, "is_outer_rule"):
            yield from known(each(self, config, at))

    def given(self, keys: Iterable[str]) -> list[str]:
        """Those of the keys that have a value."""
        kind: Any = type(self)
        own = fields_of(kind)
        return [key for key in keys if getattr(self, own[key][0]) is not None]


class Section(BaseModel, Rules):
    """A mapping of the config: unknown keys are errors, values cannot change after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class OneKind(Section):
    """A section that has exactly one of some keys."""

    one_of: ClassVar[OneOf]

    @property
    def kind(self) -> str:
        """The one that is given; empty if there is none, or several."""
        kinds = self.given(self.one_of.keys)
        return kinds[0] if len(kinds) == 1 else ""

    @rule
    def _one_kind(self) -> Broken:
        of, kinds = self.one_of, self.given(self.one_of.keys)
        for other in kinds[1:]:
            yield (other,), f"cannot be used with {kinds[0]} ({of.rule})"
        if not kinds and not self.misspelt:
            yield of.at, of.none or f"no {of.noun} (give exactly one of {', '.join(of.keys)})"

    @rule
    def _keys_fit_the_kind(self) -> Broken:
        kind, keys = self.kind, self.one_of.keys
        fitting = keys.get(kind, ())
        for key in self.given(dict.fromkeys(chain(*keys.values()))) if kind else ():
            if key not in fitting:
                others = ", ".join(other for other in keys if key in keys[other])
                hint = f"it takes {', '.join(fitting)}" if fitting else f"it belongs to {others}"
                yield (key,), f"does not fit {kind} ({hint})"


@cache
def _marked(kind: type, mark: str) -> list[Callable[..., Broken]]:
    """The rules of a class with a mark, those of its bases first."""
    found = {name: each for base in reversed(kind.__mro__) for name, each in vars(base).items()}
    return [each for each in found.values() if getattr(each, mark, False)]


def _has_rules(kind: type) -> bool:
    return bool(_marked(kind, "is_rule") or _marked(kind, "is_outer_rule"))


@cache
def fields_of(kind: Any) -> dict[str, tuple[str, FieldInfo]]:
    """Key in a config -> name, and type, default and description, of each field of a section; empty for other types."""
    own: dict[str, FieldInfo] = {}
    if issubclass(kind, Section):
        own = kind.model_fields
    elif is_dataclass(kind):
        own = {each.name: FieldInfo.from_annotated_attribute(cast(Any, each.type), each) for each in fields(kind)}
    return {field.alias or name: (name, field) for name, field in own.items()}


def sections_in(thing: Any, at: FieldPath = ()) -> Iterator[tuple[FieldPath, Rules]]:
    """Path and section of everything with rules, the outer ones first."""
    if isinstance(thing, dict):
        inner: Iterable[tuple[Any, Any]] = thing.items()
    elif isinstance(thing, tuple):
        inner = enumerate(thing)
    else:
        if isinstance(thing, Rules):
            yield at, thing
        kind: Any = type(thing)
        inner = ((key, getattr(thing, name)) for key, name in _with_rules_inside(kind))
    for key, value in inner:
        if value is not None:
            yield from sections_in(value, (*at, key))


@cache
def _with_rules_inside(kind: Any) -> list[tuple[str, str]]:
    """Key and name of the fields of a class in which there may be sections with rules."""
    return [
        (key, name)
        for key, (name, field) in fields_of(kind).items()
        if any(_has_rules(each) or _with_rules_inside(each) for each in _classes_in(field.annotation))
    ]


def _classes_in(kind: Any) -> Iterator[Any]:
    """The classes that an annotation names."""
    for part in alternatives(kind):
        inner = get_args(part)
        if inner:
            for each in inner:
                yield from _classes_in(each)
        elif isinstance(part, type):
            yield part


def with_fields(section: Any, values: Mapping[str, Any]) -> Any:
    """A section with other values in some fields."""
    return section.model_copy(update=values) if isinstance(section, Section) else replace(section, **values)


def roughly(kind: Any, value: Any) -> Any:
    """The value of a type, with `WRONG` in place of what is wrong."""
    with suppress(ValidationError):
        return TypeAdapter(kind).validate_python(value)
    for part in alternatives(kind):
        inner, of = get_args(part), get_origin(part)
        if isinstance(value, Mapping) and isinstance(part, type) and fields_of(part):
            return rough_section(part, value)
        with suppress(ValidationError):
            TypeAdapter(part).validate_python(value)
            return WRONG  # as a whole, such as a list of a wrong length
        if isinstance(value, Mapping) and of is dict:
            return {key: roughly(inner[1], each) for key, each in value.items()}
        if isinstance(value, list | tuple) and of is tuple:
            return tuple(roughly(inner[0], each) for each in value)
    return WRONG


def alternatives(kind: Any) -> Iterator[Any]:
    """The types that an annotation is made of."""
    inner, *marks = get_args(kind) or (kind,)
    if any(isinstance(mark, PerRow) for mark in marks):
        yield from alternatives(next(mark.values for mark in marks if isinstance(mark, PerRow)))
    elif get_origin(kind) is Annotated:
        yield from alternatives(inner)
    elif get_origin(kind) in (Union, UnionType):
        for part in get_args(kind):
            yield from alternatives(part)
    else:
        yield kind


def is_marked(kind: Any, mark: type) -> bool:
    """Whether an annotation, or one that it is made of, has a mark."""
    inner, *marks = get_args(kind) or (kind,)
    if get_origin(kind) is Annotated:
        return any(isinstance(each, mark) for each in marks) or is_marked(inner, mark)
    return get_origin(kind) in (Union, UnionType) and any(is_marked(part, mark) for part in get_args(kind))


def annotation_of(field: FieldInfo) -> Any:
    """The annotation of a field, with its marks."""
    return Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation


def at_path(kind: Any, path: FieldPath) -> list[tuple[Any, FieldInfo | None]]:
    """Annotation of the value at a path below a section, and its field, for each shape that the sections accept.

    It has no field in a list, or in a mapping whose keys the config chooses.
    """
    reached: list[tuple[Any, FieldInfo | None]] = [(kind, None)]
    for key in path:
        kinds = [part for annotation, _ in reached for part in alternatives(annotation)]
        reached = [inner for part in kinds for inner in _inside(part, key)]
    return reached


def _inside(kind: Any, key: str | int) -> Iterator[tuple[Any, FieldInfo | None]]:
    if get_origin(kind) is tuple:  # an entry has an index, or a name
        yield get_args(kind)[0], None
    elif isinstance(key, str) and get_origin(kind) is dict:
        yield get_args(kind)[1], None
    elif isinstance(kind, type) and key in fields_of(kind):
        field = fields_of(kind)[str(key)][1]
        yield annotation_of(field), field


def rough_section(kind: Any, values: Mapping[str, Any]) -> Any:
    """A section of these values, with `WRONG` in place of those that are wrong or missing; nothing else is checked."""
    made: dict[str, Any] = {}
    for key, (name, field) in fields_of(kind).items():
        if key in values:
            made[name] = roughly(annotation_of(field), values[key])
        else:
            made[name] = WRONG if field.is_required() else field.get_default(call_default_factory=True)
    if issubclass(kind, Section):
        section = kind.model_construct({name for key, (name, _) in fields_of(kind).items() if key in values}, **made)
    else:
        section = object.__new__(kind)
        section.__dict__.update(made)
    if not values.keys() <= fields_of(kind).keys():
        section.__dict__["misspelt"] = True
    return section
