"""Many runs of one config over ranges of its numbers: what to run, the table that comes of it, and its files."""

from servoctl.sweep.points import SAMPLES, Vary, points_of, read_varies
from servoctl.sweep.store import RowStore, identity_of
from servoctl.sweep.study import Study, default_metric, make_folder, plan, sweep

__all__ = [
    "SAMPLES",
    "RowStore",
    "Study",
    "Vary",
    "default_metric",
    "identity_of",
    "make_folder",
    "plan",
    "points_of",
    "read_varies",
    "sweep",
]
