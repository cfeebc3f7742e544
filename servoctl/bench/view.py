"""How much the live page delays a loop on the wall clock, also when viewers read nothing.

Design: in one run the page's process is frozen every other second, so other load on the machine, which varies from run
to run by more than the page costs, affects both halves alike. The confidence interval of the ratio comes from
resampling the seconds. CPU time in the tick is measured separately, because other processes do not affect it.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from hil.assembly.prepare import load
from hil.view.requests import Requests
from servoctl.bench.fresh import ProcessError
from servoctl.bench.report import BenchReport, Comparison, Effort, Progress, TextTable
from servoctl.bench.timing import shown
from servoctl.run_folder import load_run
from servoctl.types import Array

CONFIG = "two_mass_spring_drive"
PERIOD = 0.0025
"""Period of the loop [s]."""

LENIENT = "{stale: 0.2, lost: 0.25, drive_watchdog: 0.3, late_ticks: 1000, late_share: 0.99, engage_tolerance: 1}"
"""Safety limits so wide that a busy machine does not end the measurement."""

ALLOWED = 1.1
"""Target: the p99 with the page over the p99 without it."""

PATIENCE = 60.0
"""Longest wait until a process is ready [s]."""

WINDOW, EDGE = 1.0, 0.2
"""Time that the page's process is frozen or runs, and the part at both ends that is left out [s]."""

DRAWS = 1000
CALLS = 20_000


def view(effort: Effort, progress: Progress) -> BenchReport:
    """The live page with viewers that read nothing: lateness at 400 Hz with it and without, CPU time in the tick.

    Args:
        effort: Quick takes 12 s; else 80.
        progress: Called with the share of the time that has passed.
    """
    with tempfile.TemporaryDirectory(prefix="servoctl-") as folder:
        frozen, with_page = _halves(Path(folder), 12 if effort.quick else 80, progress)
    own = loop_costs(CONFIG)
    names = "without the page", "with the page and two viewers that read nothing"
    percents = (50.0, 99.0, 99.9)
    figures = [np.percentile(np.concatenate(half), percents).tolist() for half in (frozen, with_page)]
    rows = [[name, *map(shown, values)] for name, values in zip(names, figures, strict=True)]
    title = f"{CONFIG} at {1 / PERIOD:.0f} Hz on the wall clock, {len(frozen)} seconds of each in turn"
    tables = [
        TextTable(title, ("lateness", "p50", "p99", "p99.9"), rows),
        TextTable(
            "CPU time in the loop's process", ("", "time"), [[name, shown(spent)] for name, spent in own.items()]
        ),
    ]
    before, after = figures[0][1], figures[1][1]
    low, high = _interval(frozen, with_page)
    notes = [
        f"p99 with the page is {after / before:.3g} times the p99 without it; 95 % interval: {low:.3g} to {high:.3g}",
        f"load of the machine at the end {os.getloadavg()[0]:.1f}",
    ]
    values = {"percents": percents, "without": figures[0], "with": figures[1], "interval": [low, high], "own": own}
    findings = [Comparison("lateness p99 with the live page", "without it", after, before, 1.0 / ALLOWED)]
    return BenchReport("The live page of a loop on the wall clock", tables, values, notes, findings)


def _interval(one: list[Array], other: list[Array]) -> tuple[float, float]:
    """95 % confidence interval of the ratio of the p99 values, other to one, from resampled seconds."""
    random = np.random.default_rng(0)

    def drawn(half: list[Array]) -> float:
        return float(np.percentile(np.concatenate([half[i] for i in random.integers(0, len(half), len(half))]), 99.0))

    low, high = np.percentile([drawn(other) / drawn(one) for _ in range(DRAWS)], (2.5, 97.5)).tolist()
    return low, high


