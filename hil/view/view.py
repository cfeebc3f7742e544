"""The loop's side of the live page: starts its process, and looks once per tick at what the operator wants."""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Pipe
from types import TracebackType
from typing import Any, Self

from hil.loop import SECOND
from hil.recorder import Recorder
from hil.recorder.recorder import no_signals
from hil.view.plan import LINGER, SIGNAL, Drawn, PageSettings
from hil.view.requests import Requests
from servoctl.assembly.classes import file_of
from servoctl.errors import RigError
from servoctl.mechanics.plant import Plant

START = 20.0
"""Time that the process has to begin [s]."""

AHEAD = 0.01
"""How much a run in lock-step may be ahead of the wall clock while somebody may look on [s]."""

PROGRAM = "import sys; sys.path[:] = sys.argv[2:]; from hil.view.process import main; main(int(sys.argv[1]))"


class LivePage:
    """A page that shows a run; use it as a context manager.

    From its start to its end the signal `SIGNAL` does nothing to this process unless somebody handles it.

    Attributes:
        address: Of the page, with its token.
    """

    def __init__(
        self,
        recorder: Recorder,
        columns: Sequence[str],
        bitrates: Mapping[str, float],
        gains: Mapping[str, tuple[float, float]],
        about: Mapping[str, Any],
        plant: Plant,
    ) -> None:
        """Starts the process; takes about a second, so it comes before the first frame.

        Args:
            recorder: What the run leaves, which the page looks on at.
            columns: Of a row, in order.
            bitrates: Name of a bus -> its bit rate [bit/s], in the order of the buses.
            gains: Path of a gain that may change -> its bounds.
            about: What else the page begins with; plain values.
            plant: To be drawn.

        Raises:
            RigError: The process cannot be started; nothing was sent.
        """
        self._before = signal.signal(SIGNAL, signal.SIG_IGN)
        self._wishes = Requests(len(gains))
        memory, capacity = recorder.shared
        plan = PageSettings(
            memory, capacity, self._wishes.descriptor, list(columns), dict(bitrates), dict(gains), dict(about),
            _drawn(plant), os.getpid(),
        )  # fmt: skip
        self._connection, there = Pipe()
        self._began: float | None = None
        self._process: subprocess.Popen[bytes] | None = None
        try:
            with there, no_signals():
                self._process = subprocess.Popen(
                    [sys.executable, "-c", PROGRAM, str(there.fileno()), *sys.path],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=(there.fileno(), memory, self._wishes.descriptor),
                )
            self._connection.send(plan)
            word, text = self._connection.recv() if self._connection.poll(START) else ("failed", "it does not answer")
        except (OSError, EOFError) as error:
            word, text = "failed", str(error) or "it died"
        if word != "ready":
            self._let_go()
            raise RigError(f"--view: the page cannot be served: {text} (leave --view out)")
        self.address: str = text

    @property
    def stop_pressed(self) -> bool:
        """Whether the stop was ever pressed."""
        return self._wishes.stopped

    @property
    def gone(self) -> str | None:
        """How the process ended before its time; None while it runs. Costs a few microseconds."""
        code = None if self._process is None else self._process.poll()
        return None if code is None else f"signal {-code}" if code < 0 else f"exit code {code}"

    def look(self) -> Sequence[tuple[int, float]]:
        """Gains, by their number, and the values that are wanted of them since the last look."""
        return self._wishes.look()

    def pace(self, now: int) -> None:
        """Waits until the wall clock has come as far as a virtual one, so that a person can follow.

        Args:
            now: On the virtual clock [ns].
        """
        if self._began is None:
            self._began = time.monotonic() - now / SECOND
        ahead = now / SECOND - (time.monotonic() - self._began)
        if ahead > AHEAD:
            time.sleep(ahead)

    def close(self, ending: Mapping[str, Any]) -> None:
        """Shows how the run ended, and ends the process."""
        with contextlib.suppress(OSError):  # it is gone
            self._connection.send(dict(ending))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._let_go()

    def _let_go(self) -> None:
        self._connection.close()
        if self._process is not None:
            try:
                self._process.wait(2 * LINGER)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._wishes.close()
        signal.signal(SIGNAL, self._before)


def _drawn(plant: Plant) -> Drawn | None:
    """A plant for another process; None where it cannot go there, or draws nothing."""
    kind = type(plant)
    if kind.links is Plant.links:
        return None
    try:
        pickled = pickle.dumps(plant)
    except (pickle.PicklingError, AttributeError, TypeError):
        return None
    path = file_of(kind)
    return Drawn(pickled, kind.__module__, "" if path is None else f"{path}:{kind.__name__}")
