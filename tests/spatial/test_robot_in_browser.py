"""Robots in a real browser: the page of a run and the live page draw their surfaces."""

import time
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from hil.view.scene import MachineDrawing
from hil.view.server import Broadcast, PageServer
from servoctl.report.drawing import task_frames
from servoctl.report.page import write
from servoctl.run_folder import save
from tests.chromium import Tab, tab
from tests.spatial.robots import TASK, moving_arms, two_arms

pytestmark = pytest.mark.slow

COLOURS = """(canvas) => {
  const copy = Object.assign(document.createElement("canvas"), { width: canvas.width, height: canvas.height });
  const pen = copy.getContext("2d", { willReadFrequently: true }), found = new Set();
  pen.drawImage(canvas, 0, 0);
  const { data } = pen.getImageData(0, 0, copy.width, copy.height);
  for (let i = 0; i < data.length; i += 4) if (data[i + 3] === 255) found.add([...data.slice(i, i + 3)].join());
  return [...found];
}"""
"""The colours of a canvas that are not transparent."""


def shades(live: Tab, selector: str) -> dict[str, int]:
    """Number of bluish, reddish and greenish colours on a canvas: two robots, and the box."""
    found = live.page.locator(selector).evaluate(COLOURS)
    values = np.array([[int(part) for part in colour.split(",")] for colour in found])
    red, green, blue = values.T
    return {
        "blue": int(np.sum((blue > green) & (green > red))),
        "red": int(np.sum((red > green) & (green > blue))),
        "green": int(np.sum((green > red) & (green > blue))),
    }


def test_the_page_of_a_run_draws_two_robots_and_a_box_from_any_side(browser: Any, tmp_path: Path) -> None:
    page = write([save(moving_arms(), tmp_path / "run")], tmp_path / "report.html")
    with tab(browser, "file:") as live:
        live.page.goto(page.as_uri())
        live.until("window.page !== undefined")
        for azimuth, elevation in ((0.0, 0.0), (2.0, 0.5), (1.5, -2.0)):
            live.page.evaluate("([a, e]) => window.page.scene.turn(a, e)", [azimuth, elevation])
            assert min(shades(live, "#scene").values()) > 5
        assert "axes of frames: x orange, y green, z blue" in live.text(".parts")
        assert live.text(".parts").startswith("box")
        before = live.page.evaluate("window.page.scene.canvas.toDataURL()")
        live.page.evaluate("window.page.player.set(1.0)")
        assert live.page.evaluate("window.page.scene.canvas.toDataURL()") != before
        live.shot("page_robots")


def about(robot: Any, machine: MachineDrawing) -> dict[str, Any]:
    """What a loop tells the live page at its start."""
    columns = ["t", "stage", "status", "task_time", *(f"q.{name}" for name in robot.coordinates)]
    return {
        "config": "two arms", "emulated": True, "lockstep": True, "period": 0.001, "stage": "full", "ramp": 0.5,
        "torque_limits": {}, "gains": {}, "max_bus_load": 0.7, "units": {}, "statuses": {0: "ok"}, "stale": 0.01,
        "engage_tolerance": 0.01, "stages": ["off"], "columns": columns, "spacing": 0.05,
        "frames": task_frames(TASK), **machine.still,
    }  # fmt: skip


def test_the_live_page_draws_robots(browser: Any) -> None:
    robot = two_arms()
    machine = MachineDrawing(robot, task_frames(TASK))
    told = about(robot, machine)
    broadcast = Broadcast(told)
    server = PageServer("token", broadcast, lambda *_: None)
    Thread(target=server.serve_forever, daemon=True).start()
    with tab(browser, server.address.removesuffix("token/")) as live:
        live.page.goto(server.address)
        live.until("about !== null")
        deadline = time.monotonic() + 60
        while not live.page.evaluate("scene !== null") and time.monotonic() < deadline:
            q = np.full(14, 0.3)
            row = dict(zip(told["columns"], [0.0, 0, 0, 0.0, *q], strict=True))
            picture = {"rows": 1, "row": row, "peak": {}, "skipped": 0, "missed": 0, "bus": {}, "age": 0.0}
            broadcast.change({**picture, "stopping": False, **machine.at(q)}, [], 0)
            live.page.wait_for_timeout(50)
        assert min(shades(live, "#machine canvas").values()) > 5
        live.shot("live_robots")
    server.shutdown()
