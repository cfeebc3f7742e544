"""What a run on drives leaves: its folder, with every frame in `can.blf` and every event in `events.jsonl`.

Design: the loop's process copies numbers into rings in shared memory; a process of its own takes them out and writes.
It outlives the loop, so that a loop that is killed leaves a folder that is closed, and it lets Ctrl-C pass, so that
the stop that follows is recorded too.
"""

from hil.recorder.events import add_missing, as_entry, read_events
from hil.recorder.frame_log import read_frames
from hil.recorder.in_memory import InMemory
from hil.recorder.memory import Capacity
from hil.recorder.recorder import Recorder

__all__ = ["Capacity", "InMemory", "Recorder", "add_missing", "as_entry", "read_events", "read_frames"]
