"""The engine: user's NumPy code as symbols, linear algebra on both, compiled functions. Knows no mechanics."""
