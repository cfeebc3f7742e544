"""Emulated drives: a CAN bus in virtual time, drives that speak their protocols on it, and the simulated plant.

Design: drives read the tables of frames that the drivers read, which implementations of others judge; their modes,
watchdogs and faults are their own. All events are in one queue on one clock of whole nanoseconds, and all random
numbers are seeded: a run is reproducible to the bit.
"""
