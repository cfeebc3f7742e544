"""How bytes become values and back, one module per protocol: pure functions that import no other part of servoctl.

A decoder returns None for an invalid payload; an encoder raises ValueError for a value that must not be sent.
"""
