"""Mechanisms ready to use, one per file."""
