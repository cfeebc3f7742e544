"""Serves a config's emulated drives on buses that a loop in another process can open."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from hil.assembly.emulation import emulated_rig, hand_of
from hil.assembly.prepare import load
from hil.assembly.setup import RigSetup
from hil.bus import Bus, close_all
from hil.bus.open import is_loopback
from hil.emulator.process import EmulatorServer, open_for_emulation
from hil.loop import WallClock
from hil.loop.realtime import PRIORITY, StopSignals, prepare
from servoctl.config.overrides import Override
from servoctl.errors import ConfigError


class Served:
    """Emulated drives, powered on, on open buses."""

    def __init__(self, setup: RigSetup, server: EmulatorServer, buses: dict[str, Bus]) -> None:
        self._server, self._buses = server, buses
        self.notes = [_line(setup, name) for name in buses]  # one line per bus with the drives on it

    def run(self, say: Callable[[str], None]) -> None:
        """Serves until a signal ends it, with real-time priority where granted (below the priority of a loop).

        `say`: called with each real-time right that is not granted.

        Raises BusError if a bus is down.
        """
        try:
            with StopSignals(suspend=False) as signals, prepare(PRIORITY - 10) as granted:
                for grant in granted.missing:
                    say(f"note: {grant.sentence}")
                self._server.serve(lambda: bool(signals.first))
        finally:
            self.close()

    def close(self) -> None:
        close_all(self._buses.values())


def serve(
    config: str | Path,  # a path, or the bare name of a shipped config
    overrides: Sequence[Override] = (),  # `PATH=VALUE`
    engine: str = "auto",  # engine of the simulated plant: `auto`, `c`, `vm` or `numpy`
    vcan: bool = False,  # whether virtual SocketCAN interfaces may be used too
    # called with a line when a drive starts or stops making torque, or brakes; it must not block
    tell: Callable[[str], None] = lambda line: None,
) -> Served:
    """Powers the emulated drives of a config on.

    Raises ConfigError if the config is wrong, or a bus may be a physical one, or reaches no other process. BusError if
    a bus cannot be opened.
    """
    setup, clock = load(config, overrides, engine), WallClock()
    settings = setup.settings
    inside = [name for name, keys in settings.buses.items() if keys["interface"] == "virtual"]
    if inside:
        raise ConfigError(
            [
                f"hil.buses.{name}: virtual reaches no other process (use udp_multicast with hop_limit: 0)"
                for name in inside
            ]
        )
    buses = open_for_emulation(settings.buses, clock, vcan)
    try:
        rig = emulated_rig(setup, engine)
        if any(fault.since == "engaged" for fault in rig.faults) and not all(map(is_loopback, settings.buses.values())):
            raise ConfigError(
                "hil.faults: on vcan the emulator does not learn when the loop engages (set since: power_on)"
            )
        server = EmulatorServer(rig, buses, clock, tell, partial(hand_of, setup))
    except BaseException:
        close_all(buses.values())
        raise
    return Served(setup, server, buses)


def _line(setup: RigSetup, bus: str) -> str:
    settings = setup.settings
    keys = settings.buses[bus]
    nodes = [
        f"{each.name} ({each.protocol} {each.node})"
        for each in (*settings.drives, *settings.sensors)
        if each.bus == bus
    ]
    return f"{bus}: {keys['interface']} {keys['channel']}: {', '.join(nodes)}"
