"""Computes the machine's coordinates from samples of drives and encoders; independent of protocols and buses."""
