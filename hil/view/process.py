"""The live page's process: shows the recorded data and passes the operator's requests to the loop."""

import os
import pickle
import secrets
import select
import sys
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from hil.recorder.memory import SharedRings
from hil.view import LINGER, SIGNAL, STOP, PageSettings, PickledPlant
from hil.view.scene import MachineDrawing, Scene
from hil.view.server import Broadcast, PageServer
from servoctl.mechanics.plant import Plant
from servoctl.report.drawing import PlacedShape

SPACING = 0.05  # [s] time between two pictures
GAIN_INTERVAL = 0.1  # shortest time between two requests for a gain [s]: each one takes the loop about 100 us
NICENESS = 10  # niceness of this process: the loop goes first


def main(descriptor: int) -> None:
    """Serves the page until the loop reports its end or has died.

    `descriptor`: file descriptor of the connection to the loop, which sends the settings first.
    """
    connection = Connection(descriptor)
    try:
        settings: PageSettings = connection.recv()
    except EOFError:  # the loop has died
        return
    os.nice(NICENESS)
    memory = SharedRings(len(settings.columns), settings.capacity, settings.memory, writable=False)
    machine = _machine(settings.plant, settings.about.get("frames", ()), settings.about.get("shapes", ()))
    scene = Scene(memory, settings.columns, machine)
    operator = Operator(settings, connection)
    about = {**settings.about, "columns": settings.columns, "gains": settings.gains}
    broadcast = Broadcast(about if machine is None else about | machine.still)
    try:
        server = PageServer(secrets.token_urlsafe(16), broadcast, operator.act)
    except OSError as error:
        connection.send(("failed", str(error)))
        return
    Thread(target=server.serve_forever, name="server", daemon=True).start()
    connection.send(("ready", server.address))
    ending = _follow(connection, scene, broadcast, operator)
    operator.over = True
    # twice: a look returns the records that were complete at the look before
    scene.look()
    scene.look()
    picture = scene.picture() | {"age": 0.0, "stopping": operator.stopped, "ending": ending}
    broadcast.change(picture, scene.events, scene.dropped, over=True)
    broadcast.wait_for_viewers(LINGER)


def _follow(connection: Connection, scene: Scene, broadcast: Broadcast, operator: "Operator") -> Mapping[str, Any]:
    """Shows the run until its end; returns how it ended."""
    fresh = time.monotonic()
    while True:
        try:
            if connection.poll(SPACING):
                ending: Mapping[str, Any] = connection.recv()
                return ending
        except (EOFError, OSError):
            return {"status": "gone"}
        if not operator.has_parent:
            return {"status": "gone"}
        if scene.look():
            fresh = time.monotonic()
        if broadcast.wanted:
            picture = scene.picture() | {"age": time.monotonic() - fresh, "stopping": operator.stopped}
            broadcast.change(picture, scene.events, scene.dropped)


def _machine(plant: PickledPlant | None, frames: Sequence[str], shapes: Sequence[PlacedShape]) -> MachineDrawing | None:
    """Draws the plant; None if there is no plant or it cannot be loaded."""
    if plant is None:
        return None
    try:
        if plant.path:  # pickle knows only the module's name, which exists only in the loop's process
            from servoctl.assembly.classes import load_class  # half a second, for a plant in a file alone

            kind = load_class(plant.path, Path(), Plant)
            sys.modules[plant.module] = sys.modules[kind.__module__]
        return MachineDrawing(pickle.loads(plant.pickled), frames, shapes)
    except Exception:  # a user's code may raise anything; the page goes on without the drawing
        return None


class Operator:
    """The requests that viewers can send."""

    def __init__(self, settings: PageSettings, loop: Connection) -> None:
        self._loop = loop  # takes the number of a gain, or `STOP`, and a value
        self._gains, self._parent = settings.gains, settings.parent
        self._lock = Lock()  # between viewers; the loop never takes it
        self._last_gain = 0.0
        self.stopped = False  # whether the stop was pressed
        self.over = False  # whether the run has ended

    @property
    def has_parent(self) -> bool:
        """Whether the loop's process still exists."""
        return os.getppid() == self._parent

    def act(self, action: str, values: Mapping[str, Any]) -> str | None:
        """Performs a viewer's action; returns why it is not possible, or None."""
        with self._lock:
            if self.over or not self.has_parent:
                return "the run has ended"
            if action == "gain":
                return self._request_gain(values)
            self.stopped = True
            self._loop.send((STOP, 0.0))
            os.kill(self._parent, SIGNAL)  # the loop handles or ignores it as long as this process lives: `LivePage`
            return None

    def _request_gain(self, values: Mapping[str, Any]) -> str | None:
        path, value = values.get("path"), values.get("value")
        if not isinstance(path, str) or path not in self._gains:
            return f"there is no gain {path!r} (hil.live has {', '.join(self._gains) or 'none'})"
        if isinstance(value, bool) or not isinstance(value, int | float):
            return f"{path}: expected a number, got {value!r}"
        lower, upper = self._gains[path]
        if not lower <= value <= upper:
            return f"{path}: expected a number in [{lower:g}, {upper:g}], got {value:g}"
        if time.monotonic() < self._last_gain + GAIN_INTERVAL:
            return f"{path}: too many requests (wait {GAIN_INTERVAL:g} s between them)"
        if not select.select([], [self._loop], [], 0.0)[1]:  # while the loop does not read; a stop always finds room
            return f"{path}: the loop takes no requests yet (wait until it runs)"
        self._last_gain = time.monotonic()
        self._loop.send((list(self._gains).index(path), float(value)))
        return None
