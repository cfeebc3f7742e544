"""Films of a run, and its pictures in print size."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from servoctl.errors import MissingPackageError, RunFolderError
from servoctl.report import PRINTED, report
from servoctl.report.film import RATE, film
from servoctl.run_folder.trajectory import Trajectory


def swinging(seconds: float) -> Trajectory:
    """A rod that turns once."""
    t = np.linspace(0.0, seconds, 101)
    angle = 2 * np.pi * t / seconds
    tip = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    rod = np.stack([np.zeros_like(tip), tip], axis=1)
    return Trajectory({"t": t, "q.angle": angle, "v.angle": 0 * t}, {}, {"config": "rod"}, {"rod": rod, "t": t})


def test_a_gif_lasts_as_long_as_the_run_and_moves(tmp_path: Path) -> None:
    with Image.open(film(swinging(1.0), tmp_path / "film.gif")) as image:
        assert image.n_frames == RATE  # type: ignore[attr-defined]
        first = np.asarray(image.convert("RGB"))
        image.seek(RATE // 2)
        assert np.any(np.asarray(image.convert("RGB")) != first)
        assert image.info["duration"] == 1000 // RATE


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="ffmpeg is not installed")
def test_an_mp4_is_written_completely(tmp_path: Path) -> None:
    path = film(swinging(0.2), tmp_path / "film.mp4")
    assert path.read_bytes()[4:8] == b"ftyp"
    assert [file.name for file in tmp_path.iterdir()] == ["film.mp4"]


def test_without_ffmpeg_an_mp4_is_an_error_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingPackageError, match=r"ffmpeg is not installed \(.* or use --gif\)"):
        film(swinging(1.0), tmp_path / "film.mp4")


def test_a_run_without_drawing_has_no_film(tmp_path: Path) -> None:
    run = swinging(1.0)
    with pytest.raises(RunFolderError, match="the run has no drawing to animate"):
        film(Trajectory(run.columns), tmp_path / "film.gif")


def test_a_pdf_has_vectors_and_the_width_of_a_printed_page(tmp_path: Path) -> None:
    (overview, *_) = report(swinging(1.0), tmp_path, "pdf")
    content = overview.read_bytes()
    width = float(re.search(rb"/MediaBox \[ 0 0 ([\d.]+)", content)[1])  # type: ignore[index]
    assert overview.name == "overview.pdf" and width == pytest.approx(72 * PRINTED, abs=0.1)
    assert b"/Subtype /Image" not in content
