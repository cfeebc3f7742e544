"""A bus of two ends without SocketCAN: datagrams of the same records on a pair of Unix sockets.

Run as a module, this serves the emulated drives of a config at one end.
"""

import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import can

from hil.assembly.emulation import Environment, emulated_rig, hand_of
from hil.assembly.prepare import load
from hil.assembly.setup import RigSetup
from hil.bus import Bus, close_all
from hil.bus.python_can import PythonCanBus
from hil.emulator.process import EmulatorServer
from hil.loop import Clock, WallClock
from hil.loop.realtime import PRIORITY, StopSignals, prepare
from servoctl.errors import RigError


class _PairBus(can.BusABC):
    """One end, as python-can opens a bus; only its descriptor is used."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        super().__init__("pair")

    def fileno(self) -> int:
        return self._end.fileno()

    def send(self, msg: can.Message, timeout: float | None = None) -> None:
        raise NotImplementedError

    def shutdown(self) -> None:
        self._end.close()
        super().shutdown()


def bus_on(end: socket.socket, name: str, clock: Clock, fd: bool) -> PythonCanBus:
    """A bus on one end of a pair."""
    return PythonCanBus(name, _PairBus(end), clock, system_time=True, socketcan=True, fd=fd)


@contextmanager
def on_pair(setup: RigSetup, config: str, overrides: Sequence[str] = ()) -> Iterator[Environment]:
    """Buses on pairs of Unix sockets, with the emulated drives of a config in another process at the other ends.

    `overrides`: those with which the config was loaded.

    Raises:
        RigError: The drives do not come up.
    """
    pairs = {name: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for name in setup.settings.buses}
    there = [end.fileno() for _, end in pairs.values()]
    command = [sys.executable, "-m", "tests.hil.socket_pair", config, ",".join(map(str, there)), *overrides]
    child = subprocess.Popen(command, pass_fds=there, stdout=subprocess.PIPE, text=True)
    try:
        for _, end in pairs.values():
            end.close()
        assert child.stdout is not None
        if child.stdout.readline() != "ready\n":
            raise RigError(f"{config}: the emulated drives in their own process do not come up")
        clock = WallClock()
        keys = setup.settings.buses
        buses: dict[str, Bus] = {
            name: bus_on(end, name, clock, bool(keys[name].get("fd"))) for name, (end, _) in pairs.items()
        }
        yield Environment(buses, clock, emulated=True, lockstep=False)
    finally:
        child.terminate()
        child.wait(10)
        if child.stdout is not None:
            child.stdout.close()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(config: str, descriptors: str, *overrides: str) -> None:
    """Serves emulated drives until a signal comes; lines on the output say `ready`, and what they do."""
    setup, clock = load(config, overrides), WallClock()
    buses: dict[str, Bus] = {
        name: bus_on(socket.socket(fileno=int(end)), name, clock, bool(keys.get("fd")))
        for (name, keys), end in zip(setup.settings.buses.items(), descriptors.split(","), strict=True)
    }
    server = EmulatorServer(emulated_rig(setup, "auto"), buses, clock, _say, partial(hand_of, setup))
    try:
        with StopSignals(suspend=False) as signals, prepare(PRIORITY - 10):
            _say("ready")  # to prepare takes 0.4 s, in which frames would wait
            server.serve(lambda: bool(signals.first))
    finally:
        close_all(buses.values())


if __name__ == "__main__":
    main(*sys.argv[1:])
