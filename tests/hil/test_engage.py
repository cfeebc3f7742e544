"""A task that does not begin says which row, by how much, and what could be measured at all."""

import math
from pathlib import Path

import pytest

from hil.assembly.measuring import resolved_steps
from hil.assembly.prepare import load
from hil.safety import EventKind
from hil.session.start import Request, start


def test_the_reason_that_delays_a_task_is_reported_with_the_measurable_step(tmp_path: Path) -> None:
    begun = start(Request("scara_drive", ("hil.safety.engage_tolerance=1e-5",), duration=0.1, engine="vm"))
    ended = begun.run(tmp_path / "run", lambda event: None)
    assert ended.exit_code == 4
    details = {event.subject: event.detail for event in ended.events if event.kind is EventKind.NOT_ENGAGED}
    assert set(details) == {"x", "y", "heading", "z"}
    resolved = begun.setup.plan(begun.stage, None).resolved
    for name, detail in details.items():
        violation, rate = resolved[name]
        assert detail.startswith("error ")
        assert f"measured in steps of {violation:.2g}; rate " in detail
        assert (
            f"measured in steps of {rate:.2g}; tolerance 1e-05; the tolerance is finer than the measurement" in detail
        )
        assert detail.endswith(f"set engage_tolerance to {max(violation, rate):.2g} or more, or use finer encoders")


def test_the_steps_of_a_row_are_those_of_its_encoders() -> None:
    """x2 - x1 - l, each measured in 2^14 steps a turn behind 50 rad/m; ODrives give speeds by themselves, in floats."""
    prepared = load("two_mass_spring_drive", (), "vm")
    nodes = (*prepared.drives, *prepared.sensors)
    model, values = prepared.loop.system.model, prepared.settings.values
    found = resolved_steps(model, prepared.sensing, nodes, values, prepared.start)
    quanta = [node.quantum()[:2] for node in nodes]
    assert quanta[0][0] <= 2 * math.pi / 2**14 / 50 * 1.001
    assert list(found) == ["distance"]
    assert found["distance"][0] == pytest.approx(sum(position for position, _ in quanta), rel=1e-6)
    if values.velocity != "filter":
        assert found["distance"][1] == pytest.approx(sum(speed for _, speed in quanta), rel=1e-6)
    else:
        assert found["distance"][1] == pytest.approx(sum(2 * p for p, _ in quanta) / values.period, rel=1e-6)
