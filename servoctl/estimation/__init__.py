"""From the positions of a tick to the state and the disturbance that the law works with."""
