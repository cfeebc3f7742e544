"""Random faults on machines that fall, brake and differ: which scenarios there are, and how a run is judged."""
