"""A config's drives, emulated on buses that a loop in another process can open too."""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hil.assembly.emulation import likeness, simulated
from hil.assembly.prepare import RigSetup, load
from hil.bus import Bus, close_all
from hil.bus.open import is_loopback
from hil.emulator.faults import read_faults
from hil.emulator.process import EmulatorServer, open_for_emulation
from hil.emulator.targets import targets
from hil.loop import WallClock
from hil.loop.realtime import PRIORITY, prepare
from servoctl.config.overrides import Override
from servoctl.errors import ConfigError

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Served:
    """Emulated drives, powered on, on open buses.

    Attributes:
        notes: What a person should know.
    """

    def __init__(self, prepared: RigSetup, server: EmulatorServer, buses: dict[str, Bus]) -> None:
        """Takes what is ready."""
        self._server, self._buses, self._over = server, buses, False
        self.notes = [_line(prepared, name) for name in buses]

    def run(self, say: Callable[[str], None]) -> None:
        """Serves until a signal asks for the end; with real-time priority, below that of a loop, where it is granted.

        Args:
            say: Takes what could not be had of real time.

        Raises:
            BusError: A bus is down.
        """
        try:
            with self._signals(), prepare(PRIORITY - 10) as granted:
                for grant in granted.missing:
                    say(f"note: {grant.sentence}")
                self._server.serve(lambda: self._over)
        finally:
            self.close()

    def close(self) -> None:
        """Closes the buses."""
        close_all(self._buses.values())

    @contextmanager
    def _signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, self._end) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _end(self, number: int, frame: object) -> None:
        self._over = True


def serve(
    config: str | Path,
    overrides: Sequence[Override] = (),
    engine: str = "auto",
    vcan: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> Served:
    """Powers the drives of a config on.

    Args:
        config: A path, or the bare name of a shipped config.
        overrides: `PATH=VALUE`.
        engine: Of the simulated plant: `auto`, `c`, `vm` or `numpy`.
        vcan: Whether virtual SocketCAN interfaces may be used too.
        tell: Takes a line whenever a drive begins or ceases to make torque, or brakes; it must not wait.

    Raises:
        ConfigError: The config is wrong, or a bus may be a physical one, or reaches no other process.
        BusError: A bus cannot be opened.
    """
    prepared, clock = load(config, overrides, engine), WallClock()
    settings = prepared.settings
    inside = [name for name, keys in settings.buses.items() if keys["interface"] == "virtual"]
    if inside:
        raise ConfigError(
            [
                f"hil.buses.{name}: virtual reaches no other process (take udp_multicast with hop_limit: 0)"
                for name in inside
            ]
        )
    buses = open_for_emulation(settings.buses, clock, vcan)
    try:
        nodes = targets((*settings.drives, *settings.sensors))
        faults, _ = read_faults(settings.values.faults, nodes, settings.buses)
        if any(fault.since == "engaged" for fault in faults) and not all(map(is_loopback, settings.buses.values())):
            raise ConfigError("hil.faults: on vcan no loop says when it engages (count them since: power_on)")
        server = EmulatorServer(
            simulated(prepared),
            prepared.start,
            settings.values.period,
            settings.drives,
            settings.sensors,
            buses,
            clock,
            likeness(prepared, engine),
            faults,
            tell,
        )
    except BaseException:
        close_all(buses.values())
        raise
    return Served(prepared, server, buses)


def _line(prepared: RigSetup, bus: str) -> str:
    """What is served on a bus."""
    settings = prepared.settings
    keys = settings.buses[bus]
    nodes = [
        f"{each.name} ({each.protocol} {each.node})"
        for each in (*settings.drives, *settings.sensors)
        if each.bus == bus
    ]
    return f"{bus}: {keys['interface']} {keys['channel']}: {', '.join(nodes)}"
