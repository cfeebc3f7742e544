"""A run folder: the files that a run writes, and how they are read again.

Design: rows go to an Arrow stream, which stays readable up to its last complete batch if the process dies, and become
Parquet at the end. A batch is serialised before it is written; an interrupted one is removed again. All other files are
written to a temporary file, synchronised and renamed; only the status of a run that ends on a full disk is overwritten
in place. No data is lost: an earlier run is moved aside, and the folder of one that goes on is not free.
"""

from servoctl.run_folder.reader import load_run, read_summary
from servoctl.run_folder.writer import RunFolder, ended_by, save, say_end, write_drawing

__all__ = ["RunFolder", "ended_by", "load_run", "read_summary", "save", "say_end", "write_drawing"]
