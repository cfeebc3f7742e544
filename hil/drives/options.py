"""How options of a protocol are read: into a pydantic model, with all problems at once."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field, StrictBool, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import core_schema

from hil.drives.settings import SensorSettings
from servoctl.config.document import Problem
from servoctl.errors import ConfigError, remedy
from servoctl.tree.fields import NumberField, fault, in_words

T = TypeVar("T", bound=BaseModel)


@dataclass(frozen=True)
class Word:
    """Type of an option that is one of some words."""

    expected: str  # the expected value, for messages
    known: tuple[str, ...]  # the words

    def read(self, value: Any) -> str:
        if isinstance(value, str) and value in self.known:
            return value
        raise fault(f"expected {self.expected}, got {in_words(value)} ({remedy(str(value), self.known)})")

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)


Flag = Annotated[StrictBool, Field(description="true or false")]
MaybeFlag = Annotated[StrictBool | None, Field(description="true or false")]
"""Types of options that are true or false; None: left out."""

MonitorPeriod = Annotated[float | None, NumberField("a time above 0 and below 2 [s]", above=0.0, below=2.0)]
"""Time between two values of temperature, supply or load; None: they are not asked for."""

EncoderBits = Annotated[int | None, NumberField("bits per turn, 1 to 32", least=1, below=33, whole=True)]


def read_options(kind: type[T], values: Mapping[str, Any]) -> tuple[T | None, list[Problem]]:
    """The options, a pydantic model, or their problems; unknown options are problems in any model."""
    known = {field.alias or name: field for name, field in kind.model_fields.items()}
    problems = [
        Problem((name,), f"no such option ({remedy(str(name), known)})") for name in values if name not in known
    ]
    model = None
    try:
        model = kind.model_validate({name: value for name, value in values.items() if name in known})
    except ValidationError as errors:
        problems += _problems(errors, known)
    return (None, problems) if problems else (model, [])


def _problems(errors: ValidationError, known: Mapping[str, FieldInfo]) -> Iterator[Problem]:
    for error in errors.errors(include_url=False):
        path = tuple(each for each in error["loc"] if each != "[key]") or ("protocol",)
        field = known.get(str(path[0]))
        meaning = (field and expected_of(field)) or "see the documentation of its package"
        if error["type"] == "fault":
            yield Problem((*path, *error["ctx"]["at"]), error["ctx"]["what"])
        elif error["type"] == "missing":
            yield Problem(path, f"is missing (give {meaning})")
        elif error["type"] == "extra_forbidden":
            yield Problem(path, f"is not known (give {meaning})")
        elif error["type"] in ("bool_type", "dict_type", "literal_error", "named_tuple_type"):
            yield Problem(path, f"expected {meaning}, got {in_words(error['input'])}")
        else:
            what = error["msg"][:1].lower() + error["msg"][1:]
            yield Problem(path, f"{what}, got {in_words(error['input'])} ({meaning})")


def expected_of(field: FieldInfo) -> str | None:
    """What value an option takes, in words; None if its model does not say."""
    words = [each.expected for each in field.metadata if isinstance(each, NumberField | Word)]
    return field.description or next(iter(words), None)


def address_problems(settings: SensorSettings, addresses: range, **others: int) -> list[Problem]:
    """Problems of a node's address, and of ids by option, of which none may be the same."""
    own = [Problem((name,), f"{value} is the drive's own id (give another)") for name, value in others.items()
           if value == settings.node]  # fmt: skip
    if settings.node in addresses:
        return own
    return [Problem(("node",), f"expected an id from {addresses[0]} to {addresses[-1]}, got {settings.node}"), *own]


def options_of(kind: type[T], settings: SensorSettings) -> T:
    """The options of a node, converted; ConfigError with all problems."""
    options, problems = read_options(kind, settings.options)
    if options is None:
        raise ConfigError(in_sentences(settings, problems))
    return options


def in_sentences(settings: SensorSettings, problems: Iterable[Problem]) -> list[str]:
    """Problems of a node as sentences: `<node>: <field>: <problem>`."""
    return [f"{settings.name}: {'.'.join(map(str, problem.path))}: {problem.what}" for problem in problems]
