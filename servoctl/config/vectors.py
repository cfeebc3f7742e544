"""Types of fields that hold several numbers: places, angles, inertias, pairs of frames."""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, PlainValidator, WithJsonSchema

from servoctl.config.document import in_words
from servoctl.config.fields import EquationText, NumberField, Positive, Real, fault

AXES = ("x", "y", "z")


def _exactly(count: int, expected: str) -> AfterValidator:
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


def _numbers(values: Any, expected: str) -> tuple[float, ...]:
    """Three numbers."""
    if not isinstance(values, list | tuple) or len(values) != 3:
        raise fault(f"expected {expected}, got {in_words(values)}")
    return tuple(float(NumberField("a number").read(value)) for value in values)


def _axis(value: Any) -> Any:
    if isinstance(value, str) and value in AXES:
        return value
    return _not_zero(_numbers(value, "x, y, z or three numbers in the frame's axes"))


def _frame_or_point(value: Any) -> Any:
    return value if isinstance(value, str) else _numbers(value, "a frame or a point [x, y, z]")


_LIST_OF_TWO = WithJsonSchema({"type": "array", "minItems": 2, "maxItems": 2})

Xyz = Annotated[tuple[Real, ...], _exactly(3, "[x, y, z], three numbers")]
Rpy = Annotated[tuple[Real, ...], _exactly(3, "[roll, pitch, yaw], three numbers")]
Size = Annotated[tuple[Positive, ...], _exactly(3, "three lengths along x, y, z")]
InertiaEntries = Annotated[tuple[Real, ...], _exactly(6, "[ixx, iyy, izz, ixy, ixz, iyz], six numbers")]
XyzEquations = Annotated[tuple[EquationText, ...], _exactly(3, "[x, y, z], three numbers or equations")]
RpyEquations = Annotated[tuple[EquationText, ...], _exactly(3, "[roll, pitch, yaw], three numbers or equations")]
FrameAxis = Annotated[Any, _frame_and(_axis, "[frame, x], or y, z or three numbers for x"), _LIST_OF_TWO]
FramePair = Annotated[Any, _frame_and(_frame_or_point, "[frame, frame] or [frame, [x, y, z]]"), _LIST_OF_TWO]
TwoFrames = Annotated[tuple[str, ...], _exactly(2, "two frames [first, second]")]
