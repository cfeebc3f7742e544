"""What can go wrong on drives, how it is detected, and how the run reacts.

Design: a `Monitor` checks the facts of one tick and reports events. The kind of an event decides the reaction. The
worst reaction so far is latched for the rest of the run: nothing resumes by itself. Python over CAN is not a safety
function: real drives need a hardware emergency stop.
"""

from hil.safety.events import Event, EventKind, Reaction
from hil.safety.monitor import Monitor
from hil.safety.rules import SafetyBounds

__all__ = ["Event", "EventKind", "Monitor", "Reaction", "SafetyBounds"]
