"""Real-time runs on drives over CAN. The package is reserved: nothing in it is built yet."""
