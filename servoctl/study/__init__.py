"""Many runs of one config: over ranges of its numbers (`sweep`), or in search of the best ones (`search`)."""
