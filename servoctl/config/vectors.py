"""Types of fields that hold several numbers: places, angles, inertias, pairs of frames."""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, PlainValidator, WithJsonSchema

from servoctl.config.document import in_words
from servoctl.config.fields import Equation, EquationText, NumberField, Positive, Real, fault

AXES = ("x", "y", "z")


def exactly(count: int, expected: str) -> AfterValidator:
    """A check of the length of a list."""

    def check(values: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(values) != count:
            raise fault(f"expected {expected}, got {in_words(list(values))}")
        return values

    return AfterValidator(check)


def _not_zero(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if not any(values):
        raise fault(f"expected a direction, got {in_words(list(values))}")
    return values


def _frame_and(read: Callable[[Any], Any], expected: str) -> PlainValidator:
    """A list of a frame and something else."""

    def check(values: Any) -> tuple[Any, ...]:
        if not isinstance(values, list | tuple) or len(values) != 2 or not isinstance(values[0], str):
            raise fault(f"expected {expected}, got {in_words(values)}")
        return (values[0], read(values[1]))

    return PlainValidator(check)


def _three(values: Any, expected: str) -> tuple[Any, ...]:
    if not isinstance(values, list | tuple) or len(values) != 3:
        raise fault(f"expected {expected}, got {in_words(values)}")
    return tuple(values)


def _axis(value: Any) -> Any:
    if isinstance(value, str) and value.removeprefix("-") in AXES:
        return value
    numbers = _three(value, "x, y, z, -x, -y, -z or three numbers in the frame's axes")
    return _not_zero(tuple(NumberField("a number").read(number) for number in numbers))


def _frame_or_point(value: Any) -> Any:
    if isinstance(value, str):
        return value
    return tuple(Equation().read(each) for each in _three(value, "a frame or a point [x, y, z]"))


_LIST_OF_TWO = WithJsonSchema({"type": "array", "minItems": 2, "maxItems": 2})

Xyz = Annotated[tuple[Real, ...], exactly(3, "[x, y, z], three numbers")]
Rpy = Annotated[tuple[Real, ...], exactly(3, "[roll, pitch, yaw], three numbers")]
Size = Annotated[tuple[Positive, ...], exactly(3, "three lengths along x, y, z")]
InertiaEntries = Annotated[tuple[Real, ...], exactly(6, "[ixx, iyy, izz, ixy, ixz, iyz], six numbers")]
XyzEquations = Annotated[tuple[EquationText, ...], exactly(3, "[x, y, z], three numbers or equations")]
RpyEquations = Annotated[tuple[EquationText, ...], exactly(3, "[roll, pitch, yaw], three numbers or equations")]
FrameAxis = Annotated[Any, _frame_and(_axis, "[frame, x], or y, z or three numbers for x"), _LIST_OF_TWO]
FramePair = Annotated[Any, _frame_and(_frame_or_point, "[frame, frame] or [frame, [x, y, z]]"), _LIST_OF_TWO]
TwoFrames = Annotated[tuple[str, ...], exactly(2, "two frames [first, second]")]
