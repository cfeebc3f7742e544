"""Signs, zeros and ranges of encoders from a motion by hand, without torque."""
