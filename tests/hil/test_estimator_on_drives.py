"""The estimator on emulated drives: masses 30 % off, and a replay to the bit."""

from pathlib import Path

import numpy as np
import pytest

import servoctl as sc
from hil.assembly.prepare import load
from hil.loop.controller import Controller
from hil.replay.replay import replay
from tests.faces import on_drives

STRONG = [f"hil.drives.u{i}.{key}" for i in range(1, 7) for key in ("torque_limit=24", "rated_torque=1")]
HEAVY = [
    "hil.emulation.parameters.m=1.3", "hil.safety.tracking=0.9", "hil.safety.engage_tolerance=0.1",
    "hil.safety.ramp_time=1.5", *STRONG,
]  # fmt: skip


def test_heavier_links_cost_little_with_an_estimator(tmp_path: Path) -> None:
    rms = []
    for more in ((), ("estimation.kind=model",)):
        result = on_drives("coordinated_robots", *HEAVY, *more, out=tmp_path if more else None, duration=2.0)
        assert result.exit_code == 0
        run = result.trajectory
        rms.append(float(np.sqrt(np.mean(run["violation.object_y"][run.during("object_y")] ** 2))))
    assert rms[1] < rms[0] / 20.0
    found = replay(tmp_path)
    assert found.agrees
    assert found.rows > 500
    # torques as the frames carry them: those of the law would make the mass 0.3 % too large
    assert sc.identify(tmp_path).values["m"] == pytest.approx(1.3, rel=1e-4)
    # the estimator knows the resolution of the encoders, and the folder says so
    assert "noise:" in (tmp_path / "config.yaml").read_text()


def test_the_estimator_knows_the_lag_of_the_current_loop() -> None:
    changes = ["estimation.kind=model", "hil.emulation.current_lag=0.002"]
    estimator = load("two_mass_spring_drive", changes, "numpy").run.system.estimator
    assert estimator is not None
    assert estimator.timing.lag == (0.002,)
    assert estimator.timing.late == 1


def test_an_estimator_that_starts_again_knows_the_torques_that_hold_the_machine() -> None:
    """Otherwise it would expect the machine to fall while commands are on their way: 250 standard deviations."""
    setup = load("coordinated_robots", ["estimation.kind=model"], "vm")
    controller, hold = Controller(setup.loop), setup.gravity_compensation(0.0, setup.start.q).u
    controller.sent(hold, moves=False)
    apart = setup.loop.layout.slices["estimate.innovation"]
    for _ in range(5):
        controller.command(0.0, setup.start.q, np.zeros(5))
        assert controller.row[apart].max() < 0.1
        controller.sent(hold)
