"""Drives on CAN as one machine: samples in, coordinates out, torques on the wire."""
