"""Types of single fields: which values they accept, and the error for all others; numbers that are given by name."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    Protocol,
    SupportsFloat,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainValidator,
    Tag,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from servoctl.errors import ExpressionError, counted, no_such
from servoctl.expression import constant, parse
from servoctl.types import Array

SCALAR, LIST, MAPPING = "<scalar>", "<list>", "<mapping>"
"""Branches of a field that accepts several shapes; they occur in pydantic's paths, never in ours."""

LONGEST_UNIT = 16  # most characters of a unit


def in_words(value: Any) -> str:
    """A value for a message: short, and as written in YAML."""
    if value is None or isinstance(value, bool):
        return {None: "nothing", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return f"a mapping ({', '.join(map(str, value))})"[:80] if value else "an empty mapping"
    shown = repr(value) if not isinstance(value, list | tuple) else f"[{', '.join(map(in_words, value[:8]))}]"
    return shown if len(shown) <= 80 else f"{shown[:77]}..."


FAULT = "fault"  # kind of the errors of validators here


def fault(what: str, *at: str | int) -> PydanticCustomError:
    """An error to raise in a validator; pydantic passes it on.

    Args:
        what: What is wrong; in parentheses what to do.
        at: Path from the checked field to the wrong one.
    """
    return PydanticCustomError(FAULT, "{what}", {"what": what, "at": at})


def only(fits: Callable[[Any], Any], expected: str, hint: str = "") -> Callable[[Any], Any]:
    """A validator that the values that fit pass, and no others.

    Args:
        fits: Whether a value fits.
        expected: What does, for messages.
        hint: End of the message.
    """

    def check(value: Any) -> Any:
        if not fits(value):
            raise fault(f"expected {expected}, got {in_words(value)}{hint}")
        return value

    return check


def described(default: Any, description: str) -> Any:
    """A field of a dataclass that is a section: its default, and its description, with the unit in brackets."""
    return field(default=default, metadata={"description": description})


@dataclass(frozen=True)
class NumberField:
    """Type of a field that takes a number or a constant expression."""

    expected: str  # the expected value with its unit, for messages: "a positive time [s]"
    above: float | None = None  # the number must be greater than this
    least: float | None = None  # the number must not be less than this
    most: float | None = None  # the number must not be greater than this
    below: float | None = None  # the number must be less than this
    whole: bool = False  # whether it must be an integer
    smallest: float = 0.0  # the number must be 0 or at least of this size
    word: str = ""  # a word that the field takes as well
    remedy: str = ""  # what to do about a number out of range

    def read(self, value: Any) -> float | int | str:
        """The number, or the word.

        Raises:
            PydanticCustomError: The value is not a number, or is out of range.
        """
        if self.word and value == self.word:
            return self.word
        try:
            number = constant(value)
        except ExpressionError as error:
            reason = f": {error}" if isinstance(value, str) else ""
            raise fault(f"expected {self.expected}, got {in_words(value)}{reason}") from error
        if not self.holds(number):
            result = f" = {number:.6g}" if isinstance(value, str) else ""
            remedy = f" ({self.remedy})" if self.remedy else ""
            raise fault(f"expected {self.expected}, got {in_words(value)}{result}{remedy}")
        if self.whole:
            return value if isinstance(value, int) else int(number)
        return number

    def holds(self, number: float) -> bool:
        """Whether a number is finite and in the range."""
        return (
            math.isfinite(number)
            and (self.above is None or number > self.above)
            and (self.least is None or number >= self.least)
            and (self.most is None or number <= self.most)
            and (self.below is None or number < self.below)
            and (not self.whole or number.is_integer())
            and (not number or abs(number) >= self.smallest)
        )

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        bounds = {"exclusiveMinimum": self.above, "minimum": self.least, "maximum": self.most}
        bounds["exclusiveMaximum"] = self.below
        number = {"type": "integer" if self.whole else "number"}
        number |= {word: bound for word, bound in bounds.items() if bound is not None}  # type: ignore[misc]
        return {"anyOf": [number, {"type": "string", "description": f"constant expression: {self.expected}"}]}


@dataclass(frozen=True)
class Equation:
    """Type of a field that takes the text of an equation, or a number."""

    rates: bool = False  # whether `der()` must occur

    def read(self, value: Any) -> str:
        """The text, after a test parse.

        Raises:
            PydanticCustomError: The value is not an equation, or is one of the wrong kind.
        """
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise fault(f"expected an equation as text, got {in_words(value)}")
        try:
            expression = parse(value if isinstance(value, str) else repr(constant(value)))
        except ExpressionError as error:
            raise fault(str(error)) from error
        if self.rates and not expression.rates:
            raise fault("no der() in a nonholonomic equation (write it under 'holonomic')")
        return expression.text

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"type": ["string", "number"]}


