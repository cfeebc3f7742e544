"""How the loop records: a tick copies numbers into shared memory, which another process writes; or in memory."""

import contextlib
import os
import signal
import subprocess
import sys
import time as wall
from collections.abc import Mapping
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import Any

import numpy as np

from hil.frame import Frame
from hil.loop.realtime import SIGNALS, SUSPEND
from hil.recorder.files import encode
from hil.recorder.memory import FRAME, Capacity, Ring, SharedRings, named_columns
from hil.recorder.process import RecorderSettings, failed
from servoctl.errors import RunFolderError, WriteError
from servoctl.run_folder import load_run, say_end
from servoctl.run_folder.metrics import plain
from servoctl.run_folder.trajectory import Trajectory
from servoctl.types import Array

PROGRAM = "import sys; sys.path[:] = sys.argv[2:]; from {} import main; main(int(sys.argv[1]))"
"""Program of a child. Unlike multiprocessing, it does not import the user's script."""

IGNORED = {*SIGNALS, *SUSPEND}
"""Ctrl-C, Ctrl-Z and the end of the terminal reach all processes; the loop stops the machine, then its children."""


class Child:
    """A process that runs `main(descriptor)` of a module, with its end of a pipe, and ignores the terminal's signals.

    `module`: name of the module. `descriptors`: further file descriptors that it inherits.

    Raises OSError if the system starts no process.
    """

    def __init__(self, module: str, *descriptors: int) -> None:
        self.connection, there = Pipe()  # the pipe to it
        before = signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED)  # a child inherits the mask
        try:
            with there:
                self.process = subprocess.Popen(
                    [sys.executable, "-c", PROGRAM.format(module), str(there.fileno()), *sys.path],
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=(there.fileno(), *descriptors),
                )  # fmt: skip
        except BaseException:
            self.connection.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def tell(self, message: object) -> None:
        """Sends it a message; does nothing if it has ended."""
        with contextlib.suppress(OSError):
            self.connection.send(message)

    @property
    def end(self) -> str | None:
        """How it has ended; None while it runs. Takes a few microseconds."""
        code = self.process.poll()
        return None if code is None else f"signal {-code}" if code < 0 else f"exit code {code}"

    def close(self, patience: float | None = None) -> None:
        """Closes the pipe and waits for its end, at most so long [s]: then it is killed."""
        self.connection.close()
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


PATIENCE = 0.001  # [s] time between two attempts to find room, in a run that must lose nothing


