"""References: columns of files and waypoints as smooth functions of time."""
