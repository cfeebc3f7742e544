"""Tells whether `run.output_step` changes the metrics of a sweep."""

from collections.abc import Sequence

from servoctl.assembly.run import Run
from servoctl.run_folder.sparse import SHARE
from servoctl.sweep.batch import run_all
from servoctl.sweep.metrics import VIOLATIONS, Row
from servoctl.sweep.points import Point
from servoctl.sweep.series import at_every_step


def changed_by_thinning(run: Run, points: Sequence[Point], rows: Sequence[Row]) -> str | None:
    """The warning that names the metric which `run.output_step` changes most; None if it changes none by a tenth.

    Three runs of the sweep are repeated with a row at every step: the first, the middle and the last that are done.

    Args:
        run: The config.
        points: Path -> value, of each run.
        rows: Metrics of the runs so far.
    """
    dense = run if run.settings.period is not None else at_every_step(run)
    done = [i for i, row in enumerate(rows) if row["status"] == "done"]
    if dense is run or not done:
        return None
    chosen = sorted({done[0], done[len(done) // 2], done[-1]})
    exact = run_all(dense, [points[i] for i in chosen])
    changes = {
        (i, name): change for i, row in zip(chosen, exact, strict=True) for name, change in _changes(run, rows[i], row)
    }
    worst = max(changes, key=lambda key: changes[key][0], default=None)
    if worst is None or changes[worst][0] <= SHARE:
        return None
    (i, name), (_, thinned, true) = worst, changes[worst]
    return (
        f"run.output_step {run.settings.output_step:g} s is too long for the metrics: {name} of run {i} is "
        f"{thinned:.4g} in the table and {true:.4g} with a row at every step (shorten it, or leave it out)"
    )


def _changes(run: Run, row: Row, exact: Row) -> list[tuple[str, tuple[float, float, float]]]:
    """Metric, and its relative change, thinned value and value at every step; small violations count as none."""
    least = dict.fromkeys(VIOLATIONS, 0.01 * run.settings.settling_band) | {"input_rms": 0.0, "input_max": 0.0}
    least["settling_time"] = (run.settings.output_step or 0.0) / SHARE  # a shorter one cannot be told more exactly
    changes = []
    for name, true in exact.items():
        thinned, kind = row.get(name), name.partition(".")[0]
        if kind not in least or thinned is None or true is None:
            continue
        if (size := max(abs(thinned), abs(true))) > least[kind]:
            changes.append((name, (abs(true - thinned) / size, thinned, true)))
    return changes
