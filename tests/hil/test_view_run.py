"""Runs with a live page: the stop button, gains, and that who looks on, or does not, changes nothing."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hil.recorder import read_events
from servoctl.run_folder import load_run
from tests.hil.interfaces import keys_of
from tests.hil.live_page import ALPHA, LIVE, address_of, messages, post, viewer
from tests.hil.wall_clock import PATIENCE, Child, emulated, looping, summary_of, wait_until, write_config

pytestmark = pytest.mark.slow

BELT = Path("two_mass_spring_drive")
BUTTON = "the operator stops the run (stop button of the live page)"


def check_stopped_by_the_button(folder: Path, loop: Child) -> None:
    assert loop.end() == 130, loop.said
    events = [(event["event"], event["text"]) for event in read_events(folder / "run")]
    assert ("interrupted", BUTTON) in events
    assert [text for kind, text in events if kind == "stage"][-3:] == ["stopping", "disabling", "over"]
    assert summary_of(folder)["status"] == "interrupted"
    assert all(drive["confirmed_off"] for drive in summary_of(folder)["drives"].values())


def view_process(loop: Child) -> int:
    """Its id."""
    children = Path(f"/proc/{loop.process.pid}/task/{loop.process.pid}/children").read_text().split()
    found = [int(child) for child in children if "hil.view" in Path(f"/proc/{child}/cmdline").read_text()]
    assert len(found) == 1
    return found[0]


OWN_PLANT = """
import numpy as np
from plants.two_mass_spring import TwoMassSpring

class Mine(TwoMassSpring):
    def links(self, q):
        return {"mine": np.array([[0.0, 0.0], [q[0], 1.0]])}
"""


def test_the_stop_button_gains_and_the_plant_of_a_users_own_file_in_lock_step(tmp_path: Path) -> None:
    """The page's process knows no module of that name, so it loads the file itself."""
    (tmp_path / "mine.py").write_text(OWN_PLANT)
    written = (Path("configs") / "two_mass_spring_drive.yaml").read_text()
    config = tmp_path / "own.yaml"
    config.write_text(written.replace("plants.two_mass_spring:TwoMassSpring", "mine.py:Mine"))
    begun = time.monotonic()
    with looping(tmp_path, config, "--view", "--duration", "600", "--set", f"hil.live={LIVE}") as loop:
        address = address_of(loop)
        with viewer(address) as connection:
            seen, last = messages(connection), {}
            for kind, message in seen:
                last = message if kind == "picture" else last
                if last and last["row"] and last["row"]["stage"] == 5:
                    break
            first = last["row"]
            assert post(address, "gain", {"path": ALPHA, "value": 21})[0] == 422
            assert post(address, "gain", {"path": "law.kind", "value": 1})[0] == 422
            assert post(address, "gain", {"path": ALPHA, "value": True})[0] == 422
            assert post(address, "gain", {"path": ALPHA, "value": 12})[0] == 200
            wait_until(  # requests that follow each other too fast are refused: they must not keep the loop busy
                lambda: post(address, "gain", {"path": ALPHA, "value": 12})[0] == 422, lambda: "no request is refused"
            )
            for kind, message in seen:
                if kind == "picture" and message["row"][f"live.{ALPHA}"] == 12:
                    break
            assert message["row"]["t"] > first["t"]
            assert message["links"] == {"mine": [[0.0, 0.0], [message["row"]["q.x1"], 1.0]]} and not message["missed"]
            assert post(address, "stop", {}) == (200, {})
            kinds = {kind: message for kind, message in seen}
        assert kinds["over"]["ending"]["status"] == "interrupted"
        assert kinds["over"]["row"]["stage"] >= 6 and kinds["over"]["stopping"]
        check_stopped_by_the_button(tmp_path, loop)
    run = load_run(tmp_path / "run")
    assert run[f"live.{ALPHA}"][-1] == 12.0
    assert run.t[-1] < time.monotonic() - begun  # the page keeps the run to the wall clock; else it would be ahead
    assert "8 -> 12 within 0.5 s" in (tmp_path / "run/events.jsonl").read_text()


def test_viewers_do_not_change_a_run(tmp_path: Path) -> None:
    """To the bit and the tick: nobody, and somebody who opens the page, reads nothing, and goes."""
    alone, watched = tmp_path / "alone", tmp_path / "watched"
    for folder in (alone, watched):
        folder.mkdir()
    words = (BELT, "--duration", "1")
    with looping(alone, *words) as one, looping(watched, *words, "--view") as other:
        with viewer(address_of(other)), viewer(address_of(other)):
            time.sleep(0.5)
        assert (one.end(), other.end()) == (0, 0), one.said + other.said
    runs = [load_run(folder / "run") for folder in (alone, watched)]
    assert summary_of(alone)["timing"]["ticks"] == summary_of(watched)["timing"]["ticks"]
    assert all(np.array_equal(x, runs[1][name], equal_nan=True) for name, x in runs[0].columns.items())
    assert (alone / "run/can.blf").read_bytes() == (watched / "run/can.blf").read_bytes()


def test_the_stop_button_on_the_wall_clock_with_a_viewer_that_reads_nothing(tmp_path: Path) -> None:
    with keys_of("udp_multicast") as keys:
        # a busy machine may hold up the emulator for a second
        config = write_config(tmp_path / "cart.yaml", "cia402", keys, 600.0, stale=1.0)
        with emulated(tmp_path, config), looping(tmp_path, config, "--view") as loop:
            address = address_of(loop)
            with viewer(address), viewer(address):
                loop.wait_for("s  full")
                assert post(address, "stop", {})[0] == 200
                check_stopped_by_the_button(tmp_path, loop)
    assert summary_of(tmp_path)["recorder"]["lost"] == {"rows": 0, "frames": 0, "events": 0}


def test_the_stop_button_during_the_bring_up(tmp_path: Path) -> None:
    """While the drive's watchdog is put to the test there are no ticks."""
    with keys_of("udp_multicast") as keys:
        config = write_config(tmp_path / "cart.yaml", "mit", keys, 60.0, watchdog=5.0)
        with emulated(tmp_path, config) as emulator, looping(tmp_path, config, "--view") as loop:
            address = address_of(loop)
            emulator.wait_for("torque on")
            assert post(address, "stop", {})[0] == 200
            assert loop.end() == 130, loop.said
    events = [event["text"] for event in read_events(tmp_path / "run")]
    assert BUTTON in events and "enabling" not in events


def test_a_run_continues_with_a_note_if_its_page_is_killed(tmp_path: Path) -> None:
    with looping(tmp_path, BELT, "--view", "--duration", "2") as loop:
        address_of(loop)
        loop.wait_for("s  full")
        os.kill(view_process(loop), signal.SIGKILL)
        assert loop.end() == 0, loop.said
    assert summary_of(tmp_path)["status"] == "done"
    assert "the live page has ended; the run continues (signal 9)" in loop.said


def test_the_page_reports_a_killed_loop_and_ends(tmp_path: Path) -> None:
    with looping(tmp_path, BELT, "--view", "--duration", "600") as loop:
        address = address_of(loop)
        loop.wait_for("s  full")
        page = view_process(loop)
        with viewer(address) as connection:
            seen = messages(connection)
            next(seen)
            loop.process.kill()
            last: dict[str, Any] = dict(seen)
        assert last["over"]["ending"] == {"status": "gone"}
        wait_until(lambda: not os.path.exists(f"/proc/{page}"), lambda: f"{page} is still there after {PATIENCE} s")