class PathMark:
    """Marks a text that names a file, or a class that may be in one."""


class DotMark:
    """Marks a mapping whose keys may have dots."""


def _is_class_path(value: str) -> bool:
    module, colon, name = value.rpartition(":")
    dotted = re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", module) and not module.endswith(".py")
    return bool(colon and name.isidentifier() and (dotted or re.fullmatch(r".*[^/\\]\.py", module)))


def name_as(example: str) -> AfterValidator:
    """A check of a name; the message shows the example."""
    return AfterValidator(only(str.isidentifier, "a name of letters, digits and _", f" (as in {example})"))


def _is_unit(value: str) -> bool:
    return 0 < len(value) <= LONGEST_UNIT and value.isprintable() and value == value.strip()


def _parameter(value: Any) -> Any:
    """A number, text, true, false, or a list of these; the type of the class's field is checked in `assembly`."""
    if isinstance(value, list | tuple):
        return [_parameter(item) for item in value]
    if isinstance(value, bool | str):
        return value
    try:
        constant(value)
    except ExpressionError as error:
        raise fault(f"expected a number, text, true, false or a list of these, got {in_words(value)}") from error
    return value


def shape(value: Any) -> str:
    """Branch that a value takes in a field that accepts several shapes."""
    if isinstance(value, list | tuple):
        return LIST
    return MAPPING if isinstance(value, Mapping | BaseModel) or is_dataclass(value) else SCALAR


def _either(branch: str, other: str) -> Discriminator:
    """Tells values of the shape of one branch from all others."""
    return Discriminator(lambda value: branch if shape(value) == branch else other)


S = TypeVar("S")
M = TypeVar("M")

Real = Annotated[float, NumberField("a number")]
PositiveTime = Annotated[float, NumberField("a positive time [s]", above=0)]
Positive = Annotated[float, NumberField("a positive number", above=0)]
NotNegative = Annotated[float, NumberField("a number >= 0", least=0)]
Time = Annotated[float, NumberField("a time >= 0 [s]", least=0)]
Lag = Annotated[float, NumberField("0, or a time of at least 1e-9 s", least=0, smallest=1e-9)]
Angle = Annotated[float, NumberField("an angle >= 0 [rad]", least=0)]
Count = Annotated[int, NumberField("an integer >= 1", least=1, whole=True)]
Natural = Annotated[int, NumberField("an integer >= 0", least=0, whole=True)]
Share = Annotated[float, NumberField("a number between 0 and 1", above=0, below=1)]
EquationText = Annotated[str, Equation()]
ClassPath = Annotated[
    str, AfterValidator(only(_is_class_path, "package.module:ClassName or file.py:ClassName")), PathMark()
]
FileName = Annotated[str, PathMark()]
Name = Annotated[str, name_as("object_x")]
UnitText = Annotated[str, AfterValidator(only(_is_unit, "a unit such as m, rad or N m"))]
Parameter = Annotated[Any, PlainValidator(_parameter)]
ClassParameters = Annotated[
    dict[str, Parameter] | None,
    Field(description="fields of the class, in their own units; the rest keep their defaults"),
]
LawKind = Literal["constraint_following", "input_output"]
AutoPositive = Annotated[Positive | None, BeforeValidator(lambda value: None if value == "auto" else value)]
Interval = Annotated[
    tuple[Real, ...],
    AfterValidator(only(lambda ends: len(ends) == 2 and ends[0] < ends[1], "[lower, upper] with lower < upper")),
]
ListOr = Annotated[Annotated[S, Tag(SCALAR)] | Annotated[M, Tag(LIST)], _either(LIST, SCALAR)]
"""One value of the first type, or a list of the second type."""

