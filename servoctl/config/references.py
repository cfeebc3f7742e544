"""Grammar of the section `references`: columns of files and waypoints that equations use by name."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from servoctl.errors import ExpressionError, remedy
from servoctl.expression import parse
from servoctl.tree.fields import Broken, FileName, NumberField, OneOf, Real, Ruled, number_or

FILE_KEYS = ("time", "columns", "spline")
WAYPOINT_KEYS = ("profile", "blend")

COINCIDENT = 1e-9  # times count as one if they are closer than this, relative to the time and to 1 s

Blend = Annotated[float, NumberField("a share above 0, at most 0.5", above=0, most=0.5)]


class ReferenceConfig(Ruled):
    """One reference: exactly one of file, waypoints. Column x of reference path is path_x in every equation."""

    one_of = OneOf(
        ("file", "waypoints"), "a reference has exactly one of them", "no source (give exactly one of file, waypoints)"
    )

    file: FileName | None = Field(default=None, description="CSV or Parquet file, relative to the config's folder")
    time: str | None = Field(default=None, description="column of the file with the times [s]; default t")
    columns: tuple[str, ...] | None = Field(
        default=None, min_length=1, description="columns of the file to use; left out: all others"
    )
    spline: Literal["cubic", "quintic"] | None = Field(
        default=None,
        description="spline through the rows: cubic (C2, default), or quintic (C4), which rows of a relative degree "
        "above 2 need",
    )
    waypoints: tuple[dict[str, Real], ...] | None = Field(
        default=None, description="points to go through, at rest at each: time t [s] and a value per column"
    )
    profile: Literal["quintic", "septic", "trapezoidal"] | None = Field(
        default=None, description="motion from waypoint to waypoint: quintic (default), septic or trapezoidal"
    )
    blend: Blend | None = Field(
        default=None,
        description="share of a segment's time, at each end, in which a trapezoidal profile accelerates [-]; "
        "default 0.25",
    )
    extrapolate: Literal["hold", "periodic", "error"] = Field(
        default="hold",
        description="before the first and after the last row: hold keeps the value, periodic repeats, error refuses "
        "the run",
    )

    @classmethod
    def rules(cls, given: Mapping[str, Any]) -> Broken:
        file, waypoints = given.get("file") is not None, given.get("waypoints") is not None
        kind, other, keys = ("file", "waypoints", WAYPOINT_KEYS) if file else ("waypoints", "file", FILE_KEYS)
        for key in keys if file != waypoints else ():
            if given.get(key) is not None:
                yield (key,), f"does not fit {kind} (it belongs to {other})"
        if waypoints and not file and given.get("blend") is not None and given.get("profile") != "trapezoidal":
            yield ("blend",), "needs profile trapezoidal (the other profiles have no blend)"
        if isinstance(given.get("waypoints"), list):
            yield from _waypoints(given["waypoints"])

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


def _waypoints(waypoints: list[Any]) -> Broken:
    """Too few, without a time, out of order, or with different columns."""
    if len(waypoints) < 2:
        count = "1 waypoint" if waypoints else "no waypoint"
        yield ("waypoints",), f"{count} (give at least two)"
    first = next((list(point) for point in waypoints if isinstance(point, Mapping)), [])
    names = [name for name in first if name != "t"]
    if first and not names:
        yield ("waypoints", 0), "no column but t (as in {t: 0, x: 0.1})"
    before = -math.inf
    for i, point in enumerate(waypoints):
        if not isinstance(point, Mapping):
            continue
        if "t" not in point:
            yield ("waypoints", i), "no time (as in {t: 0, x: 0.1})"
        for name in point:
            if name != "t" and name not in names:
                yield ("waypoints", i, name), f"the first waypoint has no such column ({remedy(str(name), names)})"
        for name in names:
            if name not in point:
                yield ("waypoints", i), f"no value for {name} (every waypoint has the same columns)"
        t = number_or(math.nan, point.get("t"))
        if t - before <= COINCIDENT * max(1.0, abs(t)):
            yield ("waypoints", i, "t"), f"{t:.16g} follows {before:.16g} (times must increase)"
        before = before if math.isnan(t) else t


def wrong_rates(text: Any, references: Any) -> list[str]:
    """Names in `der()` of a holonomic equation that belong to no reference, so that they are velocities."""
    try:
        rates = parse(text).rates if isinstance(text, str) else frozenset()
    except ExpressionError:  # reported by the field
        return []
    prefixes = [f"{name}_" for name in references] if isinstance(references, Mapping) else []
    return sorted(name for name in rates if not any(name.startswith(prefix) for prefix in prefixes))
