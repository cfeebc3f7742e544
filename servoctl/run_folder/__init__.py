"""A run folder: what a run writes while it lives, and how it is read again.

Design: rows go to an Arrow stream, which stays readable up to its last complete batch whatever happens to the process,
and become Parquet at the end. Batches are made as bytes before they are written; one that an exception interrupts
is cut off again. Files that must never be half-written are written beside their place, synchronised and renamed.
Nothing that was written is lost: an earlier run is moved aside.
"""

from servoctl.run_folder.reader import load_run, read_summary
from servoctl.run_folder.writer import FLUSH_INTERVAL, RunFolder, save, say_end, write_drawing

__all__ = ["FLUSH_INTERVAL", "RunFolder", "load_run", "read_summary", "save", "say_end", "write_drawing"]
