"""What a tick costs: time counts for one part at a time."""

import pytest

from servoctl.bench import tick_costs as costs
from servoctl.bench.tick_costs import DECIDE, REST, WORLD, Watch


def test_time_inside_another_part_counts_for_itself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(costs.time, "thread_time", lambda: now)
    watch = Watch()

    class Machine:
        def outer(self) -> float:
            nonlocal now
            now += 2.0
            self.inner()
            now += 3.0
            return now

        def inner(self) -> None:
            nonlocal now
            now += 10.0
            if now > 100.0:
                raise ArithmeticError

    machine = Machine()
    machine.inner = watch.covered(machine.inner, WORLD)  # type: ignore[method-assign]
    outer = watch.covered(machine.outer, DECIDE)
    now += 1.0
    assert outer() == 16.0
    now += 100.0
    with pytest.raises(ArithmeticError):
        outer()
    watch.turn(REST)
    assert {part: time for part, time in watch.spent.items() if time} == {REST: 101.0, DECIDE: 7.0, WORLD: 20.0}


@pytest.mark.slow
def test_the_parts_of_a_run_are_all_there_and_the_ticks_are_those_of_the_run() -> None:
    found = costs.costs("coordinated_robots", 0.1, engine="vm")
    assert found.axes == 6 and found.period == 0.0025
    # brakes open, zero and ramp come before the task's 40 ticks
    assert found.ticks > 40 and found.time > 0.0
    assert all(time > 0.0 for time in found.parts.values())
