"""Tells whether the rows of a continuous run are dense enough for the numbers of its summary."""

from servoctl.run_folder.trajectory import SETTLING_BAND, Trajectory
from servoctl.run_folder.values import rms
from servoctl.types import Array

SHARE = 0.1  # [-] change of a root mean square, if every second row is left out, above which the rows are too sparse


def sparse_rows(trajectory: Trajectory, spacing: float) -> str | None:
    """The sentence that names the task or input whose numbers depend most on the spacing; None if none does.

    A run that ended early says so itself: what it did last may be as fast as it likes.
    Violations below a hundredth of `settling_band` count as none.

    Args:
        trajectory: The run.
        spacing: `run.output_step` [s].
    """
    if trajectory.metadata.get("status") != "done":
        return None
    floor = 0.01 * trajectory.metadata.get("settling_band", SETTLING_BAND)
    sizes = {f"violation of {name}": (trajectory.violation(name), floor) for name in trajectory.tasks}
    sizes |= {f"input {name}": (u, 0.0) for name, u in trajectory.group("u").items()}
    changes = {name: _change(trajectory.t, x, least) for name, (x, least) in sizes.items()}
    worst = max(changes, key=lambda name: changes[name], default="")
    if not worst or changes[worst] <= SHARE:
        return None
    return (
        f"run.output_step {spacing:g} s gives {len(trajectory.t)} rows, too few for maximum and rms: with every second "
        f"row the rms of {worst} would differ by {100 * changes[worst]:.0f} % (shorten it)"
    )


def _change(t: Array, x: Array, least: float) -> float:
    """Relative change of the root mean square of `x` if every second row is left out; 0 if it is at most `least`."""
    dense, thinned = rms(t, x), rms(t[::2], x[::2])
    return abs(thinned / dense - 1.0) if dense > max(least, 0.0) else 0.0
