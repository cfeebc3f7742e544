"""How frames travel: the interface of every bus, the buses of python-can, and the load that a config puts on a bus."""

from hil.bus.base import Bus, BusError, Health, Link, close_all

__all__ = ["Bus", "BusError", "Health", "Link", "close_all"]
