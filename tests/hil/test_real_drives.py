"""What a bus that counts as real asks for: arming, shadow, one stage after the other.

The bus is python-can's virtual one, which here counts as real; a thread serves the drives.
"""

from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import can
import numpy as np
import pytest

import hil.session.start
from hil.assembly.emulation import emulated_rig
from hil.assembly.prepare import load
from hil.bus import BusError
from hil.emulator.process import EmulatorServer, open_for_emulation
from hil.loop import WallClock
from hil.rig.logbook import STAGES
from hil.safety.plan import Phase
from hil.session.run import RunResult
from hil.session.start import Request, start
from servoctl.cli import main
from servoctl.errors import ConfigError
from tests.faces import on_drives
from tests.hil.emulation import served
from tests.hil.interfaces import keys_of
from tests.hil.wall_clock import OPTIONS, write_config


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Of a bus that counts as real: nobody is asked whether an emulator is there."""
    monkeypatch.setattr(hil.session.start, "is_loopback", lambda keys: False)
    with keys_of("virtual") as keys:
        yield keys


def rig_of(config: Path) -> EmulatorServer:
    """The emulated drives of a config, on its buses."""
    prepared, clock = load(config, engine="vm"), WallClock()
    return EmulatorServer(emulated_rig(prepared, "vm"), open_for_emulation(prepared.settings.buses, clock), clock)


def heard(server: EmulatorServer) -> int:
    """Frames of the host that the drives' controller has taken in."""
    return server.outlets["main"].bus.health.received


def run(config: Path, folder: Path, **asked: Any) -> tuple[RunResult, list[str]]:
    ended = on_drives(config, out=folder, **asked)
    return ended, [event.detail for event in ended.events if event.kind.name == "STAGE"]


@pytest.mark.slow
def test_the_default_is_shadow_which_sends_nothing(keys: dict[str, Any], tmp_path: Path) -> None:
    config = write_config(tmp_path / "cart.yaml", "odrive", keys, 0.5)
    with served(rig_of(config)) as server:
        begun = start(Request(config, engine="vm"))
        assert begun.stage is Phase.SHADOW
        assert "shadow: nothing is sent on main; the next step is --stage zero --armed" in begun.notes
        ended = begun.run(tmp_path / "run", lambda event: None)
        assert heard(server) == 0
    assert (ended.exit_code, ended.unconfirmed) == (0, ()), ended.events
    assert ended.trajectory.metadata["bus"]["main"]["sent"] == 0
    assert ended.trajectory.metadata["bus"]["main"]["received"] > 0
    assert np.isfinite(ended.trajectory["q.x1"][-10:]).all()
    assert ended.trajectory.metadata["drives"]["F"]["confirmed_off"] is None


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["zero", "ramp", "full"])
def test_torque_takes_armed_on_the_command_line_and_not_a_frame_goes_out_without(
    stage: str, keys: dict[str, Any], tmp_path: Path
) -> None:
    config = write_config(tmp_path / "cart.yaml", "odrive", keys, 0.5)
    with served(rig_of(config)) as server:
        with pytest.raises(ConfigError, match=rf"--stage {stage}: main counts as real: .*add --armed"):
            start(Request(config, stage=stage, engine="vm"))
        assert main(["hil", str(config), "--stage", stage, "--engine", "vm", "--out", str(tmp_path / "run")]) == 2
        assert heard(server) == 0
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("stage", ["zero", "ramp", "full", "float"])
def test_without_armed_a_bus_that_is_real_for_sure_is_not_even_opened(stage: str, tmp_path: Path) -> None:
    missing = {"interface": "socketcan", "channel": "missing0", "bitrate": 1000000}
    config = write_config(tmp_path / "cart.yaml", "odrive", missing, 0.5)
    with pytest.raises(ConfigError, match=rf"--stage {stage}: main counts as real: .*add --armed"):
        start(Request(config, stage=stage, engine="vm"))


def test_a_run_that_hears_another_master_sends_nothing_so_that_the_other_keeps_its_machine(
    keys: dict[str, Any], tmp_path: Path
) -> None:
    config = write_config(tmp_path / "cart.yaml", "odrive", keys, 0.5)
    torque, over = (can.Message(arbitration_id=0x02E, data=bytes(8), is_extended_id=False), Event())
    with can.Bus(**{key: keys[key] for key in ("interface", "channel")}) as bus:

        def command() -> None:
            while not over.wait(0.01):
                bus.send(torque)

        master = Thread(target=command)
        master.start()
        try:
            ended, passed = run(config, tmp_path / "run", stage="full", armed=True)
        finally:
            over.set()
            master.join()
        assert bus.recv(0) is None
    assert ended.exit_code == 3 and not passed and ended.unconfirmed == ()
    said = "F: another master commands the drive (another master commands this drive: 02E#"
    assert [str(event)[: len(said)] for event in ended.events if event.kind.name == "FOREIGN"] == [said]
    assert "this run has sent nothing to any drive" in str(ended.events[-1])