class Recorder:
    """Records a run on drives in a process of its own, until `close`.

    If the process of the loop dies, the recorder closes the folder with the status `killed`.

    Design: on the wall clock nothing here waits: what finds no room is lost, counted, and reported in the summary. In
    lock-step (`lossless`) time stands still while the rings are full, so a run leaves the same files each time.

    Raises RunFolderError if the folder cannot be made, or the process cannot be started.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],  # the run folder; an earlier run in this place is moved aside
        columns: Mapping[str, str],  # column -> unit (empty if it has none), in the order of a row; `t` must be one
        metadata: Mapping[str, Any],  # what is known about the run at its start: see `Trajectory.metadata`
        config_text: str = "",  # the config as it runs, with its defaults
        lossless: bool = False,  # whether to wait for room rather than lose anything
        capacity: Capacity | None = None,  # sizes of the rings; None: the defaults
    ) -> None:
        if "t" not in columns:
            raise RunFolderError(f"{folder}: a run needs the column t (name it among the columns)")
        self._capacity = capacity = capacity or Capacity()
        self._memory = SharedRings(len(columns), capacity)
        self._rows, self._frames, self._events = self._memory.rows, self._memory.frames, self._memory.events
        self._lossless, self._metadata = lossless, dict(plain(metadata))
        settings = RecorderSettings(
            self._memory.descriptor, capacity, os.path.abspath(folder), dict(columns), plain(metadata), config_text,
            lossless, os.getpid(),
        )  # fmt: skip
        self.closed = False  # whether the folder is finished, or was given up
        try:
            self._child = Child("hil.recorder.process", self._memory.descriptor)
        except OSError as error:
            self._memory.close()
            why = error.strerror or error
            raise WriteError(f"{folder}: the recorder cannot be started: {why} (free disk space or memory)") from error
        self._child.tell(settings)
        try:
            self.path = Path(self._answer("ready"))  # the run folder
        except BaseException:
            self._release()
            raise

    def row(self, values: Array) -> None:
        """Records a row; `values`: in the order of the columns, shape (columns,)."""
        self._put(self._rows, values.tobytes())

    def frame(
        self,
        bus: int,  # index of its bus, 0 to 254
        sent: bool,  # whether the loop sent it
        frame: Frame,
        time: int,  # time at which it was sent or received, on the run's clock [ns]
    ) -> None:
        size = frame.length if frame.remote else len(frame.data)
        self._put(self._frames, FRAME.pack(time, frame.id, bus, sent | frame.flags, size, frame.data))

    def event(self, entry: dict[str, Any]) -> None:
        """Records an event, an entry that `as_entry` has made. This takes about 10 us: events are rare."""
        self._put(self._events, encode(entry))

    def _put(self, ring: Ring, data: bytes | memoryview) -> None:
        """Puts records where there is room; what may not wait for room is lost, and counted."""
        while not ring.put(data):
            count = len(data) // ring.size
            if not (self._lossless and count <= ring.capacity and self._child.end is None):
                ring.lose(1 if ring is self._events else count)
                return
            wall.sleep(PATIENCE)

    @property
    def rings(self) -> tuple[Ring, Ring]:
        """Rings of the rows and of the frames, for the tick in C."""
        return self._rows, self._frames

    @property
    def shared(self) -> tuple[int, Capacity]:
        """File descriptor of the memory and the sizes of its rings, for a process that reads along."""
        return self._memory.descriptor, self._capacity

    @property
    def problem(self) -> str | None:
        """Why the recorder no longer records everything, up to `close`; None while it does. It takes microseconds."""
        if problem := self._memory.problem:
            return problem
        end = self._child.end
        return end and f"the recorder died ({end}): nothing is recorded any more"

    def close(self, metadata: Mapping[str, Any] | None = None) -> Trajectory:
        """Finishes the folder and returns its content.

        `metadata`: metadata of the run at its end, added to that of its start. `duration`, `steps` and `events` (the
        first thousand) are filled in if they are missing; `recorder` has the numbers of what was recorded and lost, and
        the problem, if any.

        Raises RunFolderError if the folder could not be finished; what was written stays, and the status is `failed`.
        """
        if self.closed:
            raise RunFolderError(f"{self.path}: close: the folder is closed")
        end = plain(metadata or {})
        try:
            self._child.tell(end)
            path = self._answer("closed")
        except RunFolderError as error:
            self._release()
            say_end(self.path, self._metadata | failed(end, str(error)))
            raise
        finally:
            self._release()
        return load_run(path)

    def _answer(self, wanted: str) -> str:
        """The path in the wanted answer; skips earlier answers that were not read because Ctrl-C came."""
        word, content = "", ""
        while word != wanted:
            try:
                word, content = self._child.connection.recv()
            except (EOFError, OSError):
                self._child.process.wait()
                raise WriteError(f"the recorder died ({self._child.end}): the run folder is not finished") from None
            if isinstance(content, RunFolderError):
                raise content
        return content

    def _release(self) -> None:
        """Ends the process and frees the memory; further calls do nothing."""
        if not self.closed:
            self._child.close()
            self.closed = True
            self._memory.close()


class InMemory:
    """Rows and frames of a run, whose result has its events; arguments as of `Recorder`."""

    path: Path | None = None  # there is no folder
    problem: str | None = None
    rings: tuple[Ring, ...] = ()
    closed = False

    def __init__(self, columns: Mapping[str, str], metadata: Mapping[str, Any]) -> None:
        # (index of the bus, whether it was sent, frame, time [ns]), in order
        self.frames: list[tuple[int, bool, Frame, int]] = []
        self._columns, self._metadata = dict(columns), dict(metadata)
        self._rows: list[Array] = []

    def row(self, values: Array) -> None:
        """Records a row, shape (columns,)."""
        self._rows.append(values.copy())

    def frame(self, bus: int, sent: bool, frame: Frame, time: int) -> None:
        self.frames.append((bus, sent, frame, time))

    def event(self, entry: dict[str, Any]) -> None: ...

    def close(self, metadata: Mapping[str, Any] | None = None) -> Trajectory:
        """The recorded run; `metadata` is added to that of its start."""
        self.closed = True
        table = np.array(self._rows).reshape(len(self._rows), len(self._columns))
        columns = named_columns(table, self._columns)
        return Trajectory(columns, self._columns, {**self._metadata, **(metadata or {})})
