"""A config's `hil` section -> nodes, buses, limits and emulated machines, checked before anything is sent."""