Limit = ListOr[Annotated[float, NumberField("a positive number or [lower, upper]", above=0)], Interval]
Pole = Annotated[float, NumberField("a negative number [1/s]", below=0)]
OneOrEach = ListOr[S, Annotated[tuple[S, ...], Field(min_length=1)]]
"""One value for all, or a list of values."""

PoleSet = OneOrEach[Pole]

ByPath = Annotated[dict[str, S], DotMark()]
"""A mapping by paths in the config, by metrics, or by parameters such as `armature.u1`, whose keys may have dots."""

ScalarOr = Annotated[Annotated[S, Tag(SCALAR)] | Annotated[M, Tag(MAPPING)], _either(MAPPING, SCALAR)]
"""One value of the first type, or a mapping of the second type."""

Option = Annotated[ScalarOr[Parameter, dict[str, Parameter]], WithJsonSchema({})]
"""A parameter, or a mapping of parameters by name."""

ListOrMapping = Annotated[Annotated[S, Tag(LIST)] | Annotated[M, Tag(MAPPING)], _either(LIST, MAPPING)]
"""A list of the first type, or a mapping of the second type."""

PerName = Annotated[
    Annotated[S, Tag(SCALAR)]
    | Annotated[tuple[S, ...], Field(min_length=1), Tag(LIST)]
    | Annotated[dict[str, S], Tag(MAPPING)],
    Discriminator(shape),
]
"""One value for all, a list in order, or a mapping by name."""


@dataclass(frozen=True)
class PerRow:
    """Type of a gain: one number for all rows, a list with one per row in order, or a mapping by task name."""

    number: NumberField  # each of its numbers

    @property
    def values(self) -> Any:
        """The type of the values."""
        return PerName[Annotated[float, self.number]]  # type: ignore[misc]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler.generate_schema(self.values)


@cache
def gain_fields(kind: Any) -> tuple[str, ...]:
    """The fields that are gains, of which each row may have its own."""
    return tuple(field.name for field in fields(kind) if any(isinstance(mark, PerRow) for mark in get_args(field.type)))


@cache
def _number_fields(kind: Any) -> dict[str, NumberField]:
    """Field -> each of its numbers, of the fields whose numbers are all of one kind."""
    marks = {field.name: set(numbers_of(field.type)) for field in fields(kind)}
    return {name: of.pop() for name, of in marks.items() if len(of) == 1}


def numbers_of(kind: Any) -> Iterator[NumberField]:
    """The kinds of numbers in an annotation."""
    for part in get_args(kind):
        if isinstance(part, NumberField | PerRow):
            yield part if isinstance(part, NumberField) else part.number
        else:
            yield from numbers_of(part)


def wrong_numbers(section: Any) -> Iterator[str]:
    """One sentence for each number of a dataclass, in lists and mappings too, that is none of its field's range."""
    kind: Any = type(section)
    for path, number in _number_fields(kind).items():
        left = [(path, getattr(section, path))]
        while left:
            name, value = left.pop()
            if value is None and getattr(kind, name, path) is None:  # the default
                continue
            if isinstance(value, float) and number.holds(value):
                continue
            if isinstance(value, Mapping):
                left += [(f"{name}.{key}", each) for key, each in value.items()]
            elif isinstance(value, Sequence | np.ndarray) and not isinstance(value, str):
                left += [(name, each) for each in value]
            elif isinstance(value, bool) or not isinstance(value, SupportsFloat) or not number.holds(float(value)):
                yield f"{name}: expected {number.expected}, got {value!r}"


