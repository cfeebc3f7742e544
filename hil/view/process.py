"""The page's process: looks at what the recorder is given, shows it, and hands on what the operator wants."""

import os
import pickle
import secrets
import sys
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from hil.recorder.memory import SharedRings
from hil.view.plan import LINGER, SIGNAL, Drawn, PageSettings
from hil.view.requests import Requests
from hil.view.scene import Links, Scene
from hil.view.server import Broadcast, PageServer
from servoctl.assembly.classes import load_class
from servoctl.mechanics.plant import Plant

SPACING = 0.05
"""Time between two pictures [s]."""

APART = 0.1
"""Time between two wishes for a gain, at least [s]: each takes the loop some 100 us."""

KINDNESS = 10
"""By how much the loop goes first where the system hands out time."""


def main(descriptor: int) -> None:
    """Serves until the loop says that it is over, or is no more.

    Args:
        descriptor: Of the connection to the loop, which sends the plan first.
    """
    connection = Connection(descriptor)
    try:
        plan: PageSettings = connection.recv()
    except EOFError:  # the loop is no more
        return
    os.nice(KINDNESS)
    memory = SharedRings(len(plan.columns), plan.capacity, plan.memory, writable=False)
    scene = Scene(memory, plan.columns, plan.bitrates, _links(plan.plant))
    operator = Operator(plan)
    about = {**plan.about, "columns": plan.columns, "gains": plan.gains, "spacing": SPACING}
    show = Broadcast(about)
    try:
        server = PageServer(secrets.token_urlsafe(16), show, operator.act)
    except OSError as error:
        connection.send(("failed", str(error)))
        return
    Thread(target=server.serve_forever, name="server", daemon=True).start()
    connection.send(("ready", server.address))
    ending = _follow(connection, scene, show, operator)
    operator.over = True
    scene.look()
    scene.look()
    picture = scene.picture() | {"age": 0.0, "stopping": operator.stopped, "ending": ending}
    show.change(picture, scene.events, scene.dropped, over=True)
    show.wait_for_viewers(LINGER)


def _follow(connection: Connection, scene: Scene, show: Broadcast, operator: "Operator") -> Mapping[str, Any]:
    """Shows the run as it goes; how it ended."""
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
        if show.wanted:
            picture = scene.picture() | {"age": time.monotonic() - fresh, "stopping": operator.stopped}
            show.change(picture, scene.events, scene.dropped)


def _links(plant: Drawn | None) -> Links | None:
    """What draws the plant; None where nothing does."""
    if plant is None:
        return None
    try:
        if plant.path:  # its name is known to the process that loaded it alone
            kind = load_class(plant.path, Path(), Plant)
            sys.modules[plant.module] = sys.modules[kind.__module__]
        links: Links = pickle.loads(plant.pickled).links
    except Exception:  # a user's code may raise anything; a picture is not worth the page
        return None
    return links


class Operator:
    """What viewers may do to the run.

    Attributes:
        stopped: Whether the stop was pressed.
        over: Whether the run has ended.
    """

    def __init__(self, plan: PageSettings) -> None:
        self._wishes, self._gains, self._parent = Requests(len(plan.gains), plan.wishes), plan.gains, plan.parent
        self._one = Lock()  # of viewers among each other; the loop takes none
        self._asked = 0.0
        self.stopped = self.over = False

    @property
    def has_parent(self) -> bool:
        """Whether the loop's process is still there."""
        return os.getppid() == self._parent

    def act(self, action: str, values: Mapping[str, Any]) -> str | None:
        """Does what a viewer wants; why not, where it cannot."""
        with self._one:
            if self.over or not self.has_parent:
                return "the run has ended"
            if action == "gain":
                return self._ask(values)
            self.stopped = True
            self._wishes.stop()
            os.kill(self._parent, SIGNAL)  # which it bears as long as this process lives: see `View`
            return None

    def _ask(self, values: Mapping[str, Any]) -> str | None:
        path, value = values.get("path"), values.get("value")
        if not isinstance(path, str) or path not in self._gains:
            return f"there is no gain {path!r} (hil.live has {', '.join(self._gains) or 'none'})"
        if isinstance(value, bool) or not isinstance(value, int | float):
            return f"{path}: expected a number, got {value!r}"
        lower, upper = self._gains[path]
        if not lower <= value <= upper:
            return f"{path}: expected a number in [{lower:g}, {upper:g}], got {value:g}"
        if time.monotonic() < self._asked + APART:
            return f"{path}: wishes come too fast (leave {APART:g} s between them)"
        self._asked = time.monotonic()
        self._wishes.ask(list(self._gains).index(path), float(value))
        return None
