"""Notes before a run begins: why nothing will move, and what happens if the loop dies."""

from pathlib import Path

import pytest
from interfaces import keys_of
from wall_clock import write_config

from hil.assembly.prepare import load
from hil.session.start import Request, start
from servoctl.errors import ConfigError
from tests.hil.emulation import served
from tests.hil.test_bad_rigs import BELT, BUS, ROBOTS, changed
from tests.hil.test_real_drives import rig_of


def test_virtual_time_has_no_use_for_real_time_rights() -> None:
    for asked, said in (({"require_rt": True}, 1), ({"cpu": 0}, 1), ({}, 0)):
        begun = start(Request(BELT, engine="vm", **asked))
        assert begun.notes.count("time is virtual: --require-rt and --cpu have no effect") == said


def test_multicast_that_may_leave_the_machine_says_how_to_keep_it(tmp_path: Path) -> None:
    bus = "interface: udp_multicast, channel: 239.74.163.91, port: 43391, bitrate: 1000000"
    begun = start(Request(changed(tmp_path, BELT, [(BUS, bus)]), engine="vm"))
    begun.close()
    assert (
        "main: packets may leave this machine, so drives there count as real (set hop_limit: 0 to keep them here)"
        in begun.notes
    )


def test_shadow_lists_the_drives_that_send_nothing(tmp_path: Path) -> None:
    for config, silent in ((ROBOTS, "u1, u2, u3, u4, u5, u6: "), (BELT, "")):
        path = changed(tmp_path, config, [(BUS, "interface: virtual, channel: unheard, bitrate: 1000000")])
        begun = start(Request(path, engine="vm"))
        begun.close()
        said = (
            "send only when they are started and asked: shadow hears them only if another master does it; "
            "--calibrate --armed does it too, and enables nothing"
        )
        assert [note for note in begun.notes if said in note] == ([silent + said] if silent else [])


def test_a_long_watchdog_gives_a_note() -> None:
    (note,) = load(BELT, ["hil.safety.drive_watchdog=0.2"], "vm").notes
    assert note.endswith(
        "hil.safety.drive_watchdog: 0.2 s: drives keep their last torque for this time when the loop dies "
        "(usual: at most 0.1 s)"
    )
    assert not load(BELT, engine="vm").notes


def test_faults_of_drives_in_another_process_happen_there_or_are_refused(tmp_path: Path) -> None:
    with keys_of("virtual") as keys:
        config = write_config(tmp_path / "cart.yaml", "odrive", keys, 0.5)
        with served(rig_of(config)):
            for fault, happens in (
                ("{kind: stall, at: 1, for: 0.01}", False),
                ("{kind: reboot, at: 1, drive: F}", True),
            ):
                request = Request(config, (f"hil.faults=[{fault}]",), engine="vm")
                if not happens:
                    with pytest.raises(ConfigError, match="stall: only on emulated wires in lock-step"):
                        start(request)
                    continue
                begun = start(request)
                begun.close()
                assert begun.notes[-1].startswith("hil.faults: happen in the emulator only")
