"""Events of a run whose estimator left readings out."""

from typing import Any

import numpy as np

from servoctl.estimation.outliers import OutlierBursts
from servoctl.run_folder.trajectory import Trajectory

COLUMNS = "estimate.innovation"  # [standard deviations] group of the columns that hold the innovations


def outlier_events(trajectory: Trajectory) -> list[dict[str, Any]]:
    """Each burst of outliers: `t`, `until`, `coordinate` (the worst), `text`, and `coordinates`.

    The latter is coordinate -> `sigmas` (largest innovation), `count`, and `in_row`, the most in consecutive ticks.
    """
    columns = trajectory.group(COLUMNS)
    if not columns:
        return []
    bursts, found = OutlierBursts(list(columns)), []
    innovation = np.column_stack(list(columns.values()))
    for t, row in zip(trajectory.t.tolist(), innovation, strict=True):
        found += bursts.tick(t, row)
    return [
        {
            "t": burst.first, "event": "outlier", "coordinate": burst.worst, "until": burst.last,
            "coordinates": {
                name: {"sigmas": each.sigmas, "count": each.count, "in_row": each.in_row}
                for name, each in burst.counts.items()
            },
            "text": f"{burst.worst}: the estimator left out readings far from their prediction ({burst.text})",
        }
        for burst in (*found, *bursts.close())
    ]  # fmt: skip
