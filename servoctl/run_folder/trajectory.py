"""The arrays of a run and its metrics.

Design: a trajectory is a flat table with one named column per quantity, the same in memory, Arrow, Parquet and pandas.
It does not depend on plant or law; everything else about the run is in `metadata`. A missing number (such as the
violation of a row that has none) is NaN in a column and None (null in JSON) in a summary.
"""

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from servoctl.errors import ColumnError as ColumnError
from servoctl.errors import MissingPackageError as MissingPackageError
from servoctl.run_folder.bounds import bound_metrics, events_of
from servoctl.run_folder.metrics import EVIDENCE, Figures, input_entry, task_entry
from servoctl.run_folder.values import greatest, plain, rms, time_where
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
            `bounds.SEARCH`. Missing quantities are left out.
        units: Column -> unit, such as `rad/s`.
        metadata: Facts about the run: the keys `ALWAYS`, those of `SOMETIMES` that apply, `events` (a list), and
            `tasks` (task -> names of its rows). With `task_span` (two times, or none), the metrics of tasks use the
            rows between these times. `funnels`: row -> the numbers `run_folder.bounds.KEYS`.
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
        start = prefix + "."
        return {column.removeprefix(start): x for column, x in self.columns.items() if column.startswith(start)}

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
            status = self["status"][self.t < self.metadata.get("loop_end", np.inf)]  # rows in which there was a command
            counts = Counter(status.tolist())  # numpy.unique would import numpy.ma
            out["status_counts"] = {status_name(code): count for code, count in sorted(counts.items())}
            out["saturation_time"] = time_where(self.t[: len(status)], status == Status.SATURATED.code)
        events = list(self.metadata.get("events", []))
        told = ("bound", "funnel", "search")
        if not any(event.get("event") in told for event in events):  # a run on drives has none of them
            events += events_of(self)
        out["events"] = events
        return dict(plain(out))

    def _evidence(self) -> dict[str, Any]:
        """Extremes of what the law says about its ranks and residuals."""
        found = {column: Figures.of(self.t, self[column]) for column, _ in EVIDENCE.values() if column in self.columns}
        return {key: getattr(found[column], figure) for key, (column, figure) in EVIDENCE.items() if column in found}

    def _given_up(self) -> dict[str, Any]:
        """Largest acceleration that each task required and did not get."""
        given_up = self.group("given_up")
        by_task = {task: [row for row in of if row in given_up] for task, of in self.tasks.items()}
        lost = {
            task: greatest(np.concatenate([given_up[row][self.during(task)] for row in of]))
            for task, of in by_task.items() if of
        }  # fmt: skip
        return {"given_up": lost} if given_up else {}

    def _disturbances(self) -> dict[str, Any]:
        """What an observer found by task row, and an estimator by coordinate."""
        found: dict[str, Any] = {}
        if observed := self.group("disturbance"):
            found["disturbance"] = {
                name: {"rms": rms(self.t, d), "max": greatest(np.abs(d))} for name, d in observed.items()
            }
        if sigma := self.group("estimate.sigma"):
            found["estimate"] = {
                name: {
                    "rms": rms(self.t, d), "max": greatest(np.abs(d)), "sigma": sigma[name][-1] if len(d) else None,
                    **self._outliers(name),
                }
                for name, d in self.group("estimate.disturbance").items()
            }  # fmt: skip
        return found

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


def status_name(code: float) -> str:
    """Name of the status with this code, or the code itself if there is none."""
    return Status.from_code(code).name if 0 <= code < len(Status) else str(code)
