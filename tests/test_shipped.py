"""Every shipped config is of the kind that `shipped.py` says."""

import pytest

import servoctl
from servoctl.check.report import check
from servoctl.errors import ConfigError
from servoctl.simulation.closed_loop import Loop
from tests.shipped import CONSTRAINT_FOLLOWING, LOADED, REFUSED


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_published_task_that_cannot_be_done_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="task"):
        servoctl.load(name, engine="numpy")


@pytest.mark.parametrize("name", LOADED)
def test_a_config_is_of_the_kind_that_the_lists_say(name: str) -> None:
    run = servoctl.load(name)
    degrees = [row.degree for row in run.system.model.task_rows]
    assert isinstance(run.loop, Loop)
    assert (run.system.law is not None and max(degrees) <= 2) == (name in CONSTRAINT_FOLLOWING)


@pytest.mark.parametrize("name", ["crane_rope", "elbow_above_table", "flexible_joint_motor_raised"])
def test_check_reports_on_a_config(name: str) -> None:
    sections = dict(check(servoctl.load(name, engine="vm", strict=False)).sections)
    assert ("bounds" in sections) == (name != "flexible_joint_motor_raised")
    shown = "\n".join(sections["corrections"])
    assert "poles of the task error [1/s]: -" in shown and "e-0" not in shown, "repeated poles without their rounding"