def test_nothing_in_a_config_arms(keys: dict[str, Any], tmp_path: Path) -> None:
    for more in ({"armed": True}, {"stage": "full"}):
        config = write_config(tmp_path / "cart.yaml", "odrive", keys, 0.5, **more)
        with pytest.raises(ConfigError, match=r"hil\.(armed|stage): unknown key"):
            start(Request(config, engine="vm"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "stages"),
    [("zero", ["zero"]), ("full", ["zero", "ramp", "full"])],
)
def test_armed_no_stage_is_left_out_and_none_is_passed(
    stage: str, stages: list[str], keys: dict[str, Any], tmp_path: Path
) -> None:
    config = write_config(tmp_path / "cart.yaml", "odrive", keys, 0.5)
    with served(rig_of(config)) as server:
        ended, passed = run(config, tmp_path / "run", stage=stage, armed=True)
        assert heard(server) == ended.trajectory.metadata["bus"]["main"]["sent"]
    assert (ended.exit_code, ended.unconfirmed) == (0, ()), ended.events
    assert passed == ["enabling", *stages, "stopping", "disabling", "over"]
    assert ended.trajectory.metadata["emulated"] is False
    if stage == "zero":
        zero = ended.trajectory["stage"] == STAGES.index("zero")
        limit = ended.trajectory.metadata["torque_limits"]["F"]
        assert np.abs(ended.trajectory["u.F"][zero]).max() <= 0.05 * limit


def test_faults_are_not_scripted_for_real_drives(keys: dict[str, Any], tmp_path: Path) -> None:
    config = write_config(
        tmp_path / "cart.yaml", "odrive", keys, 0.5, faults=[{"kind": "reboot", "drive": "F", "at": 1}]
    )
    with pytest.raises(ConfigError, match="scripted faults are for emulated drives, and main is real"):
        start(Request(config, engine="vm"))


def test_a_drive_without_a_watchdog_gets_torque_on_a_real_bus_only_if_the_config_allows_it(
    keys: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for said, begins in ((None, False), (False, True)):
        options = {"motor": "ak80-9", "status": "cubemars"} | ({} if said is None else {"drive_watchdog": said})
        monkeypatch.setitem(OPTIONS, "mit", options)
        config = write_config(tmp_path / "cart.yaml", "mit", keys, 0.5)
        if begins:
            begun = start(Request(config, stage="zero", armed=True, engine="vm"))
            assert any("F: no watchdog in the drive" in note for note in begun.notes)
            begun.close()
        else:
            with pytest.raises(ConfigError, match=r"hil\.drives: F: drive_watchdog is missing: without a watchdog "):
                start(Request(config, stage="zero", armed=True, engine="vm"))
            shadow = start(Request(config, engine="vm"))
            assert shadow.stage is Phase.SHADOW
            shadow.close()


def test_a_bus_that_cannot_be_opened_ends_with_3_and_a_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(tmp_path / "cart.yaml", "odrive", {"interface": "socketcan", "channel": "can99"}, 0.5)
    with pytest.raises(BusError):
        start(Request(config, engine="vm"))
    assert main(["hil", str(config), "--engine", "vm", "--out", str(tmp_path / "run")]) == 3
    said = capsys.readouterr().err
    assert "bus main: " in said
    assert "sudo " in said
    assert not (tmp_path / "run").exists()


def test_a_loopback_bus_without_an_emulator_is_real_and_says_how_to_get_one(tmp_path: Path) -> None:
    with keys_of("virtual") as keys:
        config = write_config(tmp_path / "cart.yaml", "odrive", keys, 0.5)
        begun = start(Request(config, engine="vm"))
        assert begun.stage is Phase.SHADOW
        assert any("servoctl emulate cart" in note for note in begun.notes)
        with pytest.raises(ConfigError, match="add --armed"):
            start(Request(config, stage="full", engine="vm"))
        begun.close()


@pytest.mark.parametrize(
    ("keys", "options", "said"),
    [
        ({"interface": "socketcan", "channel": "can0"}, ["--vcan"], "may have real drives on it"),
        ({"interface": "socketcan", "channel": "vcan0"}, [], "use --vcan"),
        ({"interface": "udp_multicast", "channel": "239.74.163.2"}, [], "set hop_limit: 0"),
        ({"interface": "virtual", "channel": "main"}, [], "reaches no other process"),
        ({"interface": "emulated"}, [], "use udp_multicast with hop_limit: 0"),
    ],
)
def test_emulate_refuses_buses_that_may_be_physical_or_are_unreachable(
    keys: dict[str, Any], options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(tmp_path / "cart.yaml", "odrive", keys, 0.5)
    assert main(["emulate", str(config), "--engine", "vm", *options]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert "hil.buses.main: " in captured.err
    assert captured.out == ""
