"""The `hil` section: what it takes, what it passes on, what it refuses."""

from pathlib import Path

import pytest

from servoctl.config import dump, load_config
from servoctl.errors import ConfigError

HEAD = "plant: {class: a:B}\ninitial: {q: 0}\nlaw: none\nrun: {duration: 1}\n"
DRIVE = (
    "actuator: u, bus: main, protocol: cia402, node: 1, torque_limit: 12, torque_rate_limit: 400, speed_limit: 6, "
    "position_limits: [-170*deg, 170*deg]"
)
HIL = (
    "hil:\n  period: 2.5*ms\n  buses: {main: {channel: can0}}\n  drives:\n"
    f"  - {{{DRIVE}, counts_per_turn: 65536}}\n"
)


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


@pytest.mark.parametrize(
    "change, said",
    [
        (("period: 2.5*ms", "period: 0"), "hil.period: expected a positive time [s], got 0"),
        (("torque_limit: 12, ", ""), "hil.drives.0.torque_limit: missing (largest |u| [actuator unit])"),
        (("node: 1", "node: 1, gear: 0"), "hil.drives.0.gear: expected a number other than 0, got 0"),
        (("node: 1", "node: 1, gear: -8"), "hil.drives.0.gear: expected a positive number, got -8"),
        (("node: 1", "node: 1, sign: 2"), "hil.drives.0.sign: expected one of 1, -1, got 2"),
        (("node: 1", "node: -1"), "hil.drives.0.node: expected a node id, an integer >= 0, got -1"),
        (("[-170*deg, 170*deg]", "[3, 1]"), "hil.drives.0.position_limits: expected [lower, upper]"),
        (("hil:\n", "hil:\n  armed: true\n"), "hil.armed: unknown key"),
        (("hil:\n", "hil:\n  safety: {stle: 1}\n"), "hil.safety.stle: unknown key (did you mean 'stale'?)"),
        (("hil:\n", "hil:\n  safety: {stale: 0}\n"), "hil.safety.stale: expected a positive time [s], got 0"),
        (("hil:\n", "hil:\n  max_bus_load: 2\n"), "hil.max_bus_load: expected a number between 0 and 1, got 2"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    text = HIL.replace(*change)
    assert text != HIL
    with pytest.raises(ConfigError) as error:
        load_config(config(tmp_path, text))
    assert said.replace(".0.", "[0].") in str(error.value)
