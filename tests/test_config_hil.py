"""The `hil` section: what it takes, what it passes on, what it refuses."""

from pathlib import Path

import pytest
from config_texts import HEAD, HIL

from servoctl.config import dump, load_config


def config(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "c.yaml"
    path.write_text(HEAD + text)
    return path


def test_keys_of_protocols_and_interfaces_are_passed_on_and_survive_a_dump(tmp_path: Path) -> None:
    loaded = load_config(config(tmp_path, HIL))
    hil = loaded.config.hil
    assert hil is not None
    assert hil.drives[0].options == {"counts_per_turn": 65536}
    assert hil.buses["main"].options == {"channel": "can0"}
    assert hil.drives[0].position_limits == pytest.approx((-2.9670597, 2.9670597))
    (tmp_path / "d.yaml").write_text(dump(loaded.config))
    assert load_config(tmp_path / "d.yaml").config == loaded.config
