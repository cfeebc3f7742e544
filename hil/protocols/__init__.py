"""Which protocols drives can speak: those of servoctl itself, and those that installed packages bring."""
