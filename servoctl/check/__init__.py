"""What is known about a run before it runs? The report of `servoctl check`, and recommended gains."""
