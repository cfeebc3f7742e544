"""Emulated drives: a wire in virtual time, drives that speak their protocol on it, and the simulated plant behind them.

Design: written from the protocols' tables, apart from the codecs and the drivers of the loop, so that an error in
either shows. Everything happens in one queue of events on one clock of whole nanoseconds, seeded: a run is
reproducible to the bit.
"""