WORDS = {Mapping: "a mapping", Sequence: "a list", Callable: "a function", NoneType: "None"}


@cache
def _kinds(kind: Any) -> dict[str, tuple[type, ...]]:
    """Field of a dataclass -> its classes; without fields of numbers and words."""
    found = {}
    for name, hint in get_type_hints(kind).items():
        parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        classes = [get_origin(part) or part for part in parts]
        if all(isinstance(each, type) and each not in (bool, int, float, str) for each in classes):
            found[name] = tuple(classes)
    return found


def wrong_kinds(section: Any) -> Iterator[str]:
    """One sentence for each field of a dataclass whose value is of none of its classes."""
    kind: Any = type(section)
    for name, classes in _kinds(kind).items():
        value = getattr(section, name)
        if not isinstance(value, classes) or isinstance(value, str):  # no class here is text, a list of characters
            expected = " or ".join(WORDS.get(each, each.__name__) for each in classes)
            yield f"{name}: expected {expected}, got {in_words(value)}"


def exactly(count: int, expected: str) -> AfterValidator:
    """A check of the length of a list."""
    return AfterValidator(only(lambda values: len(values) == count, expected))


class Notes(Protocol):
    """Collects problems, so that all are reported at once."""

    def add(self, what: object, *path: str | int) -> None:
        """Notes what is wrong at a field; each line is a problem."""


def one_per_name(
    given: Any,
    names: Iterable[str],
    kind: str,
    problems: Notes,
    *path: str | int,
    default: float | None = 0.0,
) -> Array:
    """One number per name, shape (names,), from one number for all, a list in order, or a mapping.

    Args:
        given: The number, list or mapping.
        names: In the plant's order.
        kind: What is named, for messages: `coordinate` or `actuator`.
        problems: Takes what is wrong; the result is zero then.
        path: Field that holds the numbers.
        default: For names that a mapping leaves out; None if it must have all.
    """
    names = list(names)
    if isinstance(given, Mapping):
        for wrong in [name for name in given if name not in names]:
            problems.add(no_such(kind, wrong, names), *path, wrong)
        missing = [name for name in names if name not in given]
        if missing and default is None:
            problems.add(f"no value for {', '.join(missing)} (give every {kind})", *path)
        given = [given.get(name, default or 0.0) for name in names]
    try:
        values = np.asarray(given, dtype=float)
    except (TypeError, ValueError):
        problems.add(f"expected numbers, got {given!r}", *path)
        return np.zeros(len(names))
    if values.shape not in ((), (len(names),)):
        got = len(values) if values.ndim == 1 else f"shape {values.shape}"
        problems.add(f"expected {counted(len(names), 'value')} ({', '.join(names)}), got {got}", *path)
        return np.zeros(len(names))
    if not np.isfinite(values).all():
        problems.add(f"expected finite numbers, got {values.tolist()}", *path)
    return np.broadcast_to(values, len(names)).copy()


def spread(section: S, names: Iterable[str], kind: str, problems: Notes, *path: str | int) -> S:
    """A section whose fields all take numbers by name, with a tuple of one number per name in each field.

    Args:
        section: A dataclass; the default of a field is that of a name that a mapping leaves out.
        names: In the plant's order.
        kind: As of `one_per_name`.
        path: Field that holds the section.
    """
    given: Any = section
    numbers: dict[str, tuple[float, ...]] = {}
    for part in fields(given):
        value, default = getattr(given, part.name), float(cast(Any, part.default))
        each = one_per_name(value, names, kind, problems, *path, part.name, default=default)
        numbers[part.name] = tuple(each.tolist())
    ready: S = replace(given, **numbers)
    return ready
