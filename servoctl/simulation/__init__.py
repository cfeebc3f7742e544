"""A plant and a law in time: the closed loop, its executors, integration, and effects that are not ideal."""
