"""Faults on emulated drives, one run each: what goes wrong, what must follow and by when, and whether it did."""
