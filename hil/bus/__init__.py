"""Buses: what is common to all, python-can's, and how much of one a configuration uses."""

from hil.bus.base import Bus, BusError, Health, Link, close_all

__all__ = ["Bus", "BusError", "Health", "Link", "close_all"]
