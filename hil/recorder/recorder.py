"""The loop's side of the recorder: a tick copies numbers into shared memory, and that is all."""

import contextlib
import os
import signal
import subprocess
import sys
import time as wall
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Pipe
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hil.frame import Frame
from hil.recorder.events import as_entry, encode
from hil.recorder.memory import FRAME, Capacity, SharedRings
from hil.recorder.process import RecorderSettings, failed
from hil.recorder.ring import Ring
from servoctl.errors import RunFolderError
from servoctl.run_folder import load_run, say_end
from servoctl.run_folder.trajectory import Trajectory, plain
from servoctl.types import Array

PATIENCE = 0.001
"""Time between two looks for room, in a run that must lose nothing [s]."""

PROGRAM = "import sys; sys.path[:] = sys.argv[2:]; from hil.recorder.process import main; main(int(sys.argv[1]))"
"""Of the process: it imports what this one does, but not the user's script as multiprocessing would."""


class Recorder:
    """Everything that a run on drives leaves, written by a process of its own; use it as a context manager.

    Leaving the context by an exception closes the folder with the status `failed`, or `interrupted` for Ctrl-C. If the
    loop's process dies, the recorder closes the folder with the status `killed`.

    Design: on the wall clock nothing here waits: what finds no room is lost, counted, and said in the summary. In
    lock-step (`lossless`) time stands still while the rings are full, so that a run leaves the same files each time.

    Attributes:
        path: The run folder.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        columns: Mapping[str, str],
        metadata: Mapping[str, Any],
        config_text: str = "",
        lossless: bool = False,
        capacity: Capacity | None = None,
    ) -> None:
        """Starts the process and makes the folder; an earlier run at this place is moved aside.

        Args:
            folder: The run folder.
            columns: Column -> unit (empty where it has none), in the order of a row; `t` must be one.
            metadata: What is known of the run beforehand: see `Trajectory.metadata`.
            config_text: The config as it runs, defaults filled in.
            lossless: Whether to wait for room rather than lose anything.
            capacity: Of the rings; None: the usual.

        Raises:
            RunFolderError: The folder cannot be made, or the process not be started.
        """
        if "t" not in columns:
            raise RunFolderError(f"{folder}: a run needs the column t (name it among the columns)")
        self._capacity = capacity = capacity or Capacity()
        self._memory = SharedRings(len(columns), capacity)
        self._rows, self._frames, self._events = self._memory.rows, self._memory.frames, self._memory.events
        self._lossless, self._metadata = lossless, dict(plain(metadata))
        plan = RecorderSettings(
            self._memory.descriptor,
            capacity,
            os.path.abspath(folder),
            dict(columns),
            plain(metadata),
            config_text,
            lossless,
            os.getpid(),
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._connection, there = Pipe()
        self._closed = False
        try:
            with there, no_signals():
                self._process = subprocess.Popen(
                    [sys.executable, "-c", PROGRAM, str(there.fileno()), *sys.path],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=(there.fileno(), self._memory.descriptor),
                )
            with contextlib.suppress(OSError):  # the process has died, which the answer says
                self._connection.send(plan)
            self.path = Path(self._answer("ready"))
        except OSError as error:
            self._let_go()
            raise RunFolderError(f"{folder}: the recorder cannot be started: {error}") from error
        except BaseException:
            self._let_go()
            raise

    def row(self, values: Array) -> None:
        """Records a row.

        Args:
            values: In the order of the columns, shape (columns,).
        """
        slot = self._rows.slot()
        if slot < 0 and (slot := self._no_room(self._rows, 1)) < 0:
            return
        self._memory.table[slot] = values
        self._rows.publish()

    def frame(self, bus: int, sent: bool, frame: Frame, time: int) -> None:
        """Records a frame.

        Args:
            bus: Index of its bus, 0 to 254.
            sent: Whether the loop sent it.
            frame: The frame.
            time: When it was sent or received, on the run's clock [ns].
        """
        flags = sent | frame.extended << 1 | frame.remote << 2 | frame.error << 3
        size = frame.length if frame.remote else len(frame.data)
        values = time, frame.id, bus, flags, size, frame.data
        if not self._frames.pack(FRAME, *values) and self._no_room(self._frames, 1) >= 0:
            self._frames.pack(FRAME, *values)

    def event(self, kind: str, text: str, time: int, **fields: Any) -> None:
        """Records an event; takes some 10 us, so it is for what happens now and then.

        Args:
            kind: One word: `state`, `fault`, `operator`, ...
            text: What a person reads.
            time: On the run's clock [ns].
            fields: What else belongs to it.
        """
        data = encode(as_entry(kind, text, time, fields))
        if not self._events.put_bytes(data) and self._no_room(self._events, len(data)) >= 0:
            self._events.put_bytes(data)

    def _no_room(self, ring: Ring, count: int) -> int:
        """The next slot once there is room; -1, and the loss noted, where nobody may wait for that."""
        while self._lossless and count <= ring.capacity and self._alive:
            wall.sleep(PATIENCE)
            if (slot := ring.slot(count)) >= 0:
                return slot
        ring.lose()
        return -1

    @property
    def shared(self) -> tuple[int, Capacity]:
        """Descriptor of the memory and how it is divided, for who looks on."""
        return self._memory.descriptor, self._capacity

    @property
    def lost(self) -> dict[str, int]:
        """How many `rows`, `frames` and `events` are in no file: they found no room, or could not be written."""
        return self._lost if self._closed else self._memory.lost

    @property
    def problem(self) -> str | None:
        """Why not everything is being recorded; None while it is. Costs a few microseconds."""
        if self._closed or self._memory.problem:
            return self._complaint if self._closed else self._memory.problem
        return None if self._alive else f"the recorder died ({self._end()}): nothing is recorded any more"

    def so_far(self) -> Trajectory:
        """Every row up to now, once they are on disk: for what a run says of itself at its end.

        Raises:
            RunFolderError: The folder is closed, or the recorder has died.
        """
        self._check_open("so_far")
        with contextlib.suppress(OSError):  # the process has died, which the answer says
            self._connection.send(None)
        return load_run(self._answer("flushed"))

    def close(self, metadata: Mapping[str, Any] | None = None, drawing: dict[str, Array] | None = None) -> Trajectory:
        """Finishes the folder and gives back what is in it.

        Args:
            metadata: What the run says of itself at its end, on top of what was known at its start. `duration`,
                `steps` and `events` (the first thousand) are filled in where they are not given; `recorder` says how
                much was recorded and lost, and what went wrong.
            drawing: As in `Trajectory.drawing`.

        Raises:
            RunFolderError: The folder could not be finished; what was written stays, and the summary says `failed`.
        """
        self._check_open("close")
        end = plain(metadata or {})
        try:
            with contextlib.suppress(OSError):  # the process has died, which the answer says
                self._connection.send((end, drawing or {}))
            path = self._answer("closed")
        except RunFolderError as error:
            self._let_go()
            say_end(self.path, self._metadata | failed(end, str(error)))
            raise
        finally:
            self._let_go()
        return load_run(path)

    @property
    def closed(self) -> bool:
        """Whether the folder is finished, or was given up."""
        return self._closed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._closed:
            return
        if error is None:
            self.close()
            return
        end = {"status": "failed", "error": f"{type(error).__name__}: {error}"}
        if isinstance(error, KeyboardInterrupt | SystemExit):
            end = {"status": "interrupted"}
        try:
            self.close(end)
        except RunFolderError as second:  # must not hide the first
            error.add_note(f"the run folder could not be closed: {second}")

    def _check_open(self, verb: str) -> None:
        if self._closed:
            raise RunFolderError(f"{self.path}: {verb}: the folder is closed")

    def _answer(self, wanted: str) -> str:
        """The path that comes with an answer; others, which Ctrl-C has kept somebody from waiting for, are passed."""
        word, text = "", ""
        while word != wanted:
            try:
                word, text = self._connection.recv()
            except (EOFError, OSError):
                raise RunFolderError(f"the recorder died ({self._end()}): the run folder is not finished") from None
            if word == "failed":
                raise RunFolderError(text)
        return text

    @property
    def _alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _end(self) -> str:
        code = 0 if self._process is None else self._process.wait()
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def _let_go(self) -> None:
        """Ends the process and gives the memory back; again does nothing."""
        if self._closed:
            return
        self._connection.close()
        if self._process is not None:
            self._process.wait()
        self._lost, self._complaint, self._closed = self.lost, self._memory.problem or None, True
        self._memory.close()


@contextlib.contextmanager
def no_signals() -> Iterator[None]:
    """What is started in here never feels the keys or the end of a terminal, which go to the whole group of processes.

    The loop stops the machine first, and closes the recorder then.
    """
    ends = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
