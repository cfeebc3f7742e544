"""Emulated drives: a CAN bus in virtual time, drives that speak their protocols on it, and the simulated plant.

Design: written from the tables of the protocols, independently of the loop's codecs and drivers, so that an error in
either shows. All events are in one queue on one clock of whole nanoseconds, and all random numbers are seeded: a run is
reproducible to the bit.
"""
