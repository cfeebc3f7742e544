"""Spatial robots: files to trees of moving bodies, their dynamics, and constraints on their frames."""
