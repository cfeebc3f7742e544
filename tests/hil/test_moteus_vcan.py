"""The maker's own package drives emulated moteus drives on a real SocketCAN interface with CAN FD."""

import asyncio
import math
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from interfaces import keys_of

pytest.importorskip("moteus", reason="the package moteus drives the emulated ones")
import moteus

pytestmark = pytest.mark.vcan

TORQUE = {"position": math.nan, "kp_scale": 0.0, "kd_scale": 0.0, "ilimit_scale": 0.0}
R = moteus.Register


@contextmanager
def emulated() -> Iterator[Any]:
    """`servoctl emulate --vcan` in its own process, and the package's way to vcan0."""
    buses = "hil.buses.main={interface: socketcan, channel: vcan0, bitrate: 1000000, fd: true, data_bitrate: 5000000}"
    command = [sys.executable, "-m", "servoctl", "emulate", "coordinated_robots_moteus", "--vcan", "--engine", "vm"]
    with keys_of("socketcan"):
        process = subprocess.Popen(
            [*command, "--set", buses], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert process.stdout is not None
        said = list(iter(process.stdout.readline, "running until Ctrl-C\n"))
        assert any("u6 (moteus 6)" in line for line in said), said
        transport = moteus.PythonCan(interface="socketcan", channel="vcan0", fd=True)
        try:
            yield transport
        finally:
            transport.close()
            process.terminate()
            process.wait(30)
            process.stdout.close()


async def within(seconds: float, awaitable: Any) -> Any:
    return await asyncio.wait_for(awaitable, seconds)


async def conversation(transport: Any) -> None:
    drive = moteus.Controller(1, transport=transport)
    found = await within(5.0, drive.query())
    assert found.values[R.MODE] == moteus.Mode.STOPPED and found.values[R.FAULT] == 0

    stream = moteus.Stream(drive, use_flow_control=False)
    answer = await within(5.0, stream.command(b"conf get servo.timeout_mode", allow_any_response=True))
    assert int(answer) == moteus.Mode.BRAKE

    began = asyncio.get_running_loop().time()
    while asyncio.get_running_loop().time() - began < 0.3:
        await within(5.0, drive.set_position(**TORQUE, feedforward_torque=0.4, watchdog_timeout=0.5, query=True))
    found = await within(5.0, drive.query())
    assert found.values[R.MODE] == moteus.Mode.POSITION
    assert found.values[R.TORQUE] == pytest.approx(0.4, abs=0.02)
    await within(5.0, drive.set_brake(query=True))
    assert (await within(5.0, drive.query())).values[R.MODE] == moteus.Mode.BRAKE

    await within(5.0, drive.set_stop(query=True))
    await within(5.0, drive.set_position(**TORQUE, feedforward_torque=0.0, watchdog_timeout=0.05, query=True))
    assert (await within(5.0, drive.query())).values[R.MODE] == moteus.Mode.POSITION
    await asyncio.sleep(0.2)
    assert (await within(5.0, drive.query())).values[R.MODE] == moteus.Mode.TIMEOUT
    await within(5.0, drive.set_position(**TORQUE, feedforward_torque=0.1, watchdog_timeout=0.05, query=True))
    assert (await within(5.0, drive.query())).values[R.MODE] == moteus.Mode.TIMEOUT, "only a stop leaves it"
    await within(5.0, drive.set_stop(query=True))
    assert (await within(5.0, drive.query())).values[R.MODE] == moteus.Mode.STOPPED


def test_the_package_drives_an_emulated_drive_by_torque_stop_brake_and_watchdog() -> None:
    with emulated() as transport:
        asyncio.run(within(120.0, conversation(transport)))
