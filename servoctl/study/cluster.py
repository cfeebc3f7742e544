"""A Dask cluster makes the runs of a batch.

Design: a worker receives the config's values and the text of its class files, so it needs only servoctl of the same
version. The backend is chosen here, once, so rows do not depend on the number of workers. Pieces are fetched in order,
so a lost cluster costs what comes after the first unfinished one. Dask gives the work of a worker that dies to another
worker, a few times; then the piece is tried once more, alone, and if it fails again, its runs count as crashed.
"""

import hashlib
import logging
import pickle
import re
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os.path import normpath
from pathlib import Path
from typing import Any, Self

from servoctl.assembly.classes import files_of
from servoctl.assembly.make import make_run
from servoctl.assembly.run import Run
from servoctl.config.document import Document
from servoctl.config.load import LoadedConfig, validate
from servoctl.config.schema import Config
from servoctl.errors import ClusterError, ConfigError, MissingPackageError, ServoctlError, in_one_line
from servoctl.study.batch import CRASHED, Backend, rows_of
from servoctl.study.metrics import Row
from servoctl.study.points import Point
from servoctl.version import VERSION

CONNECT = 10.0  # [s] longest wait for the scheduler to answer, and for its first worker
GONE = 15.0  # [s] the cluster is lost if the scheduler does not answer, or has no worker, for this long
PIECES, LARGEST = 32, 256  # pieces of work per worker, and the largest number of runs in a piece

LEAST: dict[Backend, int] = {"side by side": 8, "c": 1, "vm": 1}
"""Smallest number of runs in a piece; 8: the SIMD lanes of most processors."""


@dataclass(frozen=True)
class Parcel:
    """A config as it is sent to a worker."""

    key: str  # hash of the content
    version: str  # version of servoctl
    path: Path  # path of the config file
    document: Document  # its content
    files: tuple[tuple[str, bytes], ...]  # name and content of each of `files_of`
    engine: str  # engine that the user asked for
    backend: Backend  # how runs are made


def pack(run: Run, backend: Backend) -> Parcel:
    """The parcel of a run that was loaded from a config."""
    loaded = run.loaded
    assert loaded is not None
    files = [(name, path.read_bytes()) for name, path in files_of(loaded).items()]
    content = (VERSION, loaded.path.resolve(), loaded.document, tuple(files), run.engine, backend)
    return Parcel(hashlib.sha256(pickle.dumps(content)).hexdigest(), *content)


