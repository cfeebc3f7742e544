"""What the live page costs a loop on the wall clock: nothing that can be seen, also where a viewer reads nothing.

Design: with and without take turns, so that what else the machine does hits both alike; the median
over the turns counts. What it costs in CPU time is measured apart, for that no other process reaches.
"""

import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from servoctl.bench.fresh import ProcessError, printed
from servoctl.bench.report import BenchReport, Effort, Finding, Progress, Table
from servoctl.bench.timing import shown
from servoctl.trajectory import plain

CONFIG = "two_mass_spring_drive"
PERIOD = 0.0025
"""Of the loop [s]: 400 Hz."""

LENIENT = "{stale: 0.2, lost: 0.25, drive_watchdog: 0.3, late_ticks: 1000, late_share: 0.99, engage_tolerance: 1}"
"""A busy machine must not end what shall be measured."""

CODE = """
import json
from hil.view.cost import costs
print(json.dumps(costs({config!r})))
"""

ALLOWED = 1.1
"""How much later than without the page a tick may be."""

PATIENCE = 60.0
"""For a process to say that it is ready [s]."""


def view(effort: Effort, progress: Progress) -> BenchReport:
    """The live page with a viewer that reads nothing: lateness at 400 Hz with it and without, CPU time in the tick.

    Args:
        effort: Quick takes two turns of 3 s; else seven of 10 s.
        progress: Is told the share of runs that are done.
    """
    turns, duration = (2, 3.0) if effort.quick else (7, 10.0)
    runs: dict[str, list[dict[str, Any]]] = {"without": [], "with": []}
    with tempfile.TemporaryDirectory(prefix="servoctl-") as folder:
        for turn in range(turns):
            order = ("without", "with") if turn % 2 else ("with", "without")
            for i, name in enumerate(order):
                runs[name].append(_run(Path(folder), duration, name == "with"))
                progress((2 * turn + i + 1) / (2 * turns))
    own = json.loads(printed(CODE.format(config=CONFIG)))
    rows = [
        [
            label,
            *(shown(_median(runs[name], key)) for key in ("p50", "p99", "p99_9")),
            f"{sum(run['skipped_periods'] for run in runs[name])}",
            shown(statistics.median(run["cpu_per_tick_s"] for run in runs[name])),
        ]
        for name, label in (("without", "without the page"), ("with", "with it, and two viewers that read nothing"))
    ]
    header = ("lateness", "p50", "p99", "p99.9", "periods skipped", "CPU per tick")
    title = f"{CONFIG} at {1 / PERIOD:.0f} Hz on the wall clock, medians of {turns} runs of {duration:g} s each"
    tables = [
        Table(title, header, rows),
        Table("CPU time in the loop's process", ("", "time"), [[name, shown(spent)] for name, spent in own.items()]),
    ]
    before, after = _median(runs["without"], "p99"), _median(runs["with"], "p99")
    bare = [run["bare"]["lateness_s"]["p99"] for both in runs.values() for run in both]
    notes = [
        f"p99 with the page is {after / before:.3g} times that without; single runs without it: "
        f"{shown(min(_each(runs['without'], 'p99')))} to {shown(max(_each(runs['without'], 'p99')))}",
        f"a loop that does nothing, just before each run: p99 {shown(min(bare))} to {shown(max(bare))}; "
        f"load of the machine at the end {os.getloadavg()[0]:.1f}",
    ]
    values = {"runs": runs, "own": own, "ratio": after / before, "period": PERIOD}
    findings = [Finding("lateness p99 with the live page", "without it", after, before, 1.0 / ALLOWED)]
    return BenchReport("The live page of a loop on the wall clock", tables, dict(plain(values)), notes, findings)


def _each(runs: list[dict[str, Any]], key: str) -> list[float]:
    return [run["lateness_s"][key] for run in runs]


def _median(runs: list[dict[str, Any]], key: str) -> float:
    return statistics.median(_each(runs, key))


@contextmanager
def _emulator(folder: Path) -> Iterator[list[str]]:
    """Emulated drives in a process of their own; the words that lead a loop to them."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    bus = f"{{interface: udp_multicast, channel: 239.74.163.2, port: {port}, hop_limit: 0, bitrate: 1000000}}"
    fields = {"hil.period": PERIOD, "hil.buses.main": bus, "hil.safety": LENIENT}
    words = [CONFIG, *(word for field, value in fields.items() for word in ("--set", f"{field}={value}"))]
    with _process(folder, "emulate", *words) as process:
        _wait_for(process, folder / "emulate.said", "until Ctrl-C")
        yield words
        process.terminate()


def _run(folder: Path, duration: float, watched: bool) -> dict[str, Any]:
    """`timing` of a run's summary; each has fresh drives, in the start pose."""
    more = ["--duration", f"{duration:g}", "--json", "--out", str(folder / "run"), *(["--view"] if watched else [])]
    with _emulator(folder) as words, _process(folder, "hil", *words, *more) as process:
        viewers = []
        if watched:
            said = _wait_for(process, folder / "hil.said", "live page")
            address = re.search(r"http://(127\.0\.0\.1):(\d+)/([\w-]+)/", said)
            assert address is not None
            viewers = [_viewer(address[1], int(address[2]), address[3]) for _ in range(2)]
        code = process.wait(PATIENCE + duration)
        for viewer in viewers:
            viewer.close()
    summary = json.loads((folder / "run" / "summary.json").read_text())
    if code != 0 or summary["status"] != "done":
        raise ProcessError(f"servoctl hil: ends with exit code {code}: {summary.get('error', summary['status'])}")
    timing: dict[str, Any] = summary["timing"]
    return timing


def _viewer(host: str, port: int, token: str) -> socket.socket:
    """A viewer that asks for the pictures and never reads one."""
    viewer = socket.create_connection((host, port))
    viewer.sendall(f"GET /{token}/stream HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
    return viewer


@contextmanager
def _process(folder: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    search = os.pathsep.join(str(Path(part).resolve()) for part in sys.path if part)
    with open(folder / f"{words[0]}.said", "wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "servoctl", *words],
            cwd=folder, stdout=said, stderr=said, env={**os.environ, "PYTHONPATH": search},
        )  # fmt: skip
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
            process.wait(PATIENCE)


def _wait_for(process: subprocess.Popen[bytes], file: Path, words: str) -> str:
    end = time.monotonic() + PATIENCE
    while words not in (said := file.read_text()):
        if process.poll() is not None or time.monotonic() > end:
            last = (said.strip().splitlines() or ["it says nothing"])[-1]
            raise ProcessError(f"servoctl {file.stem}: never said {words!r}: {last}")
        time.sleep(0.05)
    return said
