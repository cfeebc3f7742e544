"""Grammar of the section `log`: the columns of a table that another program recorded."""

import math
from typing import Annotated, Any

from pydantic import Field, PlainValidator, WithJsonSchema

from servoctl.errors import ExpressionError, remedy
from servoctl.expression import constant
from servoctl.tree.fields import ListOrMapping, Positive, fault, in_words
from servoctl.tree.rules import Broken, Section, rule

UNITS: dict[str, tuple[str, float]] = {
    "rad": ("rad", 1.0), "mrad": ("rad", 1e-3), "deg": ("rad", math.pi / 180), "rev": ("rad", 2 * math.pi),
    "turn": ("rad", 2 * math.pi), "m": ("m", 1.0), "cm": ("m", 1e-2), "mm": ("m", 1e-3), "um": ("m", 1e-6),
    "N m": ("N m", 1.0), "Nm": ("N m", 1.0), "mN m": ("N m", 1e-3), "mNm": ("N m", 1e-3), "N": ("N", 1.0),
    "mN": ("N", 1e-3), "kN": ("N", 1e3), "kNm": ("N m", 1e3), "kN m": ("N m", 1e3), "s": ("s", 1.0), "ms": ("s", 1e-3),
    "us": ("s", 1e-6), "ns": ("s", 1e-9), "min": ("s", 60.0),
}  # fmt: skip
"""Unit word of a column -> unit of the plant and factor to it."""


def _column(value: Any) -> str:
    """The name of a column; a number counts the columns of a table without names."""
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise fault(f"expected the name of a column, or its number in a table without names, got {in_words(value)}")
    return str(value)


def _factor(value: Any) -> float | str:
    if isinstance(value, str) and value in UNITS:
        return value
    try:
        number = constant(value)
    except ExpressionError as error:
        hint = remedy(value, UNITS) if isinstance(value, str) else f"one of {', '.join(UNITS)}"
        raise fault(f"expected a factor or a unit word, got {in_words(value)} ({hint})") from error
    if not number or not math.isfinite(number):
        raise fault(f"expected a factor other than 0, got {in_words(value)}")
    return number


Column = Annotated[str, PlainValidator(_column), WithJsonSchema({"type": ["string", "integer"]})]

Columns = ListOrMapping[Annotated[tuple[Column, ...], Field(min_length=1)], dict[str, Column]]
"""Columns in order, or by name."""

Factor = Annotated[float | str, PlainValidator(_factor), WithJsonSchema({"type": ["number", "string"]})]


class LogConfig(Section):
    """Columns of a table of a machine that another program moved, for `servoctl identify TABLE --config CONFIG`.

    The table is CSV, with columns separated by `,`, `;`, a tab or blanks, or Parquet. Without a header its columns
    are named 1, 2, and so on.
    """

    time: Column | None = Field(default=None, description="column of the times [s]; exactly one of time and rate")
    rate: Positive | None = Field(default=None, description="rows per second [Hz], where there is no column of times")
    q: Columns = Field(description="columns of the positions: in the order of the coordinates, or by coordinate")
    u: Columns = Field(description="columns of the torques: in the order of the actuators, or by actuator")
    scale: dict[Column, Factor] = Field(
        default={},
        description="column -> factor, or unit word such as deg, mm, mN m or ms, to the plant's unit; left out: 1",
    )

    @rule
    def _one_clock(self) -> Broken:
        if self.time is not None and self.rate is not None:
            yield ("rate",), "cannot be used with time (a log has a column of times, or a rate)"
        if self.time is None and self.rate is None and not self.misspelt:
            yield (), "neither time nor rate (name the column of the times, or give the rows per second)"
