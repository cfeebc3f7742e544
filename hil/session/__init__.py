"""A run on drives from the first frame to the last drive off."""
