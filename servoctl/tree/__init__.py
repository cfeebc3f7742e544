"""Fields of sections: units, ranges, and the values that they accept."""
