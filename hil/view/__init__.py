"""The live page of a run on drives: a process of its own looks on at what the recorder is given anyway.

Design: nothing that a page needs is made in the tick. The process maps the recorder's memory, read only, and follows
its rings without taking from them. The other way there are two things alone: a word that says stop, with a signal so
that it is heard at any time, and numbers for gains, which the loop looks at once per tick and judges itself. Who holds
the address, with its token, may do both; the server listens on loopback only.
"""

from hil.view.view import LivePage

__all__ = ["LivePage"]
