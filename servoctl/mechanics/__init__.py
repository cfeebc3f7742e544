"""Mechanics: plants, constraints and the fundamental equation of constrained motion."""
