"""Tests on the wall clock run a second time where they fail: a machine that others use too may stall for longer than
any limit that means something. What fails twice has failed, and the summary counts what was run again."""

from pathlib import Path

import pytest

from tests.hil.packages import acme, install  # noqa: F401  fixtures of the tests in this folder

ON_THE_WALL_CLOCK = {
    "test_bad_rigs",
    "test_bus_python_can",
    "test_bus_vcan",
    "test_emulator_process",
    "test_real_drives",
    "test_tick_on_sockets",
    "test_recorder",
    "test_view_browser",
    "test_view_run",
    "test_wall_clock",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent and item.path.stem in ON_THE_WALL_CLOCK:
            item.add_marker(pytest.mark.flaky(reruns=1))
