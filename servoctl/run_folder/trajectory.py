"""The arrays of a run and its metrics.

Design: a trajectory is a flat table with one named column per quantity, the same in memory, Arrow, Parquet and pandas.
It does not depend on plant or law; everything else about the run is in `metadata`. A missing number (such as the
violation of a row that has none) is NaN in a column and None (null in JSON) in a summary.

The funnel of a row is the corridor |beta| < width:

beta = phi' + rate phi, or phi of a row without a rate;    width = (start - end) e^(-shrink t) + end
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from servoctl.errors import ColumnError as ColumnError
from servoctl.errors import MissingPackageError as MissingPackageError
from servoctl.run_folder.metrics import EVIDENCE, Figures, input_entry, plain, task_entry, time_where
from servoctl.types import Array, Status

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]

SCHEMA = 1  # version of the shape of `summary.json`

ALWAYS = ("config", "servoctl", "engine", "status", "duration", "steps", "evaluations", "wall_time", "realtime_factor")
"""Metadata in every summary; null if unknown."""

SETTLING_BAND = 1e-3  # [unit of the row] default of `settling_band`: a violation has settled once it stays within this

OUTLIER = 5.0  # [standard deviations] an estimator leaves out a reading that is this far from its prediction

ENGAGING = 0.05
"""Time after the task is engaged on drives in which outliers do not count [s].

