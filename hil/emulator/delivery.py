"""Which stations receive a frame that was sent on an emulated wire, and when.

Design: losses and delays in an adapter or driver are a `Disturbance` of deliveries and take no bit time. If a station
raises an exception, the other stations still receive the frame; the exception then reaches the caller of
`World.advance`.
"""

from collections.abc import Callable, Sequence
from functools import partial

from hil.emulator.disturbances import Disturbance
from hil.emulator.station import Station
from hil.frame import Frame
from hil.loop.virtual_time import World

Tap = Callable[[Frame, Station], None]  # called with each frame sent without error, and its sender
MOST_ROUTES = 4096  # routes that are kept: ids may hold data, so there may be any number of them


class Delivery:
    """Delivers frames to stations.

    Args:
        world: Its time.
        stations: All stations; may change.
        disturbances: Disturbances that act now; may change.
    """

    def __init__(self, world: World, stations: Sequence[Station], disturbances: Sequence[Disturbance]) -> None:
        self._world, self._stations, self._disturbances = world, stations, disturbances
        self.taps: list[Tap] = []  # functions that see every frame
        self._routes: dict[int, list[Station]] = {}

    def rerouted(self) -> None:
        """Called when a station joins, or receives other ids."""
        self._routes.clear()

    def deliver(self, frame: Frame, sender: Station, all_online: bool) -> None:
        """Delivers a frame now.

        Args:
            frame: The frame.
            sender: Its sender, which does not receive it.
            all_online: Whether all stations are known to be online.
        """
        timed = frame.at(self._world.now)
        failure: Exception | None = None
        for tap in self.taps:
            try:
                tap(timed, sender)
            except Exception as error:
                failure = failure or error
        number = frame.id | frame.extended << 29
        disturbances = self._disturbances
        for station in self._routes.get(number) or self._route(number):
            if station is not sender and (all_online or station.online):
                try:
                    if disturbances:
                        self._disturbed(timed, sender, station)
                    else:
                        station.receive(timed)
                except Exception as error:  # of one node; the others still receive the frame
                    failure = failure or error
        if failure is not None:
            raise failure

    def _route(self, number: int) -> list[Station]:
        """The stations that receive frames with this key."""
        route = [s for s in self._stations if s.ids is None or number in s.ids]
        if len(self._routes) > MOST_ROUTES:
            self._routes.clear()
        self._routes[number] = route
        return route

    def _disturbed(self, frame: Frame, sender: Station, receiver: Station) -> None:
        arrivals = [(0, frame)]
        for each in self._disturbances:
            arrivals = [(d + e, f) for d, g in arrivals for e, f in each.deliveries(g, sender, receiver)]
        for delay, arriving in arrivals:
            if delay:
                late = arriving.at(self._world.now + delay)
                self._world.after(delay, partial(receiver.receive, late))
            else:
                receiver.receive(arriving)
