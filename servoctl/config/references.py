"""Grammar of the section `references`: columns of files and waypoints that equations use by name."""

import math
from collections.abc import Collection
from typing import Annotated, Any

from pydantic import Field, model_validator

from servoctl.errors import remedy
from servoctl.expression import parse
from servoctl.reference.curve import Extrapolation, Profile
from servoctl.reference.table import Degree
from servoctl.tree.fields import FileName, NumberField, Real
from servoctl.tree.rules import WRONG, Broken, OneKind, OneOf, right, rule

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
