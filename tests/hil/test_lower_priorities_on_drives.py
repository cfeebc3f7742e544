"""A conflicting row of priority 2 on emulated drives: never met, and neither engaging nor the law waits for it."""

from pathlib import Path

import pytest

from hil.replay.replay import replay
from hil.session.start import Request, start
from servoctl.config import shipped_configs

ENGINES = ["vm", "numpy", "c"]
SHORT = ("hil.safety.zero_time=0.02", "hil.safety.ramp_time=0.02")
"""NumPy takes ten milliseconds for a tick."""

WISH = '  - {name: posture, holonomic: "x1 - 3", priority: 2}\nlaw:'


@pytest.mark.parametrize("engine", ENGINES)
def test_a_posture_that_conflicts_with_the_task_stops_no_drive(tmp_path: Path, engine: str) -> None:
    config = tmp_path / "wish.yaml"
    config.write_text(Path(shipped_configs()["two_mass_spring_drive"]).read_text().replace("\nlaw:", f"\n{WISH}"))
    begun = start(Request(str(config), SHORT, duration=0.03, engine=engine))
    assert begun.setup.loop.system.law.stops_on  # on drives the default is `fault`
    ended = begun.run(tmp_path / "run", lambda event: None)
    summary = ended.trajectory.summary()
    assert (ended.exit_code, summary["status"], summary["faults"], ended.unconfirmed) == (0, "done", [], ())
    assert set(summary["status_counts"]) == {"OK"}
    assert summary["tasks"]["distance"]["max_violation"] < 1e-3
    assert summary["tasks"]["posture"]["final_violation"] == pytest.approx(3.0, abs=0.1)
    assert summary["given_up"]["posture"] > 100.0  # beta^2 times 3 m is 192 m/s^2
    again = replay(tmp_path / "run")
    assert (again.differing, again.other_samples) == (0, 0)
