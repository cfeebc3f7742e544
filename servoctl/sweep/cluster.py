"""A Dask cluster that does the runs of a batch.

Design: what travels is plain: the config's values, and the text of the class files beside it, so a worker needs nothing
but servoctl, of the same version. How runs are taken is decided here and once, so rows do not depend on the number of
workers. Dask gives the work of a worker that dies to another; each piece is fetched as soon as it is done, so that a
cluster that is lost takes along only what it had not finished. A piece whose workers died is done once more, alone and
last: what dies then dies of itself, and not of its neighbours.
"""

import hashlib
import logging
import pickle
import re
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from os.path import normpath
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Self

from servoctl.assembly.make import make_run
from servoctl.assembly.run import Run
from servoctl.assembly.siblings import siblings
from servoctl.config.document import Document
from servoctl.config.load import LoadedConfig
from servoctl.config.problems import validate
from servoctl.errors import ClusterError, ConfigError, MissingPackageError, ServoctlError, in_one_line
from servoctl.sweep.batch import CRASHED, Backend, Row, rows_of
from servoctl.version import VERSION

CONNECT = 10.0
"""Longest wait for the scheduler's answer, and for its first worker [s]."""

GONE = 15.0
"""A scheduler that does not answer, or has no worker, for this long is lost [s]."""

FETCH = 10.0
"""Longest wait for the rows of a piece that is done: its worker may have died with them [s]."""

PIECES, LARGEST = 32, 256
"""Pieces of work for each worker, and most runs in a piece."""

LEAST: dict[Backend, int] = {"side by side": 8, "c": 1, "vm": 1}
"""Fewest runs in a piece: the lanes of most processors."""

LOST = "lost"
"""Status of a run that a cluster had not finished when it was lost, before others that it had."""

Point = Mapping[str, Any]


@dataclass(frozen=True)
class Parcel:
    """A config as it travels.

    Attributes:
        key: Tells parcels apart.
        version: Of servoctl.
        path: Of the config's file.
        document: What it says.
        files: Paths of class files, as the config has them, and of what they import beside them, and their content.
        engine: What was asked for.
        way: How runs are taken.
    """

    key: str
    version: str
    path: Path
    document: Document
    files: tuple[tuple[str, bytes], ...]
    engine: str
    way: Backend


def pack(run: Run, way: Backend) -> Parcel:
    """The parcel of a run that was loaded from a config."""
    loaded = run.loaded
    assert loaded is not None
    named = [loaded.config.plant.class_, *(entry.class_ for entry in loaded.config.task)]
    places = dict.fromkeys(name.partition(":")[0] for name in named if name is not None)
    own = [place for place in places if place.endswith(".py")]
    beside = [name for place in own for name in _imported(place, loaded.folder)]
    files = [(place, (loaded.folder / place).read_bytes()) for place in dict.fromkeys([*own, *beside])]
    content = (VERSION, loaded.path.resolve(), loaded.document, tuple(files), run.engine, way)
    return Parcel(hashlib.sha256(pickle.dumps(content)).hexdigest(), *content)


def _imported(place: str, folder: Path) -> list[str]:
    """The files beside a class file that it imports, as paths from the config's folder."""
    home = (folder / place).resolve().parent
    return [str(Path(place).parent / path.relative_to(home)) for path in siblings(home)]


