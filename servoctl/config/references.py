"""Grammar of columns: those of `references`, files and waypoints, that equations use by name; and those of a `log`."""

import math
from collections.abc import Collection
from typing import Annotated, Any

from pydantic import Field, PlainValidator, WithJsonSchema, model_validator

from servoctl.errors import ExpressionError, remedy
from servoctl.expression import constant, parse
from servoctl.reference.curve import Extrapolation, Profile
from servoctl.reference.table import Degree
from servoctl.tree.fields import FileName, ListOrMapping, NumberField, Positive, Real, fault, in_words
from servoctl.tree.rules import WRONG, Broken, OneKind, OneOf, Section, right, rule

COINCIDENT = 1e-9  # times count as one if they are closer than this, relative to the time and to 1 s

Blend = Annotated[float, NumberField("a share above 0, at most 0.5", above=0, most=0.5)]


class ReferenceConfig(OneKind):
    """One reference: exactly one of file, waypoints. Column x of reference path is path_x in every equation."""

    one_of = OneOf(
        {"file": ("time", "columns", "spline"), "waypoints": ("profile", "blend")},
        "a reference has exactly one of them",
        "source",
    )

    file: FileName | None = Field(default=None, description="CSV or Parquet file, relative to the config's folder")
    time: str | None = Field(default=None, description="column of the file with the times [s]; default t")
    columns: tuple[str, ...] | None = Field(
        default=None, min_length=1, description="columns of the file to use; left out: all others"
    )
    spline: Degree | None = Field(
        default=None,
        description="spline through the rows: cubic (C2, default), or quintic (C4), which rows of a relative degree "
        "above 2 need",
    )
    waypoints: tuple[dict[str, Real], ...] | None = Field(
        default=None, description="points to go through, at rest at each: time t [s] and a value per column"
    )
    profile: Profile | None = Field(
        default=None, description="motion from waypoint to waypoint: quintic (default), septic or trapezoidal"
    )
    blend: Blend | None = Field(
        default=None,
        description="share of a segment's time, at each end, in which a trapezoidal profile accelerates [-]; "
        "default 0.25",
    )
    extrapolate: Extrapolation = Field(
        default="hold",
        description="before the first and after the last row: hold keeps the value, periodic repeats, error refuses "
        "the run",
    )

    @rule
    def _blend_of_a_trapezium(self) -> Broken:
        if self.kind == "waypoints" and self.blend is not None and self.profile != "trapezoidal":
            yield ("blend",), "needs profile trapezoidal (the other profiles have no blend)"

    @rule
    def _waypoints_are_a_motion(self) -> Broken:
        """Not too few, each with a time, in order, with the same columns."""
        if self.waypoints is None:
            return
        if len(self.waypoints) < 2:
            yield ("waypoints",), f"{'1 waypoint' if self.waypoints else 'no waypoint'} (give at least two)"
        points = right(self.waypoints)
        names = [name for name in points[0][1] if name != "t"] if points else []
        if points and not names:
            yield ("waypoints", 0), "no column but t (as in {t: 0, x: 0.1})"
        before = -math.inf
        for i, point in points:
            if "t" not in point:
                yield ("waypoints", i), "no time (as in {t: 0, x: 0.1})"
            for name in point:
                if name != "t" and name not in names:
                    yield ("waypoints", i, name), f"the first waypoint has no such column ({remedy(name, names)})"
            for name in names:
                if name not in point:
                    yield ("waypoints", i), f"no value for {name} (every waypoint has the same columns)"
            t = point.get("t", math.nan)
            if t is WRONG or math.isnan(t):
                continue
            if t - before <= COINCIDENT * max(1.0, abs(t)):
                yield ("waypoints", i, "t"), f"{t:.16g} follows {before:.16g} (times must increase)"
            before = t

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, given: Any) -> Any:
        """Defaults of the keys that fit the kind, so that a dump has those alone."""
        if not isinstance(given, dict):
            return given
        if given.get("file") is not None:
            return {"time": "t", "spline": "cubic"} | {key: value for key, value in given.items() if value is not None}
        if given.get("waypoints") is not None:
            blend = {"blend": 0.25} if given.get("profile") == "trapezoidal" else {}
            return {"profile": "quintic"} | blend | {key: value for key, value in given.items() if value is not None}
        return given


def wrong_rates(text: str | None, references: Collection[str]) -> list[str]:
    """Names in `der()` of a holonomic equation that belong to no reference, so that they are velocities."""
    rates = frozenset[str]() if text is None else parse(text).rates
    return sorted(name for name in rates if not name.startswith(tuple(f"{known}_" for known in references)))


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
