"""What all tests share: a cache of compiled code of their own, kept from session to session, and a browser."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import chromium

os.environ.setdefault("SERVOCTL_CACHE", str(Path(__file__).parents[1] / ".pytest_cache" / "servoctl"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found