class Cluster:
    """A connection to a scheduler; a context that closes it."""

    def __init__(self, address: str) -> None:
        """Connects.

        Args:
            address: `tcp://host:port` of the scheduler.

        Raises:
            ConfigError: No scheduler answers, it has no worker, or a worker has no servoctl of this version.
            MissingPackageError: Dask is not installed.
        """
        try:
            from distributed import Client
        except ImportError as error:
            raise MissingPackageError("--cluster: needs Dask (pip install 'servoctl[tune]')") from error
        self.address = address
        if not re.fullmatch(r"(tcp|tls)://[^:/]+:\d+", address):
            raise ConfigError(f"--cluster {address}: expected tcp://host:port, as `dask scheduler` says it")
        logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # what fails, we say
        try:
            self._client = Client(address, timeout=CONNECT, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            raise ConfigError(
                f"--cluster {address}: no scheduler answers (start one with `dask scheduler`, which says its address, "
                "and on each machine `dask worker tcp://HOST:8786`)"
            ) from error
        try:
            self._check_workers()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leaves the cluster as it is."""
        self._client.close(timeout=1)

    def rows(self, run: Run, way: Backend, points: Sequence[Point]) -> Iterator[Row]:
        """The rows of the runs, in order, as they come.

        Args:
            run: Loaded from a config.
            way: How they are taken.
            points: Path -> value, one mapping per run.

        Raises:
            ClusterError: The cluster is lost; what it had finished has been handed out, with rows of status `lost` in
                between.
        """
        parcel = pack(run, way)
        size = min(LARGEST, len(points) // (PIECES * max(1, self._count_workers())))
        size = max(LEAST[way], size - size % LEAST[way])
        pieces = [points[begin : begin + size] for begin in range(0, len(points), size)]
        done: SimpleQueue[int] = SimpleQueue()
        futures = [self._client.submit(_work, parcel, piece, pure=False) for piece in pieces]
        found: dict[int, list[Row]] = {}
        suspects: list[int] = []
        handed = 0
        try:
            for i, future in enumerate(futures):
                future.add_done_callback(partial(_note, done, i))
            while handed < len(pieces):
                if handed in found:
                    yield from found.pop(handed)
                    handed += 1
                elif handed + len(found) + len(suspects) < len(pieces):
                    i = self._next(done)
                    rows = self._fetch(futures[i])
                    if rows is None:
                        suspects.append(i)
                    else:
                        found[i] = rows
                else:
                    i = suspects.pop(0)
                    futures[i] = self._client.submit(_work, parcel, pieces[i], pure=False)
                    futures[i].add_done_callback(partial(_note, done, i))
                    found[i] = self._fetch(futures[self._next(done)]) or _crashed(len(pieces[i]))
        except ClusterError as error:
            reason = {"status": LOST, "error": str(error)}
            for i in range(handed, max(found, default=-1) + 1):
                yield from found.get(i, [reason] * len(pieces[i]))
            raise
        finally:
            if self._client.status == "running":
                self._client.cancel([future for future in futures if not future.done()])

    def _next(self, done: "SimpleQueue[int]") -> int:
        """The next piece that is done, or has failed."""
        since = time.monotonic()
        while True:
            try:
                return done.get(timeout=0.5)
            except Empty:
                since = time.monotonic() if self._well else since
            if time.monotonic() - since > GONE or self._client.status in ("closing", "closed"):
                raise self._lost()

    def _fetch(self, future: Any) -> list[Row] | None:
        """The rows of a piece that is done; None where workers died with it, or with its rows."""
        from distributed import CancelledError, KilledWorker

        try:
            rows: list[Row] = future.result(timeout=FETCH)
            return rows
        except KilledWorker:
            return None
        except TimeoutError as error:
            if self._well:
                return None
            raise self._lost() from error
        except (CancelledError, OSError) as error:
            raise self._lost() from error
        except ServoctlError as error:
            raise ClusterError(f"--cluster {self.address}: {error}") from error
        except Exception as error:
            raise ClusterError(f"--cluster {self.address}: a worker failed: {in_one_line(error)}") from error

    @property
    def _well(self) -> bool:
        return self._client.status == "running" and self._count_workers() > 0

    def _lost(self) -> ClusterError:
        return ClusterError(
            f"--cluster {self.address}: the scheduler, or its last worker, is gone "
            "(start it again, and run what is missing)"
        )

    def _count_workers(self) -> int:
        try:
            return len(self._client.nthreads())
        except OSError:
            return 0

    def _check_workers(self) -> None:
        """Raises ConfigError unless there are workers that all have this servoctl."""
        deadline = time.monotonic() + CONNECT
        while not self._count_workers():
            if time.monotonic() > deadline:
                raise ConfigError(
                    f"--cluster {self.address}: the scheduler has no workers (start some: `dask worker {self.address}`)"
                )
            time.sleep(0.1)
        found = self._client.run(_version, on_error="return")
        for worker, version in sorted(found.items()):
            if version != VERSION:
                has = f"servoctl {version}" if isinstance(version, str) else f"no servoctl ({in_one_line(version)})"
                wanted = f"install servoctl {VERSION} there"
                raise ConfigError(f"--cluster {self.address}: worker {worker} has {has} ({wanted})")


def _crashed(count: int) -> list[Row]:
    why = f"each worker that took these {count} runs died (look at the workers' memory and their logs)"
    return [{"status": CRASHED, "error": why}] * count


def _note(done: "SimpleQueue[int]", i: int, future: Any) -> None:
    done.put(i)


# On a worker ----------------------------------------------------------------------------------------------------------

_LOCK = threading.Lock()
_MADE: "dict[str, tuple[Run, tempfile.TemporaryDirectory[str]]]" = {}
"""By key; a plant with other parameters is read from its file again."""

KEPT = 4
"""Configs that a worker keeps."""


def _version() -> str:
    return VERSION


def _work(parcel: Parcel, points: Sequence[Point]) -> list[Row]:
    """The rows of a piece; one at a time, since a trace cannot share its process."""
    from distributed import get_worker

    if parcel.version != _version():
        raise ClusterError(f"a worker has servoctl {_version()} (install {parcel.version} there)")
    with _LOCK:
        made = _MADE.pop(parcel.key, None)
        if made is None:
            folder = tempfile.TemporaryDirectory(prefix="servoctl-")
            made = unpack(parcel, Path(folder.name)), folder
        _MADE[parcel.key] = made
        for key in list(_MADE)[:-KEPT]:
            del _MADE[key]
        return list(rows_of(made[0], parcel.way, points, get_worker().state.nthreads))


def unpack(parcel: Parcel, root: Path) -> Run:
    """The run, from files under a root that is laid out as the config's own place is.

    A class file that the config names by an absolute path stays where it is: each machine needs its own.
    """
    path = root.joinpath(*parcel.path.parts[1:])
    for place, content in parcel.files:
        file = Path(normpath(path.parent / place))
        if file.is_relative_to(root):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
    path.parent.mkdir(parents=True, exist_ok=True)
    config, _ = validate(parcel.document.values)
    assert config is not None
    return make_run(LoadedConfig(path, config, parcel.document), parcel.engine)
