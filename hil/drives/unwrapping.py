"""A position that is followed over the ends of the range in which a drive sends it."""


class Unwrapping:
    """Follows a position over the ends of its range, from `-most` to `most` [rad]."""

    def __init__(self, most: float) -> None:
        self.span = 2 * most  # [rad] length of the range
        self.last: float | None = None  # last position in the range [rad]; None before the first
        self.added = 0.0  # [rad] what is added to it

    def __call__(self, position: float) -> float:
        """Motor angle without the jumps from one end of its range to the other [rad]."""
        if self.last is not None and abs(position - self.last) > self.span / 2:
            self.added += self.span if position < self.last else -self.span
        self.last = position
        return position + self.added
