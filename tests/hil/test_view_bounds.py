"""What the live page knows of bounds: since when they hold the inputs, and what that costs, whatever comes at once."""

import numpy as np
import pytest

from hil.view.scene import BoundHistory
from servoctl.types import Array

COLUMNS = ("t", "bound.wall", "bound_active.wall", "bound_lack.wall", "given_up.x", "given_up.y", "bound.free")


def rows(first: int, last: int) -> Array:
    """Rows at 1 ms: the wall holds from 0.1 s to 0.2 s, but for two rows, and from 0.3 s on; x gives up 1000 t."""
    k = np.arange(first, last)
    holds = ((k >= 100) & (k < 200) & ~np.isin(k, [150, 151])) | (k >= 300)
    h = np.where(holds, 1e-4, 0.5)
    h[k == 120] = -2e-4
    lack = np.where(k == 350, 7.0, 0.0)
    return np.column_stack([k * 1e-3, h, holds, lack, np.where(holds, k, 0.0), 0 * k, 0 * k])


@pytest.mark.parametrize("at_once", [1, 7, 50, 1000])
def test_a_hold_has_its_beginning_its_end_and_what_was_given_up(at_once: int) -> None:
    history = BoundHistory(COLUMNS)

    def read(first: int, last: int) -> None:
        for k in range(first, last, at_once):
            history.add(rows(k, min(k + at_once, last)))

    read(0, 50)
    assert history.as_dict()["wall"]["since"] is None
    assert list(history.as_dict()) == ["wall"]  # nothing says whether the other one holds
    read(50, 180)
    facts = dict(history.as_dict()["wall"])
    assert facts["holds"] and facts["since"] == pytest.approx(0.1)
    assert facts["given_up"] == {"x": 179.0}
    read(180, 260)
    facts = dict(history.as_dict()["wall"])
    assert not facts["holds"]
    assert (facts["since"], facts["until"]) == (pytest.approx(0.1), pytest.approx(0.2))
    assert facts["least"] == -2e-4 and facts["h"] == 0.5
    read(260, 400)
    facts = history.as_dict()["wall"]
    assert facts["holds"] and facts["since"] == pytest.approx(0.3)
    assert facts["given_up"] == {"x": 399.0} and facts["lack"] == 7.0
    assert facts["time"] == pytest.approx(0.099 + 0.099)
