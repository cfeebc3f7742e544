"""What all tests share: a cache of compiled code of their own, kept from session to session, and a browser."""

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.chromium import chromium

os.environ.setdefault("SERVOCTL_CACHE", str(Path(__file__).parents[1] / ".pytest_cache" / "servoctl"))
# No compiler works on when the tests are over.
os.environ["SERVOCTL_FINISH_COMPILING"] = "0"
# There are more workers than cores: the threads of a second matrix product would only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Workers and the hundred processes that tests start share bytecode; without it each would compile every module again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# By default the collector looks so often through the heap of thousands of tests that it takes 4 % of their time.
gc.set_threshold(10_000, 20, 10)
# By default an example that takes 0.2 s fails, also where other work holds the machine up.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")


def pytest_collection_finish() -> None:
    """What collecting has left, modules and thousands of tests, stays to the end: the collector looks no more at it."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """In most tests compiling takes longer than running: a third of it without optimisation."""
    os.environ["SERVOCTL_OPTIMISE"] = "0" if item.get_closest_marker("optimised") is None else "1"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """One worker more than cores, for `-n auto`: tests on the wall clock and of processes mostly wait."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    return 1 + (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of compiled code that only this test uses."""
    monkeypatch.setenv("SERVOCTL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found
