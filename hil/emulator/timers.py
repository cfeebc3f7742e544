"""Timers of an emulated node: watchdogs, and cyclic timers on the node's own clock."""

from hil.loop.clock import Action, Event, World, cancel


class Watchdog:
    """Acts when it is not fed for its timeout."""

    def __init__(self, world: World, expired: Action) -> None:
        self._world, self._expired = world, expired
        self.timeout = 0  # its timeout [ns]; 0: off
        self._event: Event | None = None

    def start(self, timeout: int) -> None:
        """Starts with a timeout [ns]; 0 stops it."""
        self.timeout = timeout
        self.feed()

    def feed(self) -> None:
        cancel(self._event)
        self._event = self._world.after(self.timeout, self._expired) if self.timeout else None

    def stop(self) -> None:
        self.start(0)


class Timer:
    """Acts at a period of the node's own clock, which may drift."""

    def __init__(self, world: World, action: Action) -> None:
        self._world, self._action = world, action
        self._origin = self._count = self._period = 0
        self.drift = 0.0  # drift of that clock [ppm]; positive: it is slow
        self._event: Event | None = None

    def start(self, period: int, phase: int = 0) -> None:
        """Acts `phase` [ns] from now, then once per period [ns]; a period of 0 stops it."""
        self.stop()
        self._period, self._count, self._origin = period, 0, self._world.now + phase
        if period:
            self._event = self._world.at(self._origin, self._run)

    def stop(self) -> None:
        cancel(self._event)

    def drift_by(self, ppm: float) -> None:
        """Changes the drift [ppm] from the next period on."""
        self._origin, self._count = self._moment(self._count), 0
        self.drift = ppm

    def _moment(self, count: int) -> int:
        elapsed = count * self._period
        return self._origin + elapsed + (round(elapsed * self.drift * 1e-6) if self.drift else 0)

    def _run(self) -> None:
        self._count += 1
        self._event = self._world.at(self._moment(self._count), self._run)
        self._action()
