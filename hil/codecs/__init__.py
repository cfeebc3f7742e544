"""Bytes <-> values, one module per protocol: pure functions that know nothing else of this project.

A decoder returns None for a payload that is not valid; an encoder raises ValueError for a value that must not be sent.
"""