class Cluster:
    """A connection to a Dask scheduler; a context manager that closes it.

    Args:
        address: `tcp://host:port` of the scheduler.

    Raises:
        ConfigError: No scheduler answers, it has no worker, or a worker lacks servoctl of this version.
        MissingPackageError: Dask is not installed.
    """

    def __init__(self, address: str) -> None:
        try:
            from distributed import Client
        except ImportError as error:
            raise MissingPackageError("--cluster: needs Dask (pip install 'servoctl[tune]')") from error
        self.address = address
        if not re.fullmatch(r"(tcp|tls)://[^:/]+:\d+", address):
            raise ConfigError(f"--cluster {address}: expected tcp://host:port, as `dask scheduler` prints it")
        logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # our own errors report failures
        try:
            self._client = Client(address, timeout=CONNECT, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            raise ConfigError(
                f"--cluster {address}: no scheduler answers (start one with `dask scheduler`, which prints its "
                "address, and on each machine `dask worker tcp://HOST:8786`)"
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
        """Closes the connection; the cluster goes on."""
        self._client.close(timeout=1)

    def rows(self, run: Run, backend: Backend, points: Sequence[Point]) -> Iterator[Row]:
        """Yields the row of each run, in order.

        Args:
            backend: How the runs are made.

        Raises:
            ClusterError: The cluster is lost; the rows of all runs before the first unfinished one have been yielded.
        """
        parcel = pack(run, backend)
        size = min(LARGEST, len(points) // (PIECES * max(1, self._count_workers())))
        size = max(LEAST[backend], size - size % LEAST[backend])
        pieces = [points[begin : begin + size] for begin in range(0, len(points), size)]
        futures = [self._client.submit(_work, parcel, piece, pure=False) for piece in pieces]
        try:
            for future, piece in zip(futures, pieces, strict=True):
                rows = self._fetch(future)
                if rows is None:  # its own runs are the cause, or others that its workers had too: once more, alone
                    for other in futures:
                        self._fetch(other)
                    rows = self._fetch(self._client.submit(_work, parcel, piece, pure=False))
                yield from rows or _crashed(len(piece))
        finally:
            if self._client.status == "running":
                self._client.cancel([future for future in futures if not future.done()])

    def _fetch(self, future: Any) -> list[Row] | None:
        """The rows of a piece when it is done; None if workers died on it."""
        from distributed import CancelledError, KilledWorker

        alive = time.monotonic()
        while True:
            try:
                rows: list[Row] = future.result(timeout=0.5)
                return rows
            except KilledWorker:
                return None
            except TimeoutError as error:
                alive = time.monotonic() if self._alive else alive
                if time.monotonic() - alive > GONE:
                    raise self._lost() from error
            except (CancelledError, OSError) as error:
                raise self._lost() from error
            except ServoctlError as error:
                raise ClusterError(f"--cluster {self.address}: {error}") from error
            except Exception as error:
                raise ClusterError(f"--cluster {self.address}: a worker failed: {in_one_line(error)}") from error

    @property
    def _alive(self) -> bool:
        return self._client.status == "running" and self._count_workers() > 0

    def _lost(self) -> ClusterError:
        return ClusterError(
            f"--cluster {self.address}: the scheduler, or its last worker, is gone "
            "(start it again, and run the missing runs)"
        )

    def _count_workers(self) -> int:
        try:
            return len(self._client.nthreads())
        except OSError:
            return 0

    def _check_workers(self) -> None:
        """Raises ConfigError unless there is a worker and all workers have this version of servoctl."""
        deadline = time.monotonic() + CONNECT
        while not self._count_workers():
            if time.monotonic() > deadline:
                raise ConfigError(
                    f"--cluster {self.address}: the scheduler has no workers (start some: `dask worker {self.address}`)"
                )
            time.sleep(0.1)
        versions = self._client.run(_version, on_error="return")
        for worker, version in sorted(versions.items()):
            if version != VERSION:
                has = f"servoctl {version}" if isinstance(version, str) else f"no servoctl ({in_one_line(version)})"
                wanted = f"install servoctl {VERSION} there"
                raise ConfigError(f"--cluster {self.address}: worker {worker} has {has} ({wanted})")


def _crashed(count: int) -> list[Row]:
    why = f"each worker that made these {count} runs died (check the workers' memory and logs)"
    return [{"status": CRASHED, "error": why}] * count


# On a worker ----------------------------------------------------------------------------------------------------------

_LOCK = threading.Lock()
_MADE: "dict[str, tuple[Run, tempfile.TemporaryDirectory[str]]]" = {}
"""Key of a parcel -> its run, and the folder of its class files, which later imports may still read."""

KEPT = 4  # number of configs that a worker keeps


def _version() -> str:
    return VERSION


def _work(parcel: Parcel, points: Sequence[Point]) -> list[Row]:
    """The rows of a piece. One piece at a time: tracing patches NumPy for the whole process."""
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
        return list(rows_of(made[0], parcel.backend, points, get_worker().state.nthreads))


def unpack(parcel: Parcel, root: Path) -> Run:
    """The run, from files written under a root folder with the same layout as on the sending machine.

    A file with an absolute path in the config is not sent: each machine needs its own copy.
    """
    path = root.joinpath(*parcel.path.parts[1:])
    for name, content in parcel.files:
        file = Path(normpath(path.parent / name))
        if file.is_relative_to(root):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
    path.parent.mkdir(parents=True, exist_ok=True)
    config, _ = validate(Config, parcel.document.values)
    assert config is not None
    return make_run(LoadedConfig(path, config, parcel.document), parcel.engine)
