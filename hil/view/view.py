"""The loop's side of the live page: starts its process, and reads the operator's requests once per tick."""

import contextlib
import os
import pickle
import signal
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

from hil.loop import SECOND
from hil.recorder import Recorder
from hil.recorder.recorder import Child
from hil.view import LINGER, SIGNAL, STOP, PageSettings, PickledPlant
from servoctl.assembly.classes import file_of
from servoctl.errors import RigError
from servoctl.mechanics.plant import Plant

START = 20.0  # [s] time limit for the process to start
AHEAD = 0.01  # [s] with a page, a run in virtual time stays at most this far ahead of the wall clock


class Requests:
    """What viewers have asked for. Reading never waits; when the page's process has ended, nothing comes any more."""

    def __init__(self, page: Connection) -> None:
        self._page, self._stopped, self._gains = page, False, dict[int, float]()

    def _read(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while self._page.poll():
                number, value = self._page.recv()
                self._stopped |= number == STOP
                if number != STOP:
                    self._gains[number] = value

    @property
    def stopped(self) -> bool:
        """Whether the stop was ever requested."""
        self._read()
        return self._stopped

    def gains(self) -> Sequence[tuple[int, float]]:
        """Numbers of gains and the last values requested for them since the last call."""
        self._read()
        requests, self._gains = tuple(self._gains.items()), {}
        return requests


class LivePage:
    """A page that shows a run; use it as a context manager.

    Until its end this process ignores the signal `SIGNAL` unless a handler is set.

    Raises RigError if the process cannot be started; nothing was sent to the drives.
    """

    def __init__(
        self,
        recorder: Recorder,  # its memory is shown
        columns: Sequence[str],  # columns of a row, in order
        gains: Mapping[str, tuple[float, float]],  # path of a gain that may change -> its bounds
        about: Mapping[str, Any],  # further constant values for the page
        plant: Plant,
    ) -> None:
        memory, capacity = recorder.shared
        settings = PageSettings(
            memory, capacity, list(columns), dict(gains), dict(about), _pickled(plant), os.getpid(),
        )  # fmt: skip
        self._began: float | None = None
        with contextlib.ExitStack() as undo:
            undo.callback(signal.signal, SIGNAL, signal.signal(SIGNAL, signal.SIG_IGN))
            try:
                self._child = Child("hil.view.process", memory)
                undo.callback(self._child.close, 2 * LINGER)
                page = self._child.connection
                page.send(settings)
                word, text = page.recv() if page.poll(START) else ("failed", "it does not answer")
            except (OSError, EOFError) as error:
                word, text = "failed", str(error) or "it died"
            if word != "ready":
                raise RigError(f"--view: the page cannot be served: {text} (leave --view out)")
            self._undo = undo.pop_all()
        self.requests = Requests(page)  # what viewers have asked for
        self.address: str = text  # address of the page with its token

    @property
    def gone(self) -> str | None:
        """How the process ended too early; None while it runs. Takes a few microseconds."""
        return self._child.end

    def pace(self, now: int) -> None:
        """Waits until the wall clock has reached the virtual time, so that viewers see the run at its real speed.

        `now`: virtual time [ns].
        """
        if self._began is None:
            self._began = time.monotonic() - now / SECOND
        ahead = now / SECOND - (time.monotonic() - self._began)
        if ahead > AHEAD:
            time.sleep(ahead)

    def close(self, ending: Mapping[str, Any]) -> None:
        """Shows how the run ended, and ends the process."""
        self._child.tell(dict(ending))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo.close()


def _pickled(plant: Plant) -> PickledPlant | None:
    """A plant for the page's process; None if it cannot be pickled or has no drawing."""
    kind = type(plant)
    if kind.links is Plant.links:
        return None
    try:
        pickled = pickle.dumps(plant)
    except (pickle.PicklingError, AttributeError, TypeError):
        return None
    path = file_of(kind)
    return PickledPlant(pickled, kind.__module__, "" if path is None else f"{path}:{kind.__name__}")
