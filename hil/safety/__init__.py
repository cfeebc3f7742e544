"""What may go wrong on drives, how it is noticed, and what follows.

Design: a `Monitor` looks at one tick's facts and reports events; an event's kind decides the reaction. The worst
reaction so far is latched for the rest of the run: nothing goes back to work by itself. Python over CAN is no safety
function: a hardware emergency stop is a precondition on real drives.
"""

from hil.safety.events import Event, EventKind, Reaction
from hil.safety.limits import Limits
from hil.safety.monitor import Bounds, Monitor

__all__ = ["Bounds", "Event", "EventKind", "Limits", "Monitor", "Reaction"]
