"""Turns NumPy code into symbols and compiled functions, with linear algebra on both; knows no mechanics."""
