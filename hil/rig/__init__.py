"""Drives on CAN as one machine: samples in, coordinates out, torques sent to the drives."""
