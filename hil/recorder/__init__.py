"""How a run on drives is recorded: its folder, with every frame in `can.blf` and every event in `events.jsonl`.

Design: the process of the loop copies numbers into rings in shared memory; a second process takes them out and writes
them. It outlives the loop, so a killed loop leaves a closed folder. It ignores Ctrl-C, so the stop after it is recorded
too.
"""

from hil.recorder.files import add_missing, as_entry, read_events, read_frames
from hil.recorder.memory import Capacity
from hil.recorder.recorder import InMemory, Recorder

__all__ = ["Capacity", "InMemory", "Recorder", "add_missing", "as_entry", "read_events", "read_frames"]