@contextmanager
def _emulator(folder: Path) -> Iterator[list[str]]:
    """Emulated drives in a process of their own; yields the arguments with which a loop uses them."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    bus = f"{{interface: udp_multicast, channel: 239.74.163.2, port: {port}, hop_limit: 0, bitrate: 1000000}}"
    fields = {"hil.period": PERIOD, "hil.buses.main": bus, "hil.safety": LENIENT}
    words = [CONFIG, *(word for field, value in fields.items() for word in ("--set", f"{field}={value}"))]
    with _process(folder, "emulate", *words) as process:
        _wait_for(process, folder / "emulate.log", "until Ctrl-C")
        yield words
        process.terminate()


def _halves(folder: Path, windows: int, progress: Progress) -> tuple[list[Array], list[Array]]:
    """Lateness of the ticks [s] for each second with the page's process frozen, and for each second with it running."""
    more = ["--duration", f"{windows * WINDOW + 2:g}", "--json", "--out", str(folder / "run"), "--view"]
    with _emulator(folder) as words, _process(folder, "hil", *words, *more) as process:
        address = re.search(
            r"http://(127[.]0[.]0[.]1):(\d+)/([\w-]+)/", _wait_for(process, folder / "hil.log", "live page")
        )
        assert address is not None
        viewers = [_viewer(address[1], int(address[2]), address[3]) for _ in range(2)]
        try:
            origin, page = _in_task(viewers[0]), _page(process.pid)
            begun = []
            for k in range(windows):
                os.kill(page, signal.SIGSTOP if k % 2 == 0 else signal.SIGCONT)
                begun.append(time.monotonic() - origin)
                time.sleep(WINDOW)
                progress((k + 1) / windows)
            os.kill(page, signal.SIGCONT)
            code = process.wait(PATIENCE)
        finally:
            for viewer in viewers:
                viewer.close()
    if code != 0:
        raise ProcessError(f"servoctl hil: ends with exit code {code}: {(folder / 'hil.log').read_text()[-200:]}")
    run = load_run(folder / "run")
    parts = [run["lateness"][(run.t > t + EDGE) & (run.t < t + WINDOW - EDGE)] for t in begun]
    return parts[::2], parts[1::2]


def _in_task(viewer: socket.socket) -> float:
    """Reads until the task has begun; returns the origin of the run's clock on our clock [s], to 0.1 s."""
    with viewer.makefile("rb") as lines:
        for line in lines:
            if line.startswith(b"data: {"):
                row = json.loads(line[6:])["row"]
                if row is not None and row["task_time"] > 0:
                    return float(time.monotonic() - row["t"])
    raise ProcessError("servoctl hil: the run ended before its task began")


def _page(loop: int) -> int:
    """Id of the page's process."""
    for child in Path(f"/proc/{loop}/task/{loop}/children").read_text().split():
        if "hil.view" in Path(f"/proc/{child}/cmdline").read_text():
            return int(child)
    raise ProcessError("servoctl hil: the process of the page does not exist")


def _viewer(host: str, port: int, token: str) -> socket.socket:
    """A viewer that requests the stream and never reads it."""
    viewer = socket.create_connection((host, port))
    viewer.sendall(f"GET /{token}/stream HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
    return viewer


@contextmanager
def _process(folder: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    search = os.pathsep.join(str(Path(part).resolve()) for part in sys.path if part)
    with open(folder / f"{words[0]}.log", "wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "servoctl", *words],
            cwd=folder, stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": search},
        )  # fmt: skip
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
            process.wait(PATIENCE)


def _wait_for(process: subprocess.Popen[bytes], file: Path, words: str) -> str:
    end = time.monotonic() + PATIENCE
    while words not in (output := file.read_text()):
        if process.poll() is not None or time.monotonic() > end:
            last = (output.strip().splitlines() or ["no message"])[-1]
            raise ProcessError(f"servoctl {file.stem}: did not print {words!r}: {last}")
        time.sleep(0.05)
    return output


def loop_costs(config: str) -> dict[str, float]:
    """CPU time of each part [s], the least of five series.

    Args:
        config: A config with a `hil` section and one baumgarte correction for all tasks.
    """
    live = "hil.live={law.correction.baumgarte.alpha: [0.1, 50], law.correction.baumgarte.beta: [0.1, 50]}"
    prepared = load(config, [live])
    gains, take_law, requests = prepared.live_gains, prepared.loop.take_law, Requests(2)
    first = gains.values[0]
    found = {
        "a tick: what the operator wants, and nothing on its way": _least(requests.look)
        + _least(lambda: gains.advance(take_law)),
        "a wish for a gain, behind the torque": _least(lambda: gains.request(0, first + 0.1), 500),
    }
    gains.ramp = 10**9
    gains.request(0, first + 0.1)
    found["a tick while a gain is on its way"] = _least(lambda: gains.advance(take_law), 1000)
    requests.close()
    return found


def _least(call: Callable[[], object], calls: int = CALLS) -> float:
    series = []
    for _ in range(5):
        began = time.thread_time()
        for _ in range(calls):
            call()
        series.append((time.thread_time() - began) / calls)
    return min(series)