The torques leave those that held the pose, and reach the drives a part of a period earlier or later than the estimator
assumes, by where their frames stand on the bus. Emulated robots at 400 Hz deviate by up to 22 standard deviations, for
20 ms.
"""

SOMETIMES = (
    "engine_choice", "engine_switch", "settling_band", "energy_drift", "error", "diagnosis", "emulated", "lockstep",
    "stage", "task_span", "loop_end", "timing", "bus", "drives", "faults", "counts", "realtime", "emulator",
    "recorder", "realism", "left_out", "tick", "ticks_in_c", "given_back", "sparse_rows",
)  # fmt: skip
"""Metadata in a summary only if it applies."""


@dataclass(frozen=True, eq=False, repr=False)
class Trajectory:
    """The result of a run.

    Attributes:
        columns: Name -> values, shape (rows,), in the order of the run folder: `t`, `q.<coordinate>`,
            `v.<coordinate>`, `u.<actuator>`, `violation.<row>`, `violation_rate.<row>`, `passive.<row>`,
            `passive_force.<coordinate>`, `servo_force.<coordinate>`, `memory.<name>`, `rank`, `residual`,
            `pivot_min`, `status` (`Status.code`), `given_up.<row>` of rows of priority 2 and below, or of all rows if
            the law keeps bounds: the acceleration that the row required and did not get [unit of the row / s^2],
            `disturbance.<row>` of an observer, in the same unit; of each bound `bound.<bound>` (h, which stays >= 0),
            `bound_active.<bound>` (1 while it holds the inputs) and `bound_lack.<bound>` (what inputs within their
            limits cannot give it [unit of h / s^2]); of limits and bounds `search.steps` and `search.unfinished`, see
            `SEARCH`. Missing quantities are left out.
        units: Column -> unit, such as `rad/s`.
        metadata: Facts about the run: the keys `ALWAYS`, those of `SOMETIMES` that apply, `events` (a list), and
            `tasks` (task -> names of its rows). With `task_span` (two times, or none), the metrics of tasks use the
            rows between these times. `funnels`: row -> the numbers `FUNNEL_KEYS`.
        drawing: Polyline -> points [m], shape (frames, points, 2 or 3); `t` -> times of the frames [s]; `energy` ->
            energy of the plant [J], shape (frames,); `task.<polyline>` -> path that the task prescribes for its end,
            shape (points, 2 or 3); of a robot, `solid.<frame>` -> corners of its surface in the frame's axes [m], shape
            (points, 3); `faces.<frame>` -> four indices of corners and the number of a colour, shape (faces, 5);
            `pose.<frame>` -> rotation by rows, then position [m], shape (frames, 12); `axes.<frame>` -> the same for
            frames of the task. Of bounds, `shape.<link>` -> start, end and radius of a sphere or capsule on a link
            [m], shape (frames, 7); `obstacle.<bound>` -> the same of one that is fixed, shape (7,);
            `enclosure.<bound>` -> of one that the machine stays inside of. Missing entries are left out.
    """

    columns: dict[str, Array]
    units: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    drawing: dict[str, Array] = field(default_factory=dict)

    def __getitem__(self, column: str) -> Array:
        """The values of a column, shape (rows,).

        Raises:
            ColumnError: There is no such column.
        """
        try:
            return self.columns[column]
        except KeyError:
            raise ColumnError(column, self.columns) from None

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __repr__(self) -> str:
        span = f", t = {self.t[0]:.6g} .. {self.t[-1]:.6g} s" if len(self.t) else ""
        name, status = self.metadata.get("config", "unnamed"), self.metadata.get("status", "status unknown")
        return f"<Trajectory of {name}: {len(self)} rows, {len(self.columns)} columns{span}, {status}>"

    def group(self, prefix: str) -> dict[str, Array]:
        """The columns `<prefix>.<name>` as name -> values, in order; empty if there are none."""
        return group(self.columns, prefix)

    @property
    def t(self) -> Array:
        """Time [s], shape (rows,)."""
        return self.columns.get("t", np.empty(0))

    @cached_property
    def q(self) -> Array:
        """Generalized coordinates, shape (rows, n); read-only."""
        return self._matrix("q")

    @cached_property
    def v(self) -> Array:
        """Their time derivatives, shape (rows, n); read-only."""
        return self._matrix("v")

    @cached_property
    def u(self) -> Array:
        """Control inputs in actuator units, shape (rows, m); read-only."""
        return self._matrix("u")

    def _matrix(self, prefix: str) -> Array:
        group = self.group(prefix)
        matrix = np.column_stack(list(group.values())) if group else np.empty((len(self), 0))
        matrix.flags.writeable = False
        return matrix

    @property
    def coordinates(self) -> list[str]:
        """Names of the generalized coordinates."""
        return list(self.group("q"))

    @property
    def actuators(self) -> list[str]:
        """Names of the control inputs."""
        return list(self.group("u"))

    @property
    def rows(self) -> list[str]:
        """Names of the task rows."""
        return list(self.group("violation"))

    @property
    def passive_rows(self) -> list[str]:
        """Names of the mechanism constraint rows."""
        return list(self.group("passive"))

    @property
    def tasks(self) -> dict[str, list[str]]:
        """Task -> names of its rows; if the metadata has none, `mine.0` and `mine.1` are the rows of `mine`."""
        if "tasks" in self.metadata:
            return {name: list(rows) for name, rows in self.metadata["tasks"].items()}
        tasks: dict[str, list[str]] = {}
        for row in self.rows:
            tasks.setdefault(row.split(".")[0], []).append(row)
        return tasks

    @property
    def given_up(self) -> dict[str, list[Array]]:
        """Task -> its columns `given_up.<row>`, of tasks that have some."""
        given_up = self.group("given_up")
        by_task = {task: [given_up[row] for row in rows if row in given_up] for task, rows in self.tasks.items()}
        return {task: columns for task, columns in by_task.items() if columns}

    def violation(self, name: str) -> Array:
        """Size of the error of a task, a task row or a mechanism row, shape (rows,).

        For a task of several rows, the Euclidean norm over the rows that have an error; NaN if none has.

        Raises:
            ColumnError: There is no such task or row.
        """
        rows, passive = self.group("violation"), self.group("passive")
        values = [rows[row] for row in self.tasks.get(name, [name]) if row in rows]
        if not values and name in passive:
            values = [passive[name]]
        if not values:
            raise ColumnError(name, dict.fromkeys([*self.tasks, *rows, *passive]))
        size = np.abs(values[0])
        for other in values[1:]:  # hypot neither overflows nor underflows
            size = np.where(np.isnan(size), np.abs(other), np.hypot(size, np.where(np.isnan(other), 0.0, other)))
        return size

    def unit_of(self, name: str) -> str:
        """Unit of the error of a task, a task row or a mechanism row: `m`, `m, rad` for rows of two, or empty."""
        rows = [f"violation.{row}" for row in self.tasks.get(name, [name])]
        found = [self.units.get(column, "") for column in rows if column in self.columns]
        return ", ".join(dict.fromkeys(found or [self.units.get(f"passive.{name}", "")]))

    def summary(self) -> dict[str, Any]:
        """The content of `summary.json`: metrics of the run; all numbers are finite, None if there is none."""
        out: dict[str, Any] = {"schema": SCHEMA} | {key: self.metadata.get(key) for key in ALWAYS}
        rows = set(self.rows)
        out["tasks"] = {
            name: self.violation_metrics(name) for name, of in self.tasks.items() if of and rows.issuperset(of)
        }
        out["passive"] = {name: self.violation_metrics(name) for name in self.passive_rows}
        out["inputs"] = {name: input_entry(Figures.of(self.t, u)) for name, u in self.group("u").items()}
        out |= self._evidence() | self._given_up() | self._disturbances()
        bounds = bound_metrics(self)
        if bounds:
            out["bounds"] = bounds
        out |= {key: self.metadata[key] for key in SOMETIMES if key in self.metadata}
        if len(self.t):
            final = {group: {name: x[-1] for name, x in self.group(group).items()} for group in ("q", "v")}
            out["final"] = {"t": self.t[-1]} | final
        if "status" in self.columns:
            status = self["status"][self.commanded]
            counts = Counter(status.tolist())  # numpy.unique would import numpy.ma
            out["status_counts"] = {
                Status.from_code(code).name if 0 <= code < len(Status) else str(code): count
                for code, count in sorted(counts.items())
            }
            out["saturation_time"] = time_where(self.t[: len(status)], status == Status.SATURATED.code)
        events = list(self.metadata.get("events", []))
        told = ("bound", "funnel", "search")
        if not any(event.get("event") in told for event in events):  # a run on drives has none of them
            events += events_of(self)
        out["events"] = events
        return dict(plain(out))

    @property
    def in_loop(self) -> Array:
        """Whether each row is of the loop: on drives the rows go on when the drives are off."""
        in_loop: Array = self.t < self.metadata.get("loop_end", np.inf)
        return in_loop

    @property
    def commanded(self) -> Array:
        """Whether the law was evaluated in each row: in a calibration there is none."""
        return self.in_loop & (self.metadata.get("stage") != "calibrate")

    def _evidence(self) -> dict[str, Any]:
        """Extremes of what the law says about its ranks and residuals."""
        kept, columns = self.commanded, {column for column, _ in EVIDENCE.values()} & set(self.columns)
        found = {column: Figures.of(self.t[kept], self[column][kept]) for column in columns}
        return {key: getattr(found[column], figure) for key, (column, figure) in EVIDENCE.items() if column in found}

    def _given_up(self) -> dict[str, Any]:
        """Largest acceleration that each task required and did not get."""
        lost = {
            task: _largest(np.concatenate([x[self.during(task)] for x in rows])) for task, rows in self.given_up.items()
        }
        return {"given_up": lost} if self.group("given_up") else {}

    def _disturbances(self) -> dict[str, Any]:
        """What an observer found by task row, and an estimator by coordinate."""
        found: dict[str, Any] = {}
        if observed := self.group("disturbance"):
            found["disturbance"] = {name: self._size(d) for name, d in observed.items()}
        if sigma := self.group("estimate.sigma"):
            found["estimate"] = {
                name: self._size(d) | {"sigma": sigma[name][-1] if len(d) else None} | self._outliers(name)
                for name, d in self.group("estimate.disturbance").items()
            }
        return found

    def _size(self, x: Array) -> dict[str, Any]:
        figures = Figures.of(self.t, np.abs(x))
        return {"rms": figures.rms, "max": figures.greatest}

    def _outliers(self, coordinate: str) -> dict[str, Any]:
        """Number and share of the readings of a coordinate that were far from their prediction."""
        during, apart = self.during(""), self.columns.get(f"estimate.innovation.{coordinate}")
        if apart is None:
            return {}
        engaged = (self.metadata.get("task_span") or [-np.inf])[0]
        apart = apart[during][self.t[during] > engaged + ENGAGING]
        apart = apart[~np.isnan(apart)]
        count = np.count_nonzero(apart > OUTLIER)
        return {"outliers": count, "outlier_share": count / len(apart) if len(apart) else None}

    def violation_metrics(self, name: str) -> dict[str, Any]:
        """Metrics of the error of a task, a task row or a mechanism row, with the keys of `summary.json`.

        Raises:
            ColumnError: There is no such task or row.
        """
        during, band = self.during(name), self.metadata.get("settling_band", SETTLING_BAND)
        return task_entry(Figures.of(self.t[during], self.violation(name)[during], band))

    def during(self, name: str) -> slice:
        """The rows that count for an error: for a task, those within `task_span`, if the run has one."""
        span = self.metadata.get("task_span")
        if span is None or name in self.passive_rows:
            return slice(None)
        if not span:
            return slice(0)
        first, last = np.searchsorted(self.t, span[0], "left"), np.searchsorted(self.t, span[1], "right")
        return slice(int(first), int(last))

    def to_pandas(self) -> "pandas.DataFrame":
        """The columns as a data frame, with the units in `attrs["units"]`.

        Raises:
            MissingPackageError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            message = "Trajectory.to_pandas: pandas is not installed (pip install pandas)"
            raise MissingPackageError(message) from error
        frame = pd.DataFrame(self.columns)
        frame.attrs["units"] = dict(self.units)
        return frame


