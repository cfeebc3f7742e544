"""A run on drives, from the first frame until every drive is off."""
