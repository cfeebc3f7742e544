"""Makes pictures and outputs of a page by running its blocks; keeps them in `build/pages` until page or sources change.

`python .docs/made.py gallery/robots` runs a single page.
"""

import hashlib
import re
import shutil
import sys
import tempfile
import time
from functools import cache
from importlib.metadata import requires, version
from pathlib import Path

import blocks

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / ".docs" / "pages"
KEPT = ROOT / "build" / "pages"
FILLED = "page.md"
"""File in the folder of its pictures: the page with what its commands print."""


def pages() -> list[Path]:
    """The pages written by hand."""
    return sorted(PAGES.rglob("*.md"))


def name_of(page: Path) -> str:
    """Path of a page within the pages, without suffix: `gallery/robots`."""
    return page.relative_to(PAGES).with_suffix("").as_posix()


def pictures(page: Path) -> list[str]:
    """Files of the pictures that a page makes and shows, from `![...](robots/chain/overview.png)`."""
    return re.findall(rf"!\[[^\]]*\]\({re.escape(page.stem)}/(\S+?)\)", page.read_text())


def stills(page: Path) -> list[str]:
    """Files of the pictures of a page of the gallery for its grid: the path of each run, or else its overview."""
    if not name_of(page).startswith("gallery/"):
        return []
    return [picture.replace("overview", "still") for picture in pictures(page)]


def has_gaps(page: Path) -> bool:
    """Whether the page shows an output with `...` for numbers of the build."""
    shown = [block for block in blocks.blocks(page.read_text()) if block.language == "console" and not block.reason]
    lines = [line.strip() for block in shown for _, _, printed in block.commands for line in printed.splitlines()]
    return any("..." in line and line != "..." for line in lines)


def folder_of(page: Path) -> Path:
    """Where the pictures of a page are kept, and its text with what its commands print, once its blocks have run."""
    key = hashlib.sha256((page.read_text() + _sources()).encode()).hexdigest()[:16]
    return KEPT / f"{name_of(page).replace('/', '-')}-{key}"


def made(page: Path) -> Path:
    """Folder with the pictures of a page, after its blocks have run with the present sources.

    Raises:
        BlockError: A block does not do what the page says, or no block makes a picture.
    """
    name, kept = name_of(page), folder_of(page)
    if not kept.is_dir():
        KEPT.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="servoctl-page-") as folder:
            text = page.read_text()
            told = blocks.run(f"{name}.md", blocks.blocks(text), Path(folder))
            part = Path(tempfile.mkdtemp(prefix=".part-", dir=KEPT))
            for said, full in told.items():
                text = text.replace(f"```console\n{said}```", f"```console\n{full}```")
            (part / FILLED).write_text(text)
            for picture in pictures(page):
                (part / picture).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(_picture(name, Path(folder) / picture), part / picture)
            for still in stills(page):
                shutil.copy(_still(Path(folder) / still), part / still)
        _keep(part, kept)
    return kept


def _keep(part: Path, kept: Path) -> None:
    """Moves new pictures to their folder and removes older ones; a build and a test may do this at the same time."""
    try:
        part.rename(kept)
    except OSError:  # another process was faster; its pictures are the same
        shutil.rmtree(part)
    for other in KEPT.glob(f"{kept.name[:-16]}{'?' * 16}"):
        if other != kept:
            shutil.rmtree(other, ignore_errors=True)


def _picture(page: str, path: Path) -> Path:
    """A picture that a command of the page wrote."""
    if not path.exists():
        raise blocks.BlockError(f"{page}.md: {path.parent.name}/{path.name}: no command of the page makes this picture")
    return path


def _still(path: Path) -> Path:
    """The path that the run in this folder draws, or else its overview."""
    from servoctl.report import report
    from servoctl.run_folder import load_run

    return next(iter(report(load_run(path.parent), path.parent, names=["path"])), path.with_stem("overview"))


@cache
def _sources() -> str:
    """Hash of everything except the page that decides what its blocks do."""
    files = [
        *(path for room in ("servoctl", "plants", "hil") for path in (ROOT / room).rglob("*")),
        *(ROOT / "configs").glob("*"),
        ROOT / "tests" / "comparison.py",
        Path(__file__),
        Path(blocks.__file__),
    ]
    known = sorted(f"{name} {version(name)}" for name in _dependencies())
    content = [path.read_bytes() for path in sorted(files) if path.is_file() and path.suffix != ".pyc"]
    return hashlib.sha256(b"\0".join([*content, *map(str.encode, known)])).hexdigest()


def _dependencies() -> list[str]:
    """Packages that servoctl needs by default; extras may differ between a test and a build and change no picture."""
    return [re.split(r"[^\w.-]", each)[0] for each in requires("servoctl") or [] if "extra ==" not in each]


if __name__ == "__main__":
    started = time.monotonic()
    try:
        print(made(PAGES / f"{sys.argv[1]}.md"))  # a build reads the folder from here
        print(f"in {time.monotonic() - started:.0f} s", file=sys.stderr)
    except blocks.BlockError as error:
        sys.exit(str(error))
