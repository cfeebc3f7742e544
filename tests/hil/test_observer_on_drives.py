"""The disturbance observer on emulated drives: a wrong mass costs less, and a right one costs nothing."""

import numpy as np
import pytest

from servoctl.run_folder.trajectory import Trajectory
from tests.faces import on_drives


def followed(*overrides: str) -> Trajectory:
    """The shipped robots on drives for 3 s of their task."""
    result = on_drives("coordinated_robots", *overrides, duration=3.0)
    assert result.exit_code == 0
    return result.trajectory


@pytest.mark.parametrize(("mass", "share"), [(1.0, 0.7), (1.05, 0.3)])
def test_the_error_is_smaller_with_an_observer(mass: float, share: float) -> None:
    change = f"hil.emulation.parameters.m={mass}"
    errors = []
    for more in ((), ("law.observer=auto",)):
        run = followed(change, *more)
        y = run["violation.object_y"][run.during("object_y")]
        errors.append((float(np.sqrt(np.mean(y**2))), float(np.abs(y).max())))
    d, task = run["disturbance.object_y"], run.during("object_y")
    assert np.isfinite(d[task]).all()
    assert np.isfinite(d).sum() == len(d[task])  # while the task stands still, nothing is observed
    assert run.summary()["disturbance"]["object_y"]["max"] == np.abs(d[task]).max()
    (rms, largest), (rms_observed, largest_observed) = errors
    assert rms_observed < share * rms
    # the drives hold the pose before the task begins: the observer starts without a jump
    assert largest_observed < 1.01 * largest
