"""Records the run that is played before a real bus opens: `python -m tests.hil.golden`, when what is sent changes."""

import shutil
import tempfile
from pathlib import Path

from hil.session.golden import CONFIG, DURATION, RECORDED, SHORT
from hil.session.start import Request, start


def record(folder: Path) -> None:
    """Runs the config on emulated drives, and keeps the frames."""
    start(Request(CONFIG, SHORT, duration=DURATION)).run(folder, lambda event: None)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        record(Path(scratch) / "run")
        RECORDED.mkdir(exist_ok=True)
        shutil.copy(Path(scratch) / "run" / "can.blf", RECORDED)