def group(arrays: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    """The arrays `<prefix>.<name>` of columns or of a drawing as name -> array, in order."""
    start = f"{prefix}."
    return {key.removeprefix(start): x for key, x in arrays.items() if key.startswith(start)}


def traced(points: Array) -> Array:
    """The point of a polyline whose path is drawn: its end, or the mean of its corners if it is closed.

    Args:
        points: Shape (frames, points, dimensions).

    Returns:
        Shape (frames, dimensions).
    """
    closed = points.shape[1] > 2 and bool(np.allclose(points[:, 0], points[:, -1]))
    path: Array = points[:, :-1].mean(axis=1) if closed else points[:, -1]
    return path


VIOLATED = 1e-9  # a bound counts as violated where h is below minus this [unit of the bound]; less is rounding

COUNTED = 1e-6
"""`violated_time` counts where h is below minus this [unit of the bound]; `min` shows all of it.

A bound that holds the inputs is met at equality, and samples differ from it a little to both sides.
"""

SEARCH = ("steps", "unfinished")
"""Columns `search.<name>`: steps of the search of a tick, and 1 if it ended before its answer was proven, else 0."""

APART = 5  # times at which a bound holds are one event if fewer rows lie between them


def bound_metrics(trajectory: Trajectory) -> dict[str, dict[str, Any]]:
    """Bound -> least h, and the time in which it held the inputs and in which it was violated [s], see `COUNTED`."""
    active, t = trajectory.group("bound_active"), trajectory.t
    return {
        name: {
            "min": Figures.of(t, h).least,
            "active_time": time_where(t, active[name] > 0.5) if name in active else None,
            "violated_time": time_where(t, h < -COUNTED),
        }
        for name, h in trajectory.group("bound").items()
    }


def events_of(trajectory: Trajectory) -> list[dict[str, Any]]:
    """What bounds, funnels and the search for inputs within limits did, each with `t`, `event` and `text`.

    All but `outside`, a bound left at the start, have `until` (None: to the end). `bound`, a time in which it held the
    inputs, has `given_up` (task -> largest acceleration that it asked for and did not get), and `lack`, if inputs
    within their limits could not hold it. `funnel`, a time in which a `row` was outside, has `ratio`, the largest
    |beta| / width. `search`, a time in which it ended at its largest number of `steps`, has `row` (from 0) and `rows`,
    how many commands are not proven.
    """
    return [*_outside(trajectory), *_bounds(trajectory), *_funnels(trajectory), *_searches(trajectory)]


def _spans(trajectory: Trajectory, where: Array) -> Iterator[tuple[slice, dict[str, Any], str]]:
    """Rows of each time in which a condition holds, its `t` and `until`, and its end in words."""
    t = trajectory.t
    for first, end in _intervals(where):
        until = float(t[end]) if end < len(t) else None
        yield (
            slice(first, end),
            {"t": float(t[first]), "until": until},
            "the end" if until is None else f"{until:.4g} s",
        )


def _outside(trajectory: Trajectory) -> Iterator[dict[str, Any]]:
    for name, h in trajectory.group("bound").items():
        if len(h) and h[0] < -VIOLATED:
            text = f"the start is outside bound {name} (h = {h[0]:.4g})"
            yield {"t": float(trajectory.t[0]), "event": "outside", "bound": name, "h": float(h[0]), "text": text}


def _bounds(trajectory: Trajectory) -> Iterator[dict[str, Any]]:
    given_up, lack = trajectory.given_up, trajectory.group("bound_lack")
    for name, active in trajectory.group("bound_active").items():
        for rows, span, until in _spans(trajectory, active > 0.5):
            most = {task: max(_largest(x[rows]) for x in columns) for task, columns in given_up.items()}
            lost = {task: value for task, value in most.items() if value > VIOLATED}
            amounts = [
                f"{task} by up to {_amount(trajectory, value, *(f'given_up.{row}' for row in trajectory.tasks[task]))}"
                for task, value in lost.items()
            ]
            text = f"bound {name} holds the inputs until {until}: "
            text += f"gives up {', '.join(amounts)}" if amounts else "costs the task nothing"
            event = {"event": "bound", "bound": name, **span, "given_up": lost}
            short = _largest(lack[name][rows])
            if short > 0.0:
                event["lack"] = short
                lacking = _amount(trajectory, short, f"bound_lack.{name}")
                text += f"; within their limits the inputs lack {lacking}"
            yield event | {"text": text}


def _amount(trajectory: Trajectory, value: float, *columns: str) -> str:
    """A value with the unit of some columns."""
    units = {trajectory.units.get(column, "") for column in columns if column in trajectory.columns}
    return f"{value:.4g} {' or '.join(sorted(units))}".rstrip()


def _funnels(trajectory: Trajectory) -> Iterator[dict[str, Any]]:
    for name, (beta, width) in funnel_curves(trajectory).items():
        ratio = np.abs(beta) / width
        for rows, span, until in _spans(trajectory, ratio > 1.0):
            most = float(np.nanmax(ratio[rows]))
            text = f"task {name} is outside its funnel until {until}: at most {most:.4g} times the half-width"
            yield {"event": "funnel", "row": name, **span, "ratio": most, "text": text}


def _searches(trajectory: Trajectory) -> Iterator[dict[str, Any]]:
    columns = trajectory.group("search")
    unfinished = columns.get("unfinished", np.zeros(0)) > 0.5
    for rows, span, until in _spans(trajectory, unfinished):
        count, steps = int(unfinished[rows].sum()), int(np.nanmax(columns["steps"][rows]))
        text = (
            f"the search for the best inputs within limits and bounds stops after {steps} steps in {count} ticks until "
            f"{until}: these commands are within the limits, but may give up more than they have to"
        )
        yield {"event": "search", **span, "row": rows.start, "rows": count, "steps": steps, "text": text}


def _intervals(where: Array) -> list[tuple[int, int]]:
    """First row, and the row after the last, of each stretch in which a condition holds; short gaps are closed."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], where, [False]]).astype(int)))
    found: list[tuple[int, int]] = []
    for first, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        if found and first - found[-1][1] < APART:
            found[-1] = (found[-1][0], end)
        else:
            found.append((first, end))
    return found


FUNNEL_KEYS = ("rate", "start", "end", "shrink", "by_rate")
"""Facts of each row in the metadata `funnels`; `by_rate`: 1 where beta has phi', else 0."""


class FunnelCurve(NamedTuple):
    """A row and its funnel over time; NaN where the task does not run."""

    beta: Array  # what stays inside, shape (rows,)
    width: Array  # half-width, shape (rows,)


def funnel_curves(trajectory: Trajectory) -> dict[str, FunnelCurve]:
    """Row -> curve, of each row with a funnel."""
    found = {}
    columns = trajectory.columns
    t = columns.get("task_time", trajectory.t)
    for name, of in trajectory.metadata.get("funnels", {}).items():
        needed = [f"violation.{name}", *([f"violation_rate.{name}"] if of.get("by_rate") else [])]
        if not all(column in columns for column in needed) or not all(key in of for key in FUNNEL_KEYS):
            continue
        phi = columns[f"violation.{name}"]
        beta = columns[f"violation_rate.{name}"] + of["rate"] * phi if of["by_rate"] else phi
        width = (of["start"] - of["end"]) * np.exp(-of["shrink"] * np.maximum(t, 0.0)) + of["end"]
        counts = np.zeros(len(beta), dtype=bool)
        counts[trajectory.during(name)] = True
        found[name] = FunnelCurve(np.where(counts, beta, np.nan), np.where(counts, width, np.nan))
    return found


def _largest(values: Array) -> float:
    """The largest number; NaN where there is none."""
    return float(np.fmax.reduce(values, initial=np.nan))
