"""Runs one config over ranges of its numbers: the points, the runs, the result, and its files."""

from servoctl.sweep.files import make_folder, save
from servoctl.sweep.points import SAMPLES, Vary, points_of, read_varies
from servoctl.sweep.store import RowStore, identity_of
from servoctl.sweep.study import Study, plan, sweep

__all__ = [
    "SAMPLES", "RowStore", "Study", "Vary", "identity_of", "make_folder", "plan", "points_of", "read_varies", "save",
    "sweep",
]  # fmt: skip
